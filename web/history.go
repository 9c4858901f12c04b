package web

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
	"github.com/countersign/countersign/policy"
)

// historyPage is what was asked, as far as it matches a filter.
type historyPage struct {
	Asked    filterForm
	Set      []setFilter // the filters that are set
	Problem  string      // why the filter can't be used; empty if it can
	Requests []listed
	Partly   string // said if not all could be searched at once
	Older    string // the address of what is older; empty if nothing is
	Newest   string // the address of the newest; empty if these are
}

// filterForm is a filter as the form has it.
type filterForm struct {
	Text, Status, Tier, Agent, Action, Environment, Rule, DecidedBy, Since, Until string
}

// setFilter is a filter that is set, and the address without it.
type setFilter struct{ Name, Value, Without string }

// filterNames are the filters by their names in addresses.
var filterNames = []struct{ key, name string }{
	{"text", "Text"},
	{"status", "Status"},
	{"tier", "Tier"},
	{"agent", "Agent"},
	{"action", "Action"},
	{"environment", "Environment"},
	{"rule", "Rule"},
	{"decided_by", "Decided by"},
	{"since", "From"},
	{"until", "To"},
}

// filterName is how the page calls what an address calls otherwise.
func filterName(key string) string {
	for _, one := range filterNames {
		if one.key == key {
			return one.name
		}
	}
	return presentation.Capital(key)
}

// history shows what was asked, the newest first.
func (p *pages) history(w http.ResponseWriter, r *http.Request) {
	v, ok := p.person(w, r)
	if !ok {
		return
	}
	query := r.URL.Query()
	content := historyPage{Asked: formOf(query), Set: setOf(query)}
	filter, err := parseFilter(query)
	var found approval.History
	if err == nil {
		found, err = p.service.History(r.Context(), v.who, filter, approval.ID(query.Get("before")))
	}
	var refused *approval.InputError
	switch {
	case errors.As(err, &refused):
		content.Problem = "This can't be searched for: " + filterName(refused.Field) + " " + refused.Problem + "."
		p.show(w, http.StatusBadRequest, "history.html", v, content)
		return
	case err != nil:
		p.fail(w, v, "listing the history", err)
		return
	}
	now := p.options.Now()
	for _, one := range found.Requests {
		content.Requests = append(content.Requests, listedOf(string(one.ID), one, now))
	}
	if found.Next != "" {
		content.Older = addressWith(query, "before", string(found.Next))
		if len(found.Requests) < approval.PageSize {
			content.Partly = "Only " + presentation.Digits(approval.LookedThrough) + " requests are searched at once."
		}
	}
	if query.Get("before") != "" {
		content.Newest = addressWith(query, "before", "")
	}
	p.show(w, http.StatusOK, "history.html", v, content)
}

func formOf(query url.Values) filterForm {
	return filterForm{
		Text:        query.Get("text"),
		Status:      query.Get("status"),
		Tier:        query.Get("tier"),
		Agent:       query.Get("agent"),
		Action:      query.Get("action"),
		Environment: query.Get("environment"),
		Rule:        query.Get("rule"),
		DecidedBy:   query.Get("decided_by"),
		Since:       query.Get("since"),
		Until:       query.Get("until"),
	}
}

func setOf(query url.Values) []setFilter {
	var set []setFilter
	for _, one := range filterNames {
		if value := query.Get(one.key); value != "" {
			without := cloned(query)
			without.Del("before")
			set = append(set, setFilter{one.name, visible.Line(value), addressWith(without, one.key, "")})
		}
	}
	return set
}

// parseFilter reads a filter. Days are in UTC, and both the first and the last one
// are in it.
func parseFilter(query url.Values) (approval.Filter, error) {
	filter := approval.Filter{
		Status:      approval.Status(query.Get("status")),
		Agent:       strings.TrimSpace(query.Get("agent")),
		Action:      strings.TrimSpace(query.Get("action")),
		Environment: strings.TrimSpace(query.Get("environment")),
		Rule:        strings.TrimSpace(query.Get("rule")),
		DecidedBy:   strings.TrimSpace(query.Get("decided_by")),
		Text:        strings.TrimSpace(query.Get("text")),
	}
	if text := query.Get("tier"); text != "" {
		tier, err := strconv.Atoi(text)
		if err != nil || tier < 1 || tier > 5 {
			return filter, &approval.InputError{Field: "tier", Problem: "is none of 1 to 5"}
		}
		filter.Tier = policy.Tier(tier)
	}
	for _, one := range []struct {
		key  string
		into *time.Time
		more int // days
	}{{"since", &filter.Since, 0}, {"until", &filter.Until, 1}} {
		text := query.Get(one.key)
		if text == "" {
			continue
		}
		day, err := time.Parse(time.DateOnly, text)
		if err != nil {
			return filter, &approval.InputError{Field: one.key, Problem: "is no day such as 2026-03-31"}
		}
		*one.into = day.AddDate(0, 0, one.more)
	}
	return filter, nil
}

// addressWith is the address of the history with one part of the query replaced;
// without it if value is empty. What isn't set isn't in it.
func addressWith(query url.Values, key, value string) string {
	next := cloned(query)
	next.Set(key, value)
	for name, values := range next {
		if len(values) == 0 || values[0] == "" {
			next.Del(name)
		}
	}
	if len(next) == 0 {
		return "/history"
	}
	return "/history?" + next.Encode()
}

func cloned(query url.Values) url.Values {
	next := make(url.Values, len(query))
	for name, values := range query {
		next[name] = values
	}
	return next
}
