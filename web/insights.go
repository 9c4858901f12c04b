package web

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/presentation"
	"github.com/countersign/countersign/internal/visible"
)

// periods are how many days somebody can look back over.
var periods = []int{7, 30, 90}

// mostFigures is how many rules, and how many actions, the page lists.
const mostFigures = 50

// insightsPage is how people decided over some days.
type insightsPage struct {
	Periods       []period
	Days          int
	All           figures
	ByDay         dayChart
	Took          []tookBar
	Loosen, Block []figures
	Rules         figureTable
	Actions       figureTable
	Thresholds    thresholds
}

// period is a time that somebody can look back over.
type period struct {
	Days    int
	Current bool
}

// thresholds are what makes a rule stand out.
type thresholds struct{ LoosenAfter, LoosenShare, BlockAfter, BlockShare int }

// figures are about a rule, an action or everything, in words.
type figures struct {
	Name                              string // empty if there is none
	History                           string // the address of the requests that they are about
	Asked, Approved, Rejected         string
	Expired, Other, Ended             string
	Median, Late, Hasty, HastyPercent string
	Bar                               []stretch
}

// figureTable are the figures of rules or of actions.
type figureTable struct {
	Title, Kind, None string // Kind is what the first column has
	Rows              []figures
	Left              string // how many there are, if not all are shown; else empty
}

// stretch is a part of a bar, in percent of it.
type stretch struct {
	Class       string
	From, Width string
}

// dayChart is how many requests there were on each day. Its bars fill a square of
// a hundred by a hundred.
type dayChart struct {
	Top         string // how many requests its full height is
	First, Last string
	Columns     []column
	Busy        int // on how many days anything was asked
}

// column is one day.
type column struct {
	Date                                      string
	Asked, Approved, Rejected, Expired, Other int
	Parts                                     []columnPart
	X, Width                                  string
}

type columnPart struct{ Class, Y, Height string }

// tookBar is how many decisions took about so long.
type tookBar struct {
	Name    string
	Count   string
	Percent string
	Width   string // in percent of the longest bar
	Hasty   bool
}

// insights shows how people decided over the last days.
func (p *pages) insights(w http.ResponseWriter, r *http.Request) {
	v, ok := p.person(w, r)
	if !ok {
		return
	}
	days := 30
	if text := r.URL.Query().Get("days"); text != "" {
		var err error
		if days, err = strconv.Atoi(text); err != nil {
			http.Redirect(w, r, "/insights", http.StatusSeeOther)
			return
		}
	}
	found, err := p.service.Insights(r.Context(), v.who, days)
	var refused *approval.InputError
	if errors.As(err, &refused) {
		http.Redirect(w, r, "/insights", http.StatusSeeOther)
		return
	}
	if err != nil {
		p.fail(w, v, "gathering insights", err)
		return
	}
	since := found.Since.Format(time.DateOnly)
	content := insightsPage{
		Days:       days,
		All:        figuresOf(found.All, "", since),
		ByDay:      chartOf(found.Days),
		Took:       tookBars(found.Took),
		Rules:      tableOf(found.Rules, "By rule", "Rule", "no rule", "rule", since),
		Actions:    tableOf(found.Actions, "By action", "Action", "no action stated", "action", since),
		Thresholds: thresholds{approval.LoosenAfter, approval.LoosenShare, approval.BlockAfter, approval.BlockShare},
	}
	for _, one := range periods {
		content.Periods = append(content.Periods, period{one, one == days})
	}
	for _, rule := range found.Rules {
		switch shown := figuresOf(rule, "rule", since); {
		case rule.Name == "":
		case rule.Loosen():
			content.Loosen = append(content.Loosen, shown)
		case rule.Block():
			content.Block = append(content.Block, shown)
		}
	}
	p.show(w, http.StatusOK, "insights.html", v, content)
}

