package clienttest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// entry is what is remembered under a key.
type entry struct {
	what    string // method, path and body digest: what the key belongs to
	running bool
	since   time.Time // when it began to be known; before it, it is not
	until   time.Time // zero: for ever
	reply   reply
}

// peek says which fault the script has for the next hit on path.
// It needs s.mu.
func (s *Server) peek(path string) (at string, f Fault, scripted bool) {
	for _, at := range []string{path, ""} {
		if list := s.scripts[at]; len(list) > 0 {
			return at, list[0], true
		}
	}
	return "", Fault{}, false
}

// take is peek, and uses the fault up. It needs s.mu.
func (s *Server) take(path string) (f Fault, scripted bool) {
	at, f, scripted := s.peek(path)
	if scripted && !f.forever {
		s.scripts[at] = s.scripts[at][1:]
	}
	return f, scripted
}

// refuses says whether the next connection is to fail, and uses that fault up.
func (s *Server) refuses(path string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, f, ok := s.peek(path); !ok || f.kind != refuseConnection {
		return false
	}
	s.take(path)
	return true
}

// serve handles one hit. It has the body read, unless the fault leaves it, so
// that a body that never arrives whole is no hit. ctx ends when the client
// leaves.
func (s *Server) serve(ctx context.Context, r Seen, read func() ([]byte, error)) (Seen, reply) {
	s.mu.Lock()
	fault, scripted := s.take(r.Path)
	s.mu.Unlock()

	if !fault.leavesBody() {
		body, err := read()
		if err != nil {
			return r, reply{drop: true}
		}
		r.Body = body
		sum := sha256.Sum256(body)
		r.BodyDigest = hex.EncodeToString(sum[:])
	}
	r.Key = s.keyOf(r)

	s.mu.Lock()
	r.At = s.now()
	r.N = len(s.seen) + 1
	if r.Key != "" {
		s.keyHits[r.Key]++
		r.KeyHit = s.keyHits[r.Key]
	}
	kept := r
	kept.Body = nil
	s.seen = append(s.seen, kept)
	release := s.release // with the count, so that Release after WaitHits reaches this hit
	close(s.changed)
	s.changed = make(chan struct{})
	s.mu.Unlock()

	if !scripted && s.opts.Fault != nil {
		fault = s.opts.Fault(r)
	}
	return r, s.answer(ctx, r, fault, release)
}

// answer does what the fault says, from the look at the key to the reply.
func (s *Server) answer(ctx context.Context, r Seen, f Fault, release <-chan struct{}) reply {
	var out reply
	switch f.kind {
	case loseRequest, refuseConnection:
		out = reply{drop: true}
	case answer:
		out = reply{status: f.status, header: f.header, body: f.body}
	case normal, loseAnswer, cutAnswer, stallBefore, stallAfter, stallBody, actThenAnswer, decide:
		var left bool
		if out, left = s.operate(ctx, r, f, release); left {
			return reply{drop: true}
		}
	}
	switch f.kind {
	case loseAnswer:
		out = reply{drop: true}
	case cutAnswer:
		out.cut, out.n = true, f.n
	case stallBody:
		out.stall, out.n, out.resume = true, f.n, release
	case actThenAnswer:
		out = reply{status: f.status, header: f.header, body: f.body}
	case stallAfter:
		if !s.pause(ctx, release) {
			return reply{drop: true}
		}
	case normal, refuseConnection, loseRequest, stallBefore, answer, decide:
	}
	if f.wait > 0 && !s.sleep(ctx, f.wait) {
		return reply{drop: true}
	}
	return out
}

// operate looks the key up and, if it is new, does the operation. left means
// that the client went away before anything was done.
func (s *Server) operate(ctx context.Context, r Seen, f Fault, release <-chan struct{}) (out reply, left bool) {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return s.act(r, f), false
	}
	e, out, known := s.claim(r)
	if known {
		return out, false
	}
	if f.kind == stallBefore && !s.pause(ctx, release) {
		s.settle(r, e, nil)
		return reply{}, true
	}
	if f.work > 0 && !s.sleep(context.WithoutCancel(ctx), f.work) {
		s.settle(r, e, nil)
		return reply{}, true
	}
	out = s.act(r, f)
	s.settle(r, e, &out)
	return out, false
}

