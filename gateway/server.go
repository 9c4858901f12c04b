package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/countersign/countersign/internal/loopback"
)

// When the gateway runs what was approved.
type RunAt string

// The times.
const (
	// AtDecision runs it as soon as it is approved, whether the agent waits or
	// not.
	AtDecision RunAt = "decision"
	// AtReturn runs it when the agent comes back for it.
	AtReturn RunAt = "return"
)

// How long a downstream server may take, unless configured otherwise.
const (
	DefaultStartTimeout = 30 * time.Second
	DefaultCallTimeout  = 10 * time.Minute
)

// Server is one downstream MCP server, as it is configured. It has either a
// Command or a URL.
type Server struct {
	// Name is what policy calls the server, and what its tools are prefixed with
	// where names clash: see ValidServerName.
	Name string

	// Command starts a server on standard input and output. It gets Env and
	// nothing else of this process's environment but what a program needs to
	// find its way about.
	Command   []string
	Directory string // where it is started; empty for where this process is
	Env       map[string]string

	// URL is the address of a streamable HTTP server. Headers are sent with each
	// request; nothing of an agent's request ever is.
	URL     string
	Headers map[string]string

	// Environment is where calls act, as policy names it; empty counts as
	// production.
	Environment string
	// Run says when approved calls run; empty means AtDecision. Tools says so
	// for single tools, by name.
	Run   RunAt
	Tools map[string]RunAt

	StartTimeout time.Duration // for starting and listing; zero means DefaultStartTimeout
	CallTimeout  time.Duration // for one call; zero means DefaultCallTimeout
}

var serverName = regexp.MustCompile(`^[a-z][a-z0-9-]{0,31}$`)

// ValidServerName reports whether name may name a downstream server: 1 to 32
// lower-case letters, digits and dashes, starting with a letter.
func ValidServerName(name string) bool { return serverName.MatchString(name) }

// Check says what is wrong with the configuration of a server, all of it.
func (s Server) Check() error {
	var problems []error
	problem := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if !ValidServerName(s.Name) {
		problem("%q is not a name: 1 to 32 lower-case letters, digits and dashes are accepted, starting with a letter", s.Name)
	}
	switch {
	case len(s.Command) == 0 && s.URL == "":
		problem("has neither command nor url; give the one by which the server is reached")
	case len(s.Command) > 0 && s.URL != "":
		problem("has both command and url; give one")
	case s.URL != "":
		if err := checkURL(s.URL); err != nil {
			problem("url: %w", err)
		}
		if s.Directory != "" || len(s.Env) > 0 {
			problem("directory and env are for a command")
		}
	default:
		if s.Command[0] == "" {
			problem("command: the program is missing")
		}
		if len(s.Headers) > 0 {
			problem("headers are for a url")
		}
		for _, name := range slices.Sorted(maps.Keys(s.Env)) {
			if err := checkVariable(name, s.Env[name]); err != nil {
				problem("env: %w", err)
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.Headers)) {
		if err := checkHeader(name, s.Headers[name]); err != nil {
			problem("headers: %w", err)
		}
	}
	runs := []RunAt{s.Run}
	for _, run := range s.Tools {
		runs = append(runs, run)
	}
	for _, run := range runs {
		if run != "" && run != AtDecision && run != AtReturn {
			problem("run: %q; decision and return are accepted", run)
		}
	}
	if s.StartTimeout < 0 || s.CallTimeout < 0 {
		problem("a timeout is negative")
	}
	return errors.Join(problems...)
}

// checkVariable doesn't repeat the value, which may be secret; nor does
// checkHeader.
func checkVariable(name, value string) error {
	switch {
	case name == "" || strings.ContainsAny(name, "=\x00"):
		return fmt.Errorf("%q is not the name of a variable", name)
	case ownVariable(name):
		return fmt.Errorf("%s is for this server alone; a downstream server gets none of its variables", name)
	case strings.ContainsRune(value, 0):
		return fmt.Errorf("the value of %s has a NUL byte in it", name)
	default:
		return nil
	}
}

// protocolHeaders are the protocol's own, with which a request works or doesn't.
var protocolHeaders = []string{"accept", "connection", "content-encoding", "content-length", "content-type", "host", "last-event-id", "te", "trailer", "transfer-encoding", "upgrade"}

func checkHeader(name, value string) error {
	lower := strings.ToLower(name)
	switch {
	case !isToken(name):
		return fmt.Errorf("%q is not the name of a header", name)
	case strings.HasPrefix(lower, "mcp-") || slices.Contains(protocolHeaders, lower):
		return fmt.Errorf("%s is set by the protocol", name)
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }):
		return fmt.Errorf("the value of %s has a control character in it, such as the end of a line", name)
	default:
		return nil
	}
}

// isToken reports whether text may name a header.
func isToken(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func checkURL(text string) error {
	address, err := url.Parse(text)
	switch {
	case err != nil || address.Host == "" || (address.Scheme != "https" && address.Scheme != "http"):
		return errors.New("is not an address like https://crm.example.com/mcp")
	case address.User != nil:
		return errors.New("has credentials in it, which end up in logs; put them in headers")
	case address.Scheme == "http" && !loopback.Is(address.Hostname()):
		return errors.New("sends what is secret in the clear; use https")
	default:
		return nil
	}
}

// runAt is when approved calls of a tool run.
func (s Server) runAt(tool string) RunAt {
	if run := s.Tools[tool]; run != "" {
		return run
	}
	if s.Run != "" {
		return s.Run
	}
	return AtDecision
}

func (s Server) startTimeout() time.Duration {
	if s.StartTimeout == 0 {
		return DefaultStartTimeout
	}
	return s.StartTimeout
}

func (s Server) callTimeout() time.Duration {
	if s.CallTimeout == 0 {
		return DefaultCallTimeout
	}
	return s.CallTimeout
}
