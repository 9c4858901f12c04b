//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import (
	"os"
	"syscall"
)

// forwarded are the signals that a command gets which run started.
var forwarded = []os.Signal{syscall.SIGTERM}

// sentByTerminal reports whether the command has got a signal already.
func sentByTerminal(os.Signal) bool { return false }
