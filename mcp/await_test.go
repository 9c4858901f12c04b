package mcp_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/mcp"
)

// bubble runs a test on a bubble's clock, over stdio in both eras.
func bubble(t *testing.T, options *sdk.ClientOptions, run func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession, s *stdio)) {
	for _, version := range []string{legacy, modern} {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := approvaltest.New(t, func(o *approval.Options) { o.Now = nil })
				local, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL})
				if err != nil {
					t.Fatal(err)
				}
				s := serveStdio(t, local, f.Agent, mcp.Options{})
				run(t, f, connect(t, s.transport(), version, options), s)
			})
		})
	}
}

// awaited is what a call of await_approval came to, and when.
type awaited struct {
	status string
	err    error
	after  time.Duration
}

// await calls await_approval beside the test.
func await(ctx context.Context, session *sdk.ClientSession, id approval.ID, progressToken any) <-chan awaited {
	done := make(chan awaited, 1)
	began := time.Now()
	go func() {
		params := &sdk.CallToolParams{Name: "await_approval", Arguments: json.RawMessage(byID(id))}
		if progressToken != nil {
			params.SetProgressToken(progressToken)
		}
		result, err := session.CallTool(ctx, params)
		got := awaited{err: err, after: time.Since(began)}
		if err == nil {
			got.status = result.Content[0].(*sdk.TextContent).Text
		}
		done <- got
	}()
	return done
}

func TestAwaitWakesTheInstantADecisionLands(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession, _ *stdio) {
		for verdict, want := range map[approval.Verdict]string{approval.Approve: "approved", approval.Reject: "rejected"} {
			id := asked(t, session)
			done := await(t.Context(), session, id, nil)
			synctest.Wait()
			time.Sleep(3 * time.Second)
			decide(t, f, id, verdict, "")
			if got, want := <-done, (awaited{status: `{"status":"` + want + `"}`, after: 3 * time.Second}); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
	})
}

func TestAwaitEndsAtItsBoundAndAtTheExpiry(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession, _ *stdio) {
		id := idIn(t, succeed(t, session, "request_approval", `{"purpose":"p","payload":{},"ttlSeconds":60}`))
		for _, want := range []awaited{
			{status: `{"status":"pending"}`, after: mcp.DefaultAwaitBound},
			{status: `{"status":"pending"}`, after: mcp.DefaultAwaitBound},
			{status: `{"status":"expired"}`, after: time.Minute - 2*mcp.DefaultAwaitBound},
			{status: `{"status":"expired"}`},
		} {
			if got := <-await(t.Context(), session, id, nil); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		}
		result := call(t, session, "await_approval", byID(asked(t, session)))
		if text := textOf(t, result, 1); !strings.Contains(text, "not a refusal") || !strings.Contains(text, "Call await_approval again with the same elicitationId") {
			t.Errorf("the guidance for pending is %s", text)
		}
	})
}

func TestAwaitReportsProgress(t *testing.T) {
	t.Parallel()
	type report struct {
		Token    any
		Progress float64
		Message  string
		After    time.Duration
	}
	for name, token := range map[string]any{"text": "a token", "number": int64(7)} {
		for _, version := range []string{legacy, modern} {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					f := approvaltest.New(t, func(o *approval.Options) { o.Now, o.Policy = nil, approvaltest.Policy(t, 2) })
					local, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL})
					if err != nil {
						t.Fatal(err)
					}
					var began time.Time
					reports := make(chan report, 100)
					session := connect(t, serveStdio(t, local, f.Agent, mcp.Options{}).transport(), version, &sdk.ClientOptions{
						ProgressNotificationHandler: func(_ context.Context, n *sdk.ProgressNotificationClientRequest) {
							reports <- report{n.Params.ProgressToken, n.Params.Progress, n.Params.Message, time.Since(began)}
						},
					})
					id := idIn(t, succeed(t, session, "request_approval", `{"purpose":"p","payload":{},"ttlSeconds":75}`))
					began = time.Now()
					done := await(t.Context(), session, id, token)
					time.Sleep(15 * time.Second)
					decide(t, f, id, approval.Approve, "") // the first of two
					if got := <-done; got.status != `{"status":"pending"}` {
						t.Errorf("got %+v", got)
					}
					synctest.Wait()
					close(reports)
					want := []report{
						{token, 0, "Waiting for a person: 2 of finance. 1 min left.", 0},
						{token, 10, "Waiting for a person: 2 of finance. 1 min left.", 10 * time.Second},
						{token, 20, "Waiting for a person: 1 of finance. 55 s left.", 20 * time.Second},
					}
					if number, ok := token.(int64); ok {
						for i := range want {
							want[i].Token = float64(number) // as JSON numbers are read
						}
					}
					var got []report
					for r := range reports {
						got = append(got, r)
					}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("progress (-want +got):\n%s", diff)
					}
				})
			})
		}
	}
}

