// Package approval is the domain: a request that an agent makes, the decisions
// of people about it, and the single right to run what they approved.
//
// Every change of state is one method of Service. It loads the request, runs a
// pure method on it, and has the store save the request, its decisions, its
// events and what other places must be told in one transaction, under a
// compare-and-swap; then it rings the bell. So a change without its audit event
// or its notification can't be written.
//
// Slack, MCP, the web and the command line only translate to and from Service.
// Each method takes the identity that its caller has verified. The package
// knows nothing of SQL, Slack, HTTP or MCP.
package approval

import (
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
	"strings"
	"time"
)

// ID names a request: "req_" and 32 hexadecimal digits, which sort by creation
// time. It is a locator, not a capability: knowing it grants nothing.
type ID string

var requestID = regexp.MustCompile(`^req_[0-9a-f]{32}$`)

// Valid reports whether id has the form of a request id.
func (id ID) Valid() bool { return requestID.MatchString(string(id)) }

// newID makes an identifier with the given prefix, of 48 bits of the time in
// milliseconds and 80 random bits.
func newID(prefix string, now time.Time, random io.Reader) (string, error) {
	var data [16]byte
	if _, err := io.ReadFull(random, data[6:]); err != nil {
		return "", fmt.Errorf("reading randomness: %w", err)
	}
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		data[i] = byte(ms >> (40 - 8*i))
	}
	return prefix + hex.EncodeToString(data[:]), nil
}

// Agent is the authenticated caller: the owner of a token, or the name that a
// stdio server was started with. It never comes from tool input or from what a
// client says of itself.
type Agent struct {
	Name string
	// Owner is the person the agent acts for, who by default can't approve
	// its requests. The zero Approver means nobody.
	Owner Approver
}

var agentName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$`)

// ValidAgentName reports whether name may name an agent: 1 to 64 letters,
// digits, dots, dashes and underscores, starting with a letter or digit.
func ValidAgentName(name string) bool { return agentName.MatchString(name) }

// Approver is a verified person: a workspace id and a Slack user id, nothing
// else. Names and e-mail addresses are never compared.
type Approver struct {
	Workspace string `json:"workspace"`
	User      string `json:"user"`
}

// IsZero reports whether the approver is nobody.
func (a Approver) IsZero() bool { return a == Approver{} }

// String is "slack:WORKSPACE/USER", or "" for nobody.
func (a Approver) String() string {
	if a.IsZero() {
		return ""
	}
	return "slack:" + a.Workspace + "/" + a.User
}

// Operator is a person with access to the server's data folder, who manages
// tokens from the command line. An operator decides nothing.
type Operator struct{ Name string }

// Status is where a request is, as every tool reports it. Rejected, Expired and
// Applied are final.
type Status string

// The statuses.
const (
	Pending  Status = "pending"
	Approved Status = "approved"
	Rejected Status = "rejected"
	Expired  Status = "expired"
	Applied  Status = "applied"
)

// Final reports whether nothing changes the status any more.
func (s Status) Final() bool { return s == Rejected || s == Expired || s == Applied }

// Surface is where a decision came from.
type Surface string

// The surfaces.
const (
	Slack Surface = "slack"
	// Web is the review page, where somebody has signed in.
	Web Surface = "web"
	// Policy is where a decision came from that no person made.
	Policy Surface = "policy"
	// InBand is an answer that an agent's own client gave. It says that the
	// client confirmed, not who did, and never fills a role's place.
	InBand Surface = "in-band"
	// App is a view that an agent's host shows next to the conversation, or that
	// host itself, which takes back what its agent asked. Like InBand it says that
	// the client confirmed: a server can't tell a view's call from a model's.
	App Surface = "app"
	// Granted is where a decision came from that a person made before, for more
	// than once.
	Granted Surface = "grant"
)

// person reports whether decisions from there are each made by a verified
// person.
func (s Surface) person() bool { return s == Slack || s == Web }

// client reports whether decisions from there are the agent's client's.
func (s Surface) client() bool { return s == InBand || s == App }

// Executor is who runs what was approved.
type Executor string

// The executors.
const (
	// ByAgent means that the agent takes the payload and runs it itself.
	ByAgent Executor = "agent"
	// ByGateway means that this server runs the payload, at a downstream MCP
	// server, and no agent is handed it.
	ByGateway Executor = "gateway"
)

// Verdict is what one approver decided.
type Verdict string

// The verdicts.
const (
	Approve Verdict = "approve"
	Reject  Verdict = "reject"
)

// Digest binds a decision to what was shown: SHA-256, with a domain prefix,
// over action, environment, tool pin, version and the payload in canonical
// form.
type Digest [32]byte

// String is the digest in lower-case hexadecimal.
func (d Digest) String() string { return hex.EncodeToString(d[:]) }

// Short is the first 12 hexadecimal digits, enough for people to compare.
func (d Digest) Short() string { return d.String()[:12] }

// ParseDigest reads what String writes.
func ParseDigest(text string) (Digest, error) {
	var d Digest
	data, err := hex.DecodeString(text)
	if err != nil || len(data) != len(d) || strings.ToLower(text) != text {
		return Digest{}, fmt.Errorf("%q is not a digest (64 lower-case hexadecimal digits)", text)
	}
	copy(d[:], data)
	return d, nil
}
