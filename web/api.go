package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
)

// MaxWait is how long a call of the API may wait for a decision: less than the
// minute after which many proxies give up on an answer.
const MaxWait = 55 * time.Second

// uploadLimit is how long the body of a call may take to arrive.
const uploadLimit = 10 * time.Second

// APIOptions set up the API.
type APIOptions struct {
	// ReviewURL is where people find a request. Required. The address is a
	// locator: it must decide nothing and reveal nothing by itself.
	ReviewURL func(approval.ID) string
	// PayloadLimit is the largest payload in bytes that the service takes; zero
	// means approval.DefaultPayloadLimit. Bodies may be a few times as large, so
	// that a payload that is too large is refused in words.
	PayloadLimit int
	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger
}

// API serves /api/v1 to scripts and jobs: the same Service that agents reach over
// MCP. Each call needs an agent's bearer token, and an agent sees only its own
// requests. Serve it behind Guard.
//
//	POST /api/v1/requests               asks
//	GET  /api/v1/requests/{id}          says how it is, and waits with ?wait=SECONDS
//	POST /api/v1/requests/{id}/apply    hands out the payload, once
//	POST /api/v1/requests/{id}/outcome  takes what the run came to
//
// Every answer is JSON, and every refusal has the shape of problem.
type API struct {
	service   *approval.Service
	options   APIOptions
	origins   *http.CrossOriginProtection
	bodyLimit int64
	stopping  context.Context
	stop      context.CancelFunc
}

// NewAPI returns the API over a service. Call Close when the server shuts down.
func NewAPI(service *approval.Service, options APIOptions) (*API, error) {
	if options.ReviewURL == nil {
		return nil, errors.New("no review address is given")
	}
	if options.PayloadLimit == 0 {
		options.PayloadLimit = approval.DefaultPayloadLimit
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	a := &API{
		service:   service,
		options:   options,
		origins:   http.NewCrossOriginProtection(),
		bodyLimit: int64(4*options.PayloadLimit + 64<<10),
	}
	a.stopping, a.stop = context.WithCancel(context.Background())
	return a, nil
}

// Close turns away the calls that come from now on or haven't arrived whole, with
// 503. Those that wait are the service's to end, by Drain.
func (a *API) Close() { a.stop() }

// call is one call that has arrived whole, of an agent that its token named.
type call struct {
	agent approval.Agent
	id    approval.ID // empty where the path has none
	query url.Values
	body  []byte
}

// route is a path with the one method that it takes, and what serves it: that
// returns the answer with its status, or why there is none.
type route struct {
	method string
	serve  func(*API, context.Context, call) (int, []byte, error)
}

// asking is /api/v1/requests, and oneRequest are the paths below a request's id.
var (
	asking     = route{http.MethodPost, (*API).ask}
	oneRequest = map[string]route{
		"":         {http.MethodGet, (*API).status},
		"/apply":   {http.MethodPost, (*API).apply},
		"/outcome": {http.MethodPost, (*API).finish},
	}
)

func find(path string) (route, approval.ID, bool) {
	rest, ours := strings.CutPrefix(path, "/api/v1/requests")
	if ours && rest == "" {
		return asking, "", true
	}
	rest, ours = strings.CutPrefix(rest, "/")
	if !ours {
		return route{}, "", false
	}
	end := len(rest)
	if at := strings.IndexByte(rest, '/'); at >= 0 {
		end = at
	}
	to, ours := oneRequest[rest[end:]]
	return to, approval.ID(rest[:end]), ours
}

// ServeHTTP implements http.Handler.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	to, c, refused := a.receive(w, r)
	if refused != nil {
		refused.write(w)
		// The server reads what is left of a body, for which the caller needn't
		// wait.
		_ = http.NewResponseController(w).Flush()
		return
	}
	status, answer, err := to.serve(a, r.Context(), c)
	if err != nil {
		a.problemOf(r, c, err).write(w)
		return
	}
	write(w, status, answer)
}

