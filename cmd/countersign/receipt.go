package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/gate"
	"github.com/countersign/countersign/internal/receipt"
	"github.com/countersign/countersign/internal/visible"
)

type receiptCommand struct {
	Verify receiptVerifyCommand `cmd:"" help:"Check a receipt, and say what was decided, by whom and on what."`
	Keys   receiptKeysCommand   `cmd:"" help:"List, print and rotate the keys that receipts are signed with."`
}

type receiptVerifyCommand struct {
	File   string `arg:"" optional:"" default:"-" help:"A file with the receipt, or - for standard input (default: ${default})."`
	Keys   string `xor:"keys" required:"" placeholder:"FILE" help:"The server's public keys, from \"receipt keys print\" or its /.well-known/countersign/receipts. Nothing is asked of any server."`
	Server string `xor:"keys" required:"" placeholder:"URL" help:"The server to get its public keys from."`
	Expect string `enum:"any,approve,reject" default:"any" help:"What it must be: approve, reject or any (default: ${default})."`
	JSON   bool   `name:"json" help:"Print JSON."`
}

// What "receipt verify" exits with, besides 0 for a valid receipt and 2 for a
// command line that wasn't understood.
const (
	exitNotValid  = 1
	exitUncertain = 3 // it couldn't be told: there is no key for it, or no receipt
)

func (c *receiptVerifyCommand) Run(ctx context.Context, p *process) error {
	said, err := c.verify(ctx, p)
	if err == nil {
		err = c.expected(said)
	}
	if c.JSON {
		return c.printJSON(p, said, err)
	}
	if err != nil {
		return verdictOn(err)
	}
	return printReceipt(p.stdout, said)
}

func (c *receiptVerifyCommand) verify(ctx context.Context, p *process) (gate.Receipt, error) {
	text, err := readReceipt(c.File, p.stdin)
	if err != nil {
		return gate.Receipt{}, err
	}
	var keys gate.ReceiptKeys
	if c.Server != "" {
		keys, err = gate.FetchReceiptKeys(ctx, c.Server, nil)
	} else {
		var data []byte
		if data, err = os.ReadFile(c.Keys); err == nil {
			keys, err = gate.ParseReceiptKeys(data)
		}
	}
	if err != nil {
		return gate.Receipt{}, err
	}
	return gate.VerifyReceipt(keys, text)
}

// expected returns why a valid receipt isn't what was asked for.
func (c *receiptVerifyCommand) expected(said gate.Receipt) error {
	switch {
	case c.Expect == "approve" && !said.Approved:
		return fmt.Errorf("%w of an approval: it is valid, and says that %s was rejected", gate.ErrReceipt, visible.Line(said.RequestID))
	case c.Expect == "reject" && said.Approved:
		return fmt.Errorf("%w of a reject: it is valid, and says that %s was approved", gate.ErrReceipt, visible.Line(said.RequestID))
	}
	return nil
}

// verdictOn gives an error the exit code by which scripts tell a receipt that isn't
// valid from one that couldn't be checked.
func verdictOn(err error) error {
	code := exitUncertain
	if errors.Is(err, gate.ErrReceipt) {
		code = exitNotValid
	}
	return &codedError{code, err}
}

func (c *receiptVerifyCommand) printJSON(p *process, said gate.Receipt, problem error) error {
	answer := struct {
		Valid   bool          `json:"valid"`
		Why     string        `json:"why,omitempty"` // it isn't, or why it couldn't be told
		Receipt *gate.Receipt `json:"receipt,omitempty"`
	}{Valid: problem == nil}
	if problem == nil {
		answer.Receipt = &said
	} else {
		answer.Why = problem.Error()
	}
	encoder := json.NewEncoder(p.stdout)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(answer); err != nil {
		return fmt.Errorf("printing: %w", err)
	}
	if problem != nil {
		return verdictOn(problem)
	}
	return nil
}

// longestReceipt is how much is read where a receipt should be.
const longestReceipt = 1 << 20

func readReceipt(path string, stdin io.Reader) (string, error) {
	from := stdin
	if path != standardInput {
		file, err := os.Open(path)
		if err != nil {
			return "", fmt.Errorf("reading the receipt: %w", err)
		}
		defer file.Close()
		from = file
	}
	data, err := io.ReadAll(io.LimitReader(from, longestReceipt))
	if err != nil {
		return "", fmt.Errorf("reading the receipt: %w", err)
	}
	return string(data), nil
}

// printReceipt says what a valid receipt says.
func printReceipt(w io.Writer, r gate.Receipt) error {
	verdict := "Rejected"
	if r.Approved {
		verdict = "Approved"
	}
	fmt.Fprintf(w, "Valid. %s %s, on %s.\n\n", verdict, decidedBy(r), r.DecidedAt.UTC().Format("2 January 2006 at 15:04:05.000 UTC"))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name, value string) {
		if value != "" {
			fmt.Fprintf(table, "%s\t%s\n", name, visible.Line(value))
		}
	}
	row("Request", fmt.Sprintf("%s, version %d", r.RequestID, r.Version))
	row("Digest", r.Digest)
	row("Scope", r.Scope)
	row("Roles", heldRoles(r.Roles))
	row("Acting for", r.ActsFor)
	row("Policy", r.Policy)
	row("Receipt", r.ID)
	row("Key", r.KeyID)
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprint(w, "\nThis is one decision, as it was then. Whether it still holds, the server says when it is applied.\n")
	return err
}

