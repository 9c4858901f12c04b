package mcp_test

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/mcp"
)

var pictures = flag.String("pictures", "", "a folder that screenshots of the view are left in")

// missing skips a test that lacks something, or fails it where nothing may lack.
func missing(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("COUNTERSIGN_TEST_REQUIRE") == "all" {
		t.Fatal(what)
	}
	t.Skip(what)
}

// chromium returns a headless Chromium in which a sandboxed frame can be looked into.
func chromium(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		missing(t, "chromium is not installed: apt-get install chromium")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path),
		chromedp.NoSandbox,
		chromedp.Flag("disable-quic", true),
		chromedp.Flag("disable-component-update", true),
		chromedp.Flag("disable-features", "SitePerProcess,IsolateOrigins,IsolateSandboxedIframes,Translate"),
		chromedp.Flag("disable-site-isolation-trials", true),
	)
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	t.Cleanup(stop)
	ctx, quit := chromedp.NewContext(ctx)
	t.Cleanup(quit)
	if err := chromedp.Do(ctx); err != nil {
		t.Fatal(err)
	}
	return ctx
}

// hostScript is the test's host, made of the official library.
var hostScript = sync.OnceValues(func() (string, error) {
	var complaints strings.Builder
	build := exec.Command("node", filepath.Join("view", "build.mjs"), "--host")
	build.Stderr = &complaints
	bundled, err := build.Output()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, complaints.String())
	}
	return string(bundled), nil
})

// axe is the source of the accessibility checker.
func axe(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile(filepath.Join("..", ".ci", "web", "node_modules", "axe-core", "axe.min.js"))
	if err != nil {
		missing(t, "axe isn't installed: npm ci --prefix .ci/web")
	}
	return string(source)
}

// viewHost is a host whose views call the tools of a server through a session.
type viewHost struct {
	*httptest.Server
	mu    sync.Mutex
	calls []viewCall
}

// viewCall is what a view asked a tool for.
type viewCall struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// newViewHost serves the page of a host, and the view as the server gives it out.
func newViewHost(t *testing.T, session *sdk.ClientSession) *viewHost {
	t.Helper()
	if _, err := os.Stat(filepath.Join("view", "node_modules")); err != nil {
		missing(t, "the host's library isn't installed: npm ci --prefix mcp/view")
	}
	script, err := hostScript()
	if err != nil {
		t.Fatal(err)
	}
	h := &viewHost{}
	pages := http.NewServeMux()
	pages.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = w.Write([]byte(`<!DOCTYPE html><html lang="en"><title>Host</title><link rel="icon" href="data:,"><style>body { margin: 0 } iframe { display: block; width: 100%; border: 0 }</style><body><script src="/host.js"></script>`))
	})
	pages.HandleFunc("GET /host.js", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
		_, _ = w.Write([]byte(script))
	})
	pages.HandleFunc("GET /view.html", func(w http.ResponseWriter, r *http.Request) {
		read, err := session.ReadResource(r.Context(), &sdk.ReadResourceParams{URI: mcp.ViewURI})
		if err != nil || len(read.Contents) != 1 || read.Contents[0].MIMEType != mcp.ViewMIME {
			http.Error(w, "no view", http.StatusBadGateway)
			return
		}
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		w.Header().Set("Content-Security-Policy", policyOf(read.Contents[0].Meta))
		_, _ = w.Write([]byte(read.Contents[0].Text))
	})
	pages.HandleFunc("POST /call", func(w http.ResponseWriter, r *http.Request) {
		var raw struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
		}
		err := json.NewDecoder(r.Body).Decode(&raw)
		one := viewCall{Name: raw.Name}
		if err == nil {
			err = json.Unmarshal(raw.Arguments, &one.Arguments)
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		h.mu.Lock()
		h.calls = append(h.calls, one)
		h.mu.Unlock()
		result, err := session.CallTool(r.Context(), &sdk.CallToolParams{Name: raw.Name, Arguments: raw.Arguments})
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		_ = json.NewEncoder(w).Encode(result)
	})
	h.Server = httptest.NewServer(pages)
	t.Cleanup(h.Close)
	return h
}

// policyOf is the content security policy that a host makes of what a view says it
// loads: nothing, unless it names where from.
func policyOf(meta sdk.Meta) string {
	ui, _ := meta["ui"].(map[string]any)
	sources, _ := ui["csp"].(map[string]any)
	named := func(key string) string {
		var all strings.Builder
		domains, _ := sources[key].([]any)
		for _, domain := range domains {
			all.WriteString(" " + domain.(string))
		}
		return all.String()
	}
	connect := named("connectDomains")
	if connect == "" {
		connect = " 'none'"
	}
	resources := named("resourceDomains")
	return "default-src 'none'; script-src 'unsafe-inline'" + resources + "; style-src 'unsafe-inline'" + resources + "; img-src data:" + resources +
		"; font-src data:" + resources + "; connect-src" + connect + "; frame-src 'none'; object-src 'none'; base-uri 'none'; form-action 'none'"
}

