package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/policy"
)

// watched is a service whose policy follows a file, on the time of a bubble.
type watched struct {
	t       *testing.T
	path    string
	store   *db.DB
	service *approval.Service
	watch   *policyWatch
	hangup  chan os.Signal
	log     lockedBuffer
}

// lockedBuffer is written by one goroutine and taken by another.
type lockedBuffer struct {
	mutex   sync.Mutex
	written bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.written.Write(p)
}

func (b *lockedBuffer) take() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	text := b.written.String()
	b.written.Reset()
	return text
}

// The policies of these tests differ in their mode.
const rulesOfTest = `version: 1
mode: MODE
roles: {oncall: {users: [U0ADA, U0GRACE]}}
approval: {requires: [{role: oncall}]}
block:
  - {id: no-drop, actions: ["*.drop_*"], why: "Nothing is dropped."}
`

func rulesIn(mode string) string { return strings.Replace(rulesOfTest, "MODE", mode, 1) }

// withWatch runs a test in a bubble, with a policy in mode cautious that rules.
func withWatch(t *testing.T, accepts policyCheck, test func(w *watched)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &watched{t: t, path: filepath.Join(t.TempDir(), "policy.yaml"), hangup: make(chan os.Signal)}
		w.write(rulesIn("cautious"))
		rules, err := readPolicy(w.path)
		if err != nil {
			t.Fatal(err)
		}
		if w.store, err = db.Open(t.Context(), filepath.Join(t.TempDir(), "data"), db.Options{}); err != nil {
			t.Fatal(err)
		}
		if w.service, err = approval.New(w.store, nil, approval.Options{Policy: rules}); err != nil {
			t.Fatal(err)
		}
		w.watch = &policyWatch{path: w.path, loaded: rules, accepts: accepts, set: w.service.SetPolicy, logger: slog.New(slog.NewJSONHandler(&w.log, nil))}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() { w.watch.run(ctx, w.hangup); close(ended) }()
		test(w)
		stop()
		<-ended
		if err := w.store.Close(); err != nil {
			t.Error(err)
		}
	})
}

func (w *watched) write(text string) {
	w.t.Helper()
	if err := os.WriteFile(w.path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
}

// poll lets so many polls happen.
func (w *watched) poll(times int) {
	time.Sleep(time.Duration(times) * pollPolicy)
	synctest.Wait()
}

func (w *watched) signal() {
	w.hangup <- syscall.SIGHUP
	synctest.Wait()
}

func (w *watched) mode(want string) {
	w.t.Helper()
	if got := w.service.Policy().Summary().Mode; got != want {
		w.t.Errorf("the mode is %s, want %s", got, want)
	}
}

// said takes what was logged since the last time, each as its level and what it
// is about.
func (w *watched) said() []string {
	w.t.Helper()
	var said []string
	for line := range strings.Lines(w.log.take()) {
		var entry struct {
			Level    string
			Msg      string
			Findings []string
			Err      string
		}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			w.t.Fatalf("%v in %s", err, line)
		}
		said = append(said, strings.TrimSpace(entry.Level+" "+strings.Join(entry.Findings, " ")+entry.Err))
	}
	return said
}

func (w *watched) expect(want ...string) {
	w.t.Helper()
	got := w.said()
	for i := range got {
		got[i] = strings.ReplaceAll(got[i], w.path, "FILE")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		w.t.Errorf("the log (-want +got):\n%s", diff)
	}
}

// loads is how often the audit log says that a policy was loaded.
func (w *watched) loads() int {
	w.t.Helper()
	count := 0
	for event, err := range w.store.Events(context.Background()) {
		if err != nil {
			w.t.Fatal(err)
		}
		if event.Type == "policy.loaded" {
			count++
		}
	}
	return count
}

const careless = `ERROR FILE:2:7: mode: mode "careless" isn't known; there are cautious, open, readonly, strict`

// A file that stays as it is does nothing.
func TestReloadNothing(t *testing.T) {
	t.Parallel()
	withWatch(t, nil, func(w *watched) {
		w.write(rulesIn("cautious"))
		w.poll(10)
		w.mode("cautious")
		w.expect()
		if got := w.loads(); got != 0 {
			t.Errorf("%d policies were recorded", got)
		}
	})
}

