//go:build unix

package gateway

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// What a server has started ends with it.
func TestChildrenOfChildrenEnd(t *testing.T) {
	t.Parallel()
	for kind, command := range map[string]string{
		"what ends when asked":        `sleep 1000`,
		"what doesn't end when asked": `trap "" TERM; sleep 1000`,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			one := childConfiguration(t, "one", modern)
			// As long as the grandchild lives, it has the pipe open.
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			one.Command = []string{"/bin/sh", "-c", "(" + command + `) >"$1" & exec "$0"`, one.Command[0], pipe}
			opened, ended := make(chan error, 1), make(chan error, 1)
			go func() {
				read, err := os.Open(pipe)
				opened <- err
				if err == nil {
					_, err = io.ReadAll(read)
					_ = read.Close()
				}
				ended <- err
			}()
			f := startAll(t, one)
			if err := receive(t, opened); err != nil {
				t.Fatal(err)
			}
			select {
			case err := <-ended:
				t.Fatalf("it ended before the server: %v", err)
			default:
			}
			f.stop()
			if err := receive(t, ended); err != nil {
				t.Error(err)
			}
		})
	}
}
