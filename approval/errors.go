package approval

import (
	"errors"
	"fmt"
	"time"
)

// What a caller can test for with errors.Is. Decide, Edit and Claim, when they
// refuse, also return the request as it is now, so that the caller can say who
// decided and when; not with ErrNotFound and ErrUnavailable.
var (
	// ErrNotFound means there is no such request, or it is another agent's.
	ErrNotFound = errors.New("there is no such request")
	// ErrPending means that nobody has decided yet.
	ErrPending = errors.New("the request is still waiting for a decision")
	// ErrDecided means that the request was approved or rejected before.
	ErrDecided = errors.New("the request is already decided")
	// ErrExpired means that the deadline passed first. Nobody refused.
	ErrExpired = errors.New("the request has expired")
	// ErrApplied means that the approval was used; it works once.
	ErrApplied = errors.New("the approval was already used")
	// ErrNotApplied means that an outcome was reported for a request that
	// nobody has claimed.
	ErrNotApplied = errors.New("the request was not applied")
	// ErrFinished means that the outcome was reported before.
	ErrFinished = errors.New("the outcome was already reported")
	// ErrRejected means that a person rejected the request, or that what was
	// approved no longer counts.
	ErrRejected = errors.New("the request was rejected")
	// ErrDenied means that the policy denies the action to agents. Nobody is
	// asked about it.
	ErrDenied = errors.New("the policy denies this action")
	// ErrSuperseded means that the request doesn't hold any more: policy asks for
	// more than it did, or those who approved no longer count. It was rejected
	// for that, and the agent must ask again. It wraps ErrRejected.
	ErrSuperseded = fmt.Errorf("%w, because it doesn't hold any more; the agent must ask again", ErrRejected)
	// ErrReasonRequired means that the policy asks approvers for a reason.
	ErrReasonRequired = errors.New("approving this takes a reason")
	// ErrSignInAgain means that the approver has to prove again who they are.
	ErrSignInAgain = errors.New("approving this takes a sign-in of the last 5 minutes")
	// ErrServerRuns means that the server runs what was approved, so that no
	// agent is handed it.
	ErrServerRuns = errors.New("the server runs this itself")
	// ErrAgentRuns means the opposite.
	ErrAgentRuns = errors.New("the agent runs this itself")
	// ErrNotInBand means that an answer of the agent's own client isn't enough.
	ErrNotInBand = errors.New("the policy has people decide on this, not the agent's client")
	// ErrNoResult means that nothing is stored that a run returned.
	ErrNoResult = errors.New("there is no stored result")
	// ErrKnown means that it is known what came of an execution, or that it
	// still runs.
	ErrKnown = errors.New("there is no unknown outcome to settle")
	// ErrNoGrant means that the request granted nothing, or that it has ended.
	ErrNoGrant = errors.New("there is no grant in force")
	// ErrNoTool means that no gateway has seen such a tool.
	ErrNoTool = errors.New("no such tool was seen")
	// ErrStale means that the decision was made on another version or digest
	// than the request has now.
	ErrStale = errors.New("the request has changed since it was shown")
	// ErrRecorded means that the same person decided the same before; nothing
	// was changed.
	ErrRecorded = errors.New("this decision is already recorded")
	// ErrNotApprover means that the person holds none of the required roles.
	ErrNotApprover = errors.New("this person holds none of the required roles")
	// ErrSelf means that the agent acts for the person, or the person edited
	// the request, so their approval doesn't count.
	ErrSelf = errors.New("nobody approves their own request")
	// ErrIneligible means that the account may never decide: a bot, a guest, a
	// deactivated account, or a person of another workspace.
	ErrIneligible = errors.New("this account can't decide")
	// ErrUnverified means that it couldn't be checked who the person is or
	// which roles they hold. Nothing was decided; trying again may work.
	ErrUnverified = errors.New("the person's account or roles could not be checked")
	// ErrUnavailable means that the store can't take the change now: the disk
	// is full, or the database is locked or closed. Nothing was changed.
	ErrUnavailable = errors.New("the store can't save changes now")
	// ErrToken means that a token is unknown or revoked.
	ErrToken = errors.New("the token is unknown or revoked")
)

// Ineligible is why an account may never decide, in plain words. It wraps
// ErrIneligible.
type Ineligible string

// Error is the reason.
func (e Ineligible) Error() string { return string(e) }

// Unwrap returns ErrIneligible.
func (e Ineligible) Unwrap() error { return ErrIneligible }

// InputError says which input field was refused and what would be accepted.
type InputError struct {
	Field   string // the name as the caller wrote it, such as "payload"
	Problem string // what is wrong and what is accepted
}

// Error is "FIELD: PROBLEM".
func (e *InputError) Error() string { return e.Field + ": " + e.Problem }

// LimitError says that an agent asks too much of people. Nothing was stored.
type LimitError struct {
	// Problem is which limit was reached and what to do, for the agent.
	Problem string
	// RetryAt is when asking again may work; zero if that depends on others.
	RetryAt time.Time
}

// Error is the problem.
func (e *LimitError) Error() string { return e.Problem }

func invalid(field, format string, args ...any) *InputError {
	return &InputError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