// receive admits a call and reads its body, which ends after uploadLimit and when
// the API closes: a call that is still arriving holds up nobody.
func (a *API) receive(w http.ResponseWriter, r *http.Request) (route, call, *problem) {
	if r.Body == http.NoBody {
		return a.admit(w, r)
	}
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Now().Add(uploadLimit)) // only a response of a test has none
	cut := make(chan struct{})
	arrived := context.AfterFunc(a.stopping, func() {
		defer close(cut)
		_ = control.SetReadDeadline(time.Unix(1, 0))
	})
	to, c, refused := a.admit(w, r)
	if !arrived() {
		<-cut
		return route{}, call{}, stopping
	}
	if refused == nil {
		// From here on the connection is read only to learn whether the caller is
		// still there.
		_ = control.SetReadDeadline(time.Time{})
	}
	return to, c, refused
}

func (a *API) admit(w http.ResponseWriter, r *http.Request) (route, call, *problem) {
	if a.stopping.Err() != nil {
		return route{}, call{}, stopping
	}
	if a.origins.Check(r) != nil {
		return route{}, call{}, crossOrigin
	}
	agent, refused := a.authenticate(r)
	if refused != nil {
		return route{}, call{}, refused
	}
	to, id, ok := find(r.URL.Path)
	if !ok {
		return route{}, call{}, noRoute
	}
	if r.Method != to.method {
		w.Header().Set("Allow", to.method)
		return route{}, call{}, wrongMethod(to.method)
	}
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return route{}, call{}, unreadableQuery
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, a.bodyLimit))
	if err != nil {
		return route{}, call{}, unreadable(err)
	}
	if len(body) > 0 && r.Method == http.MethodGet {
		return route{}, call{}, unwantedBody
	}
	return to, call{agent, id, query, body}, checkType(r, body)
}

// authenticate finds out whose token the call carries.
func (a *API) authenticate(r *http.Request) (approval.Agent, *problem) {
	scheme, secret, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	secret = strings.TrimSpace(secret)
	if !strings.EqualFold(scheme, "Bearer") || secret == "" {
		return approval.Agent{}, noToken
	}
	token, err := a.service.Authenticate(r.Context(), secret)
	if err != nil {
		return approval.Agent{}, a.problemOf(r, call{}, err)
	}
	return approval.Agent{Name: token.Agent, Owner: token.Owner}, nil
}

// checkType refuses a body that says it is something else than JSON, or doesn't
// say what it is.
func checkType(r *http.Request, body []byte) *problem {
	given := r.Header.Values("Content-Type")
	if len(given) == 0 && len(body) == 0 {
		return nil
	}
	if len(given) != 1 {
		return wrongType
	}
	kind, parameters, err := mime.ParseMediaType(given[0])
	if err != nil || kind != "application/json" {
		return wrongType
	}
	for name, value := range parameters {
		if name != "charset" || !strings.EqualFold(value, "utf-8") {
			return wrongType
		}
	}
	return nil
}

func (a *API) ask(ctx context.Context, c call) (int, []byte, error) {
	if err := noQuery(c); err != nil {
		return 0, nil, err
	}
	p, err := parseRequest(c.body)
	if err != nil {
		return 0, nil, err
	}
	r, err := a.service.Request(ctx, c.agent, p)
	if err != nil {
		return 0, nil, &refusedError{err, r}
	}
	answer, err := a.answer(r)
	return http.StatusCreated, answer, err
}

func (a *API) status(ctx context.Context, c call) (int, []byte, error) {
	wait, err := parseWait(c.query)
	if err != nil {
		return 0, nil, err
	}
	r, err := a.service.Await(ctx, c.agent, c.id, wait)
	if err != nil {
		return 0, nil, &refusedError{err, r}
	}
	answer, err := a.answer(r)
	return http.StatusOK, answer, err
}

