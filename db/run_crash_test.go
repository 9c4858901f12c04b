package db_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/db"
	"github.com/countersign/countersign/db/dbtest"
)

// runPin is the tool's definition in these tests.
const runPin = "pin"

// stepVariable says after which step of a run the child "step" stays.
const stepVariable = "COUNTERSIGN_DB_TEST_STEP"

// effects is the file in which each run leaves a line: what the world sees of it.
const effects = "effects"

// askRun has the gateway asked for something and a person approve it.
func askRun(ctx context.Context, service *approval.Service) (*approval.Request, error) {
	p := proposal()
	p.Executor, p.ToolPin = approval.ByGateway, runPin
	r, err := service.Request(ctx, agent, p)
	if err != nil {
		return nil, err
	}
	return service.Decide(ctx, person, approval.Ballot{
		Request: r.ID, Version: r.Version, Digest: r.Digest, Verdict: approval.Approve, Surface: approval.Slack,
	})
}

// leave has the world see that a request runs, in one write.
func leave(folder string, id approval.ID) error {
	file, err := os.OpenFile(filepath.Join(filepath.Dir(folder), effects), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(file, id)
	return errors.Join(err, file.Close())
}

// left counts what the world has seen of each request.
func left(t *testing.T, folder string) map[approval.ID]int {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(filepath.Dir(folder), effects))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	seen := make(map[approval.ID]int)
	for id := range strings.Lines(string(data)) {
		seen[approval.ID(strings.TrimSpace(id))]++
	}
	return seen
}

// step is a child that runs one request and stays after a step of it.
func step(folder string) error {
	ctx := context.Background()
	d, err := db.Open(ctx, folder, db.Options{})
	if err != nil {
		return err
	}
	service, err := newService(d)
	if err != nil {
		return err
	}
	r, err := askRun(ctx, service)
	if err != nil {
		return err
	}
	reached := func(name string) {
		if os.Getenv(stepVariable) == name {
			acknowledge(name, r)
			select {}
		}
	}
	reached("approved")
	if _, err := service.ClaimToRun(ctx, r.ID, runPin); err != nil {
		return err
	}
	reached("claimed")
	if err := leave(folder, r.ID); err != nil {
		return err
	}
	reached("called")
	if _, err := service.FinishRun(ctx, r.ID, approval.Report{Outcome: approval.Succeeded, Result: []byte(`1`)}); err != nil {
		return err
	}
	reached("finished")
	return errors.New("no step was reached")
}

// TestKilledAtEachStep kills a run at each of its steps. What isn't known to have
// ended never runs again; what hadn't begun does.
func TestKilledAtEachStep(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		step       string
		runnable   bool
		unfinished bool
		seen       int
	}{
		{step: "approved", runnable: true},
		{step: "claimed", unfinished: true},
		{step: "called", unfinished: true, seen: 1},
		{step: "finished", seen: 1},
	} {
		t.Run(test.step, func(t *testing.T) {
			t.Parallel()
			folder := newFolder(t)
			c := newChild(t, "step", folder)
			c.Env = append(c.Env, stepVariable+"="+test.step)
			if err := c.Start(); err != nil {
				t.Fatal(err)
			}
			if !c.out.Scan() {
				t.Fatalf("the child said nothing: %s", c.err)
			}
			what, id, _ := strings.Cut(c.out.Text(), " ")
			if what != test.step {
				t.Fatalf("the child said %q", c.out.Text())
			}
			if err := c.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			_ = c.Wait() // reports the kill

			d := dbtest.OpenIn(t, folder, db.Options{})
			service, err := newService(d)
			if err != nil {
				t.Fatal(err)
			}
			lists := func(want bool, what string, list func(context.Context, int) ([]approval.ID, error)) {
				t.Helper()
				got, err := list(t.Context(), 10)
				if err != nil || slices.Contains(got, approval.ID(id)) != want {
					t.Errorf("%s: got %v (%v), want it there: %t", what, got, err, want)
				}
			}
			lists(test.runnable, "runnable", service.Runnable)
			lists(test.unfinished, "unfinished", service.Unfinished)
			_, err = service.ClaimToRun(t.Context(), approval.ID(id), runPin)
			if claimed := err == nil; claimed != test.runnable || !claimed && !errors.Is(err, approval.ErrApplied) {
				t.Errorf("claiming it again: %v", err)
			}
			if test.unfinished {
				r, err := service.FinishRun(t.Context(), approval.ID(id), approval.Report{Outcome: approval.Unknown})
				if err != nil || r.Execution.Outcome != approval.Unknown {
					t.Errorf("got %+v (%v)", r, err)
				}
				lists(false, "unfinished, once that is recorded", service.Unfinished)
				if _, err := service.ClaimToRun(t.Context(), approval.ID(id), runPin); !errors.Is(err, approval.ErrApplied) {
					t.Errorf("claiming what is unknown: %v", err)
				}
			}
			if got := left(t, folder)[approval.ID(id)]; got != test.seen {
				t.Errorf("it was seen to run %d times, want %d", got, test.seen)
			}
			checkFile(t, d, folder)
		})
	}
}

