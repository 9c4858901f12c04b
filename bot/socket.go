package bot

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"github.com/slack-go/slack"
	"github.com/slack-go/slack/socketmode"
)

// socketRetry is how long to wait after Slack refused the app token.
const socketRetry = time.Minute

// flushTime is how long the library gets to write acknowledgements before the
// connection is closed. It takes them into a queue, and doesn't say when they
// are written; that takes less than a millisecond unless the machine is busy.
const flushTime = 250 * time.Millisecond

// runSocket receives interactions over Socket Mode until ctx ends. The library
// connects again by itself, except when Slack refuses the token.
func (b *Bot) runSocket(ctx context.Context) {
	for ctx.Err() == nil {
		b.health.set(socketPart, errDisconnected)
		err := b.connect(ctx)
		if ctx.Err() != nil {
			return
		}
		b.options.Logger.Error("connecting to Slack over Socket Mode", "err", err, "next_attempt_in", socketRetry.String(),
			"todo", "make a new app-level token with connections:write on the Slack app's Basic Information page, and check that Socket Mode is on")
		sleep(ctx, socketRetry, nil)
	}
}

// connect keeps a connection until ctx ends or Slack refuses the token. When
// ctx ends, it takes no more interactions, and stays connected until those in
// hand are handled and their acknowledgements have had time to be written.
func (b *Bot) connect(ctx context.Context) error {
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	client := socketmode.New(b.options.client(deliveryTimeout))
	ended := make(chan error, 1)
	go func() { ended <- client.RunContext(connected) }()

	var inHand sync.WaitGroup
	defer inHand.Wait()
	for {
		select {
		case event := <-client.Events:
			b.receive(connected, client, event, &inHand)
		case err := <-ended:
			return err
		case <-ctx.Done():
			inHand.Wait()
			if b.acknowledged.Load() {
				sleep(connected, flushTime, nil)
			}
			disconnect()
			return <-ended
		}
	}
}

// receive takes one event. Interactions are handled beside each other: one that
// waits for Slack must not hold up the next.
func (b *Bot) receive(ctx context.Context, client *socketmode.Client, event socketmode.Event, inHand *sync.WaitGroup) {
	switch event.Type {
	case socketmode.EventTypeConnecting:
		b.health.set(socketPart, errDisconnected)
	case socketmode.EventTypeConnectionError:
		var cause error
		if failed, ok := event.Data.(*slack.ConnectionErrorEvent); ok {
			cause = failed.ErrorObj
		}
		b.options.Logger.Warn("connecting to Slack over Socket Mode", "err", cause)
	case socketmode.EventTypeHello:
		b.greeted(event.Request)
	case socketmode.EventTypeInteractive:
		inHand.Go(func() { b.acknowledge(ctx, client, event.Request.EnvelopeID, event.Request.Payload) })
	case socketmode.EventTypeErrorBadMessage:
		// The library decodes more of an interaction than we read, and refuses
		// what it doesn't know.
		bad, ok := event.Data.(*socketmode.ErrorBadMessage)
		if !ok {
			return
		}
		var envelope struct {
			Type       string          `json:"type"`
			EnvelopeID string          `json:"envelope_id"`
			Payload    json.RawMessage `json:"payload"`
		}
		if json.Unmarshal(bad.Message, &envelope) == nil && envelope.Type == socketmode.RequestTypeInteractive {
			inHand.Go(func() { b.acknowledge(ctx, client, envelope.EnvelopeID, envelope.Payload) })
		}
	}
}

// greeted notes that Slack sends us interactions now. Of several connections of
// one app, each interaction goes to any one.
func (b *Bot) greeted(hello *socketmode.Request) {
	b.appID.set(hello.ConnectionInfo.AppID)
	b.health.set(socketPart, nil)
	b.options.Logger.Info("connected to Slack over Socket Mode", "connections", hello.NumConnections)
	if hello.NumConnections > 1 {
		b.options.Logger.Warn("another process is connected with the same app and gets some of the clicks; stop it",
			"connections", hello.NumConnections)
	}
}

// acknowledge handles an interaction and then acknowledges it. One that isn't
// acknowledged shows Slack's error to the person.
func (b *Bot) acknowledge(ctx context.Context, client *socketmode.Client, envelope string, payload []byte) {
	response, err := b.handle(ctx, payload)
	switch {
	case errors.Is(err, errMalformed):
		b.options.Logger.Warn("refusing an interaction", "err", err)
		return
	case err != nil:
		b.options.Logger.Error("an interaction was not acknowledged", "err", err)
		return
	}
	ack := socketmode.Response{EnvelopeID: envelope}
	if response != nil {
		ack.Payload = response
	}
	ctx, cancel := context.WithTimeout(ctx, interactiveTimeout)
	defer cancel()
	if err := client.SendCtx(ctx, ack); err != nil {
		b.options.Logger.Error("acknowledging an interaction", "err", err)
		return
	}
	b.acknowledged.Store(true)
}
