package client_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

// http1 is a request in the making.
type http1 struct {
	method, path, body string
	header             map[string]string
}

func (r *http1) make(e *env) *http.Request {
	req := e.request(r.method, r.path, strings.NewReader(r.body))
	for k, v := range r.header {
		req.Header.Set(k, v)
	}
	return req
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func bothProtocols(t *testing.T, f func(t *testing.T, h2 bool)) {
	t.Run("HTTP/1.1", func(t *testing.T) { f(t, false) })
	t.Run("HTTP/2", func(t *testing.T) { f(t, true) })
}

// TestC13: the caller's code changes the object after it was handed over.
func TestC13WhatTheCallerChangesLaterDoesNotMatter(t *testing.T) {
	buf := []byte(pay)
	hdr := http.Header{"X-Trace": {"1"}, "Content-Type": {"application/json"}}
	changed := make(chan struct{})
	e := start(t, dedup(t), &clienttest.Options{Fault: func(s clienttest.Seen) clienttest.Fault {
		if s.N > 1 {
			return clienttest.Normal()
		}
		go func() {
			defer close(changed)
			clear(buf)
			hdr.Set("X-Trace", "2")
		}()
		<-changed
		return clienttest.Answer(503, clienttest.JSON(), []byte(`{}`))
	}}, client.Options{})
	req := e.request("POST", "/payments", bytes.NewReader(buf))
	req.Header = hdr
	res, err := e.do("inv-7", req)
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 1, 1, 1})
	for _, s := range e.srv.Requests() {
		if s.BodyDigest != digest([]byte(pay)) || s.Header.Get("X-Trace") != "1" {
			t.Errorf("hit %d: body %s, X-Trace %s", s.N, s.BodyDigest, s.Header.Get("X-Trace"))
		}
	}
	if in := e.get("inv-7"); string(in.Request.Body) != pay || in.Request.Header["X-Trace"][0] != "1" {
		t.Error("the record has changed with the caller's bytes")
	}
	// And what a reader of the record changes does not reach the record.
	in := e.get("inv-7")
	in.Request.Body[0], in.Request.Header["X-Trace"][0], in.Answer[1] = 'X', "3", 0
	if again := e.get("inv-7"); string(again.Request.Body) != pay || again.Request.Header["X-Trace"][0] != "1" || again.Answer[1] == 0 {
		t.Error("the record has changed with the reader's bytes")
	}
}

// TestC17: a body that is used up by the first attempt.
func TestC17TheBodyIsWholeOnEveryAttempt(t *testing.T) {
	body := bytes.Repeat([]byte("0123456789abcdef"), 71680/16)
	bothProtocols(t, func(t *testing.T, h2 bool) {
		e := sockets(t, dedup(t), nil, client.Options{Retry: quick(2)}, h2)
		e.srv.Script(clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)))
		reader := newOnce(body)
		in, err := e.client.Begin(e.ctx, keyring.Ref{Name: "b"}, e.request("POST", "/up", reader))
		if err != nil {
			t.Fatal(err)
		}
		if reader.reads != len(body) {
			t.Errorf("%d bytes read inside Begin, want %d", reader.reads, len(body))
		}
		res, err := e.client.Send(e.ctx, in.Ref)
		e.state(res, err, keyring.StateDone)
		e.want(counts{2, 1, 1, 1})
		for _, s := range e.srv.Requests() {
			if s.Length != int64(len(body)) || s.Chunked || s.BodyDigest != digest(body) {
				t.Errorf("hit %d: length %d, chunked %v, body %s", s.N, s.Length, s.Chunked, s.BodyDigest)
			}
		}
		if reader.reads != len(body) {
			t.Errorf("%d bytes read in all, want %d", reader.reads, len(body))
		}
	})
}

