package approval

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/countersign/countersign/policy"
)

// Options set up a Service. Zero values are usable unless said otherwise.
type Options struct {
	// Policy rules each request until SetPolicy gives another; it must be set.
	Policy *policy.Policy
	// Destinations are told of each request and of each change of it, such as
	// "slack:C024BE91L".
	Destinations []string
	// PayloadLimit is the largest payload in bytes; zero means
	// DefaultPayloadLimit.
	PayloadLimit int
	// Now is the clock; nil means time.Now.
	Now func() time.Time
	// Rand is the source of identifiers and tokens; nil means crypto/rand.
	Rand io.Reader
	// Signer signs the receipt of each decision; nil leaves them unsigned, as
	// where nothing is decided.
	Signer Signer
	// Logger gets what no caller is told; nil discards it.
	Logger *slog.Logger
}

// How long a change may take once it has begun. It runs to its end even if the
// caller goes away: a click whose connection drops must still be stored or
// refused, not forgotten.
const (
	decideLimit = 2 * time.Second // keeps inside Slack's three seconds
	changeLimit = 5 * time.Second
)

// Service holds the use-cases. All methods are safe for concurrent use.
type Service struct {
	store     Store
	directory Directory
	options   Options
	bell      Bell
	policy    atomic.Pointer[policy.Policy]
	setting   sync.Mutex // held while the policy is set
	pace      pace
	recent    recent

	drain    sync.Once
	draining chan struct{}
}

