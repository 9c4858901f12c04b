package slacksim

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"html/template"
	"net/http"
	"strings"
	"time"
)

//go:embed page
var pageFiles embed.FS

// securityPolicy lets the page use its own script, style and endpoints, and
// nothing else.
const securityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self'; " +
	"form-action 'none'; base-uri 'none'; frame-ancestors 'none'"

// keepAlive is how often an idle stream says that it is there.
const keepAlive = 15 * time.Second

// maxAct is far above what a person can type into a modal.
const maxAct = 1 << 20

// servePage adds the page and its endpoints. The page acts through the same
// paths as a test.
func (w *Workspace) servePage(mux *http.ServeMux) {
	secured := func(handler http.HandlerFunc) http.HandlerFunc {
		return func(rw http.ResponseWriter, r *http.Request) {
			header := rw.Header()
			header.Set("Content-Security-Policy", securityPolicy)
			header.Set("X-Content-Type-Options", "nosniff")
			header.Set("Referrer-Policy", "no-referrer")
			header.Set("Cache-Control", "no-store")
			handler(rw, r)
		}
	}
	mux.HandleFunc("GET /{$}", secured(pageFile("page/index.html")))
	mux.HandleFunc("GET /page/app.js", secured(pageFile("page/app.js")))
	mux.HandleFunc("GET /page/dates.js", secured(pageFile("page/dates.js")))
	mux.HandleFunc("GET /page/style.css", secured(pageFile("page/style.css")))
	mux.HandleFunc("GET /page/icon.svg", secured(pageFile("page/icon.svg")))
	mux.HandleFunc("GET /page/events", secured(w.serveEvents))
	mux.HandleFunc("POST /page/click", secured(w.serveAct))
	mux.HandleFunc("POST /page/submit", secured(w.serveAct))
	mux.HandleFunc("POST /page/close", secured(w.serveAct))
}

func pageFile(name string) http.HandlerFunc {
	return func(rw http.ResponseWriter, r *http.Request) { http.ServeFileFS(rw, r, pageFiles, name) }
}

// serveEvents streams what the person sees, whole, whenever it changes.
func (w *Workspace) serveEvents(rw http.ResponseWriter, r *http.Request) {
	rw.Header().Set("Content-Type", "text/event-stream")
	controller := http.NewResponseController(rw)
	ticker := time.NewTicker(keepAlive)
	defer ticker.Stop()
	last := ""
	for {
		changed := w.Changed()
		state := string(asJSON(w.scene(r.URL.Query().Get("user"), r.URL.Query().Get("channel"))))
		event := ""
		if state != last {
			last, event = state, "data: "+state+"\n\n"
		}
		for event == "" {
			select {
			case <-changed:
				event = " "
			case <-ticker.C:
				event = ": still here\n\n"
			case <-r.Context().Done():
				return
			}
		}
		if event == " " {
			continue
		}
		if _, err := rw.Write([]byte(event)); err != nil || controller.Flush() != nil {
			return
		}
	}
}

// act is something a person does on the page.
type act struct {
	User    string            `json:"user"`
	Channel string            `json:"channel"`
	TS      string            `json:"ts"`
	View    string            `json:"view"`
	Block   string            `json:"block"`
	Action  string            `json:"action"`
	Values  map[string]string `json:"values"`
}

// serveAct does what a person did on the page, and answers with the error that
// Slack would show them, if any.
func (w *Workspace) serveAct(rw http.ResponseWriter, r *http.Request) {
	var a act
	if err := json.NewDecoder(http.MaxBytesReader(rw, r.Body, maxAct)).Decode(&a); err != nil {
		http.Error(rw, "That isn't something to do.", http.StatusBadRequest)
		return
	}
	// A person who closes the page doesn't take back what they pressed.
	ctx := context.WithoutCancel(r.Context())
	var reply Reply
	var err error
	switch what := strings.TrimPrefix(r.URL.Path, "/page/"); {
	case what == "click" && a.View != "":
		reply, err = w.clickInView(ctx, a.User, a.View, a.Block, a.Action, a.Values)
	case what == "click":
		reply, err = w.click(ctx, a.User, a.Channel, a.TS, a.Block, a.Action)
	case what == "submit":
		reply, err = w.Submit(ctx, a.User, a.View, a.Values)
	default:
		reply, err = w.CloseView(ctx, a.User, a.View)
	}
	if err != nil {
		// The button or view went away between drawing and pressing it.
		w.log.Debug("page", "err", err)
		reply.Shown = "That isn't there any more."
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(asJSON(map[string]any{"shown": reply.Shown}))
}

// templates render messages and views.
var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"json": func(value any) (string, error) {
		if value == nil {
			return "", errors.New("nothing to encode")
		}
		return string(asJSON(value)), nil
	},
	"chosen": func(e *element, value string) bool {
		for initial := range strings.SplitSeq(e.initial(), "\n") {
			if initial == value {
				return true
			}
		}
		return false
	},
}).ParseFS(pageFiles, "page/*.tmpl"))
