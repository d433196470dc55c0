package samekey_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/iotest"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

// What must not be found where it does not belong.
const (
	ofCredential = "S3CRET" // in each credential
	ofBody       = "B0DY"   // in each body, of requests and answers
	ofQuery      = "QU3RY"  // in each query value
)

// secrets are the forms that a credential can take.
func secrets() []string {
	return []string{ofCredential, base64.StdEncoding.EncodeToString([]byte("user:" + ofCredential))}
}

// TestP13: credentials are not on the disk, at no time; neither they nor bodies
// nor query values are in logs and errors.
func TestP13SecretsStayOut(t *testing.T) {
	t.Parallel()
	var logged syncBuffer
	logger := slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	var s *story
	onDisk := func(when string) {
		t.Helper()
		body := false
		for path, content := range files(t, s.dir) {
			body = body || strings.Contains(content, ofBody)
			for _, secret := range secrets() {
				if strings.Contains(content, secret) {
					t.Errorf("%s, a credential is in %s", when, path)
				}
			}
		}
		if !body {
			t.Errorf("%s, not even a body was found: this has looked at nothing", when)
		}
	}
	answer := http.Header{
		"Content-Type": {"application/json"}, "Set-Cookie": {"session=" + ofCredential}, "X-Auth-Token": {ofCredential}, "X-Note": {"kept"},
	}
	s = tell(t, &clienttest.Options{Fault: func(seen clienttest.Seen) clienttest.Fault {
		if seen.N == 1 {
			onDisk("while it is sent")
		}
		return clienttest.Decide(201, answer, []byte(`{"id":"eff_9","note":"`+ofBody+`"}`))
	}}, client.Options{Logger: logger})
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if s.store, err = badgerkeys.Open(s.dir, &badgerkeys.Options{Logger: logger}); err != nil {
		t.Fatal(err)
	}
	s.client = s.another(nil)

	request := func(path, body string) *http.Request {
		url := strings.Replace(s.url, "http://", "http://user:"+ofCredential+"@", 1)
		req := post(t, url+path+"?q="+ofQuery+"&api_key="+ofCredential, body)
		req.Header.Set("Cookie", "session="+ofCredential)
		req.Header.Set("X-Api-Key", ofCredential)
		return req
	}
	small, large := `{"note":"`+ofBody+`"}`, `{"note":"`+strings.Repeat(ofBody, 50_000)+`"}`
	var errs []error
	ask := func(path, body string, change func(*client.Options), alter func(*http.Request)) {
		t.Helper()
		c, req := s.another(change), request(path, body)
		if alter != nil {
			alter(req)
		}
		res, err := c.Do(t.Context(), named(path), req)
		if err != nil {
			errs = append(errs, err)
		}
		if res != nil && res.Answer != nil && (res.Answer.Header.Get("Set-Cookie") != "" || res.Answer.Header.Get("X-Auth-Token") != "") {
			t.Errorf("%s: the answer has the provider's credentials", path)
		}
	}
	ask("/v1/small", small, nil, nil)
	ask("/v1/large", large, nil, nil)
	if first := s.srv.Requests()[0]; !strings.Contains(fmt.Sprint(first.Header, first.Query), ofCredential) || first.Header.Get("Authorization") == "" {
		t.Error("the credentials did not go along: this has tried nothing")
	}
	bearer := func(o *client.Options) {
		o.Origins = []string{s.url}
		o.Authorize = func(_ context.Context, req *http.Request) error {
			req.Header.Set("Authorization", "Bearer "+ofCredential)
			return nil
		}
	}
	ask("/v1/bearer", small, bearer, func(req *http.Request) { req.URL.User = nil })
	if n := len(errs); n != 0 {
		t.Fatalf("the calls that should go well: %v", errs)
	}
	for i, f := range []clienttest.Fault{
		clienttest.Answer(500, answer, []byte(small)), clienttest.Answer(402, answer, []byte(small)), clienttest.Answer(401, answer, []byte(small)),
		clienttest.Answer(422, answer, []byte(`{"code":"key_reused","message":"`+ofBody+`"}`)), clienttest.Answer(200, nil, []byte("<html>"+ofBody)),
		clienttest.LoseAnswer(), clienttest.CutAnswer(5), clienttest.Redirect(303, "/v1/?q="+ofQuery),
	} {
		path := fmt.Sprint("/v1/fault-", i)
		s.srv.On(path, f)
		ask(path, small, nil, nil)
	}
	quoting := func(o *client.Options) {
		o.Transport = roundTripper(func(req *http.Request) (*http.Response, error) {
			body, _ := io.ReadAll(req.Body)
			return nil, fmt.Errorf("cannot send %s to %s with %v", body, req.URL, req.Header)
		})
	}
	panicking := func(o *client.Options) {
		o.Transport = roundTripper(func(req *http.Request) (*http.Response, error) { panic(fmt.Sprint(req.URL, req.Header)) })
	}
	elsewhere := func(o *client.Options) { o.Origins = []string{"https://api.example.com"} }
	ask("/v1/quoting", small, quoting, nil)
	ask("/v1/panicking", small, panicking, nil)
	ask("/v1/elsewhere", small, elsewhere, nil)
	ask("/v1/small", strings.Replace(small, "note", "n0te", 1), nil, nil) // differs
	ask("/v1/unread", small, nil, func(req *http.Request) {
		req.Body = io.NopCloser(iotest.ErrReader(errors.New("at " + ofBody + ofCredential)))
	})
	ask("/v1/host", small, nil, func(req *http.Request) { req.URL.Host = ofQuery + " " + ofCredential })
	ask("/v1/key", small, nil, func(req *http.Request) { req.Header.Set("Idempotency-Key", "not a key\x01"+ofCredential) })
	if len(errs) != 14 && len(errs) != 15 { // an answer that was cut can still be a success
		t.Errorf("%d calls failed, of 15 that should: %v", len(errs), errs)
	}
	for _, err := range errs {
		for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err), client.OutcomeOf(err).Next, client.OutcomeOf(err).Verdict.Why} {
			for _, hidden := range append(secrets(), ofBody, ofQuery) {
				if strings.Contains(text, hidden) {
					t.Errorf("an error quotes %s: %s", hidden, text)
				}
			}
		}
	}
	onDisk("while it is open")
	s.close()
	onDisk("after it was closed")
	log := logged.String()
	for _, hidden := range append(secrets(), ofBody, ofQuery) {
		if i := strings.Index(log, hidden); i >= 0 {
			t.Errorf("the log quotes %s: …%s", hidden, log[max(0, i-200):min(len(log), i+50)])
		}
	}
	for _, told := range []string{"/v1/small", s.srv.Keys()[0], "samekey: attempt", "samekey: outcome"} {
		if !strings.Contains(log, told) {
			t.Errorf("the log does not tell %q: this has looked at nothing", told)
		}
	}
}

