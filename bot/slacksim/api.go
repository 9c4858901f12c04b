package slacksim

import (
	"encoding/json"
	"errors"
	"io"
	"math"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxAPIBody is far above what any valid call needs.
const maxAPIBody = 2 << 20

// method is how one Web API method is called.
type method struct {
	scope   string // what the token needs; "" for none, or when it depends on the conversation
	limit   limit
	app     bool // takes the app-level token
	changes bool // changes something
	handle  func(*Workspace, url.Values) answer
}

// methods are what the simulator answers. Handlers run with mu held.
func methods() map[string]method {
	return map[string]method{
		"apps.connections.open": {limit: tier3, app: true, changes: true, handle: (*Workspace).connectionsOpen},
		"auth.test":             {limit: special, handle: (*Workspace).authTest},
		"chat.getPermalink":     {limit: special, handle: (*Workspace).chatGetPermalink},
		"chat.postEphemeral":    {scope: "chat:write", limit: tier4, changes: true, handle: (*Workspace).chatPostEphemeral},
		"chat.postMessage":      {scope: "chat:write", limit: perChannel, changes: true, handle: (*Workspace).chatPostMessage},
		"chat.update":           {scope: "chat:write", limit: tier3, changes: true, handle: (*Workspace).chatUpdate},
		"conversations.history": {limit: tier3, handle: (*Workspace).conversationsHistory},
		"conversations.info":    {limit: tier3, handle: (*Workspace).conversationsInfo},
		"usergroups.list":       {scope: "usergroups:read", limit: tier2, handle: (*Workspace).usergroupsList},
		"usergroups.users.list": {scope: "usergroups:read", limit: tier2, handle: (*Workspace).usergroupsUsersList},
		"users.info":            {scope: "users:read", limit: tier4, handle: (*Workspace).usersInfo},
		"views.open":            {limit: tier4, changes: true, handle: (*Workspace).viewsOpen},
		"views.push":            {limit: tier4, changes: true, handle: (*Workspace).viewsPush},
		"views.update":          {limit: tier4, changes: true, handle: (*Workspace).viewsUpdate},
	}
}

// allScopes are the bot scopes that the simulated methods can need.
func allScopes() []string {
	return []string{"channels:history", "channels:read", "chat:write", "groups:history", "groups:read", "im:history", "im:read",
		"usergroups:read", "users:read"}
}

// answer is what a call is answered with.
type answer struct {
	status     int
	retryAfter time.Duration
	page       string         // an HTML body instead of JSON
	body       map[string]any // a JSON body
	code       string         // Slack's error name, for Calls
	ts         string         // of the message it is about, for Calls
}

func success(body map[string]any) answer {
	body["ok"] = true
	return answer{status: http.StatusOK, body: body}
}

func failure(code string) answer {
	return answer{status: http.StatusOK, code: code, body: map[string]any{"ok": false, "error": code}}
}

// refusal is a failure with its reasons, as Slack lists them.
func refusal(code string, problems ...Problem) answer {
	a := failure(code)
	var plain, marked []string
	for _, p := range problems {
		plain = append(plain, p.String())
		marked = append(marked, "[ERROR] "+p.String())
	}
	a.body["errors"] = plain
	a.body["response_metadata"] = map[string]any{"messages": marked}
	return a
}

// refuseFor turns what the linter found into an answer; the first problem names
// the error.
func refuseFor(problems []Problem) answer { return refusal(problems[0].Code, problems...) }

func rateLimited(after time.Duration) answer {
	a := failure("ratelimited")
	a.status, a.retryAfter = http.StatusTooManyRequests, after
	return a
}

func (a answer) write(rw http.ResponseWriter) {
	if a.retryAfter > 0 {
		rw.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(a.retryAfter.Seconds()))))
	}
	if a.page != "" {
		rw.Header().Set("Content-Type", "text/html; charset=utf-8")
		rw.WriteHeader(a.status)
		_, _ = io.WriteString(rw, a.page)
		return
	}
	rw.Header().Set("Content-Type", "application/json; charset=utf-8")
	rw.WriteHeader(a.status)
	if a.body != nil {
		_, _ = rw.Write(asJSON(a.body))
	}
}

// serveAPI answers one Web API call. Slack takes GET for most methods; here a
// change needs POST, because a GET can come from any page in the person's
// browser.
func (w *Workspace) serveAPI(rw http.ResponseWriter, r *http.Request) {
	name := r.PathValue("method")
	w.serveCall(rw, r, name, func(arguments url.Values, token string) answer {
		if r.Method != http.MethodPost && (r.Method != http.MethodGet || methods()[name].changes) {
			return failure("invalid_request_method")
		}
		return w.call(rw.Header(), name, token, arguments)
	})
}

// call checks who calls and whether they may, and handles the call.
func (w *Workspace) call(header http.Header, name, token string, arguments url.Values) answer {
	m, ok := methods()[name]
	if !ok {
		a := failure("unknown_method")
		a.body["req_method"] = name
		return a
	}
	expected, other := w.options.BotToken, w.options.AppToken
	if m.app {
		expected, other = other, expected
	}
	switch token {
	case expected:
	case "":
		return failure("not_authed")
	case other:
		return failure("not_allowed_token_type")
	default:
		return failure("invalid_auth")
	}
	if !m.app {
		header.Set("X-OAuth-Scopes", strings.Join(w.options.Scopes, ","))
		if m.scope != "" {
			header.Set("X-Accepted-OAuth-Scopes", m.scope)
			if a, ok := w.scope(m.scope); !ok {
				return a
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if wait := w.spend(name, m.limit, arguments.Get("channel")); wait > 0 {
		return rateLimited(wait)
	}
	return m.handle(w, arguments)
}

// scope reports whether the bot has a scope, and otherwise what the call is
// answered with.
func (w *Workspace) scope(needed string) (answer, bool) {
	if slices.Contains(w.options.Scopes, needed) {
		return answer{}, true
	}
	a := failure("missing_scope")
	a.body["needed"] = needed
	a.body["provided"] = strings.Join(w.options.Scopes, ",")
	return a, false
}

// readArguments reads a call's arguments from the query and a form or JSON
// body, and its token from the Authorization header or the token argument,
// which it takes out.
func readArguments(rw http.ResponseWriter, r *http.Request) (url.Values, string, error) {
	arguments := r.URL.Query()
	r.Body = http.MaxBytesReader(rw, r.Body, maxAPIBody)
	body, err := io.ReadAll(r.Body)
	if err == nil {
		err = addBody(arguments, r.Header.Get("Content-Type"), body)
	}
	token := arguments.Get("token")
	arguments.Del("token")
	if bearer, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		token = bearer
	}
	return arguments, token, err
}

func addBody(arguments url.Values, contentType string, body []byte) error {
	if len(body) == 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return err
	}
	switch kind {
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return err
		}
		for name, values := range form {
			arguments[name] = values
		}
		return nil
	case "application/json":
		var object map[string]json.RawMessage
		if err := json.Unmarshal(body, &object); err != nil {
			return err
		}
		for name, value := range object {
			var text string
			switch {
			case string(value) == "null":
			case json.Unmarshal(value, &text) == nil:
				arguments.Set(name, text)
			default:
				arguments.Set(name, string(value))
			}
		}
		return nil
	}
	return errors.New("unsupported content type")
}

// truth reads a boolean argument in any of the forms that clients send.
func truth(s string) bool { return s == "true" || s == "1" }
