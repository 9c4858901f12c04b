package mcp

import (
	"context"
	"log/slog"
	"sync"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

const (
	// settle is how long a result waits for the prompt that travels before it:
	// an error in that time means that nothing was delivered.
	settle = 50 * time.Millisecond
	// watchPause is how long a prompt's watcher rests between two waits.
	watchPause = time.Second
	// promptIdle is how long a host over HTTP may leave a prompt unanswered: the
	// SDK can't close a session while it waits for an answer in it.
	promptIdle = sessionIdle
	// completeLimit is how long telling a host that a prompt is over may take.
	completeLimit = 5 * time.Second

	// The protocol versions between which a server may push a prompt at all,
	// and tell that it is over.
	promptsUntil  = "2026-07-28"
	completesFrom = "2025-11-25"
)

// prompts are the links that hosts were asked to show. A prompt is a
// convenience: what the host answers decides nothing.
type prompts struct {
	flow   Flow
	now    func() time.Time
	logger *slog.Logger

	life context.Context // ends with the server
	end  context.CancelFunc
	work sync.WaitGroup

	mu    sync.Mutex
	open  map[promptKey]*prompt
	ended map[*sdk.ServerSession]context.Context
}

// promptKey is where a prompt was shown, and for what.
type promptKey struct {
	session *sdk.ServerSession
	id      approval.ID
}

// prompt is one link that a host was sent.
type prompt struct {
	promptKey
	agent     approval.Agent
	end       context.CancelFunc
	completes bool // the host's protocol has a way to say that it is over
	over      chan struct{}

	mu   sync.Mutex
	told bool // guarded by mu; over is closed when it is set
}

func newPrompts(flow Flow, options Options) *prompts {
	life, end := context.WithCancel(context.Background())
	return &prompts{
		flow:   flow,
		now:    options.Now,
		logger: options.Logger,
		life:   life,
		end:    end,
		open:   make(map[promptKey]*prompt),
		ended:  make(map[*sdk.ServerSession]context.Context),
	}
}

// stop ends all prompts; there are no new ones from then on.
func (p *prompts) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// wait returns when nothing of the prompts runs any more, which is after stop
// and after the sessions have ended.
func (p *prompts) wait() { p.work.Wait() }

// push sends the host the request's link if the host said that it can show
// links and its protocol lets a server ask. It reports whether it was sent, and
// takes no longer than settle to find out.
func (p *prompts) push(ctx context.Context, c call, a Answer) bool {
	if a.Status != approval.Pending {
		return false // there is nothing to decide
	}
	if p.shows(promptKey{c.Session, a.ID}) {
		return true // the agent asks for the same again
	}
	version, capabilities := c.ProtocolVersion(), c.ClientCapabilities()
	if version >= promptsUntil || capabilities == nil || capabilities.Elicitation == nil || capabilities.Elicitation.URL == nil {
		return false
	}
	// The prompt outlives the call but not the request; the grace lets an
	// expiry be told as one. It keeps the call's values, by which the prompt
	// travels on the stream of the call's result.
	const grace = 10 * time.Second
	life, end := context.WithTimeout(context.WithoutCancel(ctx), a.ExpiresAt.Sub(p.now())+grace)
	one := &prompt{
		promptKey: promptKey{c.Session, a.ID},
		agent:     c.agent,
		end:       end,
		completes: version >= completesFrom,
		over:      make(chan struct{}),
	}
	ended, ok := p.add(one)
	if !ok {
		end()
		return false
	}
	fromSession := context.AfterFunc(ended, end)
	fromServer := context.AfterFunc(p.life, end)
	finish := func() {
		fromSession()
		fromServer()
		end()
		p.remove(one)
	}

	started, answered := make(chan struct{}), make(chan error, 1)
	p.work.Go(func() {
		asking := life
		if c.reachable != nil {
			limited, cancel := context.WithTimeout(life, promptIdle)
			defer cancel()
			asking = limited
		}
		close(started)
		_, err := c.Session.Elicit(asking, &sdk.ElicitParams{
			Mode:          "url",
			Message:       "A person must approve this before it runs. Open the review page?",
			URL:           a.ReviewURL,
			ElicitationID: string(a.ID),
		})
		answered <- err
	})
	<-started
	timer := time.NewTimer(settle)
	defer timer.Stop()
	select {
	case err := <-answered:
		if err != nil {
			p.logger.Debug("sending a prompt", "request_id", a.ID, "err", err)
			finish()
			return false
		}
	case <-timer.C:
	}
	p.work.Go(func() {
		defer finish()
		p.watch(life, one, c.agent)
	})
	return true
}

// shows reports whether a prompt was sent and isn't over.
func (p *prompts) shows(key promptKey) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.open[key] != nil
}

