//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"
)

// openTerminal makes a terminal: what is written to keys is typed on the other.
func openTerminal(t *testing.T) (keys, terminal *os.File) {
	t.Helper()
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keys.Close() })
	control := func(request uintptr, value *int32) {
		connection, err := keys.SyscallConn() // Fd would take the file out of the poller
		if err == nil {
			err = connection.Control(func(fd uintptr) {
				if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(value))); failed != 0 {
					t.Error(failed)
				}
			})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var locked, number int32
	control(syscall.TIOCSPTLCK, &locked)
	control(syscall.TIOCGPTN, &number)
	terminal, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = terminal.Close() })
	return keys, terminal
}

// Ctrl-C reaches a command on a terminal once, by the terminal and not again by
// run; what somebody sends to run alone still comes through.
func TestRunOnATerminal(t *testing.T) {
	t.Parallel()
	p := newProgram(t)
	p.serve(t)
	token := p.output(t, "token", "create", "shell")
	w := p.world()
	keys, terminal := openTerminal(t)
	running := p.command(t, []string{agentTokenVariable + "=" + token, serverVariable + "=http://127.0.0.1:" + p.port},
		"run", "--purpose", "terminal", "--", "bash", "-c",
		`trap 'echo interrupted' INT; trap 'echo ended; exit 7' TERM; test -t 0 && test -t 1 && echo ready; while :; do :; done`)
	running.Stdin, running.Stdout, running.Stderr = terminal, terminal, terminal
	running.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 0}
	if err := running.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = running.Process.Kill() })
	_ = terminal.Close() // or the end of the command isn't the end of what is read
	w.click(t, "U0ADA", w.posted(t, "terminal").TS, "approve")
	const presses = 5
	pressed, interrupted := 0, 0
	for lines := bufio.NewScanner(keys); lines.Scan(); {
		line := lines.Text()
		again := strings.Contains(line, "ready")
		if strings.Contains(line, "interrupted") {
			interrupted++
			again = true
		}
		switch {
		case again && pressed < presses:
			pressed++
			if _, err := io.WriteString(keys, "\x03"); err != nil {
				t.Fatal(err)
			}
		case again:
			if err := running.Process.Signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
		}
	}
	if code := exitCodeOf(t, running); code != 7 || interrupted != presses {
		t.Errorf("exit code %d, interrupted %d times by %d presses", code, interrupted, pressed)
	}
}