// syncBuffer is a buffer for many goroutines.
type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// rawServer answers each request with what script has left for it, byte for
// byte, and closes the connection; then as a provider should.
type rawServer struct {
	t      *testing.T
	url    string
	mu     sync.Mutex
	script []string
	keys   []string
	bodies []string
}

func newRawServer(t *testing.T) *rawServer {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &rawServer{t: t, url: "http://" + l.Addr().String()}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		wg.Wait()
	})
	return s
}

func (s *rawServer) serve(conn net.Conn) {
	defer conn.Close()
	req, err := http.ReadRequest(bufio.NewReader(conn))
	if err != nil {
		return
	}
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = append(s.keys, req.Header.Get("Idempotency-Key"))
	s.bodies = append(s.bodies, string(body))
	answer := reply("201 Created", "application/json", `{"id":"eff_1"}`)
	if len(s.script) > 0 {
		answer, s.script = s.script[0], s.script[1:]
	}
	if answer == reset {
		if tcp, ok := conn.(*net.TCPConn); ok {
			tcp.SetLinger(0) // without it the test sees an orderly end, which is as strange
		}
		return
	}
	io.WriteString(conn, answer) // the client may have left
}

const reset = "(reset)"

// reply is an answer on the wire.
func reply(status, contentType, body string) string {
	return fmt.Sprintf("HTTP/1.1 %s\r\nContent-Type: %s\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, contentType, len(body), body)
}

// TestP14: an answer that is not understood is doubt. It never reads as "no
// effect", and the key stays.
func TestP14StrangeAnswersAreDoubt(t *testing.T) {
	t.Parallel()
	const html, text = "text/html", "text/plain"
	const json = "application/json"
	s := tell(t, nil, client.Options{})
	for _, c := range []struct {
		name, answer string
		done         bool // a 2xx that is genuine as far as it could be read
	}{
		{name: "a page instead of an answer", answer: reply("200 OK", html, "<html>sign in</html>")},
		{name: "a text instead of an answer", answer: reply("201 Created", text, "ok")},
		{name: "accepted", answer: reply("202 Accepted", json, `{"id":"x"}`)},
		{name: "part of something", answer: reply("206 Partial Content", json, `{"id":"x"}`)},
		{name: "several", answer: reply("207 Multi-Status", json, `{"id":"x"}`)},
		{name: "a success cut short", answer: strings.Replace(reply("201 Created", json, `{"id":"x"}`), "Length: 1", "Length: 9", 1), done: true},
		{name: "a success that is not what it says", answer: reply("201 Created", json, `<html>`), done: true},
		{name: "choices", answer: reply("300 Multiple Choices", json, `{}`)},
		{name: "not modified", answer: reply("304 Not Modified", json, ``)},
		{name: "moved, nowhere", answer: reply("307 Temporary Redirect", json, `{}`)},
		{name: "a bad request, says a page", answer: reply("400 Bad Request", html, "<html>")},
		{name: "not found, says a page", answer: reply("404 Not Found", html, "<html>")},
		{name: "too large, says a page", answer: reply("413 Content Too Large", html, "<html>")},
		{name: "not processable, cut short", answer: strings.Replace(reply("422 Unprocessable", json, `{"code":"x"}`), "Length: 1", "Length: 9", 1)},
		{name: "timeout", answer: reply("408 Request Timeout", json, `{}`)},
		{name: "an unknown conflict", answer: reply("409 Conflict", json, `{"code":"never_heard_of"}`)},
		{name: "a conflict, says a page", answer: reply("409 Conflict", html, "<html>")},
		{name: "a teapot", answer: reply("418 I'm a teapot", json, `{}`)},
		{name: "too early", answer: reply("425 Too Early", json, `{}`)},
		{name: "for legal reasons", answer: reply("451 No", json, `{}`)},
		{name: "the client left", answer: reply("499 Closed", json, `{}`)},
		{name: "an error", answer: reply("500 Internal Server Error", json, `{"code":"never_heard_of"}`)},
		{name: "a gateway", answer: reply("502 Bad Gateway", html, "<html>")},
		{name: "unavailable", answer: reply("503 Service Unavailable", text, "later")},
		{name: "a gateway's timeout", answer: reply("504 Gateway Timeout", html, "<html>")},
		{name: "another gateway's", answer: reply("524 A Timeout Occurred", html, "<html>")},
		{name: "the last status there is", answer: reply("599 Whatever", json, `{}`)},
		{name: "a status beyond", answer: reply("600 Whatever", json, `{}`)},
		{name: "a status far beyond", answer: reply("999 Whatever", json, `{}`)},
		{name: "a status below", answer: reply("099 Whatever", json, `{}`)},
		{name: "another protocol", answer: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n"},
		{name: "go on, and nothing", answer: "HTTP/1.1 100 Continue\r\n\r\n"},
		{name: "processing, and nothing", answer: "HTTP/1.1 102 Processing\r\n\r\n"},
		{name: "hints, and nothing", answer: "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"},
		{name: "nothing"},
		{name: "a reset", answer: reset},
		{name: "half a status line", answer: "HTTP/1.1 20"},
		{name: "half a header", answer: "HTTP/1.1 201 Created\r\nContent-Ty"},
		{name: "another server", answer: "SSH-2.0-OpenSSH_9.9\r\n"},
		{name: "garbage", answer: "\x00\x01\x02\xff\xfe\r\n\r\n"},
		{name: "a header without a colon", answer: "HTTP/1.1 201 Created\r\nwhat is this\r\n\r\n{}"},
		{name: "two lengths", answer: "HTTP/1.1 201 Created\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}"},
		{name: "a header without end", answer: "HTTP/1.1 201 Created\r\nX: " + strings.Repeat("x", 1<<20) + "\r\n\r\n{}"},
		{name: "a refusal in a coding that nobody asked for", answer: strings.Replace(reply("422 Unprocessable", json, "{}"), "Connection", "Content-Encoding: br\r\nConnection", 1)},
	} {
		raw := newRawServer(t)
		raw.script = []string{c.answer}
		res, err := s.do(c.name, post(t, raw.url+"/v1/payments", pay))
		if res == nil {
			t.Errorf("%s: no result, %v", c.name, err)
			continue
		}
		doubt := slices.Contains([]keyring.State{keyring.StateUnknown, keyring.StatePending}, res.Outcome.State)
		if c.done && res.Outcome.State != keyring.StateDone || !c.done && !doubt {
			t.Errorf("%s reads as %s (%s): %v", c.name, res.Outcome.State, res.Outcome.Verdict.Why, err)
		}
		if (err == nil) != c.done || errors.Is(err, client.ErrRefused) || errors.Is(err, client.ErrNotSent) || client.OutcomeOf(err).State.Final() {
			t.Errorf("%s gives the error %v", c.name, err)
		}
		if c.done && !res.Outcome.NeedsInspection {
			t.Errorf("%s: nothing asks for a look at the provider's side", c.name)
		}
		key := res.Intent.Key.String()
		time.Sleep(time.Until(res.Outcome.NotBefore))
		again, err := s.another(nil).Do(t.Context(), named(c.name), post(t, raw.url+"/v1/payments", pay))
		if again == nil || again.Intent.Key.String() != key || !res.Outcome.NeedsInspection && (err != nil || again.Outcome.State != keyring.StateDone) {
			t.Errorf("%s, then sent again: %v", c.name, err)
		}
		raw.mu.Lock()
		for i := range raw.keys {
			if raw.keys[i] != key || raw.bodies[i] != pay {
				t.Errorf("%s: key %s, and on the wire %q", c.name, key, raw.keys)
			}
		}
		if n := len(raw.keys); n == 0 || n > 2 {
			t.Errorf("%s: %d requests for two calls", c.name, n)
		}
		raw.mu.Unlock()
	}
	if client.OutcomeOf(errors.New("x")).State != keyring.StateUnknown || client.OutcomeOf(nil).State != keyring.StateUnknown {
		t.Error("an error that is not ours is not doubt")
	}
	if keyring.VerdictKind(200).String() != "unclear" || keyring.State(200).String() != "unknown" || keyring.State(200).Final() {
		t.Error("a word from a newer version is not doubt")
	}
}

// TestP14: an attempt that provably did nothing says nothing about the one
// before it.
func TestP14WhatDidNothingExcusesNothing(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{Retry: quick(2)})
	for i, f := range []clienttest.Fault{
		clienttest.Answer(401, clienttest.JSON(), []byte(`{}`)), clienttest.Answer(403, clienttest.JSON(), []byte(`{}`)),
		clienttest.Answer(429, clienttest.JSON(), []byte(`{}`)), clienttest.Answer(404, clienttest.JSON(), []byte(`{}`)),
		clienttest.Answer(400, clienttest.JSON(), []byte(`{"code":"invalid"}`)),
	} {
		path := fmt.Sprint("/v1/", i)
		s.srv.On(path, clienttest.LoseAnswer(), f)
		res, err := s.do(path, s.post(path, pay))
		s.must(keyring.StateUnknown, res, err)
		if n := len(res.Intent.Attempts); n != 2 {
			t.Errorf("%s: %d attempts, want 2", f, n)
		}
		if errors.Is(err, client.ErrNotSent) || errors.Is(err, client.ErrRefused) {
			t.Errorf("a lost answer, then %s: %v", f, err)
		}
		s.saw(seen{2, 1, 1, 1}, path)
	}
}
