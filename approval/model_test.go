package approval_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// model is what the rules say of one request, written the plainest way: no
// quorum algorithm, no events, no storage.
type model struct {
	stored   approval.Status
	version  int
	approved map[approval.Approver]bool // of the current version
	ballots  map[ballot]bool            // that counted, of every version
	editors  map[approval.Approver]bool
	expires  time.Time
	applyBy  time.Time
	holds    map[approval.Approver]bool // who holds the role now
	need     int                        // how many people it takes
	asks     int                        // how many people policy asks for now
	changed  time.Time                  // when the last change was
}

type ballot struct {
	who     approval.Approver
	verdict approval.Verdict
	version int
}

// at is the time that counts: a clock set back doesn't go behind a change.
func (m *model) at(clock time.Time) time.Time {
	if clock.Before(m.changed) {
		return m.changed
	}
	return clock
}

// status is what the request is at that time. A deadline that has come counts,
// and what was said once stays, whatever the clock does.
func (m *model) status(clock time.Time) approval.Status {
	now := m.at(clock)
	if m.stored == approval.Pending && !now.Before(m.expires) ||
		m.stored == approval.Approved && !now.Before(m.applyBy) {
		m.become(approval.Expired, clock)
	}
	return m.stored
}

func (m *model) become(status approval.Status, clock time.Time) {
	m.changed = m.at(clock)
	m.stored = status
}

var settled = map[approval.Status]error{
	approval.Approved: approval.ErrDecided,
	approval.Rejected: approval.ErrDecided,
	approval.Expired:  approval.ErrExpired,
	approval.Applied:  approval.ErrApplied,
}

// Random sequences of everything that can happen, against the model: the same
// errors, the same status, and in the end an audit log that holds.
func TestServiceAgainstModel(t *testing.T) {
	t.Parallel()
	for need := 1; need <= 2; need++ {
		t.Run(fmt.Sprintf("%d needed", need), func(t *testing.T) {
			t.Parallel()
			f := approvaltest.New(t)
			policies := map[int]*policy.Policy{1: approvaltest.Policy(t, 1), 2: approvaltest.Policy(t, 2)}
			rapid.Check(t, func(rt *rapid.T) { againstModel(t, rt, f, policies, need) })
			if _, _, err := audit.Verify(f.Store.Events(t.Context())); err != nil {
				t.Error(err)
			}
		})
	}
}

const applyWithin = 15 * time.Minute // the policy's default