// A file that changes rules when it has been the same for two polls, and the
// audit log says so.
func TestReloadChange(t *testing.T) {
	t.Parallel()
	withWatch(t, nil, func(w *watched) {
		w.poll(3)
		w.write(rulesIn("strict"))
		w.poll(1)
		w.mode("cautious")
		w.poll(1)
		w.mode("strict")
		w.expect("INFO")
		w.poll(5)
		w.expect()
		if got := w.loads(); got != 1 {
			t.Errorf("%d policies were recorded", got)
		}
	})
}

// The beginning of a file is a policy without its block list. An editor that is
// in the middle of writing it isn't believed.
func TestReloadPartialWrite(t *testing.T) {
	t.Parallel()
	withWatch(t, nil, func(w *watched) {
		whole := rulesIn("strict")
		beginning, _, _ := strings.Cut(whole, "block:")
		if _, err := policy.Parse([]byte(beginning)); err != nil {
			t.Fatal(err)
		}
		for _, written := range []string{"", beginning, whole} {
			w.write(written)
			w.poll(1)
			w.mode("cautious")
		}
		w.poll(1)
		w.mode("strict")
		if got := w.service.Policy().Summary().Blocks; got != 1 {
			t.Errorf("%d blocks", got)
		}
		w.expect("INFO")
	})
}

// A bad file changes nothing and is said once, with all that is wrong. The
// health endpoint says it as long as it is so.
func TestReloadBad(t *testing.T) {
	t.Parallel()
	withWatch(t, nil, func(w *watched) {
		w.write(rulesIn("careless"))
		w.poll(20)
		w.mode("cautious")
		w.expect(careless)
		if !w.watch.refused.Load() {
			t.Error("nothing else says that the file is refused")
		}

		w.write(strings.Replace(rulesIn("careless"), "role: oncall", "role: oncal", 1))
		w.poll(2)
		w.expect(careless + ` FILE:4:23: approval.requires[0]: role "oncal" isn't defined`)

		w.write("")
		w.poll(2)
		w.expect("ERROR FILE: the file is empty")

		if err := os.Remove(w.path); err != nil {
			t.Fatal(err)
		}
		w.poll(5)
		w.mode("cautious")
		w.expect(`ERROR there is no policy file FILE; "countersign policy example" and "countersign policy starter" print some to start from`)

		// Put right as it was: nothing is new.
		w.write(rulesIn("cautious"))
		w.poll(2)
		w.expect("INFO")
		if w.watch.refused.Load() || w.loads() != 0 {
			t.Error("the same policy counts as another one, or as refused")
		}

		w.write(rulesIn("careless"))
		w.poll(2)
		w.write(rulesIn("strict"))
		w.poll(2)
		w.mode("strict")
		if w.watch.refused.Load() {
			t.Error("the file counts as refused")
		}
	})
}

// A signal has the file read at once, and says again what is wrong with it.
func TestReloadSignal(t *testing.T) {
	t.Parallel()
	withWatch(t, nil, func(w *watched) {
		w.signal()
		w.expect("INFO")
		w.write(rulesIn("strict"))
		w.signal()
		w.mode("strict")
		w.expect("INFO")
		w.write(rulesIn("careless"))
		w.signal()
		w.signal()
		w.mode("strict")
		w.expect(careless, careless)
		w.poll(5)
		w.expect()
	})
}

// What would leave an agent without anybody who could approve is refused too.
func TestReloadAccepts(t *testing.T) {
	t.Parallel()
	accepts := func(rules *policy.Policy) error { return rules.ValidateFor("U0ADA") }
	withWatch(t, accepts, func(w *watched) {
		w.write(strings.Replace(rulesIn("strict"), ", U0GRACE", "", 1))
		w.poll(2)
		w.mode("cautious")
		if got := w.said(); len(got) != 1 || !strings.Contains(got[0], "without U0ADA") {
			t.Errorf("said %q", got)
		}
	})
}

// What can't be recorded doesn't rule, is said once, and is tried again.
func TestReloadUnrecorded(t *testing.T) {
	t.Parallel()
	withWatch(t, nil, func(w *watched) {
		w.poll(1)
		if err := w.store.Close(); err != nil {
			t.Fatal(err)
		}
		w.write(rulesIn("strict"))
		w.poll(5)
		w.mode("cautious")
		if got := w.said(); len(got) != 1 || !strings.HasPrefix(got[0], "ERROR recording the policy: ") {
			t.Errorf("said %q", got)
		}
	})
}
