package approval

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// How much is read at once of what people look through.
const (
	// PageSize is how many requests a page has at most.
	PageSize = 50
	// LookedThrough is how many requests one page of a history is found among at
	// most, so that a search for what there is none of ends soon.
	LookedThrough = 5000
	// maxTimeline bounds the events of one request that are read.
	maxTimeline = 1000
	// maxFilter bounds each text of a Filter, in characters.
	maxFilter = MaxPurpose
)

// Queue is a part of the requests that wait for one person, those that expire
// first before the others.
type Queue struct {
	Requests []*Request
	// Next is where the rest begins; zero if this is all.
	Next QueueKey
}

// QueueKey is a place in the order in which pending requests expire.
type QueueKey struct {
	ExpiresAt time.Time
	ID        ID
}

// IsZero reports whether the key is the place before all requests.
func (k QueueKey) IsZero() bool { return k == QueueKey{} }

// Filter says which requests a history has. Its zero value is all of them; each
// field that is set leaves fewer.
type Filter struct {
	Status      Status
	Tier        policy.Tier
	Agent       string
	Action      string
	Environment string
	Rule        string    // the id of a rule that fired
	DecidedBy   string    // the user id of somebody who decided on it
	Since       time.Time // when it was asked, or later
	Until       time.Time // when it was asked, and before that
	// Text is somewhere in the id, the purpose, the action, the target or the
	// agent, in whichever case. Payloads aren't searched: an answer would say
	// what the policy hides.
	Text string
}

func (f Filter) check() error {
	for _, text := range []struct{ field, value string }{
		{"agent", f.Agent},
		{"action", f.Action},
		{"environment", f.Environment},
		{"rule", f.Rule},
		{"decided_by", f.DecidedBy},
		{"text", f.Text},
	} {
		if err := checkText(text.field, text.value, maxFilter); err != nil {
			return err
		}
	}
	switch f.Status {
	case "", Pending, Approved, Rejected, Expired, Applied:
	default:
		return invalid("status", "is %q; pending, approved, rejected, expired and applied are accepted", f.Status)
	}
	return nil
}

// History is a part of the requests that match a filter, the newest first.
type History struct {
	Requests []*Request
	// Next is where the older ones begin, for the call that goes on with them;
	// empty if there are none. There may be some although Requests has few or
	// none: only so many are looked through at once.
	Next ID
}

// Own is what a person decided, and the request as it is now.
type Own struct {
	Request  *Request
	Decision Decision
}

// Decided names one decision of a person.
type Decided struct {
	Request ID
	Receipt string
}

// Looking is the side of a store that people look through. It changes nothing.
type Looking interface {
	// Pending returns up to limit pending requests after a place, in the order in
	// which they expire, without those of which only the agent's client was told.
	Pending(ctx context.Context, after QueueKey, limit int) ([]ID, error)
	// History returns up to limit requests that match a filter, of the newest
	// lookedThrough ones that were made before another one (of all if that is
	// empty), and the last one that was looked at if there may be older ones.
	History(ctx context.Context, filter Filter, before ID, limit, lookedThrough int) ([]ID, ID, error)
	// DecidedBy returns the last decisions of a person, the newest first.
	DecidedBy(ctx context.Context, who Approver, limit int) ([]Decided, error)
	// Asked returns what was asked of people from one time until before another,
	// in the order in which it was asked: what neither policy, a grant nor the agent's
	// client decided, and what was shown to more than that client.
	Asked(ctx context.Context, since, until time.Time) ([]Asked, error)
	// EventsOf returns the first limit events of a request, in order.
	EventsOf(ctx context.Context, id ID, limit int) ([]audit.Event, error)
	// PayloadOf returns the payload that a version of a request has. ErrNotFound if
	// there is no such version.
	PayloadOf(ctx context.Context, id ID, version int) (Payload, error)
}

// looks refuses whoever holds no role, since nothing is shown to them.
func (s *Service) looks(ctx context.Context, who Approver) (Standing, error) {
	if who.IsZero() {
		return Standing{}, ErrIneligible
	}
	standing, err := s.RecentStanding(ctx, who)
	if err != nil {
		return Standing{}, err
	}
	if len(standing.Roles) == 0 {
		return Standing{}, ErrNotApprover
	}
	return standing, nil
}

// Waiting returns up to PageSize of the requests that wait for a person, after a
// place in the queue: those that their approval would bring nearer to being
// approved. ErrNotApprover if they hold no role; else the error wraps
// ErrIneligible or ErrUnverified.
func (s *Service) Waiting(ctx context.Context, who Approver, after QueueKey) (Queue, error) {
	standing, err := s.looks(ctx, who)
	if err != nil {
		return Queue{}, err
	}
	var queue Queue
	for {
		ids, err := s.store.Pending(ctx, after, PageSize)
		if err != nil {
			return Queue{}, err
		}
		for _, id := range ids {
			r, err := s.read(ctx, id)
			if err != nil {
				return Queue{}, fmt.Errorf("loading what waits: %w", err)
			}
			after = QueueKey{ExpiresAt: r.ExpiresAt, ID: id}
			if !r.waitsFor(who, standing) {
				continue
			}
			if len(queue.Requests) == PageSize {
				last := queue.Requests[PageSize-1]
				queue.Next = QueueKey{ExpiresAt: last.ExpiresAt, ID: last.ID}
				return queue, nil
			}
			queue.Requests = append(queue.Requests, r)
		}
		if len(ids) < PageSize {
			return queue, nil
		}
	}
}

