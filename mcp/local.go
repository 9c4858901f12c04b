package mcp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/countersign/countersign/approval"
)

// How long one await_approval waits. Hosts give up on a tool call from 30 s on
// and most by 60 s, and a call that a host gave up on tells the model nothing.
const (
	DefaultAwaitBound = 25 * time.Second
	MaxAwaitBound     = 55 * time.Second
)

// progressEvery is how often a waiting caller hears that nothing has happened.
const progressEvery = 10 * time.Second

// LocalOptions set up a Local.
type LocalOptions struct {
	// ReviewURL is where people find a request, such as
	// https://HOST/review?elicitationId=ID. Required. The address is a locator:
	// it must decide nothing and reveal nothing by itself.
	ReviewURL func(approval.ID) string
	// ReviewDecides says that people can sign in at ReviewURL and decide there.
	ReviewDecides bool
	// AwaitBound is how long one Await waits at most; zero means
	// DefaultAwaitBound. More than MaxAwaitBound is refused.
	AwaitBound time.Duration
	// Now is the clock of the service; nil means time.Now.
	Now func() time.Time
}

// Local is the Flow of this process's own service. An agent sees only its own
// requests: another's look like unknown ones.
type Local struct {
	service *approval.Service
	options LocalOptions
}

var _ Flow = (*Local)(nil)

// NewLocal returns the Flow over a service.
func NewLocal(service *approval.Service, options LocalOptions) (*Local, error) {
	if options.ReviewURL == nil {
		return nil, errors.New("no review address is given")
	}
	if options.AwaitBound == 0 {
		options.AwaitBound = DefaultAwaitBound
	}
	if options.AwaitBound < time.Second || options.AwaitBound > MaxAwaitBound {
		return nil, fmt.Errorf("waiting %v for a decision is not possible; 1s to %v is accepted, because hosts give up on longer calls", options.AwaitBound, MaxAwaitBound)
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	return &Local{service: service, options: options}, nil
}

// Request implements Flow.
func (l *Local) Request(ctx context.Context, agent approval.Agent, p approval.Proposal) (Answer, error) {
	if err := named(agent); err != nil {
		return Answer{}, err
	}
	r, err := l.service.Request(ctx, agent, p)
	if err != nil {
		return Answer{}, refusal(err, r)
	}
	url := l.options.ReviewURL(r.ID)
	return Answer{
		Status:    r.Status,
		Guidance:  afterRequest(r, url, l.options.ReviewDecides),
		ID:        r.ID,
		ReviewURL: url,
		ExpiresAt: r.Deadline(),
	}, nil
}

// Await implements Flow. It returns pending when the bound has passed or the
// service drains.
func (l *Local) Await(ctx context.Context, agent approval.Agent, id approval.ID, report func(message string)) (Answer, error) {
	if err := named(agent); err != nil {
		return Answer{}, err
	}
	if report != nil {
		stop, err := l.report(ctx, agent, id, report)
		if err != nil {
			return Answer{}, err
		}
		defer stop()
	}
	r, err := l.service.Await(ctx, agent, id, l.options.AwaitBound)
	return answer(r, err)
}

// report calls report at once and every progressEvery while the request is
// pending, until the returned function is called, which waits for a call that
// is under way.
func (l *Local) report(ctx context.Context, agent approval.Agent, id approval.ID, report func(message string)) (stop func(), err error) {
	r, err := l.service.Status(ctx, agent, id)
	if err != nil {
		return nil, refusal(err, nil)
	}
	if r.Status != approval.Pending {
		return func() {}, nil
	}
	report(r.Waiting(l.options.Now()))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(progressEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			// Whatever ended the wait is Await's to tell.
			r, err := l.service.Status(ctx, agent, id)
			if err != nil || r.Status != approval.Pending {
				return
			}
			report(r.Waiting(l.options.Now()))
		}
	}()
	return func() { cancel(); <-ended }, nil
}

// Status implements Flow.
func (l *Local) Status(ctx context.Context, agent approval.Agent, id approval.ID) (Answer, error) {
	if err := named(agent); err != nil {
		return Answer{}, err
	}
	r, err := l.service.Status(ctx, agent, id)
	return answer(r, err)
}

// Apply implements Flow.
func (l *Local) Apply(ctx context.Context, agent approval.Agent, id approval.ID) (Answer, error) {
	if err := named(agent); err != nil {
		return Answer{}, err
	}
	r, err := l.service.Claim(ctx, agent, id)
	if err != nil {
		return Answer{}, refusal(err, r)
	}
	return Answer{Status: r.Status, Guidance: whenApplied, Payload: r.Payload}, nil
}

func answer(r *approval.Request, err error) (Answer, error) {
	if err != nil {
		return Answer{}, refusal(err, nil)
	}
	return Answer{Status: r.Status, Guidance: guidance(r)}, nil
}

// named refuses to act for nobody: a caller whose name was lost on the way must
// not share requests with the next one.
func named(agent approval.Agent) error {
	if !approval.ValidAgentName(agent.Name) {
		return fmt.Errorf("the calling agent has no valid name (%q)", agent.Name)
	}
	return nil
}
