package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
)

// TestMain lets scripts, and tests that need a process to kill, run the program
// itself as "countersign".
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"countersign": func() {
			ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
			code := run(ctx, os.Args[1:], &process{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environment: os.Getenv})
			stop()
			os.Exit(code)
		},
		"record": func() {
			if err := record(os.Args[1:]); err != nil {
				fmt.Fprintln(os.Stderr, "record:", err)
				os.Exit(1)
			}
		},
		"receipt-of": func() {
			if err := receiptOf(os.Args[1]); err != nil {
				fmt.Fprintln(os.Stderr, "receipt-of:", err)
				os.Exit(1)
			}
		},
		"see": func() {
			if err := see(os.Args[1]); err != nil {
				fmt.Fprintln(os.Stderr, "see:", err)
				os.Exit(1)
			}
		},
		"forget": func() {
			if err := forget(os.Args[1], os.Args[2]); err != nil {
				fmt.Fprintln(os.Stderr, "forget:", err)
				os.Exit(1)
			}
		},
		"crm": func() {
			if err := serveCRM(os.Getenv); err != nil {
				fmt.Fprintln(os.Stderr, "crm:", err)
				os.Exit(1)
			}
		},
	})
}

// forget is "forget SERVER TOOL": a gateway once saw a tool that the server doesn't
// offer any more.
func forget(server, tool string) error {
	ctx := context.Background()
	conf, err := readConfig("countersign.yaml")
	if err != nil {
		return err
	}
	store, err := db.Open(ctx, conf.Data, db.Options{})
	if err != nil {
		return err
	}
	return errors.Join(seeTool(ctx, store, server, tool, "Was here."), store.Close())
}

// record is "record FOLDER POLICY CALLS": an agent asks, by a policy, for what a
// JSON file lists, and the requests are in the data folder then.
func record(arguments []string) error {
	ctx := context.Background()
	rules, err := readPolicy(arguments[1])
	if err != nil {
		return err
	}
	source, err := os.ReadFile(arguments[2])
	if err != nil {
		return err
	}
	var calls []struct {
		Action, Purpose, Environment string
		Payload                      json.RawMessage
	}
	if err := json.Unmarshal(source, &calls); err != nil {
		return err
	}
	store, err := db.Open(ctx, arguments[0], db.Options{})
	if err != nil {
		return err
	}
	keys, err := db.OpenReceiptKeys(arguments[0], time.Now())
	if err != nil {
		return errors.Join(err, store.Close())
	}
	service, err := approval.New(store, nil, approval.Options{Policy: rules, Signer: keys})
	if err != nil {
		return errors.Join(err, store.Close())
	}
	for _, c := range calls {
		_, err := service.Request(ctx, approval.Agent{Name: "crm-agent"}, approval.Proposal{
			Purpose: c.Purpose, Action: c.Action, Environment: c.Environment, Payload: c.Payload, TTL: time.Hour,
		})
		if err != nil && !errors.Is(err, approval.ErrDenied) {
			return errors.Join(err, store.Close())
		}
	}
	return store.Close()
}

// receiptOf is "receipt-of ACTION": the receipt of what was decided of such a request
// in the data folder.
func receiptOf(action string) error {
	ctx := context.Background()
	conf, err := readConfig("countersign.yaml")
	if err != nil {
		return err
	}
	store, err := db.Open(ctx, conf.Data, db.Options{})
	if err != nil {
		return err
	}
	requests, err := store.Recorded(ctx, 100)
	for _, r := range requests {
		if r.Action != action {
			continue
		}
		if r, err = store.Request(ctx, r.ID); err != nil {
			break
		}
		fmt.Println(r.Decisions[0].SignedReceipt)
	}
	return errors.Join(err, store.Close())
}

var update = flag.Bool("update", false, "write what commands print into the scripts that compare it")

// The scripts are the specification of the command line.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       *update,
	})
}

