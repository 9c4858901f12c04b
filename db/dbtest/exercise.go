package dbtest

import (
	"context"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/internal/sqlc"
	"github.com/countersign/countersign/policy"
)

// Store is what Exercise tests: all that is kept in a database.
type Store interface {
	approval.Store
	LeaseNotice(ctx context.Context, destination string, now, until time.Time) (approval.Notice, *approval.Request, bool, error)
	SettleNotice(ctx context.Context, n approval.Notice, s approval.Settlement, now time.Time) error
	NextNotice(ctx context.Context, destination string, now time.Time) (time.Time, bool, error)
	LeasePersonalNotice(ctx context.Context, workspace string, now, until time.Time) (approval.PersonalNotice, bool, error)
	SettlePersonalNotice(ctx context.Context, n approval.PersonalNotice, s approval.Settlement) error
	NextPersonalNotice(ctx context.Context, workspace string, now time.Time) (time.Time, bool, error)
	Events(ctx context.Context) iter.Seq2[audit.Event, error]
	Recorded(ctx context.Context, limit int) ([]*approval.Request, error)
}

var _ Store = (*db.DB)(nil)

// Exercise tests that a store keeps its contract, whatever it is made on. open
// opens a new, empty store with the given options and closes it when its test
// ends. The suite fails if it didn't run every query that there is.
func Exercise(t *testing.T, open func(testing.TB, db.Options) Store) {
	ran := new(queriesRun)
	fresh := func(t testing.TB) Store { return open(t, db.Options{Trace: ran.note}) }
	t.Run("suite", func(t *testing.T) {
		for _, test := range []struct {
			name string
			run  func(*testing.T, func(testing.TB) Store)
		}{
			{"every field comes back", everyField},
			{"a change that fails saves nothing", failedChange},
			{"a panic reaches the caller", panics},
			{"an event without a change", eventOnly},
			{"one winner of each change", oneWinner},
			{"what is read fits together", wholeReads},
			{"the chain holds after random work", randomWork},
			{"deadlines", deadlines},
			{"what an agent asked before", backlogs},
			{"what an agent called before", twins},
			{"what an agent used last", lastUses},
			{"what was asked", recorded},
			{"what the gateway runs", runs},
			{"what runs returned", results},
			{"grants", grants},
			{"a grant that is revoked meanwhile", revokedFirst},
			{"a grant that is used", usedGrant},
			{"tools of downstream servers", tools},
			{"tokens", tokens},
			{"passkeys", passkeys},
			{"passkeys at the same time", racedPasskeys},
			{"what people are told", personalNotices},
			{"what waits for people", waiting},
			{"history", history},
			{"what a person decided", ownDecisions},
			{"what was asked of people", askedOfPeople},
			{"the events of a request", eventsOf},
			{"the payload of each version", payloadOf},
			{"notices become due", noticesDue},
			{"notices that come later", laterNotices},
			{"notices are leased once", leasedOnce},
			{"notices that fail", failingNotices},
			{"notices after a crash", crashedNotices},
			{"notices given up", abandonedNotices},
			{"notices after a clock that was ahead", noticesOfAWrongClock},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				test.run(t, fresh)
			})
		}
	})
	if missing := ran.missing(); len(missing) > 0 && !t.Failed() {
		t.Errorf("the suite never ran these queries, so it says nothing of them: %s", strings.Join(missing, ", "))
	}
}

// queriesRun notes which of the named queries were run.
type queriesRun struct {
	mu    sync.Mutex
	names map[string]bool
}

var queryName = regexp.MustCompile(`^-- name: (\w+) `)

func (q *queriesRun) note(statement string) {
	found := queryName.FindStringSubmatch(statement)
	if found == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.names == nil {
		q.names = make(map[string]bool)
	}
	q.names[found[1]] = true
}

// missing are the generated queries that were not run, which are the methods
// of the type that sqlc makes.
func (q *queriesRun) missing() []string {
	q.mu.Lock()
	defer q.mu.Unlock()
	var missing []string
	for method := range reflect.TypeFor[*sqlc.Queries]().Methods() {
		if method.Name != "WithTx" && !q.names[method.Name] {
			missing = append(missing, method.Name)
		}
	}
	return missing
}

// start is the time at which the suite's services start.
var start = time.Date(2026, 1, 2, 3, 4, 5, 678_000_000, time.UTC)

var agent = approval.Agent{Name: "deployer"}

// everyone is a directory in which each person holds every role.
type everyone struct{}

func (everyone) Standing(_ context.Context, _ approval.Approver, roles []policy.Role) (approval.Standing, error) {
	var standing approval.Standing
	for _, role := range roles {
		standing.Roles = append(standing.Roles, approval.Membership{Role: role.Name, Via: "user"})
	}
	return standing, nil
}

// Policy is a policy that asks one of "finance", and that lets agents ask as much
// as a test asks.
func Policy() (*policy.Policy, error) {
	return policy.Parse([]byte(`
version: 1
mode: cautious
roles: {finance: {groups: [S0FINANCE]}}
approval: {requires: [{role: finance}]}
limits: {pending: 1000000, per_minute: 1000000, cooldown: 0s}
`))
}

// proposed counts the proposals of all tests, so that no two are the same.
var proposed atomic.Int64

// newService is a service over the store that asks for one approver, on a clock
// that the test moves.
func newService(t testing.TB, store Store, now func() time.Time, destinations ...string) *approval.Service {
	t.Helper()
	rules, err := Policy()
	if err != nil {
		t.Fatal(err)
	}
	service, err := approval.New(store, everyone{}, approval.Options{
		Policy:       rules,
		Destinations: destinations,
		Now:          now,
	})
	if err != nil {
		t.Fatal(err)
	}
	return service
}

func at(now time.Time) func() time.Time { return func() time.Time { return now } }

func propose(t testing.TB, service *approval.Service) *approval.Request {
	t.Helper()
	r, err := service.Request(t.Context(), agent, approval.Proposal{Purpose: "Pay", Payload: fmt.Appendf(nil, `{"amount":%d}`, proposed.Add(1))})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func person(user string) approval.Approver {
	return approval.Approver{Workspace: "T0TEST", User: user}
}

func ballot(r *approval.Request, verdict approval.Verdict) approval.Ballot {
	return approval.Ballot{Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: verdict, Surface: approval.Slack}
}
