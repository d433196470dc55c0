package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

func TestCallsAtTheSameTimeShareOneSending(t *testing.T) {
	for _, c := range []struct {
		claim string
		fault clienttest.Fault
		want  keyring.State
	}{
		{"that takes effect", clienttest.Normal().Work(time.Second), keyring.StateDone},
		{"that is refused", clienttest.Decide(402, clienttest.JSON(), []byte(`{"code":"declined"}`)), keyring.StateRefused},
		{"that ends in doubt", clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)).Wait(time.Second).Forever(), keyring.StateUnknown},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, dedup(t), &clienttest.Options{NoDedup: true}, client.Options{Retry: retry.Exponential{MaxAttempts: 2}})
				e.srv.Script(c.fault)
				second := client.New(e.store, e.profile, &e.opts) // another client on the same store
				var wg sync.WaitGroup
				for i := range 40 {
					wg.Go(func() {
						cl := e.client
						if i%2 == 1 {
							cl = second
						}
						res, err := cl.Do(e.ctx, keyring.Ref{Name: "inv-7"}, e.post("/pay", pay))
						e.state(res, err, c.want)
						if c.want == keyring.StateDone && (res.Answer == nil || !strings.Contains(string(res.Answer.Body), "eff_1")) {
							t.Errorf("an answer of another sending: %+v", res.Answer)
						}
					})
				}
				// Another request under the same ref is refused meanwhile.
				time.Sleep(time.Millisecond)
				if _, err := e.do("inv-7", e.post("/pay", "{}")); !errors.Is(err, keyring.ErrDiffers) {
					t.Errorf("%v, want ErrDiffers", err)
				}
				wg.Wait()
				want := 1
				if c.want == keyring.StateUnknown {
					want = 2
				}
				if got := e.srv.Hits(); got != want || len(e.srv.Keys()) != 1 {
					t.Errorf("%d hits, want %d: %s", got, want, e.srv)
				}
			})
		})
	}
}

func TestAWaitingCallerCanGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{})
		e.srv.Script(clienttest.Normal().Work(10 * time.Second))
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, keyring.StateDone)
		})
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(e.ctx, time.Second)
		defer cancel()
		res, err := e.client.Do(ctx, keyring.Ref{Name: "inv-7"}, e.post("/pay", pay))
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, client.ErrUnknown) || res.Outcome.State != keyring.StateSending {
			t.Errorf("%v, state %v", err, res.Outcome.State)
		}
		wg.Wait()
		e.want(counts{1, 1, 1, 1})
	})
}

func TestFinalIsFinal(t *testing.T) {
	for _, c := range []struct {
		claim string
		fault clienttest.Fault
		want  keyring.State
		is    error
	}{
		{"done", clienttest.Normal(), keyring.StateDone, nil},
		{"refused", clienttest.Decide(402, clienttest.JSON(), []byte(`{"code":"card_declined"}`)), keyring.StateRefused, client.ErrRefused},
	} {
		t.Run(c.claim, func(t *testing.T) {
			e := start(t, dedup(t), nil, client.Options{})
			e.srv.Script(c.fault)
			for i := range 3 {
				res, err := e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, c.want)
				if !errors.Is(err, c.is) {
					t.Errorf("%v, want %v", err, c.is)
				}
				if res.Answer == nil || (i > 0) != (res.Outcome.Source == keyring.SourceRecord) {
					t.Errorf("call %d: answer %v, source %s", i, res.Answer, res.Outcome.Source)
				}
				e.restart(nil)
			}
			e.want(counts{1, map[keyring.State]int{keyring.StateDone: 1}[c.want], 1, 1})
		})
	}
}

