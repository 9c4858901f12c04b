package gateway

import (
	"context"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/countersign/countersign/approval"
)

// What a server may read as something else than policy did is not passed on.
func TestAmbiguousCalls(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"soft"}})
	for _, version := range []string{legacy, modern} {
		h := w.listen(t).byHand(t, w.Agent.Name, version, `{}`)
		for _, test := range []struct{ name, arguments, more, want string }{
			{"another name", `{"id":"a"}`, `,"Name":"other"`, `the member \"Name\"`},
			{"other arguments", `{"id":"a"}`, `,"Arguments":{"id":"b"}`, `the member \"Arguments\"`},
			{"a task", `{"id":"a"}`, `,"task":{}`, `the member \"task\"`},
			{"an argument twice", `{"id":"a","ID":"b"}`, "", `\"ID\" twice`},
			{"a name that folds", `{"s":1,"ſ":2}`, "", `\"ſ\" twice`},
			{"below", `{"list":[{"x":{"path":1,"n":2,"pAth":3}}]}`, "", `\"pAth\" twice`},
		} {
			t.Run(version+"/"+test.name, func(t *testing.T) {
				requireText(t, string(h.must("echo", test.arguments, test.more)), "Nothing ran", test.want)
			})
		}
	}
	if all := w.all(t); len(all) > 0 {
		t.Errorf("asked for %+v", all)
	}
	w.requireCalls(t)
}

// A question that nobody answers doesn't keep the gateway from stopping, and is
// no refusal.
func TestStopWhileAsking(t *testing.T) {
	t.Parallel()
	w := newWorld(t, worldOptions{servers: []string{"soft"}})
	asked := make(chan struct{})
	session := connect(t, w.stdio(t), legacy, &sdk.ClientOptions{
		ElicitationHandler: func(ctx context.Context, _ *sdk.ElicitRequest) (*sdk.ElicitResult, error) {
			close(asked)
			<-ctx.Done()
			return nil, ctx.Err()
		},
	})
	answer := make(chan *sdk.CallToolResult, 1)
	go func() { answer <- ask(t, session, "echo", `{"id":"a"}`) }()
	<-asked
	w.gateway.stop()
	requireText(t, firstText(t, <-answer), "Nothing ran", "stopping")
	if r := w.only(t); r.Status != approval.Pending {
		t.Errorf("the request is %s", r.Status)
	}
}
