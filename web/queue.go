package web

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// decidedLately is how many of a person's decisions stand below their queue.
const decidedLately = 10

// queuePage is what waits for somebody.
type queuePage struct {
	Waiting []listed
	Later   bool   // it isn't the beginning
	Next    string // where more of it begins; empty if there is no more
	Decided []decided
}

// decided is what somebody decided.
type decided struct {
	Verdict string // in words: "approved"
	At      time.Time
	Listed  listed
}

// queue shows what waits for the visitor, and what they decided lately.
func (p *pages) queue(w http.ResponseWriter, r *http.Request) {
	v, ok := p.person(w, r)
	if !ok {
		return
	}
	after, ok := parseQueueKey(r.URL.Query().Get("after"))
	if !ok {
		http.Redirect(w, r, "/", http.StatusSeeOther)
		return
	}
	waiting, err := p.service.Waiting(r.Context(), v.who, after)
	if err != nil {
		p.fail(w, v, "listing what waits", err)
		return
	}
	own, err := p.service.DecidedBy(r.Context(), v.who, decidedLately)
	if err != nil {
		p.fail(w, v, "listing what was decided", err)
		return
	}
	now := p.options.Now()
	content := queuePage{Later: !after.IsZero(), Next: queueKeyText(waiting.Next)}
	for _, one := range waiting.Requests {
		content.Waiting = append(content.Waiting, listedOf(string(one.ID), one, now))
	}
	for _, one := range own {
		verdict := "approved"
		switch {
		case one.Decision.Verdict == approval.Approve:
		case presentation.Revoked(one.Request):
			verdict = "revoked"
		default:
			verdict = "rejected"
		}
		content.Decided = append(content.Decided, decided{verdict, one.Decision.At, listedOf(one.Decision.Receipt, one.Request, now)})
	}
	p.show(w, http.StatusOK, "queue.html", v, content)
}

// fail says that something can't be shown now, and logs why. A role that has just
// gone is for the next page to notice.
func (p *pages) fail(w http.ResponseWriter, v visitor, doing string, err error) {
	status := http.StatusInternalServerError
	if errors.Is(err, approval.ErrUnavailable) || errors.Is(err, approval.ErrUnverified) {
		status = http.StatusServiceUnavailable
	}
	p.logger.Error(doing, "approver", v.who.String(), "err", err)
	p.show(w, status, "problem.html", v, "This can't be shown now. Please try again in a moment.")
}

// queueKeyText is a place in the queue as an address has it; empty for none.
func queueKeyText(key approval.QueueKey) string {
	if key.IsZero() {
		return ""
	}
	return strconv.FormatInt(key.ExpiresAt.UnixMilli(), 10) + "-" + string(key.ID)
}

func parseQueueKey(text string) (approval.QueueKey, bool) {
	if text == "" {
		return approval.QueueKey{}, true
	}
	expires, id, _ := strings.Cut(text, "-")
	at, err := strconv.ParseInt(expires, 10, 64)
	key := approval.QueueKey{ExpiresAt: time.UnixMilli(at).UTC(), ID: approval.ID(id)}
	return key, err == nil && key.ID.Valid()
}