func TestBadInputStoresAndSendsNothing(t *testing.T) {
	req := func(e *env, change func(*http.Request)) *http.Request {
		r := e.post("/pay", pay)
		change(r)
		return r
	}
	for _, c := range []struct {
		claim string
		ref   keyring.Ref
		opts  client.Options
		req   func(e *env) *http.Request
		want  error
		says  string
	}{
		{"no name", keyring.Ref{}, client.Options{}, func(e *env) *http.Request { return e.post("/pay", pay) }, client.ErrNoRef, "name the intent"},
		{"a control character in the name", keyring.Ref{Name: "a\nb"}, client.Options{}, func(e *env) *http.Request { return e.post("/pay", pay) }, keyring.ErrInvalid, "control character"},
		{"a name that is not UTF-8", keyring.Ref{Name: "a\xff"}, client.Options{}, func(e *env) *http.Request { return e.post("/pay", pay) }, keyring.ErrInvalid, "UTF-8"},
		{"a name that is too long", keyring.Ref{Name: strings.Repeat("x", 1025)}, client.Options{}, func(e *env) *http.Request { return e.post("/pay", pay) }, keyring.ErrInvalid, "1024"},
		{"no request", keyring.Ref{Name: "a"}, client.Options{}, func(*env) *http.Request { return nil }, keyring.ErrInvalid, "nil"},
		{"a URL without a host", keyring.Ref{Name: "a"}, client.Options{}, func(e *env) *http.Request { return req(e, func(r *http.Request) { r.URL.Host, r.Host = "", "" }) }, keyring.ErrInvalid, "https://"},
		{"a URL of another kind", keyring.Ref{Name: "a"}, client.Options{}, func(e *env) *http.Request { return req(e, func(r *http.Request) { r.URL.Scheme = "ftp" }) }, keyring.ErrInvalid, "http"},
		{"a Host of its own", keyring.Ref{Name: "a"}, client.Options{}, func(e *env) *http.Request { return req(e, func(r *http.Request) { r.Host = "evil.test" }) }, keyring.ErrInvalid, "Host"},
		{"trailers", keyring.Ref{Name: "a"}, client.Options{}, func(e *env) *http.Request {
			return req(e, func(r *http.Request) { r.Trailer = http.Header{"X": {"1"}} })
		}, keyring.ErrInvalid, "trailers"},
		{"a method that is none", keyring.Ref{Name: "a"}, client.Options{}, func(e *env) *http.Request { return req(e, func(r *http.Request) { r.Method = "PO ST" }) }, keyring.ErrInvalid, "method"},
		{"a header with a line break", keyring.Ref{Name: "a"}, client.Options{}, func(e *env) *http.Request {
			return req(e, func(r *http.Request) { r.Header.Set("X-A", "SECRET\r\nX-B: 1") })
		}, keyring.ErrInvalid, "X-A"},
		{"a key that is none", keyring.Ref{Name: "a"}, client.Options{}, func(e *env) *http.Request {
			return req(e, func(r *http.Request) { r.Header.Set("Idempotency-Key", "SECRET with spaces") })
		}, keyring.ErrInvalid, "Idempotency-Key"},
		{"two keys", keyring.Ref{Name: "a"}, client.Options{}, func(e *env) *http.Request {
			return req(e, func(r *http.Request) { r.Header["Idempotency-Key"] = []string{"a", "b"} })
		}, keyring.ErrInvalid, "Idempotency-Key"},
		{"a foreign origin", keyring.Ref{Name: "a"}, client.Options{Origins: []string{"https://api.example.com"}}, func(e *env) *http.Request { return e.post("/pay?x=SECRET", pay) }, client.ErrOrigin, "http://box.test"},
		{"an origin that is none", keyring.Ref{Name: "a"}, client.Options{Origins: []string{"api.example.com/v1"}}, func(e *env) *http.Request { return e.post("/pay", pay) }, keyring.ErrInvalid, "origin"},
		{"a negative bound", keyring.Ref{Name: "a"}, client.Options{MaxBody: -1}, func(e *env) *http.Request { return e.post("/pay", pay) }, keyring.ErrInvalid, "negative"},
		{"a lease that is too short", keyring.Ref{Name: "a"}, client.Options{Keyring: keyring.Options{Lease: time.Second}}, func(e *env) *http.Request { return e.post("/pay", pay) }, keyring.ErrInvalid, "Lease"},
		{"settings that contradict each other", keyring.Ref{Name: "a"}, client.Options{AttemptTimeout: time.Second, Keyring: keyring.Options{AttemptTimeout: time.Minute}}, func(e *env) *http.Request { return e.post("/pay", pay) }, keyring.ErrInvalid, "AttemptTimeout"},
		{"a policy that cannot be", keyring.Ref{Name: "a"}, client.Options{Retry: retry.Exponential{MaxAttempts: -1}}, func(e *env) *http.Request { return e.post("/pay", pay) }, keyring.ErrInvalid, "MaxAttempts"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			e := start(t, dedup(t), nil, c.opts)
			res, err := e.client.Do(e.ctx, c.ref, c.req(e))
			if res != nil || !errors.Is(err, c.want) {
				t.Fatalf("%v, %v; want %v", res, err, c.want)
			}
			if !strings.Contains(err.Error(), c.says) || strings.Contains(err.Error(), "SECRET") {
				t.Errorf("the error should speak of %q and quote nothing: %v", c.says, err)
			}
			var ce *client.Error
			if !errors.As(err, &ce) {
				t.Errorf("%T is not a *client.Error", err)
			}
			for rec, err := range e.store.Scan(e.ctx, keyring.Query{AllScopes: true}) {
				t.Errorf("something was stored: %v %v", rec.Ref, err)
			}
			e.want(counts{})
		})
	}
	for claim, c := range map[string]*client.Client{
		"no store":             client.New(nil, dedup(t), nil),
		"an empty profile":     client.New(keyringtest.NewStore(), provider.Profile{}, nil),
		"a draft that is none": client.New(keyringtest.NewStore(), provider.Draft(-1, "POST /x"), nil),
	} {
		if _, err := c.Do(t.Context(), keyring.Ref{Name: "a"}, nil); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", claim, err)
		}
		if _, err := c.Send(t.Context(), keyring.Ref{Name: "a"}); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", claim, err)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("%s: closing: %v", claim, err)
		}
	}
}

