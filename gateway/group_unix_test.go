//go:build unix

package gateway

import (
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// What a server has started ends with it, in time, and so does a server below
// what starts it.
func TestChildrenOfChildrenEnd(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ kind, script string }{
		// They have the server's output open too.
		"what ends when asked":        {modern, `(sleep 1000) 3>"$1" & exec "$0"`},
		"what doesn't end when asked": {modern, `(trap "" TERM; sleep 1000) 3>"$1" & exec "$0"`},
		"a server below a shell":      {"stubborn", `"$0" 3>"$1"; true`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			one := childConfiguration(t, "one", test.kind)
			// As long as the grandchild lives, it has the pipe open.
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := syscall.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			one.Command = []string{"/bin/sh", "-c", test.script, one.Command[0], pipe}
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
			began := time.Now()
			f.stop()
			if took := time.Since(began); took > 5*terminateWait {
				t.Errorf("the stop took %s", took)
			}
			if err := receive(t, ended); err != nil {
				t.Error(err)
			}
		})
	}
}