func TestNoProgressWithoutAToken(t *testing.T) {
	t.Parallel()
	options := &sdk.ClientOptions{ProgressNotificationHandler: func(context.Context, *sdk.ProgressNotificationClientRequest) {
		panic("progress that nobody asked for")
	}}
	bubble(t, options, func(t *testing.T, _ *approvaltest.Fixture, session *sdk.ClientSession, _ *stdio) {
		if got := <-await(t.Context(), session, asked(t, session), nil); got.status != `{"status":"pending"}` {
			t.Errorf("got %+v", got)
		}
	})
}

func TestCallerGoneIsNoAnswer(t *testing.T) {
	t.Parallel()
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		bubble(t, nil, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession, _ *stdio) {
			id := asked(t, session)
			ctx, cancel := context.WithCancel(t.Context())
			done := await(ctx, session, id, nil)
			synctest.Wait()
			cancel()
			if got := <-done; !errors.Is(got.err, context.Canceled) {
				t.Errorf("got %+v", got)
			}
			checkUntouched(t, f, id)
			decide(t, f, id, approval.Approve, "")
			succeed(t, session, "apply", byID(id))
		})
	})
	t.Run("end of input", func(t *testing.T) {
		t.Parallel()
		bubble(t, nil, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession, s *stdio) {
			id := asked(t, session)
			done := await(t.Context(), session, id, nil)
			synctest.Wait()
			began := time.Now()
			_ = s.in.PipeWriter.Close()
			if err := <-s.ended; err != nil || time.Since(began) != 0 {
				t.Errorf("ServeStdio ended after %v with %v", time.Since(began), err)
			}
			s.ended <- nil // for the cleanup
			_ = session.Close()
			<-done
			checkUntouched(t, f, id)
		})
	})
}

// A call that the host cancelled is answered to nobody, so a stop doesn't wait
// for it.
func TestCancelledCallHoldsUpNoStop(t *testing.T) {
	t.Parallel()
	bubble(t, nil, func(t *testing.T, _ *approvaltest.Fixture, session *sdk.ClientSession, s *stdio) {
		id := asked(t, session)
		ctx, cancel := context.WithCancel(t.Context())
		done := await(ctx, session, id, nil)
		synctest.Wait()
		cancel()
		<-done
		synctest.Wait()
		began := time.Now()
		s.stop()
		if err := <-s.ended; err != nil || time.Since(began) != 0 {
			t.Errorf("ServeStdio ended after %v with %v", time.Since(began), err)
		}
		s.ended <- nil // for the cleanup
	})
}

// checkUntouched checks that a request is as it was made.
func checkUntouched(t *testing.T, f *approvaltest.Fixture, id approval.ID) {
	t.Helper()
	r, err := f.Service.Status(context.Background(), f.Agent, id)
	if err != nil {
		t.Fatal(err)
	}
	if r.Status != approval.Pending || r.Revision != 1 {
		t.Errorf("the request is %s at revision %d, want pending at 1", r.Status, r.Revision)
	}
}

