package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/internal/strictjson"
)

const (
	// maxAtOnce is how many approved calls run at a server at the same time.
	// What agents call themselves isn't counted.
	maxAtOnce = 4
	// maxRunnable is how many approved requests are looked at in one go.
	maxRunnable = 1000
	// lookEvery is how often approved requests are looked for without a ring: a
	// server that was down may be back.
	lookEvery = 2 * time.Second
	// claimPause is how long a request rests that couldn't be claimed, such as
	// while nobody can say which roles people hold.
	claimPause = 10 * time.Second
)

// The steps of a run, in their order.
const (
	stepClaimed  = "claimed"  // the approval is used up
	stepReturned = "returned" // the server has answered
	stepFinished = "finished" // what came of it is recorded
)

// runs are what the gateway runs and no call of an agent's waits for in person.
type runs struct {
	life  context.Context // ends when the process can't wait any longer
	end   context.CancelFunc
	freed chan struct{} // gets a value when a run ends

	mu       sync.Mutex
	work     sync.WaitGroup
	draining bool
	at       map[string]int // how many run, by server
}

func newRuns() *runs {
	life, end := context.WithCancel(context.Background())
	return &runs{life: life, end: end, freed: make(chan struct{}, 1), at: make(map[string]int)}
}

// begin counts a run; false if the gateway is stopping, or if there are limit
// runs at the server and limit isn't zero.
func (r *runs) begin(server string, limit int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.draining || limit > 0 && r.at[server] >= limit {
		return false
	}
	r.at[server]++
	r.work.Add(1)
	return true
}

func (r *runs) done(server string) {
	r.mu.Lock()
	r.at[server]--
	r.mu.Unlock()
	r.work.Done()
	select {
	case r.freed <- struct{}{}:
	default:
	}
}

// drain waits until nothing runs, and cuts off what still does after limit.
func (r *runs) drain(limit time.Duration) {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	late := time.AfterFunc(limit, r.end)
	r.work.Wait()
	late.Stop()
	r.end()
}

// recordCutOff records that nobody knows what became of what an earlier process
// was running, which never runs again by itself. It goes on until that is
// recorded or ctx ends.
func (g *Gateway) recordCutOff(ctx context.Context) {
	for ctx.Err() == nil {
		more, err := g.recordSome(ctx)
		switch {
		case err != nil:
			g.logger.Error("recording what was cut off", "err", err)
			select {
			case <-time.After(lookEvery):
			case <-ctx.Done():
			}
		case !more:
			return
		}
	}
}

// recordSome records some of what was cut off, and reports whether there is more.
// An error means that the store can't be used now.
func (g *Gateway) recordSome(ctx context.Context) (more bool, err error) {
	ids, err := g.service.Unfinished(ctx, maxRunnable)
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		_, err := g.service.FinishRun(ctx, id, approval.Report{Outcome: approval.Unknown, Detail: detailStopped})
		switch {
		case err == nil:
			more = true
			g.logger.Warn("a run was cut off", "request_id", id)
		case errors.Is(err, approval.ErrUnavailable):
			return false, err
		default:
			g.logger.Error("recording that a run was cut off", "request_id", id, "err", err)
		}
	}
	return more, nil
}

