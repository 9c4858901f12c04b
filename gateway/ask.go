package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/internal/strictjson"
)

// asker is the client of a request, who can be told and asked while it lasts.
type asker struct {
	ctx     context.Context // the request's
	until   context.Context // ends when nobody is asked any more
	session *sdk.ServerSession
	modern  bool // the protocol without sessions: nothing can be asked but in answers
	can     *sdk.ClientCapabilities
	token   any // of the request's progress; nil if the client wants none
	logger  *slog.Logger

	// called says that a downstream server had the call before and asked for
	// input. So whatever becomes of it now, something may have run.
	called bool

	mu   sync.Mutex
	last float64 // the progress that was told last; it must rise
	base float64 // what a downstream server's progress is added to
}

// canForm reports whether the client can show a form.
func (a *asker) canForm() bool {
	// An empty capability means forms only.
	return a.can != nil && a.can.Elicitation != nil && (a.can.Elicitation.Form != nil || a.can.Elicitation.URL == nil)
}

// canURL reports whether the client can show a link.
func (a *asker) canURL() bool {
	return a.can != nil && a.can.Elicitation != nil && a.can.Elicitation.URL != nil
}

// relay is who hears of a run.
func (a *asker) relay() relay {
	var to relay
	if a.token != nil {
		to.progress = a.progress
	}
	if !a.modern && (a.canForm() || a.canURL()) {
		to.elicit = a.elicit
	}
	return to
}

// progress passes on a downstream server's progress, after that of waiting, if
// there was any.
func (a *asker) progress(params json.RawMessage) {
	var told sdk.ProgressNotificationParams
	if err := json.Unmarshal(params, &told); err != nil {
		return
	}
	a.mu.Lock()
	told.Progress += a.base
	if told.Total != 0 {
		told.Total += a.base
	}
	a.last = max(a.last, told.Progress)
	a.mu.Unlock()
	a.notify(&told)
}

// wait tells the client that something takes time. seconds are how long it has.
func (a *asker) wait(seconds float64, message string) {
	if a.token == nil {
		return
	}
	a.mu.Lock()
	seconds = max(seconds, a.last+1)
	a.last, a.base = seconds, seconds
	a.mu.Unlock()
	a.notify(&sdk.ProgressNotificationParams{Progress: seconds, Message: message})
}

func (a *asker) notify(params *sdk.ProgressNotificationParams) {
	params.ProgressToken = a.token
	if err := a.session.NotifyProgress(a.ctx, params); err != nil && a.ctx.Err() == nil {
		a.logger.Debug("reporting progress", "err", err)
	}
}

// asking is for as long as somebody may take to answer: not longer than limit,
// than the client is there, or than the gateway runs.
func (a *asker) asking(limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(a.ctx, limit)
	stop := context.AfterFunc(a.until, cancel)
	return ctx, func() { stop(); cancel() }
}

// elicit asks the client what a downstream server asks.
func (a *asker) elicit(ctx context.Context, params json.RawMessage) (json.RawMessage, error) {
	question := new(sdk.ElicitParams)
	if err := json.Unmarshal(params, question); err != nil {
		return nil, err
	}
	// Its _meta belongs to the connection that it came on.
	question.Meta = nil
	// Where the question goes is in the request's context, and how long it is
	// asked in the run's.
	asking, cancel := a.asking(confirmWithin)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()
	answer, err := a.session.Elicit(asking, question)
	if err != nil {
		return nil, err
	}
	return json.Marshal(answer)
}

// maxRounds is how often a server may ask for input before it gives a result.
const maxRounds = 10

// errCantAsk means that a server asks for input that the client can't give.
var errCantAsk = errors.New("the server asks for input that the client can't be asked for")

// converse sends a request and returns its result. Where the server asks for
// input instead, clients of the protocol without sessions get that as it is;
// others are asked, and the request is sent again with their answers.
func (a *asker) converse(params []strictjson.Member, send func([]strictjson.Member) (json.RawMessage, error)) (json.RawMessage, error) {
	for range maxRounds {
		result, err := send(params)
		if err != nil || a.modern || !needsInput(result) {
			return result, err
		}
		a.called = true
		asked, err := strictjson.Members(result)
		if err != nil {
			return nil, err
		}
		answers, err := a.answers(value(asked, "inputRequests"))
		if err != nil {
			return nil, err
		}
		params = without(without(params, inputResponses), requestState)
		params = append(params, strictjson.Member{Name: inputResponses, Value: answers})
		if state := value(asked, requestState); state != nil {
			params = append(params, strictjson.Member{Name: requestState, Value: state})
		}
	}
	return nil, errCantAsk
}

// The members of parameters in which clients answer what an answer asked.
const (
	inputResponses = "inputResponses"
	requestState   = "requestState"
)

// answers asks the client all that a server asks.
func (a *asker) answers(requests json.RawMessage) (json.RawMessage, error) {
	var questions map[string]struct {
		Method string          `json:"method"`
		Params json.RawMessage `json:"params"`
	}
	if err := json.Unmarshal(requests, &questions); err != nil || len(questions) == 0 {
		return nil, errCantAsk
	}
	given := make(map[string]json.RawMessage, len(questions))
	for name, question := range questions {
		if question.Method != "elicitation/create" || !a.canForm() && !a.canURL() {
			return nil, errCantAsk
		}
		answer, err := a.elicit(a.ctx, question.Params)
		if a.ctx.Err() != nil {
			return nil, context.Cause(a.ctx)
		}
		if err != nil {
			a.logger.Info("a client couldn't be asked what a server asks", "err", err)
			return nil, errCantAsk
		}
		given[name] = answer
	}
	return mustEncode(given), nil
}
