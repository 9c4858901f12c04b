package approval

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/policy"
)

// What makes a rule a candidate to be changed.
const (
	// LoosenAfter is how many of a rule's requests must have ended, and LoosenShare
	// how many of a hundred of them were approved, before it is named as one that
	// could ask for less.
	LoosenAfter, LoosenShare = 20, 95
	// BlockAfter and BlockShare are the same of rejected ones, for a rule that
	// could deny.
	BlockAfter, BlockShare = 10, 90
	// Hasty is how soon nobody has read what they approve or reject.
	Hasty = 3 * time.Second
)

// highTier is from where on one rejection is enough to leave a rule as it is.
const highTier = 4

// Asked is what insights need of a request that people were asked about.
type Asked struct {
	Action    string
	Tier      policy.Tier
	Rules     []string // the ids of the rules that fired
	Status    Status
	CreatedAt time.Time
	DecidedAt time.Time // zero until approved or rejected
	Approved  bool      // people approved it, whatever came of that
}

// Ending is what people's part in a request came to.
type Ending string

// The endings.
const (
	EndedApproved Ending = "approved"
	EndedRejected Ending = "rejected"
	// EndedExpired means that nobody decided in time.
	EndedExpired Ending = "expired"
	// EndedSuperseded means that it didn't hold any more before enough had
	// decided.
	EndedSuperseded Ending = "superseded"
	// EndedNot means that people can still decide.
	EndedNot Ending = "waiting"
)

// Ending is what people's part in the request came to.
func (a Asked) Ending() Ending {
	switch {
	case a.Approved:
		return EndedApproved
	case a.Status == Expired:
		return EndedExpired
	case a.Status == Rejected && !a.DecidedAt.IsZero():
		return EndedRejected
	case a.Status == Rejected:
		return EndedSuperseded
	default:
		return EndedNot
	}
}

// Figures are about the requests of a rule, of an action or of everything.
type Figures struct {
	// Name is the rule's id or the action; empty for everything, and for requests
	// that state no action or that no rule was about.
	Name                                             string
	Asked                                            int
	Approved, Rejected, Expired, Superseded, Waiting int
	// Median and Late are how long people took from the question to the decision:
	// half of the decided requests took no longer than Median, and nine of ten no
	// longer than Late. Zero if nothing was decided.
	Median, Late time.Duration
	// HastyCount is how many were decided in less than Hasty.
	HastyCount int
	// RejectedHigh is how many of the rejected ones were of tier 4 or 5.
	RejectedHigh int
}

// Decided is how many people approved or rejected.
func (f Figures) Decided() int { return f.Approved + f.Rejected }

// Ended is how many people decided, or could have until it was too late.
func (f Figures) Ended() int { return f.Decided() + f.Expired }

// Loosen reports whether nearly everything was approved, so that the rule may
// ask for more than it has to.
func (f Figures) Loosen() bool {
	return f.Ended() >= LoosenAfter && 100*f.Approved >= LoosenShare*f.Ended() && f.RejectedHigh == 0
}

// Block reports whether nearly everything was rejected, so that the rule may as
// well deny it.
func (f Figures) Block() bool {
	return f.Ended() >= BlockAfter && 100*f.Rejected >= BlockShare*f.Ended()
}

// Day is how many requests were made on one day, by what they came to.
type Day struct {
	Date                                             time.Time // its beginning, in UTC
	Approved, Rejected, Expired, Superseded, Waiting int
}

// Asked is how many requests were made on the day.
func (d Day) Asked() int {
	return d.Approved + d.Rejected + d.Expired + d.Superseded + d.Waiting
}

// Insights are what can be learned from what was asked of people.
type Insights struct {
	Since, Until time.Time
	All          Figures
	Rules        []Figures // the most asked first
	Actions      []Figures
	Days         []Day           // every day there was, in order
	Took         []time.Duration // from the question to the decision, the shortest first
}

// Insights looks at what was asked of people in the last days, today included,
// in UTC. 1 to 366 days are accepted. The errors are those of Waiting.
func (s *Service) Insights(ctx context.Context, who Approver, days int) (Insights, error) {
	if days < 1 || days > 366 {
		return Insights{}, invalid("days", "is %d; 1 to 366 are accepted", days)
	}
	if _, err := s.looks(ctx, who); err != nil {
		return Insights{}, err
	}
	now := milliseconds(s.options.Now())
	since, until := now.Truncate(24*time.Hour).AddDate(0, 0, 1-days), now.Add(time.Millisecond)
	asked, err := s.store.Asked(ctx, since, until)
	if err != nil {
		return Insights{}, err
	}
	return learn(asked, since, until), nil
}

func learn(asked []Asked, since, until time.Time) Insights {
	found := Insights{Since: since, Until: until}
	for day := since; day.Before(until); day = day.AddDate(0, 0, 1) {
		found.Days = append(found.Days, Day{Date: day})
	}
	all := new(tally)
	rules, actions := make(map[string]*tally), make(map[string]*tally)
	for _, one := range asked {
		all.add(one)
		of(actions, one.Action).add(one)
		for _, rule := range one.Rules {
			of(rules, rule).add(one)
		}
		if len(one.Rules) == 0 {
			of(rules, "").add(one)
		}
		at := int(one.CreatedAt.Sub(since) / (24 * time.Hour))
		if at < 0 || at >= len(found.Days) {
			continue
		}
		switch day := &found.Days[at]; one.Ending() {
		case EndedApproved:
			day.Approved++
		case EndedRejected:
			day.Rejected++
		case EndedExpired:
			day.Expired++
		case EndedSuperseded:
			day.Superseded++
		case EndedNot:
			day.Waiting++
		}
	}
	found.All, found.Took = all.figures(""), all.took
	found.Rules, found.Actions = ranked(rules), ranked(actions)
	return found
}

// tally counts up Figures.
type tally struct {
	counted Figures
	took    []time.Duration
}

func of(tallies map[string]*tally, name string) *tally {
	if tallies[name] == nil {
		tallies[name] = new(tally)
	}
	return tallies[name]
}

func (t *tally) add(one Asked) {
	t.counted.Asked++
	switch one.Ending() {
	case EndedApproved:
		t.counted.Approved++
	case EndedRejected:
		t.counted.Rejected++
		if one.Tier >= highTier {
			t.counted.RejectedHigh++
		}
	case EndedExpired:
		t.counted.Expired++
		return
	case EndedSuperseded:
		t.counted.Superseded++
		return
	case EndedNot:
		t.counted.Waiting++
		return
	}
	took := max(one.DecidedAt.Sub(one.CreatedAt), 0)
	t.took = append(t.took, took)
	if took < Hasty {
		t.counted.HastyCount++
	}
}

func (t *tally) figures(name string) Figures {
	slices.Sort(t.took)
	t.counted.Name = name
	t.counted.Median, t.counted.Late = percentile(t.took, 50), percentile(t.took, 90)
	return t.counted
}

// percentile is the least of the sorted durations that so many of a hundred of
// them don't exceed.
func percentile(sorted []time.Duration, share int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(math.Ceil(float64(share*len(sorted)) / 100))
	return sorted[max(rank-1, 0)]
}

func ranked(tallies map[string]*tally) []Figures {
	var all []Figures
	for name, t := range tallies {
		all = append(all, t.figures(name))
	}
	slices.SortFunc(all, func(a, b Figures) int {
		return cmp.Or(cmp.Compare(b.Asked, a.Asked), strings.Compare(a.Name, b.Name))
	})
	return all
}
