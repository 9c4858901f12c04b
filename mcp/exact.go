package mcp

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/countersign/countersign/internal/strictjson"
)

// exactArguments takes the arguments of a call of our tools out of the request
// before the SDK reads it, and keeps them in the exchange. From the protocol
// version without sessions on, the SDK compares headers with the decoded call,
// and so refuses arguments with a number that no float64 holds, such as 1e400.
//
// What isn't exactly such a call is left as it is.
func exactArguments(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		e, ok := r.Context().Value(exchangeKey{}).(*exchange)
		if !ok || r.Method != http.MethodPost {
			next.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			http.Error(w, "the request could not be read", http.StatusBadRequest)
			return
		}
		if rest, arguments, found := withoutArguments(body); found {
			body, e.arguments = rest, arguments
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		next.ServeHTTP(w, r)
	})
}

// withoutArguments takes the arguments out of a call of one of our tools.
func withoutArguments(body []byte) (rest, arguments []byte, found bool) {
	message, err := strictjson.Members(body)
	if err != nil || string(valueOf(message, "method")) != `"tools/call"` {
		return nil, nil, false
	}
	params, err := strictjson.Members(valueOf(message, "params"))
	if err != nil {
		return nil, nil, false
	}
	arguments = valueOf(params, "arguments")
	switch string(valueOf(params, "name")) {
	case `"` + requestTool.Name + `"`, `"` + awaitTool.Name + `"`, `"` + statusTool.Name + `"`, `"` + applyTool.Name + `"`:
	default:
		return nil, nil, false
	}
	if arguments == nil {
		return nil, nil, false
	}
	return with(message, "params", with(params, "arguments", []byte("{}"))), arguments, true
}

func valueOf(members []strictjson.Member, name string) []byte {
	for _, member := range members {
		if member.Name == name {
			return member.Value
		}
	}
	return nil
}

// with is the object of the members with another value for one of them.
func with(members []strictjson.Member, name string, value []byte) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, member := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		key, err := json.Marshal(member.Name)
		if err != nil {
			// A checked name is UTF-8, which always encodes.
			continue
		}
		b.Write(key)
		b.WriteByte(':')
		if member.Name == name {
			b.Write(value)
		} else {
			b.Write(member.Value)
		}
	}
	b.WriteByte('}')
	return b.Bytes()
}
