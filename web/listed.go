package web

import (
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
)

// Of an agent's words a list shows as much as it takes to tell one request from
// another; all of them are on the request's own page.
const (
	listedName    = 120
	listedPurpose = 240
)

// listed is a request in a list.
type listed struct {
	Anchor        string // names it in the page
	ID            approval.ID
	Action, Count string
	Stage         presentation.Stage
	Needs         string // what approving still takes; empty if nothing can be decided
	Until         int64  // when deciding ends, in milliseconds since 1970; 0 if it can't be decided
	Left          string // until then
	Purpose       string // the agent's words; empty if it said nothing itself
	Tier          int
	Environment   string
	Target        string
	Agent         string
	For           approval.Approver // whom the agent acts for
	Asked         time.Time
}

func listedOf(anchor string, r *approval.Request, now time.Time) listed {
	action, count := presentation.Phrase(r)
	l := listed{
		Anchor:      anchor,
		ID:          r.ID,
		Action:      shortened(action, listedName),
		Count:       count,
		Stage:       presentation.StageOf(r),
		Tier:        int(r.Ruling.Tier),
		Environment: presentation.Environment(r),
		Target:      shortened(visible.Line(r.Target), listedName),
		Agent:       visible.Line(r.Agent),
		For:         r.ActsFor,
		Asked:       r.CreatedAt,
	}
	if r.Executor == approval.ByAgent {
		l.Purpose = shortened(visible.Line(r.Purpose), listedPurpose)
	}
	if r.Status == approval.Pending {
		l.Needs = presentation.Needs(r)
		l.Until = r.ExpiresAt.UnixMilli()
		l.Left = presentation.Span(max(r.ExpiresAt.Sub(now), 0))
	}
	return l
}

// shortened is a text of which hidden characters are visible, with a mark if
// something of it is left out.
func shortened(text string, characters int) string {
	short, cut := visible.Cut(text, characters)
	if cut {
		return short + "…"
	}
	return text
}