// claim marks the key as running. known means that it was known already, and
// out is what to say about it. Without de-duplication the entry is nil.
func (s *Server) claim(r Seen) (e *entry, out reply, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	on, decided := s.dedup[r.Path]
	if !decided {
		on = !s.opts.NoDedup
	}
	if !on || r.Key == "" {
		return nil, reply{}, false
	}
	what := r.Method + " " + r.Path + " " + r.BodyDigest
	e = s.keys[r.Key]
	if e != nil && !e.running && !e.until.IsZero() && !s.now().Before(e.until) {
		delete(s.keys, r.Key)
		e = nil
	}
	switch {
	case e == nil:
		e = &entry{what: what, running: true}
		s.keys[r.Key] = e
		return e, reply{}, false
	case s.opts.StoreLag > 0 && (e.running || s.now().Before(e.since)):
		return nil, reply{}, false // not known yet: it acts again, and the first entry stays
	case e.what != what:
		return nil, reply{status: http.StatusUnprocessableEntity, header: JSON(), body: []byte(`{"code":"key_reused"}`)}, true
	case e.running:
		return nil, reply{status: http.StatusConflict, header: JSON(), body: []byte(`{"code":"in_progress"}`)}, true
	}
	out = e.reply
	out.header = out.header.Clone()
	if out.header == nil {
		out.header = http.Header{}
	}
	out.header.Del("Request-Id")
	out.header.Set("Idempotent-Replayed", "true")
	return nil, out, true
}

// act does the operation.
func (s *Server) act(r Seen, f Fault) reply {
	switch {
	case f.kind == decide:
		return reply{status: f.status, header: f.header, body: f.body}
	case s.opts.Act != nil:
		status, header, body := s.opts.Act(r)
		return reply{status: status, header: header.Clone(), body: body}
	case r.Method == http.MethodGet || r.Method == http.MethodHead:
		return reply{status: http.StatusOK, header: JSON(), body: []byte("{}")}
	}
	s.mu.Lock()
	s.effects++
	n := s.effects
	s.mu.Unlock()
	body, err := json.Marshal(map[string]string{"id": fmt.Sprintf("eff_%d", n), "path": r.Path})
	if err != nil { // a map of strings can always be written
		panic(err)
	}
	return reply{status: http.StatusCreated, header: JSON(), body: body}
}

// settle counts the effect and keeps the answer, both in one step, so that
// nobody sees the one without the other. A nil out means that nothing was
// done; a nil e, that nothing is kept.
func (s *Server) settle(r Seen, e *entry, out *reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if out != nil && out.status < 400 {
		r.Body = nil
		s.acted = append(s.acted, r)
	}
	if e == nil || s.keys[r.Key] != e { // forgotten meanwhile
		return
	}
	if out == nil || out.status >= 400 && s.opts.ForgetRefusals {
		delete(s.keys, r.Key)
		return
	}
	e.running, e.reply = false, *out
	e.since = s.now().Add(s.opts.StoreLag)
	if s.opts.Retention > 0 {
		e.until = s.now().Add(s.opts.Retention)
	}
}

// keyOf finds the key and takes it out of its quotes.
func (s *Server) keyOf(r Seen) string {
	if s.opts.Key != nil {
		return s.opts.Key(r)
	}
	return unquote(r.Header.Get(s.opts.KeyHeader))
}

// unquote reads a string of RFC 8941; parameters after it are ignored. What is
// no such string is taken as it is.
func unquote(v string) string {
	v = strings.TrimSpace(v)
	if !strings.HasPrefix(v, `"`) {
		return v
	}
	var b strings.Builder
	for i := 1; i < len(v); i++ {
		switch c := v[i]; {
		case c == '"':
			return b.String()
		case c == '\\' && i+1 < len(v):
			i++
			b.WriteByte(v[i])
		default:
			b.WriteByte(c)
		}
	}
	return v // no closing quote
}

// pause waits for release and says whether it came, rather than the end of the
// client or of the server.
func (s *Server) pause(ctx context.Context, release <-chan struct{}) bool {
	select {
	case <-release:
		return true
	case <-ctx.Done():
	case <-s.closed:
	}
	return false
}

// sleep says whether it slept for all of d.
func (s *Server) sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
	case <-s.closed:
	}
	return false
}
