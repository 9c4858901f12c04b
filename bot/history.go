package bot

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/slack-go/slack"

	"github.com/countersign/countersign/approval"
)

const (
	historyPage  = 200
	historyPages = 20
	// historyMargin allows for a difference between Slack's clock and ours.
	historyMargin = 5 * time.Minute
)

// history looks for our messages in a channel. It reads the few fields that it
// needs by itself: the library decodes every block of every app's message, and
// one that it can't decode would fail the whole page, and so the search.
type history struct {
	options Options
	client  *http.Client
	self    *slack.AuthTestResponse // who we are
}

func newHistory(options Options) history {
	return history{options: options, client: httpClient(deliveryTimeout), self: &slack.AuthTestResponse{}}
}

type historyAnswer struct {
	slack.SlackResponse
	Messages []struct {
		Timestamp string `json:"ts"`
		User      string `json:"user"`
		BotID     string `json:"bot_id"`
		Metadata  struct {
			EventType string          `json:"event_type"`
			Payload   json.RawMessage `json:"event_payload"` // another app's may be anything
		} `json:"metadata"`
	} `json:"messages"`
	ResponseMetadata struct {
		NextCursor string `json:"next_cursor"`
	} `json:"response_metadata"`
}

// find returns the reference of the request's card in the channel, or "" if
// none of ours is there since the request was made. Other apps may write the
// same metadata, so the author counts. What the thread holds isn't known then.
func (h history) find(ctx context.Context, r *approval.Request) (string, error) {
	found := ""
	err := h.ours(ctx, r.CreatedAt, metadataEvent, func(timestamp string, payload json.RawMessage) bool {
		var about struct {
			RequestID string `json:"request_id"`
		}
		if json.Unmarshal(payload, &about) != nil || about.RequestID != string(r.ID) {
			return false
		}
		found = place{channel: h.options.Channel, timestamp: timestamp}.String()
		return true
	})
	return found, err
}

// ours calls done for our messages in the channel that are marked with an event,
// newest first, until it says that it is. Thread replies are among them if the
// channel shows them.
func (h history) ours(ctx context.Context, since time.Time, event string, done func(timestamp string, payload json.RawMessage) bool) error {
	cursor := ""
	for range historyPages {
		page, err := h.page(ctx, since.Add(-historyMargin), cursor)
		if err != nil {
			return err
		}
		for _, m := range page.Messages {
			ours := m.User == h.self.UserID && m.User != "" || m.BotID == h.self.BotID && m.BotID != ""
			if ours && m.Metadata.EventType == event && done(m.Timestamp, m.Metadata.Payload) {
				return nil
			}
		}
		if cursor = page.ResponseMetadata.NextCursor; cursor == "" {
			break
		}
	}
	return nil
}

func (h history) page(ctx context.Context, since time.Time, cursor string) (*historyAnswer, error) {
	form := url.Values{
		"channel":              {h.options.Channel},
		"oldest":               {strconv.FormatInt(since.Unix(), 10) + ".000000"},
		"limit":                {strconv.Itoa(historyPage)},
		"include_all_metadata": {"true"},
	}
	if cursor != "" {
		form.Set("cursor", cursor)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, h.options.APIURL+"conversations.history", strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("making a request: %w", err)
	}
	request.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	request.Header.Set("Authorization", "Bearer "+h.options.Token)
	response, err := h.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	switch {
	case response.StatusCode == http.StatusTooManyRequests:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return nil, &slack.RateLimitedError{RetryAfter: time.Duration(seconds) * time.Second}
	case response.StatusCode != http.StatusOK:
		return nil, slack.StatusCodeError{Code: response.StatusCode, Status: response.Status}
	}
	var answer historyAnswer
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return nil, fmt.Errorf("reading the channel's history: %w", err)
	}
	if !answer.Ok {
		return nil, slack.SlackErrorResponse{Err: answer.Error, Needed: answer.Needed}
	}
	return &answer, nil
}
