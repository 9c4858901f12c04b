package bot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/slack-go/slack"
)

// responseHosts are where Slack takes answers to clicks. An answer goes nowhere
// else, whatever a payload says.
var responseHosts = []string{"hooks.slack.com", "hooks.slack-gov.com"}

// tell shows a line to the person who clicked, and to nobody else. It doesn't
// hold up the acknowledgement. "" tells nothing.
func (b *Bot) tell(i *interaction, text string) {
	if text == "" {
		return
	}
	b.later(func(ctx context.Context) {
		err := b.respond(ctx, i.ResponseURL, text)
		if err == nil {
			return
		}
		if i.Channel != nil {
			_, fallback := b.slack.PostEphemeralContext(ctx, i.Channel.ID, i.User.ID, slack.MsgOptionText(text, false))
			if fallback == nil {
				return
			}
			err = errors.Join(err, fallback)
		}
		b.options.Logger.Warn("a click got no answer", "request_id", i.about.request, "err", err)
	})
}

// respond answers through the response URL of a click.
func (b *Bot) respond(ctx context.Context, address, text string) error {
	if !b.responseURL(address) {
		return errors.New("the response URL is not Slack's")
	}
	body, err := json.Marshal(map[string]any{
		"response_type":    "ephemeral",
		"replace_original": false,
		"text":             text,
	})
	if err != nil {
		return fmt.Errorf("encoding an answer: %w", err)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, address, bytes.NewReader(body))
	if err != nil {
		return errors.New("the response URL can't be used")
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := b.web.Do(request)
	if err != nil {
		// The URL answers for the person who clicked, so it stays out of logs.
		var failed *url.Error
		if errors.As(err, &failed) {
			err = failed.Err
		}
		return fmt.Errorf("posting to the response URL: %w", err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10))
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("posting to the response URL: %s", response.Status)
	}
	return nil
}

// responseURL reports whether answers may be posted there: to Slack, or to the
// configured API's host.
func (b *Bot) responseURL(address string) bool {
	u, err := url.Parse(address)
	if err != nil || u.User != nil {
		return false
	}
	if u.Scheme == "https" {
		for _, host := range responseHosts {
			if u.Host == host {
				return true
			}
		}
	}
	api, err := url.Parse(b.options.APIURL)
	return err == nil && u.Scheme == api.Scheme && u.Host == api.Host
}

// open opens a modal and returns its id; false if it couldn't, which the person
// is told.
func (b *Bot) open(ctx context.Context, i *interaction, view slack.ModalViewRequest) (string, bool) {
	opened, err := b.slack.OpenViewContext(ctx, i.TriggerID, view)
	if err == nil {
		return opened.ID, true
	}
	text := "Slack didn't open the window. Please press the button again."
	if code(err) == "expired_trigger_id" {
		text = "That took too long for Slack. Please press the button again."
	}
	b.options.Logger.Warn("opening a modal", "request_id", i.about.request, "err", err)
	b.tell(i, text)
	return "", false
}

// fill replaces what an open modal shows. If that can't be, the modal says so: it
// must not go on saying that it loads.
func (b *Bot) fill(ctx context.Context, id string, view slack.ModalViewRequest) {
	_, err := b.filler.UpdateViewContext(ctx, view, "", "", id)
	if err == nil || code(err) == "not_found" {
		// The person may have closed it.
		return
	}
	b.options.Logger.Error("filling a modal", "callback_id", view.CallbackID, "err", explained(err))
	sorry := renderAnswer("Slack refused to show this request. It can't be approved here.")
	if code(err) == "" {
		sorry = renderAnswer("This took too long. Close it and press the button again.")
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), interactiveTimeout)
	defer cancel()
	if _, err := b.filler.UpdateViewContext(ctx, sorry, "", "", id); err != nil {
		b.options.Logger.Warn("filling a modal", "err", explained(err))
	}
}