func TestC17ABodyThatCannotBeReadStoresAndSendsNothing(t *testing.T) {
	broken := errors.New("the disk is gone, SECRET")
	for _, c := range []struct {
		claim string
		body  func() io.Reader
		alter func(*http.Request)
	}{
		{"fails after 10,000 bytes", func() io.Reader {
			return io.MultiReader(io.LimitReader(zeros{}, 10000), iotest.ErrReader(broken))
		}, nil},
		{"is larger than allowed", func() io.Reader { return io.LimitReader(zeros{}, 1<<20+1) }, nil},
		{"says that it is larger than allowed", func() io.Reader { return strings.NewReader("x") }, func(r *http.Request) { r.ContentLength = 1 << 40 }},
		{"is shorter than it says", func() io.Reader { return strings.NewReader("x") }, func(r *http.Request) { r.ContentLength = 2 }},
		{"was read before", func() io.Reader { r := strings.NewReader("xyz"); return r }, func(r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }},
	} {
		t.Run(c.claim, func(t *testing.T) {
			e := start(t, dedup(t), nil, client.Options{MaxBody: 1 << 20})
			req := e.request("POST", "/up", c.body())
			if c.alter != nil {
				c.alter(req)
			}
			res, err := e.do("b", req)
			if res != nil || !errors.Is(err, keyring.ErrInvalid) {
				t.Fatalf("%v, %v; want ErrInvalid", res, err)
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error quotes its cause: %v", err)
			}
			if client.OutcomeOf(err).State != keyring.StateNeverSent {
				t.Errorf("outcome %s, want never sent", client.OutcomeOf(err).State)
			}
			if _, err := e.client.Ring().Get(e.ctx, keyring.Ref{Name: "b"}); !errors.Is(err, keyring.ErrNotFound) {
				t.Errorf("something was stored: %v", err)
			}
			e.want(counts{})
		})
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// TestC19: a body rewound while the earlier attempt's writer still reads it.
func TestC19EveryAttemptHasAReaderOfItsOwn(t *testing.T) {
	body := bytes.Repeat([]byte("samekey!"), 4<<20/8)
	bothProtocols(t, func(t *testing.T, h2 bool) {
		unread := clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)).Unread()
		e := sockets(t, dedup(t), nil, client.Options{}, h2)
		runs := 10 // the wire's own test makes 50
		for i := range runs {
			e.srv.Script(unread, unread)
			name := fmt.Sprint("run-", i)
			res, err := e.do(name, e.request("POST", "/up", bytes.NewReader(body)))
			// A server that answers and closes before the body is through can
			// cost an attempt its answer, never the intent its key or its bytes.
			for errors.Is(err, client.ErrUnknown) {
				time.Sleep(time.Until(res.Outcome.NotBefore))
				res, err = e.client.Send(e.ctx, keyring.Ref{Name: name})
			}
			e.state(res, err, keyring.StateDone)
			e.srv.Unscript()
		}
		if got := e.counts(); got.effects != runs || got.keys != runs || got.bodies != 1 {
			t.Errorf("the provider saw %+v, want %d effects and keys, 1 body", got, runs)
		}
		if e.srv.Bodies()[0] != digest(body) {
			t.Error("the body that arrived is another one")
		}
	})
}

// TestC21: a request sent again with a new token after its body was used up.
func TestC21ARefreshedTokenKeepsKeyAndBody(t *testing.T) {
	tokens := []string{"T1-secret", "T2-secret"}
	var asked int
	e := start(t, dedup(t), &clienttest.Options{Fault: func(s clienttest.Seen) clienttest.Fault {
		if s.Header.Get("Authorization") == "Bearer T1-secret" {
			return clienttest.Answer(401, clienttest.JSON(), []byte(`{}`))
		}
		return clienttest.Normal()
	}}, client.Options{Retry: quick(2), Authorize: func(_ context.Context, req *http.Request) error {
		if req.Header.Get("Idempotency-Key") == "" {
			return errors.New("the request to authorize is not the one that is sent")
		}
		req.Header.Set("Authorization", "Bearer "+tokens[min(asked, 1)])
		asked++
		return nil
	}})
	res, err := e.do("inv-7", e.post("/payments", pay))
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 1, 1, 1})
	var seen []string
	for _, s := range e.srv.Requests() {
		seen = append(seen, s.Header.Get("Authorization"))
	}
	if fmt.Sprint(seen) != "[Bearer T1-secret Bearer T2-secret]" {
		t.Errorf("tokens %v", seen)
	}
	e.storeHolds(t, "secret", false)
}

