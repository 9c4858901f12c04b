package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/policy"
)

func TestReportOf(t *testing.T) {
	t.Parallel()
	large := `{"content":[{"type":"text","text":"` + strings.Repeat("x", approval.MaxResult) + `"}]}`
	for _, test := range []struct {
		name, result string
		err          error
		outcome      approval.Outcome
		detail       string
		kept         string // part of what is kept for the agent; empty if nothing is
	}{
		{"a text", `{"content":[{"type":"text","text":"214 deleted"}]}`, nil, approval.Succeeded, "214 deleted", "214 deleted"},
		{"the first text", `{"content":[{"type":"image","text":"no"},{"text":"a\u202eb\u0000c","type":"text"},{"type":"text","text":"second"}]}`, nil, approval.Succeeded, "a\u202eb\uFFFDc", "second"},
		{"a failure", `{"isError":true,"content":[{"type":"text","text":"no such file"}]}`, nil, approval.Failed, "no such file", "no such file"},
		{"a failure only to some", `{"iserror":true,"content":[]}`, nil, approval.Succeeded, "", "iserror"},
		{"nothing", `{}`, nil, approval.Succeeded, "", "{}"},
		{"not strict", `{"isError":true,"isError":true,"content":[{"type":"text","text":"x"}]}`, nil, approval.Failed, "", "isError"},
		{"input", inputNeeded, nil, approval.Failed, "It asked for input, and didn't finish.", "nobody could be asked"},
		{"large", large, nil, approval.Succeeded, fmt.Sprintf("The result of %d bytes was too large to keep.", len(large)), ""},
		{"the server's error", "", &jsonrpc.Error{Code: 7, Message: "no"}, approval.Failed, "no", `"code":7`},
		{"not sent", "", fmt.Errorf("%w: x", errUnavailable), approval.Failed, "It wasn't sent", "Nothing ran"},
		{"not sent in time", "", fmt.Errorf("%w: %w", errUnavailable, context.DeadlineExceeded), approval.Failed, "It wasn't sent", "Nothing ran"},
		{"cut off", "", fmt.Errorf("%w: x", errCutOff), approval.Unknown, "The connection ended", ""},
		{"too slow", "", fmt.Errorf("%w: %w", errCutOff, context.DeadlineExceeded), approval.Unknown, "There was no answer in time.", ""},
		{"anything else", "", errors.New("x"), approval.Unknown, "", ""},
	} {
		got := reportOf(json.RawMessage(test.result), test.err)
		if got.Outcome != test.outcome || !strings.HasPrefix(got.Detail, test.detail) || !strings.Contains(string(got.Result), test.kept) || (test.kept == "") != (got.Result == nil) {
			t.Errorf("%s: %s %.300q with %.300s", test.name, got.Outcome, got.Detail, got.Result)
		}
	}
	if got := readResult([]byte(`{"content":[{"type":"text","text":"` + strings.Repeat("é", 300) + `"}]}`)).detail; utf8.RuneCountInString(got) != maxDetail {
		t.Errorf("a detail has %d characters", utf8.RuneCountInString(got))
	}
}

func TestServed(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		result served
		want   string
	}{
		{"as it is", served{raw: json.RawMessage(`{ "b":1, "a":1e400 }`)}, `{ "b":1, "a":1e400 }`},
		{"without what older clients don't know", served{raw: json.RawMessage(`{"b":1,"resultType":"complete","a":2}`)}, `{"b":1,"a":2}`},
		{"with what newer clients want", served{raw: json.RawMessage(`{"b":1,"a":2}`), modern: true}, `{"b":1,"a":2,"resultType":"complete"}`},
		{"with what is there", served{raw: json.RawMessage(`{"resultType":"input_required","a":2}`), modern: true}, `{"resultType":"input_required","a":2}`},
		{"for a while", served{raw: json.RawMessage(`{"ttlMs":5}`), modern: true, cacheable: true}, `{"ttlMs":5,"resultType":"complete","cacheScope":"private"}`},
		{"not strict", served{raw: json.RawMessage(`{"a":1,"a":2}`), modern: true}, `{"a":1,"a":2}`},
	} {
		got, err := test.result.MarshalJSON()
		if err != nil || string(got) != test.want {
			t.Errorf("%s: %s (%v), want %s", test.name, got, err, test.want)
		}
	}
	s := served{raw: json.RawMessage(`{"_meta":{"b":1.0,"us":1},"a":2}`), modern: true}
	s.SetMeta(map[string]any{"us": 2})
	if got, err := s.MarshalJSON(); err != nil || string(got) != `{"_meta":{"b":1.0,"us":2},"a":2,"resultType":"complete"}` {
		t.Errorf("with _meta: %s (%v)", got, err)
	}
}

func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, arguments, want string }{
		{"key", `{}`, `{"key":"req_1"}`},
		{"key", `{ "b":1e400, "a":"\u003c" }`, `{"b":1e400,"a":"\u003c","key":"req_1"}`},
		{"key", `{"key":"mine"}`, `{"key":"mine"}`},
		{"key", `{"key":null}`, `{"key":null}`},
		{"", `{"a": 1}`, `{"a": 1}`},
	} {
		got := withKey([]byte(test.arguments), &approval.Request{ID: "req_1", Ruling: policy.Ruling{Idempotency: test.name}})
		if string(got) != test.want {
			t.Errorf("%s in %s: %s, want %s", test.name, test.arguments, got, test.want)
		}
	}
}

// What models are told says first whether anything ran.
func TestTexts(t *testing.T) {
	t.Parallel()
	for _, text := range []string{whenNotSent, whenCutOff, whenNeedsInput, whenCantAsk, whenDone, whenFoundRan, whenFoundNot, whenUnverified, whenUnavailable, whenStopping, whenForged, whenStateExpired, internalError} {
		if !strings.HasSuffix(text, ".") || strings.Contains(text, "  ") || strings.Contains(text, "!") {
			t.Errorf("not in the tone of the others: %s", text)
		}
	}
}