func (a *API) apply(ctx context.Context, c call) (int, []byte, error) {
	if err := noQuery(c); err != nil {
		return 0, nil, err
	}
	if err := parseNothing(c.body); err != nil {
		return 0, nil, err
	}
	r, err := a.service.Claim(ctx, c.agent, c.id)
	if err != nil {
		return 0, nil, &refusedError{err, r}
	}
	return http.StatusOK, applied(r), nil
}

func (a *API) finish(ctx context.Context, c call) (int, []byte, error) {
	if err := noQuery(c); err != nil {
		return 0, nil, err
	}
	outcome, detail, err := parseOutcome(c.body)
	if err != nil {
		return 0, nil, err
	}
	r, err := a.service.Finish(ctx, c.agent, c.id, outcome, detail)
	if err != nil {
		return 0, nil, &refusedError{err, r}
	}
	answer, err := a.answer(r)
	return http.StatusOK, answer, err
}

// requestAnswer is a request as its agent sees it.
type requestAnswer struct {
	ID        approval.ID     `json:"id"`
	Status    approval.Status `json:"status"`
	ReviewURL string          `json:"reviewUrl"`
	// ExpiresAt is when the request expires if nothing happens before: while it
	// is pending the end of deciding, while it is approved the end of applying.
	// A final status doesn't end.
	ExpiresAt string `json:"expiresAt,omitempty"`
	// WaitingFor is what approving still takes, while it is pending.
	WaitingFor string `json:"waitingFor,omitempty"`
	// Reason is why it is rejected. RejectedBy says whose words those are: a
	// person's, or the policy's if what was asked isn't allowed or doesn't hold
	// any more.
	Reason     string `json:"reason,omitempty"`
	RejectedBy string `json:"rejectedBy,omitempty"`
	// Outcome is what the run came to, as it was reported.
	Outcome approval.Outcome `json:"outcome,omitempty"`
	// Receipts are those of its decisions, oldest first. Each can be verified without
	// this server.
	Receipts []string `json:"receipts,omitempty"`
	Detail   string   `json:"detail,omitempty"`
}

func (a *API) answer(r *approval.Request) ([]byte, error) {
	answer := requestAnswer{
		ID:        r.ID,
		Status:    r.Status,
		ReviewURL: a.options.ReviewURL(r.ID),
		Reason:    r.Reason,
	}
	if deadline := r.Deadline(); !deadline.IsZero() {
		answer.ExpiresAt = timeText(deadline)
	}
	switch r.Status {
	case approval.Pending:
		missing := r.Ruling.Requirement
		missing.Roles = r.Missing()
		answer.WaitingFor = missing.String()
	case approval.Rejected:
		answer.RejectedBy = rejectedBy(r)
	}
	for _, d := range r.Decisions {
		if d.SignedReceipt != "" {
			answer.Receipts = append(answer.Receipts, d.SignedReceipt)
		}
	}
	if r.Execution != nil {
		answer.Outcome, answer.Detail = r.Execution.Outcome, r.Execution.Detail
	}
	return marshal(answer)
}

// rejectedBy keeps a person's no apart from a request that doesn't hold any more.
func rejectedBy(r *approval.Request) string {
	for _, d := range r.Decisions {
		if d.Verdict == approval.Reject && d.Version == r.Version && d.Person() {
			return "person"
		}
	}
	return "policy"
}

// applied is the answer to apply, which is written by hand: encoding/json would
// write the payload anew.
func applied(r *approval.Request) []byte {
	var b bytes.Buffer
	b.WriteString(`{"status":"` + string(r.Status) + `","payload":`)
	b.Write(r.Payload)
	b.WriteString("}\n")
	return b.Bytes()
}

// timeText is a time as the tools write it: RFC 3339, UTC, milliseconds.
func timeText(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

func marshal(value any) ([]byte, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // no browser reads it
	err := encoder.Encode(value)
	return b.Bytes(), err
}

func write(w http.ResponseWriter, status int, body []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller went away
}