// storeHolds looks for text in everything that is stored.
func (e *env) storeHolds(t *testing.T, text string, want bool) {
	t.Helper()
	for rec, err := range e.store.Scan(e.ctx, keyring.Query{AllScopes: true}) {
		if err != nil {
			t.Fatal(err)
		}
		got := bytes.Contains(rec.Data, []byte(text)) || bytes.Contains(rec.Request, []byte(text))
		if got != want {
			t.Errorf("%s: %q is in the store: %v, want %v", rec.Ref, text, got, want)
		}
	}
}

// The rest of the kind: credentials that do not get better, and those of one
// call.
func TestC21ARejectedCredentialIsNotTriedTwice(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Origins: []string{"http://box.test"}, Authorize: func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer same")
		return nil
	}})
	e.srv.Script(clienttest.Answer(401, clienttest.JSON(), []byte(`{}`)))
	res, err := e.do("inv-7", e.post("/payments", pay))
	e.state(res, err, keyring.StateNeverSent)
	if !errors.Is(err, client.ErrSignIn) || !res.Outcome.NeedsSignIn || !errors.Is(err, client.ErrNotSent) {
		t.Errorf("%v; want ErrSignIn and ErrNotSent", err)
	}
	e.want(counts{1, 0, 1, 1})
	res, err = e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 1, 1, 1})
}

func TestC21CredentialsOfOneCallAreNotStored(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Retry: quick(1)})
	e.url = "http://user:pass-secret@box.test"
	e.srv.Script(clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)))
	request := func() *http.Request {
		req := e.post("/payments?api_key=q-secret&x=1", pay)
		req.Header.Set("X-Api-Key", "h-secret")
		req.Header.Set("Cookie", "session=c-secret")
		req.Header.Set("Traceparent", "trace-1")
		return req
	}
	res, err := e.do("inv-7", request())
	e.state(res, err, keyring.StateUnknown)
	s := e.srv.Requests()[0]
	user, pass, _ := (&http.Request{Header: s.Header}).BasicAuth()
	if user != "user" || pass != "pass-secret" || s.Query != "x=1&api_key=q-secret" || s.Header.Get("X-Api-Key") != "h-secret" ||
		s.Header.Get("Cookie") == "" || s.Header.Get("Traceparent") != "trace-1" {
		t.Errorf("the credentials did not go along: %s %q", s.Query, s.Header)
	}
	e.storeHolds(t, "secret", false)
	e.storeHolds(t, "trace-1", false)
	if strings.Contains(err.Error(), "secret") {
		t.Errorf("the error quotes a credential: %v", err)
	}
	time.Sleep(time.Until(res.Outcome.NotBefore))

	// From the record alone it cannot go out.
	res, err = e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
	e.state(res, err, keyring.StateUnknown)
	if !errors.Is(err, client.ErrSignIn) || e.srv.Hits() != 1 {
		t.Errorf("%v after %d hits; want ErrSignIn and nothing sent", err, e.srv.Hits())
	}
	res, err = e.do("inv-7", request())
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 1, 1, 1})
}

// TestC25: a resend by the HTTP stack below. The wire has its own tests; this
// one is about the whole client.
func TestC25OneAttemptIsOneRequestOnTheWire(t *testing.T) {
	for _, body := range []string{pay, ""} {
		bothProtocols(t, func(t *testing.T, h2 bool) {
			for _, on := range []bool{true, false} {
				p := nodedup(t)
				if on {
					p = dedup(t)
				}
				e := sockets(t, p, &clienttest.Options{NoDedup: !on}, client.Options{Retry: quick(1)}, h2)
				if _, err := e.do("warm", e.post("/warm", "{}")); err != nil {
					t.Fatal(err)
				}
				e.srv.Script(clienttest.LoseAnswer())
				res, err := e.do("inv-7", e.post("/pay", body))
				e.state(res, err, keyring.StateUnknown)
				if got := e.counts("/pay"); got.hits != 1 || got.effects != 1 || len(res.Intent.Attempts) != 1 {
					t.Errorf("dedup %v, body %q: %+v and %d attempts on record", on, body, got, len(res.Intent.Attempts))
				}
			}
		})
	}
}