// New returns a Service over a store and a directory.
func New(store Store, directory Directory, options Options) (*Service, error) {
	if options.Policy == nil {
		return nil, errors.New("a service needs a policy")
	}
	if options.PayloadLimit == 0 {
		options.PayloadLimit = DefaultPayloadLimit
	}
	if options.Now == nil {
		options.Now = time.Now
	}
	if options.Rand == nil {
		options.Rand = rand.Reader
	}
	if options.Logger == nil {
		options.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Service{store: store, directory: directory, options: options, draining: make(chan struct{})}
	s.policy.Store(options.Policy)
	return s, nil
}

// Policy is the policy that rules now.
func (s *Service) Policy() *policy.Policy { return s.policy.Load() }

// SetPolicy has another policy rule from now on, and records that it does; if
// that can't be recorded, the one before goes on. Requests that wait are ruled
// by it when they are decided and applied. A server gives the policy that it
// starts with too, so that the audit log says which one ruled when.
func (s *Service) SetPolicy(ctx context.Context, p *policy.Policy) error {
	if p == nil {
		return errors.New("a service needs a policy")
	}
	// The policy that rules is the one of the last event.
	s.setting.Lock()
	defer s.setting.Unlock()
	event := newEvent(milliseconds(s.options.Now()), "policy.loaded", "countersign", "", map[string]any{"policy": p.Revision()})
	if err := s.store.Append(ctx, event); err != nil {
		return fmt.Errorf("recording the policy: %w", err)
	}
	s.policy.Store(p)
	return nil
}

// Bell is rung after each change of a request, when the change is durable.
func (s *Service) Bell() *Bell { return &s.bell }

// Standing returns which of the policy's roles a person holds now. The error wraps
// ErrIneligible or ErrUnverified.
func (s *Service) Standing(ctx context.Context, who Approver) (Standing, error) {
	current, now := s.Policy(), s.options.Now()
	standing, err := s.directory.Standing(ctx, who, current.Roles())
	if err != nil {
		s.recent.forget(who)
		return Standing{}, fmt.Errorf("checking which roles somebody holds: %w", err)
	}
	s.recent.note(who, standing, current, now)
	return standing, nil
}

// Review returns a request for a person to read, after checking that the
// person's account may decide at all. It needs no role: those who see a card
// may read all of it. The error wraps ErrIneligible or ErrUnverified, or is
// ErrNotFound.
func (s *Service) Review(ctx context.Context, who Approver, id ID) (*Request, error) {
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if _, err := s.directory.Standing(ctx, who, s.Policy().Named(r.Ruling.Requirement)); err != nil {
		return nil, fmt.Errorf("checking who reads: %w", err)
	}
	return r, nil
}

// Decide records a verified person's verdict, after looking up afresh whether
// the account may decide and which roles it holds. With a nil error the
// decision is durable. Otherwise the error says why it doesn't count, and
// nothing but the attempt was recorded; the request, if there is one, is
// returned as it is.
func (s *Service) Decide(ctx context.Context, who Approver, b Ballot) (*Request, error) {
	if err := b.check(); err != nil {
		return nil, err
	}
	ctx, cancel := uninterrupted(ctx, decideLimit)
	defer cancel()
	r, err := s.read(ctx, b.Request)
	if err != nil {
		return nil, err
	}
	// Refusals that need no look-up come first: a second click on a decided
	// card gets its answer even while Slack can't say who somebody is.
	if err := r.admits(who, b); err != nil {
		return r, s.refused(ctx, who, b, err)
	}
	r, err = s.underPolicy(r, func(current *policy.Policy) (*Request, error) {
		// What is ruled here is what the ballot names, which can't become
		// anything else: another version is refused as stale.
		explained, err := s.rule(ctx, current, r, r.Payload)
		if err != nil {
			return r, err
		}
		standing, err := s.directory.Standing(ctx, who, current.Named(both(r.Ruling.Requirement, explained.Ruling.Requirement)))
		if err != nil {
			return r, err
		}
		return s.change(ctx, b.Request, func(r *Request, now time.Time) error {
			if s.Policy() != current {
				return errPolicyChanged
			}
			return r.decide(who, standing, explained.Ruling, b, now, s.options.Rand, s.options.Signer)
		})
	})
	if err != nil {
		return r, s.refused(ctx, who, b, err)
	}
	if b.Verdict == Approve && r.Status == Rejected {
		return r, s.refused(ctx, who, b, fmt.Errorf("%w: %s", ErrSuperseded, r.Reason))
	}
	return r, nil
}

// Revoke takes back what was approved, before it is used: whoever holds a role that
// was required can, with the reason of a ballot that rejects. What the approval
// granted ends too. With a nil error it is durable, and nothing that the request
// says runs. ErrPending if there is nothing to take back yet, ErrApplied if it is
// too late; the other errors are those of Decide.
func (s *Service) Revoke(ctx context.Context, who Approver, b Ballot) (*Request, error) {
	b.Verdict = Reject
	if err := b.check(); err != nil {
		return nil, err
	}
	ctx, cancel := uninterrupted(ctx, decideLimit)
	defer cancel()
	r, err := s.read(ctx, b.Request)
	if err != nil {
		return nil, err
	}
	if who.IsZero() {
		return r, ErrIneligible
	}
	current := s.Policy()
	standing, err := s.directory.Standing(ctx, who, current.Named(r.Ruling.Requirement))
	if err != nil {
		return r, s.refused(ctx, who, b, err)
	}
	r, err = s.change(ctx, b.Request, func(r *Request, now time.Time) error {
		return r.revoke(who, standing, current.Revision(), b, now, s.options.Rand, s.options.Signer)
	})
	if err != nil {
		return r, s.refused(ctx, who, b, err)
	}
	return r, nil
}

// refused records an attempt to decide that doesn't count and returns why. A
// second click of the same kind is no attempt, and a store that just failed
// takes no note.
func (s *Service) refused(ctx context.Context, who Approver, b Ballot, why error) error {
	if errors.Is(why, ErrRecorded) || errors.Is(why, ErrUnavailable) {
		return why
	}
	_, err := s.change(ctx, b.Request, func(r *Request, now time.Time) error {
		r.refuse(who, b, now, why)
		return nil
	})
	if err != nil {
		// The refusal stands whether or not it could be noted.
		s.options.Logger.Error("recording a refused decision", "request_id", b.Request, "approver", who.String(), "err", err)
	}
	return why
}

// Edit replaces the payload by a verified person's, who must hold a required
// role. It makes the next version, which everyone decides anew; the editor's
// own approval doesn't count for it unless the requirement says so.
func (s *Service) Edit(ctx context.Context, who Approver, id ID, version int, payload []byte, surface Surface) (*Request, error) {
	if err := checkPayload(payload, s.options.PayloadLimit); err != nil {
		return nil, err
	}
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	r, err := s.read(ctx, id)
	if err != nil {
		return nil, err
	}
	if err := checkArguments(r.Executor, payload); err != nil {
		return r, err
	}
	current := s.Policy()
	standing, err := s.directory.Standing(ctx, who, current.Named(r.Ruling.Requirement))
	if err != nil {
		return r, fmt.Errorf("checking who edits: %w", err)
	}
	if who.IsZero() || len(required(r.Ruling.Requirement, standing.Roles)) == 0 {
		return r, ErrNotApprover
	}
	explained, err := s.rule(ctx, current, r, payload)
	if err != nil {
		return r, err
	}
	return s.change(ctx, id, func(r *Request, now time.Time) error {
		return r.edit(who, version, payload, explained, surface, now)
	})
}

// Claim uses up an approval and returns the request with the payload to run. It
// succeeds once, before the deadline for applying, and only if the approval
// holds at that moment: the payload is the one that was approved, policy asks
// for no more than it did, and everybody whose approval counted still holds
// their role, which is looked up afresh. If it doesn't hold, the request is
// superseded and the error wraps ErrSuperseded; if that can't be found out, nothing
// changes and the error wraps ErrUnverified. Otherwise ErrNotFound, ErrPending,
// ErrExpired, ErrRejected or ErrApplied says why not.
func (s *Service) Claim(ctx context.Context, agent Agent, id ID) (*Request, error) {
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	r, err := s.Status(ctx, agent, id)
	if err != nil {
		return nil, err
	}
	if r.Executor != ByAgent {
		return r, ErrServerRuns
	}
	return s.claim(ctx, r, "agent:"+agent.Name, "")
}

// claim uses up the approval of a request that was just read.
func (s *Service) claim(ctx context.Context, r *Request, by, pin string) (*Request, error) {
	if err := r.claimable(); err != nil {
		return r, err
	}
	var backed backing
	r, err := s.underPolicy(r, func(current *policy.Policy) (*Request, error) {
		explained, err := s.rule(ctx, current, r, r.Payload)
		if err != nil {
			return r, err
		}
		backed = backing{pin: pin}
		people := r
		if r.GrantedBy != "" {
			if people, err = s.read(ctx, r.GrantedBy); err != nil {
				return r, fmt.Errorf("loading what granted this: %w", err)
			}
			backed.granted = people
		}
		if backed.present, err = s.present(ctx, current, people); err != nil {
			return r, fmt.Errorf("checking the approvers again: %w", err)
		}
		return s.change(ctx, r.ID, func(r *Request, now time.Time) error {
			if s.Policy() != current {
				return errPolicyChanged
			}
			return r.claim(by, backed, explained.Ruling, now, s.options.Rand)
		})
	})
	if err == nil && r.Status != Applied {
		err = fmt.Errorf("%w: %s", ErrSuperseded, r.Reason)
		s.endHollow(ctx, backed)
	}
	return r, err
}

// endHollow ends the grant behind a claim if those who gave it don't count any
// more: people have to be asked again, instead of it approving what never runs.
func (s *Service) endHollow(ctx context.Context, backed backing) {
	granted := backed.granted
	if granted == nil || granted.confirmed() != "" || len(granted.missingNow(backed.present)) == 0 {
		return
	}
	_, err := s.change(ctx, granted.ID, func(r *Request, now time.Time) error {
		return r.revokeGrant("countersign", "", now)
	})
	if err != nil && !errors.Is(err, ErrNoGrant) {
		s.options.Logger.Error("ending a grant that nobody stands behind", "request_id", granted.ID, "err", err)
	}
}

// errPolicyChanged means that another policy came while people were looked up.
var errPolicyChanged = errors.New("the policy has changed meanwhile")

// underPolicy does what depends on the policy under one that is in force when it
// is stored: again if another one came meanwhile.
func (s *Service) underPolicy(r *Request, do func(*policy.Policy) (*Request, error)) (*Request, error) {
	for range 3 {
		done, err := do(s.Policy())
		if !errors.Is(err, errPolicyChanged) {
			return done, err
		}
	}
	return r, fmt.Errorf("%w: the policy keeps changing", ErrUnverified)
}

// present looks up everybody whose approval counted, at the same time, and
// returns those who may still decide, with their roles of now.
func (s *Service) present(ctx context.Context, current *policy.Policy, r *Request) ([]holder, error) {
	roles := current.Named(r.Ruling.Requirement)
	approvals := r.approvals()
	found := make([]holder, len(approvals))
	problems := make([]error, len(approvals))
	var asking sync.WaitGroup
	for i, d := range approvals {
		asking.Go(func() {
			standing, err := s.directory.Standing(ctx, d.Approver, roles)
			switch {
			case err == nil:
				found[i] = holder{d.Approver, standing.Roles}
			case !errors.Is(err, ErrIneligible):
				problems[i] = err
			}
		})
	}
	asking.Wait()
	return found, errors.Join(problems...)
}

// Finish records what an execution came to, once: by the agent that claimed it.
// Only Succeeded and Failed can be reported.
func (s *Service) Finish(ctx context.Context, agent Agent, id ID, outcome Outcome, detail string) (*Request, error) {
	if outcome != Succeeded && outcome != Failed {
		return nil, invalid("outcome", "is %q; succeeded and failed are accepted", outcome)
	}
	report := Report{Outcome: outcome, Detail: detail}
	if err := report.check(); err != nil {
		return nil, err
	}
	ctx, cancel := uninterrupted(ctx, changeLimit)
	defer cancel()
	if _, err := s.Status(ctx, agent, id); err != nil {
		return nil, err
	}
	return s.change(ctx, id, func(r *Request, now time.Time) error {
		if r.Executor != ByAgent {
			return ErrServerRuns
		}
		return r.finish("agent:"+agent.Name, report, now)
	})
}

// read loads a request as it is now. A deadline that has passed counts at once
// and is recorded before anybody is told, so that a clock which is set back
// can't revive what was reported as expired.
func (s *Service) read(ctx context.Context, id ID) (*Request, error) {
	if !id.Valid() {
		return nil, ErrNotFound
	}
	r, err := s.store.Request(ctx, id)
	if err != nil {
		return nil, err
	}
	if now := s.options.Now(); r.overdue(r.at(now)) {
		if expired, err := s.change(ctx, id, nothing); err == nil {
			return expired, nil
		}
		// It counts even while it can't be recorded.
		r.expire(r.at(now))
	}
	return r, nil
}

// change runs do on a request, after letting a deadline that has come take
// effect, saves what both did and rings the bell if anything changed. The time
// that do gets is the one that counts for the request. An error of do is
// returned, and then do must have changed nothing; an expiry is saved even so.
func (s *Service) change(ctx context.Context, id ID, do func(*Request, time.Time) error) (*Request, error) {
	var before int64
	var refusal error
	r, err := s.store.Update(ctx, id, func(r *Request) error {
		before = r.Revision
		now := r.at(s.options.Now())
		ended := r.endGrant(now)
		expired := r.expire(now)
		refusal = do(r, now)
		if ended || expired {
			return nil
		}
		return refusal
	})
	if err != nil {
		return r, err
	}
	if r.Revision != before {
		s.bell.Ring(id)
	}
	return r, refusal
}

// nothing is for change when only a deadline may have an effect.
func nothing(*Request, time.Time) error { return nil }

// remind is for change when it may be time to remind people.
func remind(r *Request, now time.Time) error {
	r.remind(now)
	return nil
}

// uninterrupted is a context that ends after limit and not when its parent
// does.
func uninterrupted(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), limit)
}