func TestACallersOwnKeyIsBoundLikeAMintedOne(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	own := func(key string) *http.Request {
		r := e.post("/pay", pay)
		r.Header.Set("Idempotency-Key", key)
		return r
	}
	res, err := e.do("inv-7", own("my-key-1"))
	e.state(res, err, keyring.StateDone)
	if e.srv.Keys()[0] != "my-key-1" || res.Intent.Key.String() != "my-key-1" {
		t.Errorf("the wire had %q, the record %q", e.srv.Keys()[0], res.Intent.Key)
	}
	var ke *keyring.Error
	if _, err := e.do("inv-7", own("my-key-2")); !errors.As(err, &ke) || fmt.Sprint(ke.Fields) != "[key]" {
		t.Errorf("%v, want ErrDiffers in the key", err)
	}
	res, err = e.do("inv-7", e.post("/pay", pay)) // without one, the one on record is meant
	e.state(res, err, keyring.StateDone)
	e.want(counts{1, 1, 1, 1})
}

func TestAuthorizeMayOnlyAdd(t *testing.T) {
	for claim, change := range map[string]func(*http.Request){
		"the method":         func(r *http.Request) { r.Method = "PUT" },
		"the host":           func(r *http.Request) { r.URL.Host = "evil.test" },
		"the path":           func(r *http.Request) { r.URL.Path = "/other" },
		"a parameter":        func(r *http.Request) { r.URL.RawQuery = "x=2" },
		"a header":           func(r *http.Request) { r.Header.Set("X-Account", "other") },
		"a header's end":     func(r *http.Request) { r.Header.Add("X-Account", "other") },
		"a header away":      func(r *http.Request) { r.Header.Del("X-Account") },
		"one more header":    func(r *http.Request) { r.Header.Set("Stripe-Account", "v1") },
		"an encoding":        func(r *http.Request) { r.Header.Set("Content-Encoding", "gzip") },
		"a second key":       func(r *http.Request) { r.Header["idempotency-key"] = []string{"other"} },
		"a second type":      func(r *http.Request) { r.Header["content-type"] = []string{"text/plain"} },
		"one more parameter": func(r *http.Request) { r.URL.RawQuery += "&a=2" },
		"the key":            func(r *http.Request) { r.Header.Set("Idempotency-Key", "other") },
		"the key away":       func(r *http.Request) { r.Header.Del("Idempotency-Key") },
	} {
		t.Run(claim, func(t *testing.T) {
			e := start(t, dedup(t), nil, client.Options{Authorize: func(_ context.Context, r *http.Request) error { change(r); return nil }})
			r := e.post("/pay?x=1", pay)
			r.Header.Set("X-Account", "acct_9")
			res, err := e.do("inv-7", r)
			e.state(res, err, keyring.StateNeverSent)
			if !errors.Is(err, keyring.ErrInvalid) || !errors.Is(err, client.ErrNotSent) {
				t.Errorf("%v", err)
			}
			e.want(counts{})
		})
	}
	e := start(t, dedup(t), nil, client.Options{Authorize: func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer secret-1")
		r.URL.RawQuery += "&sig=secret-2"
		r.Body = http.NoBody // a copy: what is sent is on record
		return nil
	}})
	res, err := e.do("inv-7", e.post("/pay?x=1", pay))
	e.state(res, err, keyring.StateDone)
	if s := e.srv.Requests()[0]; s.Query != "x=1&sig=secret-2" || s.BodyDigest != digest([]byte(pay)) {
		t.Errorf("%+v", s)
	}
	e.storeHolds(t, "secret", false)

	denied := errors.New("the token cannot be had")
	e = start(t, dedup(t), nil, client.Options{Authorize: func(context.Context, *http.Request) error { return denied }})
	res, err = e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateNeverSent)
	if !errors.Is(err, denied) || e.srv.Hits() != 0 {
		t.Errorf("%v after %d hits", err, e.srv.Hits())
	}
}

