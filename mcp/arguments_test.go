package mcp_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/countersign/countersign/approval"
	"github.com/countersign/countersign/approval/approvaltest"
	"github.com/countersign/countersign/internal/strictjson"
	"github.com/countersign/countersign/mcp"
)

// Bad input is refused in words that name the field and what is accepted, and
// leaves nothing behind. The inputs are sent as they are, by hand, because the
// SDK's client would change some.
func TestBadInput(t *testing.T) {
	t.Parallel()
	const good = `"purpose":"p","payload":{}`
	long := strings.Repeat("é", 1001)
	for name, test := range map[string]struct {
		arguments string
		want      []string
	}{
		"nothing":                {`{}`, []string{"payload: is missing"}},
		"no purpose":             {`{"payload":{}}`, []string{"purpose: is missing", "1 to 1000 characters"}},
		"blank purpose":          {`{"purpose":" \n","payload":{}}`, []string{"purpose: is missing"}},
		"purpose of two kinds":   {`{"purpose":7,"payload":{}}`, []string{"purpose: is a number", "string of at most 1000"}},
		"null purpose":           {`{"purpose":null,"payload":{}}`, []string{"purpose: is null"}},
		"long purpose":           {`{"purpose":"` + long + `","payload":{}}`, []string{"purpose: has 1001 characters", "at most 1000"}},
		"long action":            {`{` + good + `,"action":"` + strings.Repeat("a", 201) + `"}`, []string{"action: has 201 characters", "at most 200"}},
		"long target":            {`{` + good + `,"target":"` + strings.Repeat("a", 501) + `"}`, []string{"target: has 501", "at most 500"}},
		"long environment":       {`{` + good + `,"environment":"` + strings.Repeat("a", 61) + `"}`, []string{"environment: has 61", "at most 60"}},
		"no payload":             {`{"purpose":"p"}`, []string{"payload: is missing", "JSON object"}},
		"payload as text":        {`{"purpose":"p","payload":"{\"a\":1}"}`, []string{"payload: is a string", "JSON object", "not as text"}},
		"payload list":           {`{"purpose":"p","payload":[1]}`, []string{"payload: is an array", "JSON object"}},
		"payload null":           {`{"purpose":"p","payload":null}`, []string{"payload: is null"}},
		"payload number":         {`{"purpose":"p","payload":1}`, []string{"payload: is a number"}},
		"payload boolean":        {`{"purpose":"p","payload":true}`, []string{"payload: is a boolean"}},
		"payload too large":      {`{"purpose":"p","payload":{"a":"` + strings.Repeat("x", 300) + `"}}`, []string{"payload: is 308 bytes", "at most 256"}},
		"duplicate key":          {`{"purpose":"p","payload":{"a":{"b":1,"b":2}}}`, []string{"payload: is not strict JSON", `/payload/a`, `duplicate key "b"`, "line 1, column"}},
		"disguised duplicate":    {`{"purpose":"p","payload":{"a":1,"\u0061":2}}`, []string{"payload: is not strict JSON", "duplicate key"}},
		"duplicate input":        {`{"purpose":"p","purpose":"q","payload":{}}`, []string{"purpose: is not strict JSON", "duplicate key"}},
		"lone surrogate":         {`{"purpose":"p","payload":{"a":"\ud800"}}`, []string{"payload: is not strict JSON", "surrogate"}},
		"broken UTF-8":           {"{\"purpose\":\"p\",\"payload\":{\"a\":\"\xff\"}}", []string{"payload: is not strict JSON", "UTF-8"}},
		"too deep":               {`{"purpose":"p","payload":` + strings.Repeat(`{"a":`, 70) + `1` + strings.Repeat(`}`, 70) + `}`, []string{"payload: is not strict JSON", "deeper than 64"}},
		"ttl fraction":           {`{` + good + `,"ttlSeconds":90.5}`, []string{"ttlSeconds: is 90.5", "whole number", "60 to 86400"}},
		"ttl text":               {`{` + good + `,"ttlSeconds":"90"}`, []string{"ttlSeconds: is", "60 to 86400"}},
		"ttl null":               {`{` + good + `,"ttlSeconds":null}`, []string{"ttlSeconds: is null", "60 to 86400"}},
		"count fraction":         {`{` + good + `,"count":1.5}`, []string{"count: is 1.5", "whole number from 0"}},
		"count negative":         {`{` + good + `,"count":-1}`, []string{"count: is -1", "whole number from 0"}},
		"count too large":        {`{` + good + `,"count":9223372036854775808}`, []string{"count: is 9223372036854775808", "9223372036854775807"}},
		"count text":             {`{` + good + `,"count":"3"}`, []string{"count: is"}},
		"reversible text":        {`{` + good + `,"reversible":"no"}`, []string{"reversible: is", "true and false"}},
		"reversible number":      {`{` + good + `,"reversible":1}`, []string{"reversible: is 1", "true and false"}},
		"unknown":                {`{` + good + `,"approver":"me"}`, []string{"approver: is not an input of request_approval", "accepted are purpose, payload, ttlSeconds, action, target, environment, count, reversible"}},
		"unknown, hidden":        {`{` + good + `,"\u202ecount":1}`, []string{`"\u202ecount": is not an input`}},
		"other case":             {`{"Purpose":"p","payload":{}}`, []string{"Purpose: is not an input"}},
		"identity in arguments":  {`{` + good + `,"agent":"admin"}`, []string{"agent: is not an input"}},
		"arguments of two kinds": {`[]`, []string{"arguments: is an array", "purpose, payload"}},
	} {
		for _, version := range []string{legacy, modern} {
			for _, kind := range []string{"stdio", "http"} {
				t.Run(name+"/"+kind+"/"+version, func(t *testing.T) {
					t.Parallel()
					f := approvaltest.New(t, func(o *approval.Options) { o.PayloadLimit = 256 })
					raw := rawKinds[kind](t, f, newLocal(t, f, 0), version)
					result := raw.call("request_approval", test.arguments)
					if !result.isError(t) {
						t.Fatalf("accepted: %s", result.text(t, 0))
					}
					for _, want := range test.want {
						if !strings.Contains(result.text(t, 0), want) {
							t.Errorf("the text lacks %q: %s", want, result.text(t, 0))
						}
					}
					next, err := f.Store.NextDue(t.Context())
					if err != nil || !next.IsZero() {
						t.Errorf("something is stored, due at %v (%v)", next, err)
					}
				})
			}
		}
	}
}

