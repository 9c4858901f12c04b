package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
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
	})
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
	service, err := approval.New(store, nil, approval.Options{Policy: rules})
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