// seeTools records what the servers say of their tools, until ctx ends. A call
// looks again, so one that is missed changes nothing.
func (g *Gateway) seeTools(ctx context.Context) {
	changed := make(chan struct{}, 1)
	stop := g.downstreams.watch(func(kind string) {
		if kind != kindTools {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	defer stop()
	seen := make(map[string]string) // pins by action
	for {
		all := g.downstreams.catalog().tools
		for i := range all {
			t := &all[i]
			if seen[t.action()] == t.pin || ctx.Err() != nil {
				continue
			}
			known, err := g.see(ctx, t)
			if err != nil {
				g.logger.Error("recording a tool", "tool", t.action(), "err", err)
				continue
			}
			seen[t.action()] = t.pin
			if known.Changed() {
				g.logger.Warn("a tool isn't what was pinned: it counts as unclassified until its new definition is pinned", "tool", t.action())
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// see records what a server says of a tool.
func (g *Gateway) see(ctx context.Context, t *tool) (approval.Tool, error) {
	return g.service.SeeTool(ctx, t.server, t.name, approval.ToolDefinition{Pin: t.pin, JSON: t.definition})
}

// known is the tool as it is recorded, which is as the server says it is now.
func (g *Gateway) known(ctx context.Context, t *tool) (approval.Tool, error) {
	known, err := g.service.Tool(ctx, t.server, t.name)
	if err == nil && known.Seen.Pin == t.pin || err != nil && !errors.Is(err, approval.ErrNoTool) {
		return known, err
	}
	return g.see(ctx, t)
}

// execute runs what is approved until ctx ends.
func (g *Gateway) execute(ctx context.Context) {
	rung, stop := g.service.Bell().ListenAll()
	defer stop()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	resting := make(map[approval.ID]time.Time)
	for {
		g.runApproved(ctx, resting)
		select {
		case <-rung:
		case <-g.runs.freed:
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// runApproved claims and runs what people approved and what runs at the decision.
// resting are requests that aren't tried before a time.
func (g *Gateway) runApproved(ctx context.Context, resting map[approval.ID]time.Time) {
	ids, err := g.service.Runnable(ctx, maxRunnable)
	if err != nil {
		if ctx.Err() == nil {
			g.logger.Error("looking for what to run", "err", err)
		}
		return
	}
	for id := range resting {
		if !slices.Contains(ids, id) {
			delete(resting, id)
		}
	}
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		if time.Now().Before(resting[id]) {
			continue
		}
		r, err := g.options.Load(ctx, id)
		if err != nil {
			g.logger.Error("loading what to run", "request_id", id, "err", err)
			continue
		}
		t := g.downstreams.catalog().byAction[r.Action]
		if !decidedByPeople(r) || t == nil || g.runAt(t) != AtDecision || !g.downstreams.up(t.server) {
			continue // it is left approved until its deadline
		}
		_, err = g.claim(ctx, r, t, maxAtOnce, relay{})
		switch {
		case err == nil, errors.Is(err, errBusy), errors.Is(err, approval.ErrApplied), errors.Is(err, approval.ErrExpired), errors.Is(err, approval.ErrRejected):
		default:
			g.logger.Warn("claiming what to run", "request_id", id, "err", err)
			resting[id] = time.Now().Add(claimPause)
		}
	}
}

// decidedByPeople reports whether people approved a request. What a grant or the
// agent's client approved runs in the call that asked.
func decidedByPeople(r *approval.Request) bool {
	return slices.ContainsFunc(r.Decisions, func(d approval.Decision) bool {
		return d.Person() && d.Verdict == approval.Approve && d.Version == r.Version
	})
}

func (g *Gateway) runAt(t *tool) RunAt { return g.servers[t.server].runAt(t.name) }

// errBusy means that something can't be run at this moment.
var errBusy = errors.New("as much as may runs already, or the gateway is stopping")

// claim uses up an approval and starts the run, which goes on whatever becomes
// of the caller. limit is as in runs.begin. The errors are those of ClaimToRun,
// or errBusy; then nothing was started.
func (g *Gateway) claim(ctx context.Context, r *approval.Request, t *tool, limit int, to relay) (*approval.Request, error) {
	if !g.runs.begin(t.server, limit) {
		return r, errBusy
	}
	pin := t.pin
	if r.Environment != g.servers[t.server].Environment {
		pin = "" // the server acts elsewhere now: that isn't what was approved
	}
	claimed, err := g.service.ClaimToRun(ctx, r.ID, pin)
	if err != nil {
		g.runs.done(t.server)
		return claimed, err
	}
	g.step(stepClaimed, r.ID)
	go func() {
		defer g.runs.done(t.server)
		result, err := g.downstreams.call(g.runs.life, t.server, methodCallTool, callParams(claimed, t), to)
		g.step(stepReturned, r.ID)
		report := reportOf(result, err)
		if errors.Is(err, context.Canceled) {
			report.Detail = detailStopped
		}
		g.finish(claimed.ID, report)
		g.step(stepFinished, r.ID)
	}()
	return claimed, nil
}

// callParams are the parameters of the call that was approved.
func callParams(r *approval.Request, t *tool) json.RawMessage {
	return object([]strictjson.Member{
		{Name: "name", Value: mustEncode(t.name)},
		{Name: "arguments", Value: withKey(r.Payload, r)},
	})
}

// withKey are arguments with the idempotency key, where policy names the
// argument that takes it and the agent gave none: the request's id.
func withKey(arguments []byte, r *approval.Request) json.RawMessage {
	name := r.Ruling.Idempotency
	if name == "" {
		return arguments
	}
	members, err := strictjson.Members(arguments)
	given := func(m strictjson.Member) bool { return strings.EqualFold(m.Name, name) }
	if err != nil || slices.ContainsFunc(members, given) {
		return arguments
	}
	return with(members, name, mustEncode(string(r.ID)))
}

// How long until the end of a run is recorded, if the store can't take it.
var finishPauses = []time.Duration{100 * time.Millisecond, time.Second, 5 * time.Second, 15 * time.Second}

// finish records what came of a run. If that can't be recorded, the run stays
// without an end, and counts as cut off when the gateway starts again.
func (g *Gateway) finish(id approval.ID, report approval.Report) {
	for attempt := 0; ; attempt++ {
		_, err := g.service.FinishRun(context.Background(), id, report)
		switch {
		case err == nil:
			return
		case !errors.Is(err, approval.ErrUnavailable) || attempt == len(finishPauses):
			g.logger.Error("recording what came of a run", "request_id", id, "outcome", report.Outcome, "err", err)
			return
		}
		pause := time.NewTimer(finishPauses[attempt])
		select {
		case <-pause.C:
		case <-g.runs.life.Done():
			pause.Stop()
			attempt = len(finishPauses) - 1 // once more
		}
	}
}

// reportOfError says what came of a call that has no result.
func reportOfError(err error) approval.Report {
	if wire, ok := errors.AsType[*jsonrpc.Error](err); ok {
		report := approval.Report{Outcome: approval.Failed, Detail: cut(wire.Message), Result: carried(wire)}
		if len(report.Result) > approval.MaxResult {
			report.Result = carried(&jsonrpc.Error{Code: wire.Code, Message: report.Detail})
		}
		return report
	}
	switch {
	case errors.Is(err, errUnavailable):
		return approval.Report{Outcome: approval.Failed, Detail: detailNotSent, Result: toolError(whenNotSent)}
	case errors.Is(err, context.DeadlineExceeded):
		return approval.Report{Outcome: approval.Unknown, Detail: detailTooSlow}
	default:
		return approval.Report{Outcome: approval.Unknown, Detail: detailCutOff}
	}
}

// up reports whether a server is connected.
func (d *downstreams) up(server string) bool {
	c := d.connections[server]
	if c == nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.link != nil
}

// detailTooLarge says that a result isn't kept.
func detailTooLarge(size int) string {
	return fmt.Sprintf("The result of %d bytes was too large to keep.", size)
}