// endSession ends the prompts of an agent in a session that it wants closed.
func (p *prompts) endSession(session string, agent approval.Agent) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, one := range p.open {
		if one.agent == agent && one.session.ID() == session {
			one.end()
		}
	}
}

// watch waits until the request is no longer pending and tells the host so. If
// the host can't be reached outside a call, it leaves that to the next call
// that learns of the decision.
func (p *prompts) watch(life context.Context, one *prompt, agent approval.Agent) {
	for {
		answer, err := p.flow.Await(life, agent, one.id, nil)
		if err == nil && answer.Status != approval.Pending {
			break
		}
		// A wait that ends undecided is at its bound, or the flow is draining or
		// can't be reached: none is a reason to ask again at once.
		select {
		case <-life.Done():
			return
		case <-time.After(watchPause):
		}
	}
	if !one.completes {
		return
	}
	one.complete(p.life, p.logger)
	select {
	case <-one.over:
	case <-life.Done():
	}
}

// decided tells the host, on the way of a call's result, that a prompt is over.
func (p *prompts) decided(ctx context.Context, c call, id approval.ID) {
	p.mu.Lock()
	one := p.open[promptKey{c.Session, id}]
	p.mu.Unlock()
	if one != nil && one.completes {
		one.complete(ctx, p.logger)
	}
}

// tellOver tells the host, on the way of a call's result, which of the caller's
// prompts in the session are over.
func (p *prompts) tellOver(ctx context.Context, session *sdk.ServerSession, agent approval.Agent) {
	var open []*prompt
	p.mu.Lock()
	for key, one := range p.open {
		if key.session == session && one.agent == agent && one.completes {
			open = append(open, one)
		}
	}
	p.mu.Unlock()
	for _, one := range open {
		// What can't be found out now is the watcher's, and the next call's.
		answer, err := p.flow.Status(ctx, agent, one.id)
		if err == nil && answer.Status != approval.Pending {
			one.complete(ctx, p.logger)
		}
	}
}

// complete tells the host once that the prompt is over. ctx says on which
// stream: that of a call, or the session's own.
func (o *prompt) complete(ctx context.Context, logger *slog.Logger) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, completeLimit)
	defer cancel()
	if err := o.session.NotifyElicitationComplete(ctx, &sdk.ElicitationCompleteParams{ElicitationID: string(o.id)}); err != nil {
		logger.Debug("completing a prompt", "request_id", o.id, "err", err)
		return
	}
	o.told = true
	close(o.over)
}

// add keeps a prompt until remove and returns the context that ends with its
// session; false if the server is stopping.
func (p *prompts) add(one *prompt) (context.Context, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.life.Err() != nil {
		return nil, false
	}
	p.work.Add(1)
	p.open[one.promptKey] = one
	if ended, known := p.ended[one.session]; known {
		return ended, true
	}
	ended, end := context.WithCancel(context.Background())
	p.ended[one.session] = ended
	p.work.Go(func() {
		_ = one.session.Wait() // however it ended
		end()
		p.mu.Lock()
		delete(p.ended, one.session)
		p.mu.Unlock()
	})
	return ended, true
}

func (p *prompts) remove(one *prompt) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, one.promptKey)
	p.work.Done()
}