// called are the calls of a tool so far.
func (h *viewHost) called(tool string) []viewCall {
	h.mu.Lock()
	defer h.mu.Unlock()
	var all []viewCall
	for _, one := range h.calls {
		if one.Name == tool {
			all = append(all, one)
		}
	}
	return all
}

// tab is a view in the host's page.
type tab struct {
	t          *testing.T
	ctx        context.Context
	host       *viewHost
	mu         sync.Mutex
	frame      string // the context of the view's scripts
	complaints []string
}

// plan is what the host hands the view, and how it looks.
type plan struct {
	Input     any  `json:"input,omitempty"`
	Result    any  `json:"result,omitempty"`
	Context   any  `json:"context,omitempty"`
	OpenLinks bool `json:"openLinks"`

	width  int64
	scheme string
	early  string // a script that runs before the view's
}

// openView has the host show the view of a scripted gate.
func openView(t *testing.T, browser context.Context, s *script, p plan) *tab {
	t.Helper()
	return openViewOf(t, browser, s.connect(t), p)
}

// openViewOf has the host show the view of the server at the session's other end.
func openViewOf(t *testing.T, browser context.Context, session *sdk.ClientSession, p plan) *tab {
	t.Helper()
	host := newViewHost(t, session) // which closes once the tab has
	ctx, closeTab := chromedp.NewContext(browser)
	t.Cleanup(closeTab)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	t.Cleanup(cancel)
	v := &tab{t: t, ctx: ctx, host: host}
	v.do(chromedp.Navigate("about:blank"))
	top := string(chromedp.FromContext(ctx).Target.TargetID)
	err := chromedp.Listen(ctx, func(event any) {
		v.mu.Lock()
		defer v.mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExecutionContextCreated:
			var about struct {
				FrameID   string `json:"frameId"`
				IsDefault bool   `json:"isDefault"`
			}
			if json.Unmarshal(e.Context.AuxData, &about) == nil && about.IsDefault && about.FrameID != top {
				v.frame = e.Context.UniqueID
			}
		case *runtime.EventExceptionThrown:
			v.complaints = append(v.complaints, "exception: "+(&chromedp.ExceptionError{ExceptionDetails: e.ExceptionDetails}).Error())
		case *log.EventEntryAdded:
			v.complaints = append(v.complaints, string(e.Entry.Level)+": "+e.Entry.Text)
		case *runtime.EventConsoleAPICalled:
			if e.Type == "error" || e.Type == "warning" || e.Type == "assert" {
				said, _ := json.Marshal(e.Args)
				v.complaints = append(v.complaints, "console: "+string(said))
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	encoded, err := json.Marshal(p)
	if err != nil {
		t.Fatal(err)
	}
	if p.width == 0 {
		p.width = 600
	}
	if p.scheme == "" {
		p.scheme = "light"
	}
	v.do(
		chromedp.EmulateViewport(p.width, 900),
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			_, err := cdp.Call(ctx, target, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
				Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: p.scheme}},
			})
			return err
		}),
		chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
			if p.early == "" {
				return nil
			}
			_, err := cdp.Call(ctx, target, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: p.early})
			return err
		}),
		chromedp.Navigate(v.host.URL),
		chromedp.Evaluate[chromedp.Void](`window.start(`+string(encoded)+`).then(() => undefined)`, chromedp.EvalAwaitPromise),
		chromedp.Poll[chromedp.Void](`window.seen.initialized`),
	)
	return v
}

func (v *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	v.t.Helper()
	if err := chromedp.Do(v.ctx, steps...); err != nil {
		v.t.Fatalf("%v\n%s", err, v.complained())
	}
}

func (v *tab) complained() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	return strings.Join(v.complaints, "\n")
}

// quiet fails the test if the browser had anything to say against the view.
func (v *tab) quiet() {
	v.t.Helper()
	if said := v.complained(); said != "" {
		v.t.Errorf("the browser complained: %s", said)
	}
}