// decidedBy says who decided, and where, or what did without a person.
func decidedBy(r gate.Receipt) string {
	by := visible.Line(r.DecidedBy)
	if r.Person {
		return "by " + by + ", " + surfaceWords(r.Surface)
	}
	kind, what, _ := strings.Cut(by, ":")
	switch kind {
	case "policy":
		return fmt.Sprintf("by the policy (%s), without a person", what)
	case "grant":
		return fmt.Sprintf("by what people granted with %s", what)
	case "agent":
		where := "by the client"
		if approval.Surface(r.Surface) == approval.App {
			where = "in the host"
		}
		return fmt.Sprintf("%s of the agent %s, not by a verified person", where, what)
	}
	return "by " + by + ", not by a verified person"
}

func surfaceWords(surface string) string {
	switch approval.Surface(surface) {
	case approval.Slack:
		return "in Slack"
	case approval.Web:
		return "on the review page"
	}
	return "in " + visible.Line(surface)
}

// heldRoles are the roles that counted, and through what.
func heldRoles(roles []gate.ReceiptRole) string {
	words := make([]string, len(roles))
	for i, held := range roles {
		words[i] = held.Role
		if held.Via != "user" {
			words[i] += " (through " + held.Via + ")"
		}
	}
	return strings.Join(words, ", ")
}

type receiptKeysCommand struct {
	List   receiptKeysListCommand   `cmd:"" help:"List the keys, and since when and until when they signed."`
	Print  receiptKeysPrintCommand  `cmd:"" help:"Print the public keys, for \"receipt verify --keys\"."`
	Rotate receiptKeysRotateCommand `cmd:"" help:"Sign with a new key from now on. What the one before signed stays valid."`
}

// receiptKeysFlag is where the keys are that are looked at.
type receiptKeysFlag struct {
	configFlag
	Data string `placeholder:"FOLDER" help:"The data folder, where there is no configuration, as in personal mode."`
}

func (f receiptKeysFlag) read() (*db.ReceiptKeys, error) {
	if f.Data == "" {
		return f.readReceiptKeys()
	}
	// One that isn't there would be made.
	if _, err := os.Stat(f.Data); err != nil {
		return nil, fmt.Errorf("looking for the data folder: %w", err)
	}
	return db.OpenReceiptKeys(f.Data, time.Now())
}

// readReceiptKeys opens the keys of the configured data folder.
func (f configFlag) readReceiptKeys() (*db.ReceiptKeys, error) {
	conf, err := readConfig(f.Config)
	if err != nil {
		return nil, err
	}
	return db.OpenReceiptKeys(conf.Data, time.Now())
}

// publicKeys are what others verify receipts with, oldest first.
func publicKeys(keys *db.ReceiptKeys) (receipt.KeySet, error) {
	public, err := keys.Public()
	if err != nil {
		return receipt.KeySet{}, err
	}
	return receipt.ParseKeys(public)
}

type receiptKeysListCommand struct{ receiptKeysFlag }

func (c *receiptKeysListCommand) Run(p *process) error {
	keys, err := c.read()
	if err != nil {
		return err
	}
	set, err := publicKeys(keys)
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(p.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "KEY\tFROM\tUNTIL")
	for _, key := range set.Keys {
		until := time.Time{}
		if key.Expires != 0 {
			until = time.Unix(key.Expires, 0)
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", key.ID, when(time.Unix(key.NotBefore, 0)), when(until))
	}
	return table.Flush()
}

type receiptKeysPrintCommand struct{ receiptKeysFlag }

func (c *receiptKeysPrintCommand) Run(p *process) error {
	keys, err := c.read()
	if err != nil {
		return err
	}
	public, err := keys.Public()
	if err != nil {
		return err
	}
	_, err = p.stdout.Write(public)
	return err
}

type receiptKeysRotateCommand struct{ configFlag }

// Run works beside a running server, which signs with the new key at once.
func (c *receiptKeysRotateCommand) Run(ctx context.Context, p *process) error {
	keys, err := c.readReceiptKeys()
	if err != nil {
		return err
	}
	return withAnyPolicy(ctx, c.Config, func(service *approval.Service) error {
		id, err := keys.Rotate(time.Now())
		if err != nil {
			return fmt.Errorf("rotating the keys of receipts: %w", err)
		}
		if err := service.NoteReceiptKey(ctx, operator(), id); err != nil {
			return fmt.Errorf("%s signs now, but the audit log doesn't say so: %w", id, err)
		}
		fmt.Fprintln(p.stdout, id)
		fmt.Fprintln(p.stderr, "This key signs receipts from now on. Those who keep the public keys in a file need it anew: \"countersign receipt keys print\".")
		return nil
	})
}
