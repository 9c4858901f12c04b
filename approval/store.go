package approval

import (
	"context"
	"time"

	"github.com/countersign/countersign/audit"
	"github.com/countersign/countersign/policy"
)

// Store keeps requests, decisions, executions, events, notices, tokens and
// passkeys. Each of its methods that changes something is one transaction, which is durable
// when the method returns nil. A store that can't take a change now returns an
// error that wraps ErrUnavailable, with nothing changed.
type Store interface {
	Looking

	// Insert stores a new request with its events and a notice for each
	// destination, if admit is nil or returns nil for what the agent asked before.
	// What was asked before is looked up only of what policy leaves to people and
	// of what the gateway runs. If admit returns an error, nothing is stored and
	// Insert returns it. admit may run more than once, must not block and must not
	// call the store.
	Insert(ctx context.Context, r *Request, destinations []string, admit func(Backlog) error) error
	// Update loads a request, runs change on it, and saves the request, its
	// decisions and its events if change returns nil, under a compare-and-swap
	// on the revision; notices of the request become due if the revision rose.
	// A claim of what a grant approved raises the revision of the request with the
	// grant too, whose notices say how often it was used.
	// If change returns an error, nothing is saved and Update returns that
	// error with the request as loaded. change may run more than once, must
	// not block and must not call the store. ErrNotFound if there is no such
	// request.
	Update(ctx context.Context, id ID, change func(*Request) error) (*Request, error)
	// Request loads a request. ErrNotFound if there is none.
	Request(ctx context.Context, id ID) (*Request, error)
	// Due returns up to limit requests that are due now or before, oldest
	// first.
	Due(ctx context.Context, now time.Time, limit int) ([]ID, error)
	// NextDue returns the earliest time at which any request is due, zero if
	// none is.
	NextDue(ctx context.Context) (time.Time, error)
	// RejectedAt returns when a person last rejected what an agent asked, or somebody
	// in its host's view did, by the digest of what was asked; zero if nobody did.
	RejectedAt(ctx context.Context, agent Agent, asked Digest) (time.Time, error)
	// LastUse returns when the agent last used what is at a place. Update records
	// what a request says that a claim used.
	LastUse(ctx context.Context, agent Agent, at Place) (LastUse, error)
	// Runnable returns up to limit approved requests that the gateway runs,
	// oldest first.
	Runnable(ctx context.Context, limit int) ([]ID, error)
	// Unfinished returns up to limit requests of which the gateway's execution
	// has no end yet, oldest first.
	Unfinished(ctx context.Context, limit int) ([]ID, error)
	// Result returns the stored result of an execution. ErrNoResult if there is
	// none.
	Result(ctx context.Context, execution string) ([]byte, error)
	// OpenRuns returns the pending and approved requests of an action that the
	// gateway runs.
	OpenRuns(ctx context.Context, action string) ([]ID, error)
	// Grants returns the requests with a grant that isn't revoked and ends after
	// now, oldest first.
	Grants(ctx context.Context, now time.Time) ([]ID, error)
	// GrantsFor is Grants of the same agent, action and target as a request,
	// newest first.
	GrantsFor(ctx context.Context, r *Request, now time.Time) ([]ID, error)
	// UpdateTool loads a tool, or makes one that was never seen, runs change on
	// it, and saves the tool with its events if change returns nil. If change
	// returns an error, nothing is saved and UpdateTool returns that error with
	// the tool as loaded. change must not block and must not call the store.
	UpdateTool(ctx context.Context, server, name string, change func(*Tool) error) (Tool, error)
	// Tool loads a tool. ErrNoTool if there is none.
	Tool(ctx context.Context, server, name string) (Tool, error)
	// Tools returns all tools, by server and name.
	Tools(ctx context.Context) ([]Tool, error)
	// Append stores an event that is about no request.
	Append(ctx context.Context, event audit.Event) error

	// InsertToken stores a token with the hash of its secret, and its event.
	InsertToken(ctx context.Context, t Token, hash TokenHash) error
	// RevokeToken revokes a token, with its event. ErrToken if it is unknown
	// or already revoked.
	RevokeToken(ctx context.Context, id string, by Operator, now time.Time) error
	// Tokens lists all tokens, oldest first.
	Tokens(ctx context.Context) ([]Token, error)
	// TokenByHash finds a token that isn't revoked. ErrToken if there is none.
	TokenByHash(ctx context.Context, hash TokenHash) (Token, error)

	// UpdatePasskeys loads a person's passkeys, runs change on them, and saves the
	// passkeys, their events and their notices if change returns nil. If change
	// returns an error, nothing is saved and UpdatePasskeys returns that error.
	// change may run more than once, must not block and must not call the store.
	// ErrPasskeyKnown if somebody else has a passkey that change adds.
	UpdatePasskeys(ctx context.Context, owner Approver, change func(*Keyring) error) error
	// Passkeys returns a person's passkeys, oldest first.
	Passkeys(ctx context.Context, owner Approver) ([]Passkey, error)
}

// Directory says what a person is and which roles they hold, looked up afresh.
type Directory interface {
	// Standing returns the roles among the given ones that the person holds
	// now. The error wraps ErrIneligible if the account may never decide, with
	// the reason in its text, or ErrUnverified if it couldn't be found out.
	Standing(ctx context.Context, who Approver, roles []policy.Role) (Standing, error)
}

// Standing is what a directory knows of a person who may decide.
type Standing struct {
	Roles []Membership
}

// Notice is one row of the outbox: something that a destination still has to be
// told of a request. It holds no message: the request is rendered as it is when
// the notice is delivered, so notices coalesce and can't be out of order.
type Notice struct {
	Request     ID
	Destination string // such as "slack:C024BE91L"
	// Reference is where the destination keeps what it was told, in its own
	// form; empty until something arrived.
	Reference string
	// SentRevision is the request's revision that the destination knows; 0 for
	// none. The notice is due while it is below the request's revision.
	SentRevision int64
	// Attempts counts deliveries tried since the last one that succeeded,
	// with the one that the lease is for.
	Attempts int
	// Uncertain says that an earlier first delivery may have arrived although
	// nobody learned of it: look for it before sending again.
	Uncertain bool
	// LeasedUntil is when another worker may take the notice over.
	LeasedUntil time.Time
}

// Settlement is what became of a leased notice.
type Settlement struct {
	// Reference and SentRevision are what the destination has now; leave them
	// as they were in the notice if nothing arrived.
	Reference    string
	SentRevision int64
	// Uncertain says that what was sent may have arrived.
	Uncertain bool
	// NextAttempt is when to try again if the notice is still due; zero means
	// at once.
	NextAttempt time.Time
	// Failure is why it didn't arrive, for people; empty if it did.
	Failure string
	// Abandon gives the notice up: it is never due again.
	Abandon bool
}
