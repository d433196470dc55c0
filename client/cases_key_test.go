package client_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

// TestC01: a key minted inside the retry loop. That minting happens once is
// counted in package keyring.
func TestC01OneKeyOverAllAttempts(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	e.srv.Script(clienttest.LoseAnswer(), clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)))
	in, err := e.client.Begin(e.ctx, keyring.Ref{Name: "inv-7"}, e.post("/payments", pay))
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
	e.state(res, err, keyring.StateDone)
	e.want(counts{3, 1, 1, 1})
	if res.Outcome.Source != keyring.SourceReplay || res.Outcome.Verdict.EffectID != "eff_1" {
		t.Errorf("source %s, effect %q; want the replay of the first hit's effect", res.Outcome.Source, res.Outcome.Verdict.EffectID)
	}
	if wire := e.srv.Keys()[0]; wire != in.Key.String() || e.get("inv-7").Key != in.Key {
		t.Errorf("the wire had key %q, the keyring has %q, Begin gave %q", wire, e.get("inv-7").Key, in.Key)
	}
}

// The rest of the kind: across calls, across clients, across doubt of every sort.
func TestC01OneKeyOverAllCallsAndRestarts(t *testing.T) {
	for _, f := range []clienttest.Fault{
		clienttest.LoseAnswer(), clienttest.LoseRequest(), clienttest.RefuseConnection(), clienttest.CutAnswer(3),
		clienttest.Answer(500, clienttest.JSON(), []byte(`{}`)), clienttest.Answer(429, clienttest.JSON(), []byte(`{}`)),
		clienttest.Answer(401, clienttest.JSON(), []byte(`{}`)), clienttest.Pending(409), clienttest.Answer(200, nil, []byte("<html>")),
	} {
		t.Run(f.String(), func(t *testing.T) {
			e := start(t, dedup(t), nil, client.Options{Retry: quick(1)})
			e.srv.Script(f)
			_, _ = e.do("inv-7", e.post("/payments", pay)) // whatever it says
			key := e.get("inv-7").Key
			for range 100 {
				e.restart(nil)
				res, err := e.do("inv-7", e.post("/payments", pay))
				if err == nil {
					break
				}
				if !errors.Is(err, keyring.ErrTooSoon) {
					t.Fatalf("%v (%v)", err, res)
				}
				time.Sleep(time.Until(res.Outcome.NotBefore))
			}
			if e.get("inv-7").Key != key || len(e.srv.Keys()) != 1 || e.srv.Effects() != 1 {
				t.Errorf("key %s then %s: %s", key, e.get("inv-7").Key, e.srv)
			}
		})
	}
}

// TestC03: a key derived from a body that changes on every submit.
func TestC03AChangedBodyIsRefusedAndTheFirstOneIsSentAgain(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Retry: quick(1)})
	e.srv.Script(clienttest.LoseAnswer())
	b1 := `{"amount":1250,"attemptId":"a1","createdAt":"T1"}`
	b2 := `{"amount":1250,"attemptId":"a2","createdAt":"T2"}`
	res, err := e.do("inv-7", e.post("/payments", b1))
	e.state(res, err, keyring.StateUnknown)

	_, err = e.client.Begin(e.ctx, keyring.Ref{Name: "inv-7"}, e.post("/payments", b2))
	var ke *keyring.Error
	if !errors.Is(err, keyring.ErrDiffers) || !errors.As(err, &ke) {
		t.Fatalf("%v, want ErrDiffers", err)
	}
	if !reflect.DeepEqual(ke.Fields, []string{"body"}) || ke.Ref.Name != "inv-7" {
		t.Errorf("differences %v of %s", ke.Fields, ke.Ref)
	}
	if client.OutcomeOf(err).State != keyring.StateUnknown {
		t.Errorf("the error does not tell what is known of the first one: %v", client.OutcomeOf(err))
	}
	e.want(counts{1, 1, 1, 1})

	time.Sleep(time.Until(e.get("inv-7").NotBefore))
	res, err = e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 1, 1, 1})

	other := start(t, dedup(t), nil, client.Options{})
	if _, err := other.do("inv-7", other.post("/payments", b1)); err != nil {
		t.Fatal(err)
	}
	if other.srv.Keys()[0] == e.srv.Keys()[0] {
		t.Error("two keyrings gave the same request the same key: it is derived")
	}
}

