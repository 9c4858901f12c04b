package web

import (
	"crypto/sha256"
	"encoding/base64"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/countersign/countersign/approval"
)

// How long somebody stays signed in: without doing anything, and at most.
const (
	idleLimit    = 15 * time.Minute
	sessionLimit = 8 * time.Hour
)

// signInLimit is how long a sign-in may take.
const signInLimit = 10 * time.Minute

// maxKept bounds the sessions, and the sign-ins that have begun, that are kept at
// once. Anybody can begin a sign-in; the oldest gives way.
const maxKept = 10_000

// maxStreams is how many pages of one session can follow what happens at once. A
// browser's tabs do only while somebody looks at them.
const maxStreams = 50

// token is a secret that a cookie or an address carries. It is kept only as its
// hash.
type token string

type tokenHash [sha256.Size]byte

func (t token) hash() tokenHash { return sha256.Sum256([]byte(t)) }

// session is what the server knows of a browser that somebody has signed in with.
type session struct {
	who       approval.Approver
	provider  string // that says so
	startedAt time.Time
	// signedInAt is when the person proved who they are, which may be long before
	// the session: a provider remembers them. It is zero if the provider doesn't say.
	signedInAt time.Time
	seenAt     time.Time
	formKey    []byte // signs the forms that the browser is given
}

// fresh reports whether the person has just proved who they are.
func (s session) fresh(now time.Time) bool { return now.Sub(s.signedInAt) < approval.FreshSignIn }

// signInAttempt is a sign-in that has begun, until the provider sends the browser
// back.
type signInAttempt struct {
	browser  tokenHash // of the cookie of the browser that began it
	provider string    // that the browser was sent to
	nonce    string    // that the identity must have
	verifier string    // shows that it was this server that sent it: RFC 7636
	anew     bool      // whether the person must prove again who they are
	back     string    // where the browser goes then
	begunAt  time.Time
}

// sessions are in memory: who is signed in is forgotten when the server stops,
// and then signs in again.
type sessions struct {
	now    func() time.Time
	random func() string // at least 128 bits, as text

	mu       sync.Mutex
	byHash   map[tokenHash]session
	attempts map[tokenHash]signInAttempt // by the state that comes back
	streams  map[tokenHash]int           // how many are open in a session, if any
}

func newSessions(now func() time.Time, random func() string) *sessions {
	return &sessions{now: now, random: random, byHash: make(map[tokenHash]session), attempts: make(map[tokenHash]signInAttempt), streams: make(map[tokenHash]int)}
}

// start begins a session, with a new id whatever the browser had before.
func (s *sessions) start(is identity, provider string) token {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	makeRoom(s.byHash, func(one session) time.Time { return one.seenAt })
	id := token(s.random())
	s.byHash[id.hash()] = session{who: is.who, provider: provider, startedAt: now, signedInAt: is.provedAt, seenAt: now, formKey: []byte(s.random())}
	return id
}

// use returns a session that goes on. If its person does something now, that is
// noted.
func (s *sessions) use(id token, doing bool) (session, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash, now := id.hash(), s.now()
	one, ok := s.byHash[hash]
	if !ok {
		return session{}, false
	}
	if now.Sub(one.seenAt) >= idleLimit || now.Sub(one.startedAt) >= sessionLimit {
		delete(s.byHash, hash)
		return session{}, false
	}
	if doing {
		one.seenAt = now
		s.byHash[hash] = one
	}
	return one, true
}

// stream counts a stream of changes that is opened in a session, until done is
// called; false if there are maxStreams.
func (s *sessions) stream(id token) (done func(), ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	hash := id.hash()
	if s.streams[hash] >= maxStreams {
		return nil, false
	}
	s.streams[hash]++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.streams[hash]--; s.streams[hash] == 0 {
			delete(s.streams, hash)
		}
	}, true
}

func (s *sessions) end(id token) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.byHash, id.hash())
}

// begin notes a sign-in with a provider, and returns what the browser that begins
// it keeps, and the state that is to come back with it.
func (s *sessions) begin(provider, back string, anew bool) (browser, state token, attempt signInAttempt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	makeRoom(s.attempts, func(one signInAttempt) time.Time { return one.begunAt })
	browser, state = token(s.random()), token(s.random())
	secret := sha256.Sum256([]byte(s.random())) // a verifier has at least 43 characters
	attempt = signInAttempt{
		browser:  browser.hash(),
		provider: provider,
		nonce:    s.random(),
		verifier: base64.RawURLEncoding.EncodeToString(secret[:]),
		anew:     anew,
		back:     back,
		begunAt:  s.now(),
	}
	s.attempts[state.hash()] = attempt
	return browser, state, attempt
}

// finish uses up a sign-in: it is the browser's that began it, once, and in time.
func (s *sessions) finish(browser, state token) (signInAttempt, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	one, ok := s.attempts[state.hash()]
	if !ok || one.browser != browser.hash() {
		return signInAttempt{}, false // somebody else's isn't used up
	}
	delete(s.attempts, state.hash())
	return one, s.now().Sub(one.begunAt) < signInLimit
}

// makeRoom has the oldest of the kept give way if there are too many: a share of
// them at once, since finding the oldest takes a look at each, and anybody can cause
// that.
func makeRoom[T any](kept map[tokenHash]T, at func(T) time.Time) {
	if len(kept) < maxKept {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(kept), func(a, b tokenHash) int { return at(kept[a]).Compare(at(kept[b])) })
	for _, hash := range oldest[:maxKept/100] {
		delete(kept, hash)
	}
}

// cookies are those of the server's address. Over https their names have the
// prefix that keeps other hosts from setting them; over http, which is for this
// machine only, browsers refuse that.
type cookies struct{ secure bool }

// What the cookies hold.
const (
	sessionCookie = "countersign-session"
	signInCookie  = "countersign-sign-in"
)

func (c cookies) name(name string) string {
	if c.secure {
		return "__Host-" + name
	}
	return name
}

// set has the browser keep a token until it is closed. It comes along when
// somebody follows a link from elsewhere, and with no other request from there.
func (c cookies) set(w http.ResponseWriter, name string, value token) {
	http.SetCookie(w, &http.Cookie{Name: c.name(name), Value: string(value), Path: "/", Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

func (c cookies) clear(w http.ResponseWriter, name string) {
	http.SetCookie(w, &http.Cookie{Name: c.name(name), Path: "/", MaxAge: -1, Secure: c.secure, HttpOnly: true, SameSite: http.SameSiteLaxMode})
}

// get returns a request's token; empty if it has none, or several.
func (c cookies) get(r *http.Request, name string) token {
	all := r.CookiesNamed(c.name(name))
	if len(all) != 1 {
		return ""
	}
	return token(all[0].Value)
}
