package approval

import "time"

// PersonalNotice is something that one person has to be told of their own
// account. It stays due until they were told, so they may be told twice and are
// never not told.
type PersonalNotice struct {
	ID      string // "note_" and 32 hexadecimal digits
	Person  Approver
	Kind    PersonalNoticeKind
	Passkey string // its name
	At      time.Time
	// Attempts counts deliveries tried, with the one that the lease is for.
	Attempts int
	// LeasedUntil is when another worker may take the notice over.
	LeasedUntil time.Time
}

// PersonalNoticeKind is what happened.
type PersonalNoticeKind string

// The kinds.
const (
	PasskeyEnrolled PersonalNoticeKind = "passkey.enrolled"
	PasskeyRemoved  PersonalNoticeKind = "passkey.removed"
	// PasskeyCopied means that a passkey was refused because a copy of it may
	// exist.
	PasskeyCopied PersonalNoticeKind = "passkey.copied"
)