func TestDeclaredCredentialsAreNotStoredAndMayBeAdded(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{
		Credentials: []string{"X-Shop", "shop_id"},
		Authorize: func(_ context.Context, r *http.Request) error {
			r.Header.Set("x-shop", "secret-1")
			r.URL.RawQuery = "shop_id=secret-2"
			return nil
		},
	})
	req := e.post("/pay?shop_id=secret-3", pay)
	req.Header.Set("X-Shop", "secret-4")
	res, err := e.do("inv-7", req)
	if !errors.Is(err, keyring.ErrInvalid) { // two hands on one header: Authorize may not replace the caller's
		_ = e.state(res, err, keyring.StateDone)
	}
	e.storeHolds(t, "secret", false)
}

func TestAnUnboundedBodyIsReadWhole(t *testing.T) {
	for _, body := range []io.Reader{strings.NewReader(pay), newOnce([]byte(pay))} {
		e := start(t, dedup(t), nil, client.Options{MaxBody: math.MaxInt64, MaxAnswer: math.MaxInt64})
		res, err := e.do("inv-7", e.request("POST", "/pay", body))
		e.state(res, err, keyring.StateDone)
		if e.srv.Bodies()[0] != digest([]byte(pay)) {
			t.Error("another body arrived")
		}
	}
}

// What this very call names may be sent to, with or without credentials on the
// request itself.
func TestASecondDoSendsToWhereItSays(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Retry: quick(1), Authorize: func(_ context.Context, r *http.Request) error {
		r.Header.Set("Authorization", "Bearer x")
		return nil
	}})
	e.srv.Script(clienttest.LoseAnswer())
	res, err := e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateUnknown)
	time.Sleep(time.Until(res.Outcome.NotBefore))
	res, err = e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 1, 1, 1})
}

func TestStricterTermsShowInTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{MaxAttempts: 1}})
		e.srv.Script(clienttest.LoseAnswer())
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		time.Sleep(2 * time.Hour)
		p, err := provider.New(provider.Spec{Name: "box", Endpoints: []provider.Endpoint{{Pattern: "POST /pay", Terms: keyring.Terms{Dedup: keyring.DedupKey, Retention: time.Hour}}}})
		if err != nil {
			t.Fatal(err)
		}
		e.profile = p
		e.restart(nil)
		res, err = e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateExpired)
		if !errors.Is(err, client.ErrExpired) || !res.Outcome.NeedsInspection {
			t.Errorf("%v", err)
		}
		e.want(counts{1, 1, 1, 1})
	})
}

func TestAClientThatWasNotMadeRefuses(t *testing.T) {
	var zero client.Client
	if _, err := zero.Do(t.Context(), keyring.Ref{Name: "a"}, nil); !errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("%v", err)
	}
	if err := zero.Close(t.Context()); err != nil {
		t.Error(err)
	}
	var none *keyringtest.Store
	c := client.New(none, dedup(t), nil)
	if _, err := c.Send(t.Context(), keyring.Ref{Name: "a"}); !errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("a nil store: %v", err)
	}
	for _, err := range c.Ring().List(t.Context(), keyring.Query{}) {
		if !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("listing: %v", err)
		}
	}
}

