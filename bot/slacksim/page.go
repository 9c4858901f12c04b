package slacksim

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

//go:embed page
var pageFiles embed.FS

// The page's own files are all that it may load, and it can't be framed. Trusted Types make the browser refuse every way of
// turning a string into HTML or script, so that what an agent wrote stays text whatever this page's code does.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; frame-ancestors 'none'; " +
	"base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// maxAct is how much a browser may send for one act: a form full of text.
const maxAct = 1 << 20

func (w *Workspace) servePage(mux *http.ServeMux) { mux.Handle("/", w.page()) }

// page shows the workspace to a person in a browser. GET changes nothing; an act is a POST of JSON from the page itself, and
// takes the same way as the methods of Workspace that tests call.
func (w *Workspace) page() http.Handler {
	const html, script, style = "text/html; charset=utf-8", "text/javascript; charset=utf-8", "text/css; charset=utf-8"
	mux := http.NewServeMux()
	for pattern, file := range map[string]struct{ name, kind string }{
		"GET /{$}":       {"index.html", html},
		"GET /page.css":  {"page.css", style},
		"GET /page.js":   {"page.js", script},
		"GET /text.js":   {"text.js", script},
		"GET /blocks.js": {"blocks.js", script},
		"GET /fields.js": {"fields.js", script},
		"GET /modal.js":  {"modal.js", script},
	} {
		mux.HandleFunc(pattern, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", file.kind)
			http.ServeFileFS(rw, r, pageFiles, "page/"+file.name)
		})
	}
	mux.HandleFunc("GET /events", w.serveEvents)
	mux.HandleFunc("POST /click", serveAct(func(ctx context.Context, a act) (Reply, error) {
		if a.View != "" {
			return w.clickInView(ctx, a.User, a.View, a.Block, a.Action, a.Values)
		}
		return w.click(ctx, a.User, a.Channel, a.TS, a.Block, a.Action)
	}))
	mux.HandleFunc("POST /submit", serveAct(func(ctx context.Context, a act) (Reply, error) {
		return w.Submit(ctx, a.User, a.View, a.Values)
	}))
	mux.HandleFunc("POST /close", serveAct(func(ctx context.Context, a act) (Reply, error) {
		return w.CloseView(ctx, a.User, a.View)
	}))
	guarded := http.NewCrossOriginProtection().Handler(mux)
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		header := rw.Header()
		header.Set("Content-Security-Policy", pagePolicy)
		header.Set("X-Content-Type-Options", "nosniff")
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cross-Origin-Opener-Policy", "same-origin")
		header.Set("Cross-Origin-Resource-Policy", "same-origin")
		header.Set("Cache-Control", "no-store")
		guarded.ServeHTTP(rw, r)
	})
}

// serveEvents sends all that the person of ?user= sees, now and after each change, as server-sent events.
func (w *Workspace) serveEvents(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(rw)
	_ = controller.SetWriteDeadline(time.Time{}) // A stream may outlive the server's deadline; a server may have none to lift.
	var sent []byte
	for {
		changed := w.Changed()
		state := asJSON(w.stateFor(r.URL.Query().Get("user")))
		if !bytes.Equal(state, sent) {
			if _, err := fmt.Fprintf(rw, "retry: 1000\ndata: %s\n\n", state); err != nil {
				return
			}
			if controller.Flush() != nil {
				return
			}
			sent = state
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		}
	}
}

// act is what a person does on the page. Which fields are set depends on what it is.
type act struct {
	User    string            `json:"user"`
	Channel string            `json:"channel"`
	TS      string            `json:"ts"`
	View    string            `json:"view"`
	Block   string            `json:"block"`
	Action  string            `json:"action"`
	Values  map[string]string `json:"values"`
}

// acted is what the page hears of an act. What became of the workspace arrives as an event.
type acted struct {
	Shown  string            `json:"shown"`  // the error to show to the person, if any
	Errors map[string]string `json:"errors"` // messages on fields, by block id
}

func serveAct(do func(context.Context, act) (Reply, error)) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Content-Type") != "application/json" {
			http.Error(rw, "An act is sent as application/json.", http.StatusUnsupportedMediaType)
			return
		}
		var a act
		decoder := json.NewDecoder(http.MaxBytesReader(rw, r.Body, maxAct))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&a); err != nil {
			http.Error(rw, "The act can't be read: "+err.Error(), http.StatusBadRequest)
			return
		}
		// Slack tells the app even if the person's browser has gone away meanwhile.
		reply, err := do(context.WithoutCancel(r.Context()), a)
		status, answer := http.StatusOK, acted{Shown: reply.Shown, Errors: reply.FieldErrors}
		if err != nil {
			status, answer = http.StatusConflict, acted{Shown: "That isn't there any more: " + err.Error() + "."}
		}
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(status)
		_, _ = rw.Write(asJSON(answer)) // An error means that the browser has gone away.
	}
}
