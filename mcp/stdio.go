package mcp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

// ServeStdio serves the tools to one host over in and out, which are the
// process's standard input and output, until in ends or ctx does; both are a
// nil error. Calls that wait then return what is known. Nothing else may write
// to out. Both are closed at the end; a read of in that closing doesn't
// interrupt is left behind.
//
// agent is who calls. A Remote takes its own from its token.
func ServeStdio(ctx context.Context, flow Flow, agent approval.Agent, in io.ReadCloser, out io.WriteCloser, options Options) error {
	options.defaults()
	// The connection is the session, whatever the protocol says of sessions.
	connection := sessionName(rand.Text())
	s := newServer(flow, func(request sdk.Request) (caller, error) {
		who := caller{agent: agent, session: connection}
		if e := exchangeOf(request.GetExtra()); e != nil {
			who.params = e.params
		}
		return who, nil
	}, options)
	over := newSDKServer(options)
	defer s.serve(over, options)()
	// When ctx ends, calls must still be answered: only closing ends the session.
	answered := newCalls()
	open, hangUp := context.WithCancel(context.Background())
	defer hangUp()
	transport := &countedTransport{&sdk.IOTransport{Reader: in, Writer: out}, answered, open}
	session, err := over.Connect(context.WithoutCancel(ctx), transport, nil)
	if err != nil {
		return fmt.Errorf("starting to serve stdio: %w", err)
	}
	gone := make(chan struct{}) // closed when the host is, and nothing can be answered any more
	closed := make(chan struct{})
	closing := context.AfterFunc(ctx, func() {
		defer close(closed)
		s.end()
		answered.drain(gone)
		hangUp()
		_ = session.Close() // Wait reports how it ended
	})
	err = session.Wait()
	close(gone)
	if !closing() {
		<-closed
	}
	s.end()
	s.prompts.wait()
	// A host that goes away is the end, whether it is noticed by reading or by writing.
	if err != nil && ctx.Err() == nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrClosedPipe) {
		return fmt.Errorf("serving stdio: %w", err)
	}
	return nil
}