// runAll is a child that does as a gateway does: it records what an earlier one
// was cut off at, and then runs what is approved from several goroutines, which
// all try for the same, until it is killed.
func runAll(folder string) error {
	ctx := context.Background()
	d, err := db.Open(ctx, folder, db.Options{})
	if err != nil {
		return err
	}
	service, err := newService(d)
	if err != nil {
		return err
	}
	cut, err := service.Unfinished(ctx, 1000)
	if err != nil {
		return err
	}
	for _, id := range cut {
		r, err := service.FinishRun(ctx, id, approval.Report{Outcome: approval.Unknown})
		if err != nil {
			return err
		}
		acknowledge("unknown", r)
	}
	failed := make(chan error)
	for range 4 {
		go func() {
			for {
				r, err := askRun(ctx, service)
				if err != nil {
					failed <- err
					return
				}
				acknowledge("approved", r)
			}
		}()
		go func() {
			for {
				if err := runApproved(ctx, service, folder); err != nil {
					failed <- err
					return
				}
			}
		}()
	}
	return <-failed
}

func runApproved(ctx context.Context, service *approval.Service, folder string) error {
	ids, err := service.Runnable(ctx, 8)
	if err != nil {
		return err
	}
	for _, id := range ids {
		r, err := service.ClaimToRun(ctx, id, runPin)
		if errors.Is(err, approval.ErrApplied) {
			continue // another was faster
		}
		if err != nil {
			return err
		}
		acknowledge("claimed", r)
		if err := leave(folder, id); err != nil {
			return err
		}
		if r, err = service.FinishRun(ctx, id, approval.Report{Outcome: approval.Succeeded, Result: []byte(`{"ran":true}`)}); err != nil {
			return err
		}
		acknowledge("finished", r)
	}
	return nil
}

// TestRunsKilled kills a gateway that runs what is approved, over and over: each
// request is seen to run at most once, and what was acknowledged is there.
func TestRunsKilled(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	said := make(map[approval.ID]string)
	counts := make(map[string]int)
	for range 10 {
		c := startChild(t, "run", folder)
		kill := 20 + rand.IntN(300)
		for lines := 0; c.out.Scan(); lines++ {
			what, id, ok := strings.Cut(c.out.Text(), " ")
			if !ok {
				t.Fatalf("the child said %q", c.out.Text())
			}
			if what != "approved" || said[approval.ID(id)] == "" {
				said[approval.ID(id)] = what // who asks may be slower to say so than who runs
			}
			counts[what]++
			if lines == kill {
				if err := c.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		_ = c.Wait() // reports the kill
		if c.err.Len() > 0 {
			t.Fatalf("the child failed: %s", c.err)
		}
	}
	d := dbtest.OpenIn(t, folder, db.Options{})
	checkFile(t, d, folder)
	service, err := newService(d)
	if err != nil {
		t.Fatal(err)
	}
	unfinished, err := service.Unfinished(t.Context(), 1000)
	if err != nil {
		t.Fatal(err)
	}
	seen := left(t, folder)
	for id, times := range seen {
		if times > 1 {
			t.Errorf("%s was seen to run %d times", id, times)
		}
		if said[id] == "" {
			said[id] = "called"
		}
	}
	for id, what := range said {
		r, err := d.Request(t.Context(), id)
		if err != nil {
			t.Errorf("%s was said to be %s: %v", id, what, err)
			continue
		}
		finished := r.Execution != nil && !r.Execution.FinishedAt.IsZero()
		switch {
		case what == "finished" && (!finished || r.Execution.Outcome != approval.Succeeded),
			what == "unknown" && (!finished || r.Execution.Outcome != approval.Unknown),
			what == "claimed" && r.Execution == nil,
			finished && r.Execution.Outcome == approval.Succeeded && seen[id] != 1,
			r.Execution == nil && seen[id] != 0:
			t.Errorf("%s was said to be %s and seen %d times, and is %s with %+v", id, what, seen[id], r.Status, r.Execution)
		}
		if running := r.Execution != nil && !finished; running != slices.Contains(unfinished, id) {
			t.Errorf("%s runs: %t, and unfinished are %v", id, running, unfinished)
		}
		if finished && r.Execution.ResultSize > 0 {
			if got, err := d.Result(t.Context(), r.Execution.ID); err != nil || string(got) != `{"ran":true}` {
				t.Errorf("%s returned %q (%v)", id, got, err)
			}
		}
		if r.Execution != nil {
			if _, err := service.ClaimToRun(t.Context(), id, runPin); !errors.Is(err, approval.ErrApplied) {
				t.Errorf("%s could be run again: %v", id, err)
			}
		}
	}
	t.Logf("acknowledged: %v; seen: %d; cut off in the end: %d", counts, len(seen), len(unfinished))
	if counts["finished"] == 0 || counts["unknown"]+len(unfinished) == 0 {
		t.Error("nothing ended, or nothing was cut off, so nothing was tested")
	}
	if _, due, err := d.NextNotice(t.Context(), "slack:C1", time.Now()); err != nil || !due {
		t.Errorf("nothing is due (%v)", err)
	}
}
