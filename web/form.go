package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"net/http"
)

// formToken is what a form sends back to show that this session was given it, and
// for what: such as which request, in which version. It is worth nothing in
// another session.
func formToken(s session, about ...string) string {
	mac := hmac.New(sha256.New, s.formKey)
	mac.Write([]byte("countersign form v1"))
	for _, one := range about {
		mac.Write(binary.BigEndian.AppendUint64(nil, uint64(len(one))))
		mac.Write([]byte(one))
	}
	return hex.EncodeToString(mac.Sum(nil))
}

// formIsOurs reports whether a sent form has the session's token for what it is
// about, and each field once, so that all who read it read the same. Together with
// the check of where a request comes from it keeps other sites from having
// somebody's browser send it.
func formIsOurs(r *http.Request, s session, about ...string) bool {
	sent := r.PostFormValue("token")
	for _, values := range r.PostForm {
		if len(values) != 1 {
			return false
		}
	}
	return hmac.Equal([]byte(sent), []byte(formToken(s, about...)))
}
