package bot

import (
	"errors"
	"fmt"
	"net/url"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/countersign/countersign/policy"
)

// errMalformed means that an interaction is none that our cards and modals can
// cause.
var errMalformed = errors.New("this is no interaction of ours")

// interaction is the little of an interaction payload that we use. What the
// payload says of the message's content is never read: a card is rendered from
// the store only.
type interaction struct {
	Type     string   `json:"type"`
	APIAppID string   `json:"api_app_id"`
	Team     *located `json:"team"` // null for an installation in a whole organisation
	User     struct {
		ID     string `json:"id"`
		TeamID string `json:"team_id"`
	} `json:"user"`
	TriggerID   string   `json:"trigger_id"`
	ResponseURL string   `json:"response_url"`
	Channel     *located `json:"channel"`
	Actions     []struct {
		ActionID string `json:"action_id"`
		Value    string `json:"value"`
	} `json:"actions"`
	View *struct {
		ID              string `json:"id"`
		CallbackID      string `json:"callback_id"`
		PrivateMetadata string `json:"private_metadata"`
		State           struct {
			Values map[string]map[string]struct {
				Value    string `json:"value"`
				Selected *struct {
					Value string `json:"value"`
				} `json:"selected_option"`
			} `json:"values"`
		} `json:"state"`
	} `json:"view"`

	about shown // what the button or the modal was about
}

type located struct {
	ID string `json:"id"`
}

// The types of interactions that our cards and modals cause.
const (
	blockActions   = "block_actions"
	viewSubmission = "view_submission"
	viewClosed     = "view_closed"
)

// formPayload returns the interaction's JSON from a verified request's body.
func formPayload(body []byte) ([]byte, error) {
	form, err := url.ParseQuery(string(body))
	if err != nil {
		return nil, fmt.Errorf("%w: the body isn't a form", errMalformed)
	}
	if len(form["payload"]) != 1 {
		// Of two, another program might read the other one.
		return nil, fmt.Errorf("%w: it has %d payload fields", errMalformed, len(form["payload"]))
	}
	return []byte(form["payload"][0]), nil
}

// parseInteraction decodes an interaction and refuses what our cards and modals
// can't cause. Keys that occur twice, which two parsers could read differently,
// are refused too.
func parseInteraction(payload []byte) (*interaction, error) {
	var i interaction
	// Slack may cut texts that it repeats in the middle of a character; none of
	// those are read.
	if err := json.Unmarshal(payload, &i, jsontext.AllowInvalidUTF8(true)); err != nil {
		return nil, fmt.Errorf("%w: its JSON can't be read", errMalformed)
	}
	if !policy.IsUserID(i.User.ID) {
		return nil, fmt.Errorf("%w: it doesn't say which user acted", errMalformed)
	}
	value := ""
	switch i.Type {
	case viewClosed:
		return &i, nil
	case blockActions:
		if len(i.Actions) != 1 {
			return nil, fmt.Errorf("%w: it has %d actions", errMalformed, len(i.Actions))
		}
		switch action := i.Actions[0]; action.ActionID {
		case approveAction, reasonAction, grantAction, rejectAction, detailsAction, whyAction, revokeAction, takeBackAction, pageAction, ranAction, notRanAction:
			value = action.Value
		default:
			return nil, fmt.Errorf("%w: the action is unknown", errMalformed)
		}
	case viewSubmission:
		if i.View == nil {
			return nil, fmt.Errorf("%w: it has no view", errMalformed)
		}
		switch i.View.CallbackID {
		case approveView, grantView, rejectView:
			value = i.View.PrivateMetadata
		default:
			return nil, fmt.Errorf("%w: the view is unknown", errMalformed)
		}
	default:
		return nil, fmt.Errorf("%w: its type is unknown", errMalformed)
	}
	var ok bool
	if i.about, ok = parseValue(value); !ok {
		return nil, fmt.Errorf("%w: it doesn't say which request it is about", errMalformed)
	}
	return &i, nil
}

// reason is what was typed into a modal that asks for a reason.
func (i *interaction) reason() string {
	return i.View.State.Values[reasonInput][reasonInput].Value
}

// scope is how far an approval is to go that was chosen in a modal; "" if
// nothing was.
func (i *interaction) scope() string {
	if chosen := i.View.State.Values[scopeInput][scopeInput].Selected; chosen != nil {
		return chosen.Value
	}
	return ""
}

// asks reports whether the modal has an input of this name.
func (i *interaction) asks(input string) bool {
	_, asks := i.View.State.Values[input]
	return asks
}