// waitsFor reports whether the person's approval would fill a place that is
// still open.
func (r *Request) waitsFor(who Approver, standing Standing) bool {
	if r.Status != Pending || r.ClientOnly {
		return false
	}
	for _, d := range r.approvals() {
		if d.Approver == who {
			return false
		}
	}
	votes := r.Votes()
	with := append(slices.Clone(votes), r.vote(who, required(r.Ruling.Requirement, standing.Roles)))
	return places(r.Ruling.Requirement.Missing(with)) < places(r.Ruling.Requirement.Missing(votes))
}

// places is how many people are missing.
func places(missing []policy.RoleCount) int {
	total := 0
	for _, want := range missing {
		total += want.Count
	}
	return total
}

// DecidedBy returns what a person decided last, up to PageSize decisions, the
// newest first. The errors are those of Waiting.
func (s *Service) DecidedBy(ctx context.Context, who Approver, limit int) ([]Own, error) {
	if _, err := s.looks(ctx, who); err != nil {
		return nil, err
	}
	decided, err := s.store.DecidedBy(ctx, who, min(max(limit, 0), PageSize))
	if err != nil {
		return nil, err
	}
	var own []Own
	for _, one := range decided {
		r, err := s.read(ctx, one.Request)
		if err != nil {
			return nil, fmt.Errorf("loading what was decided: %w", err)
		}
		for _, d := range r.Decisions {
			if d.Receipt == one.Receipt {
				own = append(own, Own{Request: r, Decision: d})
			}
		}
	}
	return own, nil
}

// History returns up to PageSize of the requests that match a filter and were
// made before another one, the newest first; an empty id is for the newest of
// all. Whoever holds any role sees what was asked of everybody. The errors are
// those of Waiting, or an *InputError about the filter.
func (s *Service) History(ctx context.Context, who Approver, filter Filter, before ID) (History, error) {
	if err := filter.check(); err != nil {
		return History{}, err
	}
	if before != "" && !before.Valid() {
		return History{}, invalid("before", "is no id of a request")
	}
	if _, err := s.looks(ctx, who); err != nil {
		return History{}, err
	}
	ids, lookedAt, err := s.store.History(ctx, filter, before, PageSize+1, LookedThrough)
	if err != nil {
		return History{}, err
	}
	page := History{Next: lookedAt}
	if len(ids) > PageSize {
		ids = ids[:PageSize]
		page.Next = ids[PageSize-1]
	}
	for _, id := range ids {
		r, err := s.read(ctx, id)
		if err != nil {
			return History{}, fmt.Errorf("loading the history: %w", err)
		}
		page.Requests = append(page.Requests, r)
	}
	return page, nil
}

// Look returns a request for a person who holds a role, whichever it asks for. The
// errors are those of Waiting, or ErrNotFound.
func (s *Service) Look(ctx context.Context, who Approver, id ID) (*Request, error) {
	if _, err := s.looks(ctx, who); err != nil {
		return nil, err
	}
	return s.read(ctx, id)
}

// Timeline returns what the audit log has of a request, in order, and whether
// there is more of it than is read. The errors are those of Waiting, or
// ErrNotFound.
func (s *Service) Timeline(ctx context.Context, who Approver, id ID) (events []audit.Event, more bool, err error) {
	if _, err := s.looks(ctx, who); err != nil {
		return nil, false, err
	}
	if !id.Valid() {
		return nil, false, ErrNotFound
	}
	if events, err = s.store.EventsOf(ctx, id, maxTimeline+1); err != nil {
		return nil, false, err
	}
	if len(events) == 0 {
		return nil, false, ErrNotFound
	}
	return events[:min(len(events), maxTimeline)], len(events) > maxTimeline, nil
}

// PayloadOf returns the payload that a version of a request has, such as one that
// was edited since. The request's ruling of now says what of it is hidden. The
// errors are those of Waiting, or ErrNotFound.
func (s *Service) PayloadOf(ctx context.Context, who Approver, id ID, version int) (Payload, error) {
	if _, err := s.looks(ctx, who); err != nil {
		return nil, err
	}
	if !id.Valid() {
		return nil, ErrNotFound
	}
	return s.store.PayloadOf(ctx, id, version)
}

// FirstID is the least id that a request made at a time, or later, can have.
func FirstID(at time.Time) ID {
	return ID(fmt.Sprintf("req_%012x%020x", uint64(max(at.UnixMilli(), 0))&(1<<48-1), 0))
}
