package gateway

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestChildEnvironment(t *testing.T) {
	t.Parallel()
	process := map[string]string{
		"PATH": "/bin", "HOME": "/home/a", "LANG": "C", "TMPDIR": "/tmp", "USER": "a", "LD_PRELOAD": "x",
		"COUNTERSIGN_SLACK_TOKEN": "secret", "AWS_SECRET_ACCESS_KEY": "secret",
	}
	lookUp := func(name string) (string, bool) { value, ok := process[name]; return value, ok }
	got := childEnvironment(map[string]string{"TOKEN": "its own", "HOME": "/elsewhere", "countersign_key": "x"}, lookUp)
	if diff := cmp.Diff([]string{"HOME=/elsewhere", "LANG=C", "PATH=/bin", "TMPDIR=/tmp", "TOKEN=its own", "USER=a"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := childEnvironment(nil, func(string) (string, bool) { return "", false }); got == nil || len(got) != 0 {
		t.Errorf("without anything: %#v, which os/exec takes for everything", got)
	}
}

// What the child itself sees.
func TestChildSeesOnlyItsEnvironment(t *testing.T) {
	t.Setenv("COUNTERSIGN_SLACK_TOKEN", "secret of this process")
	t.Setenv("GATEWAY_TEST_OTHER", "secret of this process")
	one := childConfiguration(t, "one", modern)
	one.Env["TOKEN"] = "its own"
	f := startAll(t, one)
	environment := texts(t, f.tool(t, "environment", "{}"))[0]
	if strings.Contains(environment, "secret of this process") || strings.Contains(strings.ToUpper(environment), "COUNTERSIGN_") {
		t.Errorf("the child has a secret of this process:\n%s", environment)
	}
	for _, variable := range []string{"TOKEN=its own", "PATH=" + os.Getenv("PATH")} {
		if !slices.Contains(strings.Split(environment, "\n"), variable) {
			t.Errorf("the child doesn't have %s:\n%s", variable, environment)
		}
	}
}

// A server that crashes is started again, which its calls wait for without harm
// to those of another.
func TestCrash(t *testing.T) {
	t.Parallel()
	two := newTestServer(modern)
	f := &fixture{logs: newLogs()}
	paused, goOn := make(chan struct{}), make(chan struct{})
	jitter := func(time.Duration) time.Duration {
		paused <- struct{}{}
		<-goOn
		return 0
	}
	f.connect(t, jitter, childConfiguration(t, "one", modern), Server{Name: "two", URL: serveHTTP(t, two, modern).URL})
	for _, name := range []string{"one", "two"} {
		f.logs.await(t, 1, upText, "server="+name)
	}
	held := make(chan error, 1)
	go func() {
		_, err := f.call(context.Background(), "two", methodCallTool, json.RawMessage(`{"name":"wait","arguments":{"id":"a"}}`), relay{})
		held <- err
	}()
	receive(t, two.waiting)
	others := make(chan error, 1)
	go func() {
		_, err := f.call(context.Background(), "one", methodCallTool, json.RawMessage(`{"name":"wait","arguments":{"id":"b"}}`), relay{})
		others <- err
	}()
	f.logs.await(t, 1, "waiting b")

	_, err := f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"crash","arguments":{}}`), relay{})
	requireKind(t, err, errCutOff)
	requireKind(t, receive(t, others), errCutOff)
	receive(t, paused)
	_, err = f.call(t.Context(), "one", methodCallTool, json.RawMessage(`{"name":"one__echo"}`), relay{})
	requireKind(t, err, errUnavailable)
	if c := f.catalog(); c.tool("one__echo") == nil || c.tool("two__echo") == nil || c.tool("echo") != nil {
		t.Error("what the server offers isn't known while it is down")
	}
	goOn <- struct{}{}
	f.logs.await(t, 2, upText, "server=one")
	if got := texts(t, f.tool(t, "echo", `{"again":1.0}`))[0]; got != `{"again":1.0}` {
		t.Errorf("after the crash: %s", got)
	}
	close(two.release)
	if err := receive(t, held); err != nil {
		t.Errorf("the other server's call: %v", err)
	}
	if n := f.logs.count(downText, "server=two"); n != 0 {
		t.Errorf("the other server was down %d times", n)
	}
}

// Children end with the gateway, also those that would rather not.
func TestChildrenEnd(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"deaf", "stubborn"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := start(t, childConfiguration(t, "one", kind))
			if kind == "deaf" {
				f.logs.await(t, 1, "line=deaf")
			} else {
				f.logs.await(t, 1, upText)
			}
			began := time.Now()
			f.stop() // which waits for the process
			if took := time.Since(began); took > 4*terminateWait {
				t.Errorf("it took %s", took)
			}
		})
	}
}

func TestCommandThatIsNone(t *testing.T) {
	t.Parallel()
	f := start(t, Server{Name: "one", Command: []string{"/no/such/program"}}, childConfiguration(t, "two", modern))
	f.logs.await(t, 1, downText, "server=one")
	f.logs.await(t, 1, upText, "server=two")
	f.logs.await(t, 3, downText, "server=one", "no such file")
}

// Whatever is written, it is logged in lines that have a bound.
func TestLineLog(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		written := strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"line", "", strings.Repeat("x", maxLogLine), strings.Repeat("y", 9000)}), 0, 20).Draw(t, "written"), "\n") + "\n"
		kept := newLogs()
		log := &lineLog{logger: kept.logger(), now: func() time.Time { return time.Unix(1, 0) }}
		for rest := written; rest != ""; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "n")
			if got, err := log.Write([]byte(rest[:n])); got != n || err != nil {
				t.Fatalf("%d, %v", got, err)
			}
			rest = rest[n:]
		}
		var got strings.Builder
		for _, line := range kept.lines {
			_, text, _ := strings.Cut(line, "line=")
			if len(text) > maxLogLine {
				t.Fatalf("a line of %d bytes", len(text))
			}
			got.WriteString(text)
		}
		if want := strings.ReplaceAll(written, "\n", ""); got.String() != want {
			t.Fatalf("logged %q, want %q", got.String(), want)
		}
	})
}

func TestLineLogHasABound(t *testing.T) {
	t.Parallel()
	now := time.Unix(1, 0)
	kept := newLogs()
	log := &lineLog{logger: kept.logger(), now: func() time.Time { return now }}
	for range 3 {
		if _, err := log.Write([]byte(strings.Repeat("x\n", 1000))); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Second)
	}
	if got := kept.count("line=x"); got != 3*maxLogLines {
		t.Errorf("logged %d lines", got)
	}
	if kept.count("lines=900") != 2 {
		t.Errorf("what was left out isn't said: %q", kept.lines[maxLogLines])
	}
}