// TestC03 for every place of a request: what differs is named, never quoted.
func TestC03EveryChangedPlaceIsNamed(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	base := func() *http1 {
		return &http1{"POST", "/payments?b=2&a=1&a=3", pay, map[string]string{"X-Account": "acct_9"}}
	}
	if _, err := e.do("inv-7", base().make(e)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		claim  string
		change func(*http1)
		want   []string
	}{
		{"the same", func(*http1) {}, nil},
		{"parameters in another order", func(r *http1) { r.path = "/payments?a=1&b=2&a=3" }, nil},
		{"another method", func(r *http1) { r.method = "PUT" }, []string{"method"}},
		{"another path", func(r *http1) { r.path = "/payments/?b=2&a=1&a=3" }, []string{"path"}},
		{"another value", func(r *http1) { r.path = "/payments?b=SECRET&a=1&a=3" }, []string{"query b"}},
		{"repeated values in another order", func(r *http1) { r.path = "/payments?b=2&a=3&a=1" }, []string{"query a"}},
		{"one more parameter", func(r *http1) { r.path += "&dry_run=1" }, []string{"query dry_run"}},
		{"one less parameter", func(r *http1) { r.path = "/payments?a=1&a=3" }, []string{"query b"}},
		{"another header", func(r *http1) { r.header["X-Account"] = "SECRET" }, []string{"header X-Account"}},
		{"one more header", func(r *http1) { r.header["X-More"] = "SECRET" }, []string{"header X-More"}},
		{"one less header", func(r *http1) { delete(r.header, "X-Account") }, []string{"header X-Account"}},
		{"another body", func(r *http1) { r.body = "SECRET" }, []string{"body"}},
		{"a body that differs in its last byte", func(r *http1) { r.body += " " }, []string{"body"}},
		{"credentials and tracing are not compared", func(r *http1) { r.header["Authorization"], r.header["Traceparent"] = "x", "y" }, nil},
		{"several", func(r *http1) { r.body, r.header["X-Account"], r.path = "x", "y", "/other" }, []string{"body", "header X-Account", "path", "query a", "query b"}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			r := base()
			c.change(r)
			_, err := e.do("inv-7", r.make(e))
			if len(c.want) == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			var ke *keyring.Error
			if !errors.Is(err, keyring.ErrDiffers) || !errors.As(err, &ke) {
				t.Fatalf("%v, want ErrDiffers", err)
			}
			if !reflect.DeepEqual(ke.Fields, c.want) {
				t.Errorf("differences %q, want %q", ke.Fields, c.want)
			}
			if strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error quotes a value: %v", err)
			}
		})
	}
	e.want(counts{1, 1, 1, 1})
}

// TestC05: one shared client, many goroutines, keys swapped between payments.
func TestC05NoKeyIsSwappedUnderLoad(t *testing.T) {
	const goroutines, each = 64, 20
	e := start(t, dedup(t), &clienttest.Options{Fault: func(s clienttest.Seen) clienttest.Fault {
		f := clienttest.Normal()
		if s.KeyHit == 1 && rand.IntN(5) == 0 {
			f = clienttest.LoseAnswer()
		}
		return f.Work(time.Duration(rand.IntN(20)) * time.Millisecond)
	}}, client.Options{Retry: quick(4)})
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for i := range each {
				n := g*each + i
				res, err := e.do(fmt.Sprintf("n-%d", n), e.post("/payments", fmt.Sprintf(`{"n":%d}`, n)))
				if err != nil {
					t.Errorf("n-%d: %v (%v)", n, err, res)
				}
			}
		})
	}
	wg.Wait()
	keyOf, bodyOf := map[string]string{}, map[string]string{}
	for _, s := range e.srv.Requests() {
		if s.Key == "" {
			t.Fatal("a hit without a key")
		}
		if k, ok := keyOf[s.BodyDigest]; ok && k != s.Key {
			t.Fatal("one intent was sent under two keys")
		}
		if b, ok := bodyOf[s.Key]; ok && b != s.BodyDigest {
			t.Fatal("one key was sent with two bodies")
		}
		keyOf[s.BodyDigest], bodyOf[s.Key] = s.Key, s.BodyDigest
	}
	if got := e.srv.Effects(); got != goroutines*each || len(keyOf) != goroutines*each {
		t.Errorf("%d effects, %d keys, want %d", got, len(keyOf), goroutines*each)
	}
}

// TestC07: a key left on the client reaches the next operation.
func TestC07EachIntentHasAKeyOfItsOwn(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	for i, body := range []string{`{"p":1}`, `{"p":2}`} {
		if _, err := e.do(fmt.Sprint("p", i+1), e.post("/execute", body)); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := e.do(fmt.Sprint("q", i), e.post("/execute", fmt.Sprintf(`{"q":%d}`, i))); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	e.want(counts{22, 22, 22, 22})
	for _, typ := range []reflect.Type{reflect.TypeFor[*client.Client](), reflect.TypeFor[client.Options]()} {
		for i := range typ.NumMethod() {
			if name := typ.Method(i).Name; strings.Contains(name, "Key") && name != "Keyring" {
				t.Errorf("%s.%s: a client has no key", typ, name)
			}
		}
	}
	for i := range reflect.TypeFor[client.Options]().NumField() {
		if f := reflect.TypeFor[client.Options]().Field(i); f.Type == reflect.TypeFor[keyring.Key]() {
			t.Errorf("Options.%s: a client has no key", f.Name)
		}
	}
}

// TestC09, part 2: a conflict on the first use of a key. Part 1 (two processes)
// is in the root package.
func TestC09AConflictOnFirstUseIsShownAndMintsNothing(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	e.srv.Script(clienttest.Conflict())
	res, err := e.do("inst-1", e.post("/instances", `{"name":"p1-1"}`))
	e.state(res, err, keyring.StateConflict)
	if !errors.Is(err, client.ErrConflict) || !res.Outcome.NeedsInspection {
		t.Errorf("%v, needs inspection: %v", err, res.Outcome.NeedsInspection)
	}
	if len(res.Intent.Attempts) != 1 {
		t.Errorf("%d attempts on record, want the evidence that this was the first", len(res.Intent.Attempts))
	}
	for range 3 {
		e.restart(nil)
		if _, err := e.do("inst-1", e.post("/instances", `{"name":"p1-1"}`)); !errors.Is(err, client.ErrConflict) {
			t.Errorf("%v, want the conflict again", err)
		}
	}
	e.want(counts{1, 0, 1, 1})
}