// of is what an expression is in the view.
func of[T any](v *tab, expression string) T {
	v.t.Helper()
	value, err := evaluate[T](v.ctx, v, expression)
	if err != nil {
		v.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

func evaluate[T any](ctx context.Context, v *tab, expression string) (value T, err error) {
	err = chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		v.mu.Lock()
		frame := v.frame
		v.mu.Unlock()
		yes := true
		said, err := cdp.Call(ctx, target, runtime.Evaluate, runtime.EvaluateParams{Expression: expression, UniqueContextID: frame, ReturnByValue: &yes, AwaitPromise: &yes})
		if err != nil {
			return err
		}
		if said.ExceptionDetails != nil {
			return &chromedp.ExceptionError{ExceptionDetails: said.ExceptionDetails}
		}
		if len(said.Result.Value) == 0 {
			return nil
		}
		return json.Unmarshal(said.Result.Value, &value)
	}))
	return value, err
}

// until waits for an expression to be true in the view.
func (v *tab) until(expression string) {
	v.t.Helper()
	ctx, cancel := context.WithTimeout(v.ctx, 30*time.Second)
	defer cancel()
	_, err := evaluate[bool](ctx, v, `new Promise(done => { const look = () => { let is = false; try { is = `+expression+` } catch {} is ? done(true) : setTimeout(look, 10) }; look() })`)
	if err != nil {
		v.t.Fatalf("waited in vain for %s: %v\nthe view says:\n%s\n%s", expression, err, of[string](v, "document.body.innerText"), v.complained())
	}
}

// shows waits until the view says something.
func (v *tab) shows(texts ...string) {
	v.t.Helper()
	for _, text := range texts {
		v.until(`document.querySelector("main").innerText.includes(` + quote(text) + `)`)
	}
}

// showsNot fails the test if the view says something.
func (v *tab) showsNot(texts ...string) {
	v.t.Helper()
	for _, text := range texts {
		if of[bool](v, `[...document.body.children].some(e => e.localName !== "script" && e.textContent.includes(`+quote(text)+`))`) {
			v.t.Errorf("the view says %q", text)
		}
	}
}

func quote(text string) string {
	encoded, _ := json.Marshal(text)
	return string(encoded)
}

// at is how the view's elements with a name are found.
func at(name string) string { return `document.querySelector('[data-name="` + name + `"]')` }

// settled waits until the view takes what is pressed.
func (v *tab) settled() {
	v.t.Helper()
	v.until(`!document.querySelector("[data-settling], [data-busy]")`)
}

// press clicks with the mouse on what has a name, once it takes clicks.
func (v *tab) press(name string) {
	v.t.Helper()
	v.until(at(name))
	v.settled()
	v.click(at(name))
}

// click clicks on an element, whether it takes that or not, once neither it nor the
// frame moves any more.
func (v *tab) click(element string) {
	v.t.Helper()
	of[any](v, element+`.scrollIntoView({block: "center"})`)
	var was [2]float64
	for {
		inside := of[[2]float64](v, `new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => { const r = `+element+`.getBoundingClientRect(); done([r.left + r.width / 2, r.top + r.height / 2]) })))`)
		frame, err := chromedp.Run(v.ctx, chromedp.Evaluate[[]float64](`(() => { const r = document.getElementById("view").getBoundingClientRect(); return [r.left, r.top] })()`))
		if err != nil {
			v.t.Fatal(err)
		}
		is := [2]float64{frame[0] + inside[0], frame[1] + inside[1]}
		if is == was {
			break
		}
		was = is
	}
	v.do(chromedp.MouseClickXY(was[0], was[1]))
}

// write types into the field that has a name.
func (v *tab) write(name, text string) {
	v.t.Helper()
	v.until(at(name))
	of[any](v, at(name)+`.focus()`)
	v.do(chromedp.KeyEvent(text))
}

// keys presses keys, wherever the focus is.
func (v *tab) keys(keys string) {
	v.t.Helper()
	v.do(chromedp.KeyEvent(keys))
}

// focused is the name of what has the focus in the view.
func (v *tab) focused() string {
	v.t.Helper()
	return of[string](v, `document.activeElement?.dataset.name ?? document.activeElement?.tagName ?? ""`)
}

// sent waits for the only call of a tool, and returns what it was given.
func (v *tab) sent(tool string) map[string]any {
	v.t.Helper()
	calls := v.host.called(tool)
	if len(calls) != 1 {
		v.t.Fatalf("%s was called %d times, want once: %v", tool, len(calls), calls)
	}
	return calls[0].Arguments
}

// picture keeps a screenshot of all of the view for a person to look at, if they
// asked for it.
func (v *tab) picture(name string) {
	v.t.Helper()
	if *pictures == "" {
		return
	}
	v.settled()
	png, err := chromedp.Run(v.ctx, chromedp.FullScreenshot(100))
	if err != nil {
		v.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(*pictures, name+".png"), png, 0o600); err != nil {
		v.t.Fatal(err)
	}
}