// What a shell or a CI job sees: 0 is well, 1 is that there is something to say,
// 2 is that the command line wasn't understood.
func TestExitCodes(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	well := file("policy.yaml", programPolicy)
	wrong := file("wrong.yaml", "version: 1\n")
	doubtful := file("doubtful.yaml", strings.Replace(programPolicy, "approval:", "agents: {unknown: {owner: U0SAM}}\nblock: [{id: twice, actions: [a.b], when: 'true || false', why: No.}]\napproval:", 1))
	file("a.test.yaml", "cases: [{name: Waits, action: a.b, expect: {effect: require_approval}}]")
	for _, test := range []struct {
		want      int
		arguments []string
	}{
		{0, []string{"policy", "check", well}},
		{1, []string{"policy", "check", wrong}},
		{1, []string{"policy", "check", doubtful}},
		{1, []string{"policy", "check", well + "x"}},
		{2, []string{"policy", "check", well, well}},
		{0, []string{"policy", "test", folder}},
		{1, []string{"policy", "test", "--policy", wrong, folder}},
		{1, []string{"policy", "test", folder + "x"}},
		{1, []string{"policy", "test", "--junit", filepath.Join(folder, "none", "report.xml"), folder}},
		{2, []string{"policy", "test", "--tests", folder}},
		{0, []string{"policy", "explain", "--policy", well, "--action", "a.b"}},
		{1, []string{"policy", "explain", "--policy", wrong, "--action", "a.b"}},
		{1, []string{"policy", "explain", "--policy", well, "--action", "a.b", "--payload", "{"}},
		{2, []string{"policy", "explain", "--policy", well}},
		{2, []string{"policy", "explain", "--policy", well, "--action", "a.b", "--hint", "harmless"}},
		{2, []string{"policy", "explain", "--policy", well, "--action", "a.b", "--owner", "sam"}},
		{0, []string{"policy", "diff", well, well}},
		{0, []string{"policy", "diff", well, doubtful}},
		{1, []string{"policy", "diff", well, wrong}},
		{2, []string{"policy", "diff", well}},
		{2, []string{"policy", "diff", well, well, "--fail-on-loosened"}},
		{1, []string{"policy", "tools", "--policy", well, "--data", folder}},
		{2, []string{"policy", "tools", "--limit", "-1"}},
		{0, []string{"policy", "starter"}},
		{0, []string{"policy", "starter", "github"}},
		{1, []string{"policy", "starter", "banking"}},
		{0, []string{"policy", "example"}},
		{2, []string{"tools"}},
		{2, []string{"tools", "pin"}},
		{2, []string{"tools", "pin", "a.b", "--all"}},
		{2, []string{"tools", "diff", "a.b", "c.d"}},
		{2, []string{"grants", "revoke"}},
		{2, []string{"receipt", "verify", well}},
		{2, []string{"receipt", "verify", "--keys", well, "--server", "http://127.0.0.1:1", well}},
		{2, []string{"receipt", "verify", "--keys", well, "--expect", "maybe", well}},
		{3, []string{"receipt", "verify", "--keys", well, well}},
		{1, []string{"tools", "list", "--config", filepath.Join(folder, "none.yaml")}},
		{1, []string{"grants", "list", "--config", filepath.Join(folder, "none.yaml")}},
		{2, []string{"mcp", "--gateway", "--server", "https://approvals.example.com"}},
		{2, []string{"policy"}},
		{2, []string{"policy", "lint"}},
	} {
		var out, problems bytes.Buffer
		got := run(t.Context(), test.arguments, &process{
			stdout:      closer{&out},
			stderr:      &problems,
			environment: func(string) string { return "" },
		})
		if got != test.want || (got != 0) != (problems.Len() > 0) {
			t.Errorf("countersign %s: exit %d, want %d\n%s%s", strings.Join(test.arguments, " "), got, test.want, &out, &problems)
		}
	}
}

// closer is standard output that is kept.
type closer struct{ io.Writer }

func (closer) Close() error { return nil }