// figuresOf are figures in words, with the requests found by filter if they are of
// something with a name.
func figuresOf(f approval.Figures, filter, since string) figures {
	shown := figures{
		Name:     visible.Line(f.Name),
		Asked:    digits(f.Asked),
		Approved: digits(f.Approved),
		Rejected: digits(f.Rejected),
		Expired:  digits(f.Expired),
		Other:    digits(f.Superseded + f.Waiting),
		Ended:    digits(f.Ended()),
		Median:   "–",
		Late:     "–",
		Hasty:    "–",
	}
	if f.Name != "" {
		shown.History = "/history?" + url.Values{filter: {f.Name}, "since": {since}}.Encode()
	}
	if decided := f.Decided(); decided > 0 {
		shown.Median, shown.Late = tookText(f.Median), tookText(f.Late)
		shown.Hasty, shown.HastyPercent = digits(f.HastyCount), percent(f.HastyCount, decided)
	}
	from := 0
	for _, part := range []struct {
		class string
		count int
	}{{"approved", f.Approved}, {"rejected", f.Rejected}, {"expired", f.Expired}, {"other", f.Superseded + f.Waiting}} {
		if part.count > 0 {
			shown.Bar = append(shown.Bar, stretch{part.class, share(from, f.Asked), share(part.count, f.Asked)})
		}
		from += part.count
	}
	return shown
}

func tableOf(all []approval.Figures, title, kind, none, filter, since string) figureTable {
	t := figureTable{Title: title, Kind: kind, None: none}
	if len(all) > mostFigures {
		t.Left = "The " + digits(mostFigures) + " that were asked about most, of " + digits(len(all)) + "."
		all = all[:mostFigures]
	}
	for _, one := range all {
		t.Rows = append(t.Rows, figuresOf(one, filter, since))
	}
	return t
}

func chartOf(days []approval.Day) dayChart {
	top := 1
	for _, day := range days {
		top = max(top, day.Asked())
	}
	chart := dayChart{Top: digits(top), First: dayText(days[0]), Last: dayText(days[len(days)-1])}
	for i, day := range days {
		one := column{
			Date:     dayText(day),
			Asked:    day.Asked(),
			Approved: day.Approved,
			Rejected: day.Rejected,
			Expired:  day.Expired,
			Other:    day.Superseded + day.Waiting,
			X:        share(10*i+1, 10*len(days)),
			Width:    share(8, 10*len(days)),
		}
		below := 0
		for _, part := range []struct {
			class string
			count int
		}{{"approved", one.Approved}, {"rejected", one.Rejected}, {"expired", one.Expired}, {"other", one.Other}} {
			below += part.count
			if part.count > 0 {
				one.Parts = append(one.Parts, columnPart{part.class, share(top-below, top), share(part.count, top)})
			}
		}
		if one.Asked > 0 {
			chart.Busy++
		}
		chart.Columns = append(chart.Columns, one)
	}
	return chart
}

func dayText(day approval.Day) string { return day.Date.Format("2 Jan 2006") }

// tookBars are how many of the sorted times lie within each step.
func tookBars(took []time.Duration) []tookBar {
	steps := []struct {
		name  string
		below time.Duration
	}{
		{"under 3 s", approval.Hasty},
		{"3 to 10 s", 10 * time.Second},
		{"10 to 30 s", 30 * time.Second},
		{"30 s to 1 min", time.Minute},
		{"1 to 5 min", 5 * time.Minute},
		{"5 to 15 min", 15 * time.Minute},
		{"15 min to 1 h", time.Hour},
		{"1 h or longer", 1<<63 - 1},
	}
	counts := make([]int, len(steps))
	longest, step := 1, 0
	for _, one := range took {
		for one >= steps[step].below {
			step++
		}
		counts[step]++
		longest = max(longest, counts[step])
	}
	bars := make([]tookBar, len(steps))
	for i, one := range steps {
		bars[i] = tookBar{
			Name:    one.name,
			Count:   digits(counts[i]),
			Percent: percent(counts[i], len(took)),
			Width:   share(counts[i], longest),
			Hasty:   i == 0,
		}
	}
	return bars
}

// share is how much a part is of the whole in percent, for drawing.
func share(part, whole int) string {
	return strconv.FormatFloat(100*float64(part)/float64(max(whole, 1)), 'f', 2, 64)
}

// percent is how much a part is of the whole, for reading: nothing that there is
// reads as none, and nothing less than all as all.
func percent(part, whole int) string {
	if whole == 0 {
		return ""
	}
	rounded := (200*part + whole) / (2 * whole)
	switch {
	case rounded == 0 && part > 0:
		return "under 1 %"
	case rounded == 100 && part < whole:
		return "over 99 %"
	default:
		return strconv.Itoa(rounded) + " %"
	}
}

// tookText is how long a decision took, in words.
func tookText(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", d/time.Minute, d%time.Minute/time.Second)
	default:
		return fmt.Sprintf("%d h %d min", d/time.Hour, d%time.Hour/time.Minute)
	}
}

func digits(n int) string { return presentation.Digits(int64(n)) }
