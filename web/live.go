package web

import (
	"net/http"
	"time"

	"github.com/countersign/countersign/approval"
)

// keepAlive is how often a quiet stream of changes says that it is still there.
const keepAlive = 25 * time.Second

// live tells a page that a request has changed, or any if none is named, so that
// it can fetch itself again. It carries no data: whoever reads it needs to be
// signed in to see anything. It ends soon after the session has.
func (p *pages) live(w http.ResponseWriter, r *http.Request) {
	r.Header.Set(unattended, "1")
	v, err := p.visitor(r)
	if err != nil {
		http.Error(w, "Sign in first.", http.StatusForbidden)
		return
	}
	id := p.cookies.get(r, sessionCookie)
	done, ok := p.sessions.stream(id)
	if !ok {
		http.Error(w, "Too many pages are open in this browser.", http.StatusTooManyRequests)
		return
	}
	defer done()
	rung, end := p.service.Bell().ListenAll()
	if about := approval.ID(r.URL.Query().Get("elicitationId")); about.Valid() {
		end()
		rung, end = p.service.Bell().Listen(about)
	}
	defer end()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-store")
	flush := http.NewResponseController(w)
	say := func(text string) bool {
		if _, err := w.Write([]byte(text)); err != nil {
			return false
		}
		return flush.Flush() == nil
	}
	over := time.NewTimer(v.session.startedAt.Add(sessionLimit).Sub(p.options.Now()))
	defer over.Stop()
	quiet := time.NewTicker(keepAlive)
	defer quiet.Stop()
	const changed = "event: changed\ndata:\n\n"
	said := ": listening\n\n"
	for say(said) {
		select {
		case <-rung:
			said = changed
		case <-quiet.C:
			said = ": quiet\n\n"
		case <-over.C:
			return
		case <-p.service.Draining():
			return
		case <-r.Context().Done():
			return
		}
		if _, ok := p.sessions.use(id, false); !ok {
			say(changed) // the page fetches itself again, which shows that somebody has to sign in
			return
		}
	}
}
