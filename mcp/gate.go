package mcp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
)

// DefaultGateTimeout is how long a call is held by default.
const DefaultGateTimeout = 5 * time.Minute

// WithoutView is what becomes of a call whose host shows no views.
type WithoutView string

// What can become of it.
const (
	// DenyWithoutView denies what people would have to decide. The zero value counts
	// as it.
	DenyWithoutView WithoutView = "deny"
	// WaitWithoutView has people asked elsewhere, and the call wait for them.
	WaitWithoutView WithoutView = "wait"
)

// GateOptions set up a Gate. Zero values are usable.
type GateOptions struct {
	// Timeout is how long people have to decide, and so how long a call is held;
	// zero means DefaultGateTimeout. Less than approval.MinTTL and more than
	// approval.MaxTTL are refused.
	Timeout time.Duration
	// WithoutView is what becomes of a call whose host shows no views.
	WithoutView WithoutView
	// ReviewURL is where people find a request, as in LocalOptions; nil if there is
	// no such page.
	ReviewURL func(approval.ID) string
	// ReviewDecides says that people can sign in at ReviewURL and decide there.
	ReviewDecides bool
	// Name is a person's name, for the view; nil shows ids, as does an empty name
	// or an error.
	Name func(context.Context, approval.Approver) (string, error)
	// Notice is a sentence that always stands in the view; empty for none.
	Notice string
	// Now is the clock of the service; nil means time.Now.
	Now func() time.Time
	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger
}

// Gate is a set of tools with which a call is held until it is decided, in a view
// that the agent's host shows or wherever people decide.
//
// With a Gate in the Options, its tools are served in place of the flow's.
type Gate struct {
	service *approval.Service
	local   *Local // reports how a call waits
	options GateOptions
	names   *presentation.Names
	held    heldCalls
}

// NewGate returns the gate over a service.
func NewGate(service *approval.Service, options GateOptions) (*Gate, error) {
	if options.Timeout == 0 {
		options.Timeout = DefaultGateTimeout
	}
	if options.Timeout < approval.MinTTL || options.Timeout > approval.MaxTTL {
		return nil, fmt.Errorf("holding a call for %v is not possible; %v to %v is accepted", options.Timeout, approval.MinTTL, approval.MaxTTL)
	}
	switch options.WithoutView {
	case "":
		options.WithoutView = DenyWithoutView
	case DenyWithoutView, WaitWithoutView:
	default:
		return nil, fmt.Errorf("a host without views can't be answered with %q; %s and %s are accepted", options.WithoutView, DenyWithoutView, WaitWithoutView)
	}
	if service == nil {
		return nil, errors.New("a gate needs a service")
	}
	local, err := NewLocal(service, LocalOptions{ReviewURL: func(approval.ID) string { return "" }, Now: options.Now})
	if err != nil {
		return nil, err
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	return &Gate{service: service, local: local, options: options, names: presentation.NewNames(options.Name, options.Now)}, nil
}
