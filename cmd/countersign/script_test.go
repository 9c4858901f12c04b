package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
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
	})
}

// The scripts are the specification of the command line.
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
	})
}
