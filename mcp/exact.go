package mcp

import (
	"bytes"
	"io"
	"net/http"
	"strconv"

	"github.com/countersign/countersign/internal/strictjson"
)

// exactParams keeps the parameters of a message in the exchange as they were
// written, before the SDK decodes them. From the protocol version without
// sessions on, the SDK compares headers with the decoded call, and so refuses a
// number that no float64 holds, such as 1e400: it is shown another one instead.
//
// What isn't exactly one strict message is left as it is.
func exactParams(next http.Handler) http.Handler {
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
		if message, err := strictjson.Members(body); err == nil {
			e.params = valueOf(message, "params")
			if r.Header.Get(protocolHeader) >= statelessFrom {
				body = readable(body)
			}
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		r.ContentLength = int64(len(body))
		next.ServeHTTP(w, r)
	})
}

func valueOf(members []strictjson.Member, name string) []byte {
	for _, member := range members {
		if member.Name == name {
			return member.Value
		}
	}
	return nil
}

// argumentsOf are the arguments in the parameters of a call; nil if there are
// none, or if the parameters aren't a strict object.
func argumentsOf(params []byte) []byte {
	members, err := strictjson.Members(params)
	if err != nil {
		return nil
	}
	return valueOf(members, "arguments")
}

// readable is a text with 0 in place of each number that no float64 holds. The
// text must be strict JSON; if it has no such number, it is returned as it is.
func readable(text []byte) []byte {
	var changed []byte
	kept := 0 // what of text is in changed
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == '"':
			i = endOfString(text, i)
		case c == '-' || '0' <= c && c <= '9':
			end := endOfNumber(text, i)
			if !holds(text[i:end]) {
				changed = append(append(changed, text[kept:i]...), '0')
				kept = end
			}
			i = end
		default:
			i++
		}
	}
	if kept == 0 {
		return text
	}
	return append(changed, text[kept:]...)
}

// endOfString is where the string ends that begins at an index.
func endOfString(text []byte, at int) int {
	for i := at + 1; i < len(text); i++ {
		switch text[i] {
		case '\\':
			i++
		case '"':
			return i + 1
		}
	}
	return len(text)
}

// endOfNumber is where the number ends that begins at an index.
func endOfNumber(text []byte, at int) int {
	end := at
	for end < len(text) && bytes.IndexByte([]byte("+-.0123456789eE"), text[end]) >= 0 {
		end++
	}
	return end
}

// holds reports whether a float64 holds a number at all, however it rounds it.
func holds(literal []byte) bool {
	const surely = 300 // digits without an exponent
	if len(literal) <= surely && !bytes.ContainsAny(literal, "eE") {
		return true
	}
	_, err := strconv.ParseFloat(string(literal), 64)
	return err == nil
}