func againstModel(t *testing.T, rt *rapid.T, f *approvaltest.Fixture, policies map[int]*policy.Policy, need int) {
	people := []approval.Approver{approvaltest.Alice, approvaltest.Bob, approvaltest.Carol}
	f.Clock.Set(approvaltest.Start)
	setPolicy := func(asks int) {
		if err := f.Service.SetPolicy(t.Context(), policies[asks]); err != nil {
			t.Fatal(err)
		}
	}
	setPolicy(need)
	f.People.Give("finance", approvaltest.Alice, approvaltest.Bob)
	f.People.Take("finance", approvaltest.Carol)
	owner := rapid.SampledFrom(append(people, approval.Approver{})).Draw(rt, "owner")
	f.Agent.Owner = owner
	first := f.Propose(t, func(p *approval.Proposal) { p.TTL = 30 * time.Minute })
	id := first.ID
	m := &model{
		stored: approval.Pending, version: 1, need: need, asks: need,
		approved: map[approval.Approver]bool{},
		ballots:  map[ballot]bool{},
		editors:  map[approval.Approver]bool{},
		holds:    map[approval.Approver]bool{approvaltest.Alice: true, approvaltest.Bob: true},
		expires:  approvaltest.Start.Add(30 * time.Minute),
		changed:  approvaltest.Start,
	}
	shown := map[int]*approval.Request{1: first} // by version
	ctx := t.Context()
	check := func(t *rapid.T, r *approval.Request, err, want error) {
		t.Helper()
		if !errors.Is(err, want) {
			t.Fatalf("got %v, want %v", err, want)
		}
		if status := m.status(f.Clock.Now()); r != nil && r.Status != status {
			t.Fatalf("status %s, want %s", r.Status, status)
		}
	}
	vote := func(t *rapid.T, verdict approval.Verdict) {
		who := rapid.SampledFrom(people).Draw(t, "who")
		version := max(1, m.version-rapid.IntRange(0, 1).Draw(t, "versions behind"))
		clock := f.Clock.Now()
		status := m.status(clock)
		r, err := f.Service.Decide(ctx, who, approvaltest.Ballot(shown[version], verdict))
		cast := ballot{who, verdict, version}
		var want error
		switch {
		case m.ballots[cast] && version == m.version && status != approval.Expired:
			want = approval.ErrRecorded
		case status != approval.Pending:
			want = settled[status]
		case version != m.version:
			want = approval.ErrStale
		case verdict == approval.Approve && (who == owner || m.editors[who]):
			want = approval.ErrSelf
		case !m.holds[who]:
			want = approval.ErrNotApprover
		case verdict == approval.Approve && m.asks > m.need:
			m.become(approval.Rejected, clock)
			want = approval.ErrSuperseded
		case verdict == approval.Reject:
			m.ballots[cast] = true
			m.become(approval.Rejected, clock)
		default:
			m.ballots[cast] = true
			m.approved[who] = true
			m.become(approval.Pending, clock)
			if len(m.approved) >= m.need {
				m.become(approval.Approved, clock)
				m.applyBy = m.at(clock).Add(applyWithin)
			}
		}
		check(t, r, err, want)
	}
	rt.Repeat(map[string]func(*rapid.T){
		"approve": func(t *rapid.T) { vote(t, approval.Approve) },
		"reject":  func(t *rapid.T) { vote(t, approval.Reject) },
		"edit": func(t *rapid.T) {
			who := rapid.SampledFrom(people).Draw(t, "who")
			version := m.version - rapid.IntRange(0, 1).Draw(t, "versions behind")
			clock := f.Clock.Now()
			status := m.status(clock)
			r, err := f.Service.Edit(ctx, who, id, version, fmt.Appendf(nil, `{"edit":%d}`, m.version), approval.Slack)
			var want error
			switch {
			case !m.holds[who]:
				want = approval.ErrNotApprover
			case status == approval.Expired:
				want = approval.ErrExpired
			case status != approval.Pending:
				want = settled[status]
			case version != m.version:
				want = approval.ErrStale
			default:
				m.become(approval.Pending, clock)
				m.version++
				m.need = max(m.need, m.asks)
				m.approved = map[approval.Approver]bool{}
				m.editors[who] = true
				shown[m.version] = r
			}
			check(t, r, err, want)
		},
		"claim": func(t *rapid.T) {
			clock := f.Clock.Now()
			status := m.status(clock)
			r, err := f.Service.Claim(ctx, f.Agent, id)
			want := map[approval.Status]error{
				approval.Pending:  approval.ErrPending,
				approval.Rejected: approval.ErrRejected,
				approval.Expired:  approval.ErrExpired,
				approval.Applied:  approval.ErrApplied,
			}[status]
			if status == approval.Approved {
				still := 0
				for who := range m.approved {
					if m.holds[who] {
						still++
					}
				}
				if still >= m.need && m.asks <= m.need {
					m.become(approval.Applied, clock)
				} else {
					m.become(approval.Rejected, clock)
					want = approval.ErrSuperseded
				}
			}
			check(t, r, err, want)
		},
		"claim by another agent": func(t *rapid.T) {
			_, err := f.Service.Claim(ctx, approval.Agent{Name: "another"}, id)
			check(t, nil, err, approval.ErrNotFound)
		},
		"move the clock": func(t *rapid.T) {
			f.Clock.Advance(time.Duration(rapid.SampledFrom([]int64{
				-3600_000, -1, 1, 60_000, 599_999, 600_000, 1_200_000,
			}).Draw(t, "milliseconds")) * time.Millisecond)
		},
		"go to the deadline": func(t *rapid.T) {
			r, err := f.Service.Status(ctx, f.Agent, id)
			if err != nil {
				t.Fatal(err)
			}
			if deadline := r.Deadline(); !deadline.IsZero() {
				f.Clock.Set(deadline.Add(time.Duration(rapid.Int64Range(-1, 1).Draw(t, "milliseconds")) * time.Millisecond))
			}
		},
		"change the policy": func(t *rapid.T) {
			m.asks = rapid.IntRange(1, 2).Draw(t, "people it asks for")
			setPolicy(m.asks)
		},
		"change roles": func(t *rapid.T) {
			who := rapid.SampledFrom(people).Draw(t, "who")
			m.holds[who] = !m.holds[who]
			if m.holds[who] {
				f.People.Give("finance", who)
			} else {
				f.People.Take("finance", who)
			}
		},
		"": func(t *rapid.T) {
			r, err := f.Service.Status(ctx, f.Agent, id)
			check(t, r, err, nil)
			if r.Version != m.version || len(r.Votes()) != len(m.approved) {
				t.Fatalf("version %d with %d votes, want %d with %d", r.Version, len(r.Votes()), m.version, len(m.approved))
			}
		},
	})
}