func TestAccessIsAskedBeforeSendingAndBeforeHandingOut(t *testing.T) {
	denied := errors.New("not yours")
	var mu sync.Mutex
	allowed := true
	e := start(t, dedup(t), nil, client.Options{Access: func(_ context.Context, in keyring.Intent) error {
		mu.Lock()
		defer mu.Unlock()
		if !allowed {
			return denied
		}
		return nil
	}})
	set := func(b bool) { mu.Lock(); defer mu.Unlock(); allowed = b }
	no := func(res any, err error) {
		t.Helper()
		if !errors.Is(err, denied) || client.OutcomeOf(err).State == keyring.StateDone || client.OutcomeOf(err).Verdict.EffectID != "" {
			t.Errorf("%v, %v; want the refusal and nothing else", res, err)
		}
	}
	set(false)
	res, err := e.do("inv-7", e.post("/pay", pay))
	no(res, err)
	e.want(counts{})
	if _, err := e.client.Ring().Get(e.ctx, keyring.Ref{Name: "inv-7"}); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("something was stored: %v", err)
	}
	set(true)
	res, err = e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateDone)
	set(false) // permissions changed
	res, err = e.do("inv-7", e.post("/pay", pay))
	no(res, err)
	if res != nil {
		t.Error("a result was handed out")
	}
	res, err = e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
	no(res, err)
	in, err := e.client.Begin(e.ctx, keyring.Ref{Name: "inv-7"}, e.post("/pay", pay))
	no(in, err)
	if in.Answer != nil || in.Request.Body != nil {
		t.Error("the record was handed out")
	}
	res, err = e.do("inv-7", e.post("/pay", "{}"))
	no(res, err)
	if errors.Is(err, keyring.ErrDiffers) {
		t.Errorf("%v tells what is on record to somebody who may not see it", err)
	}
	if strings.Contains(err.Error(), denied.Error()) {
		t.Errorf("%v quotes the application's error", err)
	}
	e.want(counts{1, 1, 1, 1})
}

func TestScopesDoNotSeeEachOther(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	for _, scope := range []string{"acct_1", "acct_2", ""} {
		res, err := e.client.Do(e.ctx, keyring.Ref{Scope: scope, Name: "inv-7"}, e.post("/pay", fmt.Sprintf(`{"scope":%q}`, scope)))
		e.state(res, err, keyring.StateDone)
	}
	e.want(counts{3, 3, 3, 3})
}

func TestAnIntentOfAnotherProfileIsNotSent(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: "inv-7"}, e.post("/pay", pay)); err != nil {
		t.Fatal(err)
	}
	e.profile = provider.Draft(time.Hour, "POST /pay")
	e.restart(nil)
	res, err := e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
	e.state(res, err, keyring.StateNeverSent)
	if !errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("%v, want ErrInvalid", err)
	}
	if _, err := e.client.Send(e.ctx, keyring.Ref{Name: "other"}); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	e.want(counts{})
}

func TestOutcomeOfAlwaysHasAnAnswer(t *testing.T) {
	for _, err := range []error{nil, errors.New("x"), context.Canceled, keyring.ErrFull, &keyring.Error{Op: "begin", Err: keyring.ErrStale}} {
		if o := client.OutcomeOf(err); o.State != keyring.StateUnknown {
			t.Errorf("%v: %s, want unknown", err, o.State)
		}
	}
	e := start(t, dedup(t), nil, client.Options{})
	e.srv.Script(clienttest.Pending(409).Forever())
	_, err := e.do("inv-7", e.post("/pay", pay))
	wrapped := fmt.Errorf("charging: %w", err)
	if o := client.OutcomeOf(wrapped); o.State != keyring.StatePending || !errors.Is(wrapped, client.ErrPending) {
		t.Errorf("%v: %s", wrapped, o.State)
	}
}

func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{})
		e.srv.Script(clienttest.Normal().Work(5 * time.Second))
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, keyring.StateDone)
		})
		time.Sleep(time.Second)
		if err := e.client.Close(e.ctx); err != nil {
			t.Errorf("closing: %v", err)
		}
		if in := e.get("inv-7"); in.State != keyring.StateDone {
			t.Errorf("after Close: %s", in.State)
		}
		wg.Wait()
		if err := e.client.Close(e.ctx); err != nil {
			t.Errorf("closing again: %v", err)
		}
		if _, err := e.do("inv-8", e.post("/pay", pay)); !errors.Is(err, keyring.ErrClosed) {
			t.Errorf("after Close: %v, want ErrClosed", err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{})
		e.srv.Script(clienttest.StallAfter())
		var wg sync.WaitGroup
		wg.Go(func() {
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, keyring.StateUnknown)
			if !errors.Is(err, keyring.ErrClosed) {
				t.Errorf("%v, want ErrClosed too", err)
			}
		})
		time.Sleep(time.Second)
		ctx, cancel := context.WithTimeout(e.ctx, 2*time.Second)
		defer cancel()
		if err := e.client.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("closing: %v, want the context's error", err)
		}
		if in := e.get("inv-7"); in.State != keyring.StateUnknown || len(in.Attempts) != 1 || in.Attempts[0].End.IsZero() {
			t.Errorf("after Close: %s, attempts %+v", in.State, in.Attempts)
		}
		wg.Wait()
	})
}