func TestWaitingEndsAsPendingWhenTheServerStops(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*approvaltest.Fixture, *stdio){
		"drain":    func(f *approvaltest.Fixture, _ *stdio) { f.Service.Drain() },
		"shutdown": func(_ *approvaltest.Fixture, s *stdio) { s.stop() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bubble(t, nil, func(t *testing.T, f *approvaltest.Fixture, session *sdk.ClientSession, s *stdio) {
				id := asked(t, session)
				done := await(t.Context(), session, id, "token")
				synctest.Wait()
				stop(f, s)
				if got, want := <-done, (awaited{status: `{"status":"pending"}`}); got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
				checkUntouched(t, f, id)
			})
		})
	}
}

// stuck is a flow that never answers, as one whose server is gone.
type stuck struct{ mcp.Flow }

func (stuck) Status(ctx context.Context, _ approval.Agent, _ approval.ID) (mcp.Answer, error) {
	<-ctx.Done()
	return mcp.Answer{}, ctx.Err()
}

func (stuck) Await(ctx context.Context, _ approval.Agent, _ approval.ID, _ func(string)) (mcp.Answer, error) {
	<-ctx.Done()
	return mcp.Answer{}, context.Cause(ctx)
}

func (stuck) Apply(ctx context.Context, _ approval.Agent, _ approval.ID) (mcp.Answer, error) {
	<-ctx.Done()
	return mcp.Answer{}, ctx.Err()
}

// Stopping takes no longer than it may, whatever the calls do.
func TestStoppingIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := serveStdio(t, stuck{}, approval.Agent{Name: "deployer"}, mcp.Options{})
		session := connect(t, s.transport(), modern, nil)
		waiting := await(t.Context(), session, "req_00000000000000000000000000000000", nil)
		applying := make(chan error, 1)
		go func() {
			_, err := session.CallTool(t.Context(), &sdk.CallToolParams{Name: "apply", Arguments: map[string]any{"elicitationId": "x"}})
			applying <- err
		}()
		synctest.Wait()
		began := time.Now()
		s.stop()
		if got, want := <-waiting, (awaited{status: `{"status":"pending"}`, after: 2 * time.Second}); got != want {
			t.Errorf("the waiting call: %+v, want %+v", got, want)
		}
		err := <-s.ended
		if took := time.Since(began); err != nil || took != 5*time.Second {
			t.Errorf("ended with %v after %v", err, took)
		}
		s.ended <- nil // for the cleanup
		if err := <-applying; err == nil {
			t.Error("a call that had no answer got one")
		}
	})
}

func TestAwaitBoundIsKeptInRange(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	for _, bound := range []time.Duration{-1, time.Second - 1, mcp.MaxAwaitBound + 1} {
		if _, err := mcp.NewLocal(f.Service, mcp.LocalOptions{ReviewURL: reviewURL, AwaitBound: bound}); err == nil || !strings.Contains(err.Error(), "55s") {
			t.Errorf("a bound of %v: %v", bound, err)
		}
	}
	if _, err := mcp.NewLocal(f.Service, mcp.LocalOptions{}); err == nil {
		t.Error("a flow without a review address was made")
	}
	newLocal(t, f, mcp.MaxAwaitBound)
}

// A flow never acts for a caller whose name was lost on the way.
func TestNamelessAgentGetsNothing(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	logger, messages := logged()
	s := serveStdio(t, newLocal(t, f, 0), approval.Agent{}, mcp.Options{Logger: logger})
	session := connect(t, s.transport(), modern, nil)
	for tool, arguments := range map[string]string{
		"request_approval": `{"purpose":"p","payload":{}}`,
		"await_approval":   byID("req_00000000000000000000000000000000"),
		"check_status":     byID("req_00000000000000000000000000000000"),
		"apply":            byID("req_00000000000000000000000000000000"),
	} {
		if got := refused(t, session, tool, arguments); !strings.HasPrefix(got, "Internal error.") || strings.Contains(got, "name") {
			t.Errorf("%s: %s", tool, got)
		}
		receiveMessage(t, messages, "answering a tool call")
	}
}