func TestBadID(t *testing.T) {
	t.Parallel()
	f := approvaltest.New(t)
	session := connect(t, kinds["stdio"](t, f, newLocal(t, f, 0)), modern, nil)
	for _, tool := range []string{"await_approval", "check_status", "apply"} {
		for arguments, want := range map[string]string{
			`{}`:                      "elicitationId: is missing",
			`{"elicitationId":7}`:     "elicitationId: is a number",
			`{"id":"x"}`:              "id: is not an input of " + tool + "; accepted are elicitationId",
			`{"elicitationId":"req"}`: "no such request",
		} {
			if got := refused(t, session, tool, arguments); !strings.Contains(got, want) {
				t.Errorf("%s %s: %s, want %s", tool, arguments, got, want)
			}
		}
	}
}

func TestTTL(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]time.Duration{
		``:       time.Hour,
		`0`:      time.Minute,
		`-5`:     time.Minute,
		`59`:     time.Minute,
		`60`:     time.Minute,
		`61`:     61 * time.Second,
		`3.6e3`:  time.Hour,
		`86400`:  24 * time.Hour,
		`86401`:  24 * time.Hour,
		`1e400`:  24 * time.Hour,
		`-1e400`: time.Minute,
	} {
		f := approvaltest.New(t)
		raw := rawKinds["stdio"](t, f, newLocal(t, f, 0), modern)
		arguments := `{"purpose":"p","payload":{}}`
		if given != "" {
			arguments = `{"purpose":"p","payload":{},"ttlSeconds":` + given + `}`
		}
		r, err := f.Service.Status(t.Context(), f.Agent, idIn(t, raw.call("request_approval", arguments).text(t, 0)))
		if err != nil {
			t.Fatal(err)
		}
		if got := r.ExpiresAt.Sub(r.CreatedAt); got != want {
			t.Errorf("ttlSeconds %s: %v, want %v", given, got, want)
		}
	}
}

// Whatever the arguments are, parsing ends in a proposal whose payload is a part
// of them, or in an error that names a field.
func FuzzArguments(f *testing.F) {
	f.Add([]byte(`{"purpose":"p","payload":{"id":9007199254740993},"ttlSeconds":60,"count":3,"reversible":true}`))
	f.Add([]byte(`{"purpose":"p","payload": { "a" : [1e400, 0.10] } ,"action":"a","target":"t","environment":"e"}`))
	f.Add([]byte(`{"elicitationId":"req_0"}`))
	f.Add([]byte("{\"payload\":{\"a\":1,\"\\u0061\":2}}"))
	f.Add([]byte("[]"))
	f.Add([]byte(" "))
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := mcp.ParseRequest(raw)
		checkParsed(t, raw, err)
		if err == nil {
			if !bytes.Contains(raw, p.Payload) || p.Payload[0] != '{' || strictjson.Check(p.Payload) != nil {
				t.Errorf("the payload %q isn't an object of %q", p.Payload, raw)
			}
			if p.TTL != 0 && (p.TTL < approval.MinTTL || p.TTL > approval.MaxTTL) {
				t.Errorf("a ttl of %v", p.TTL)
			}
		}
		_, err = mcp.ParseID("apply", raw)
		checkParsed(t, raw, err)
	})
}

func checkParsed(t *testing.T, raw []byte, err error) {
	t.Helper()
	if err == nil {
		if len(bytes.TrimSpace(raw)) > 0 && strictjson.Check(raw) != nil {
			t.Errorf("accepted %q, which isn't strict", raw)
		}
		return
	}
	input, ok := errors.AsType[*approval.InputError](err)
	if !ok || input.Field == "" {
		t.Fatalf("the error names no field: %#v", err)
	}
	for _, c := range err.Error() {
		if c < ' ' || c > '~' {
			t.Fatalf("the error holds %q: %q", c, err)
		}
	}
	if len(err.Error()) > 1000 {
		t.Fatalf("the error has %d bytes", len(err.Error()))
	}
}