func TestNoGoroutineIsLeft(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	e := sockets(t, dedup(t), nil, client.Options{}, false)
	for i := range 20 {
		if _, err := e.do(fmt.Sprint("inv-", i), e.post("/pay", pay)); err != nil {
			t.Fatal(err)
		}
	}
	e.client.Close(e.ctx)
	e.srv.Close()
}

func TestTheLogHoldsNoSecret(t *testing.T) {
	var log bytes.Buffer
	e := start(t, dedup(t), nil, client.Options{Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	e.srv.Script(clienttest.LoseAnswer(), clienttest.Answer(503, clienttest.JSON(), []byte(`{"m":"body-secret"}`)))
	req := e.post("/pay?api_key=q-secret&note=v-secret", `{"card":"body-secret"}`)
	req.Header.Set("Authorization", "Bearer h-secret")
	res, err := e.do("inv-7", req)
	e.state(res, err, keyring.StateDone)
	if strings.Contains(log.String(), "secret") {
		t.Errorf("the log holds a secret:\n%s", log.String())
	}
	for _, want := range []string{"inv-7", res.Intent.Key.String(), "verdict=unclear", "verdict=done", "status=503", "state=done", "source=replay", "reason="} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("the log does not say %s:\n%s", want, log.String())
		}
	}
}

func TestAPanicOfTheApplicationsCodeIsRecorded(t *testing.T) {
	for _, c := range []struct {
		claim  string
		want   keyring.State
		change func(*client.Options)
	}{
		{"in Authorize", keyring.StateNeverSent, func(o *client.Options) { o.Authorize = func(context.Context, *http.Request) error { panic("boom") } }},
		{"in Access, after the record", keyring.StateNeverSent, func(o *client.Options) {
			o.Access = func(_ context.Context, in keyring.Intent) error {
				if !in.Key.IsZero() {
					panic("boom")
				}
				return nil
			}
		}},
		{"in a hook, before the sending", keyring.StateNeverSent, func(o *client.Options) {
			o.Hooks = &client.Hooks{Attempt: func(context.Context, client.Event) { panic("boom") }}
		}},
		{"in the policy", keyring.StateUnknown, func(o *client.Options) { o.Retry = policy(func(retry.Progress) retry.Decision { panic("boom") }) }},
	} {
		t.Run(c.claim, func(t *testing.T) {
			e := start(t, dedup(t), nil, client.Options{})
			e.srv.Script(clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)))
			good := e.client
			e.restart(c.change)
			func() {
				defer func() {
					if recover() == nil {
						t.Error("the panic is swallowed")
					}
				}()
				_, _ = e.do("inv-7", e.post("/pay", pay))
			}()
			if in := e.get("inv-7"); in.State != c.want || in.HeldBy != "" {
				t.Errorf("%s, held by %q, want %s", in.State, in.HeldBy, c.want)
			}
			if err := e.client.Close(e.ctx); err != nil {
				t.Errorf("closing: %v", err)
			}
			e.client = good
			e.srv.Unscript()
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, keyring.StateDone)
			if len(e.srv.Keys()) != 1 || e.srv.Effects() != 1 {
				t.Error(e.srv)
			}
		})
	}
}

type policy func(retry.Progress) retry.Decision

func (f policy) Next(p retry.Progress) retry.Decision { return f(p) }

// TestWhoeverWaitsGoesOnWhenTheSenderDies: a sender whose session ends while
// others wait for it leaves the sending to one of them.
func TestWhoeverWaitsGoesOnWhenTheSenderDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{}})
		ref := keyring.Ref{Name: "inv-7"}
		in, err := e.client.Begin(e.ctx, ref, e.post("/pay", pay))
		if err != nil {
			t.Fatal(err)
		}
		h, err := e.client.Ring().Acquire(e.ctx, ref, keyring.Current{Terms: in.Terms})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := h.Start(e.ctx); err != nil { // and is never heard of again
			t.Fatal(err)
		}
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateDone)
		if len(res.Intent.Attempts) != 2 {
			t.Errorf("%d attempts", len(res.Intent.Attempts))
		}
		e.want(counts{1, 1, 1, 1})
	})
}
