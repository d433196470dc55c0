package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

// TestC23: a redirect turned the POST into a GET. The rest of its kind is in
// packages wire and provider.
func TestC23ARedirectIsDoubtAndIsNotFollowed(t *testing.T) {
	for _, status := range []int{301, 302, 303} {
		e := start(t, dedup(t), nil, client.Options{})
		e.srv.Script(clienttest.Redirect(status, "http://box.test/pay/"))
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		if !res.Outcome.NeedsInspection || res.Answer.Header.Get("Location") == "" {
			t.Errorf("%d: needs inspection %v, answer %+v", status, res.Outcome.NeedsInspection, res.Answer)
		}
		if _, err := e.do("inv-7", e.post("/pay", pay)); !errors.Is(err, keyring.ErrNeedsInspection) {
			t.Errorf("%d: %v, want ErrNeedsInspection", status, err)
		}
		e.want(counts{1, 0, 1, 1})
	}
}

// TestC27: a loop around a loop.
func TestC27OneLoopAndNoSendingWithinTheBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{MaxAttempts: 3}})
		e.srv.Script(clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)).Forever())
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		e.want(counts{3, 0, 1, 1})
		if len(res.Intent.Attempts) != 3 {
			t.Errorf("%d attempts on record", len(res.Intent.Attempts))
		}
		for range 5 {
			res, err = e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
			if !errors.Is(err, keyring.ErrTooSoon) || !errors.Is(err, client.ErrUnknown) || !res.Outcome.NotBefore.After(time.Now()) {
				t.Fatalf("%v, not before %v; want ErrTooSoon", err, res.Outcome.NotBefore)
			}
		}
		e.want(counts{3, 0, 1, 1})

		// A restart changes nothing about it, and the total goes on.
		e.restart(nil)
		if _, err := e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"}); !errors.Is(err, keyring.ErrTooSoon) {
			t.Errorf("%v after a restart, want ErrTooSoon", err)
		}
		time.Sleep(time.Until(res.Outcome.NotBefore))
		e.srv.Unscript()
		res, err = e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
		e.state(res, err, keyring.StateDone)
		if n := len(res.Intent.Attempts); n != 4 || res.Intent.Attempts[3].Number != 4 {
			t.Errorf("%d attempts on record, want 4", n)
		}
		e.want(counts{4, 1, 1, 1})
	})
}

// TestC33: a sign-in page with status 200.
func TestC33APageThatIsNotTheProvidersIsDoubt(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Retry: quick(1)})
	e.srv.Script(clienttest.Answer(200, http.Header{"Content-Type": {"text/html"}}, []byte("<html>csrf=ABC123</html>")))
	res, err := e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateUnknown)
	if strings.Contains(err.Error(), "ABC123") {
		t.Errorf("the error quotes the page: %v", err)
	}
	time.Sleep(time.Until(res.Outcome.NotBefore))
	res, err = e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 1, 1, 1})
}

// TestC35: a reply cut off in the middle.
func TestC35ACutAnswerIsNotTakenForAWholeOne(t *testing.T) {
	bothProtocols(t, func(t *testing.T, h2 bool) {
		t.Run("with de-duplication the answer is fetched under the same key", func(t *testing.T) {
			e := sockets(t, dedup(t), nil, client.Options{}, h2)
			e.srv.Script(clienttest.CutAnswer(13))
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, keyring.StateDone)
			e.want(counts{2, 1, 1, 1})
			if res.Outcome.Source != keyring.SourceReplay || res.Outcome.Verdict.Unreadable || !strings.Contains(string(res.Answer.Body), `"eff_1"`) || res.Outcome.Broken {
				t.Errorf("%+v, answer %q", res.Outcome, res.Answer.Body)
			}
		})
		t.Run("without it nothing is sent again", func(t *testing.T) {
			e := sockets(t, nodedup(t), &clienttest.Options{NoDedup: true}, client.Options{}, h2)
			e.srv.Script(clienttest.CutAnswer(13))
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, keyring.StateDone)
			if !res.Outcome.Verdict.Unreadable || !res.Outcome.NeedsInspection {
				t.Errorf("%+v, want an unreadable answer and a look", res.Outcome)
			}
			res, err = e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, keyring.StateDone)
			e.want(counts{1, 1, 1, 1})
		})
	})
	t.Run("an answer over the bound", func(t *testing.T) {
		big := make([]byte, 11<<20)
		for i := range big {
			big[i] = ' '
		}
		e := sockets(t, nodedup(t), &clienttest.Options{NoDedup: true, Act: func(clienttest.Seen) (int, http.Header, []byte) {
			return 201, clienttest.JSON(), big
		}}, client.Options{}, false)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateDone)
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 16<<20 {
			t.Errorf("%d bytes of memory are kept", grown)
		}
		if !res.Outcome.Verdict.Unreadable || len(res.Answer.Body) > 64<<10 {
			t.Errorf("unreadable %v, %d bytes of it stored", res.Outcome.Verdict.Unreadable, len(res.Answer.Body))
		}
		e.want(counts{1, 1, 1, 1})
	})
}

// TestC37: "this key was used with other parameters" had no type of its own.
func TestC37AConflictIsATypedOutcome(t *testing.T) {
	problem := http.Header{"Content-Type": {"application/problem+json"}, "Request-Id": {"req-9"}}
	json := http.Header{"Content-Type": {"application/json"}, "Request-Id": {"req-9"}}
	for _, c := range []struct {
		claim  string
		status int
		header http.Header
		body   string
		want   keyring.State
	}{
		{"idempotency_error", 400, json, `{"error":{"type":"idempotency_error"}}`, keyring.StateConflict},
		{"a problem type", 422, problem, `{"type":"https://errors.example/idempotency-key-reused"}`, keyring.StateConflict},
		{"idempotency_conflict", 409, json, `{"code":"idempotency_conflict"}`, keyring.StateConflict},
		{"IdempotentParameterMismatch", 400, json, `{"__type":"IdempotentParameterMismatch"}`, keyring.StateConflict},
		{"a 409 with an unknown code is doubt", 409, json, `{"code":"whatever"}`, keyring.StateUnknown},
		{"a 409 without a code is doubt", 409, json, `{}`, keyring.StateUnknown},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{}})
				e.srv.Script(clienttest.Answer(c.status, c.header, []byte(c.body)).Forever())
				began := time.Now()
				res, err := e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, c.want)
				if c.want != keyring.StateConflict {
					if errors.Is(err, client.ErrConflict) || errors.Is(err, client.ErrPending) {
						t.Errorf("%v: an unknown code is neither a conflict nor pending", err)
					}
					return
				}
				e.want(counts{1, 0, 1, 1})
				if waited := time.Since(began); waited != 0 {
					t.Errorf("waited %v of the test's clock", waited)
				}
				v := res.Outcome.Verdict
				if v.Status != c.status || v.Code == "" || v.RequestID != "req-9" || res.Intent.FirstSent.IsZero() || res.Intent.Fingerprint.IsZero() {
					t.Errorf("the outcome lacks evidence: %+v, first sent %v", v, res.Intent.FirstSent)
				}
				if !errors.Is(err, client.ErrConflict) || !errors.Is(err, keyring.ErrNeedsInspection) {
					t.Errorf("%v, want ErrConflict and ErrNeedsInspection", err)
				}
				key := e.get("inv-7").Key
				_, _ = e.do("inv-7", e.post("/pay", pay))
				if e.get("inv-7").Key != key || e.srv.Hits() != 1 {
					t.Error("a second key, or a second hit")
				}
			})
		})
	}
}

// TestC65: the last reply thrown away when attempts run out. The long run over
// sockets is in the root package.
func TestC65TheLastAnswerIsKeptAndCanBeReadAgain(t *testing.T) {
	synctest.Test(t, theLastAnswerIsKept)
}

func theLastAnswerIsKept(t *testing.T) {
	e := start(t, dedup(t), &clienttest.Options{Fault: func(s clienttest.Seen) clienttest.Fault {
		h := http.Header{"Content-Type": {"application/json"}, "Request-Id": {"r-" + string(rune('0'+s.N))}, "Set-Cookie": {"a=secret"}}
		return clienttest.Answer(500, h, []byte(`{"code":"x"}`))
	}}, client.Options{})
	res, err := e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateUnknown)
	if res.Outcome.Verdict.RequestID != "r-3" || res.Outcome.Verdict.Code != "x" || !strings.Contains(err.Error(), "r-3") {
		t.Errorf("verdict %+v, error %v", res.Outcome.Verdict, err)
	}
	for range 2 {
		resp := res.Response()
		body, rerr := io.ReadAll(resp.Body)
		resp.Body.Close()
		if rerr != nil || string(body) != `{"code":"x"}` || resp.StatusCode != 500 || resp.Header.Get("Request-Id") != "r-3" {
			t.Errorf("%d %q %v %v", resp.StatusCode, body, resp.Header, rerr)
		}
	}
	e.storeHolds(t, "secret", false)
	e.restart(nil)
	res, _ = e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"})
	if res.Answer == nil || string(res.Answer.Body) != `{"code":"x"}` {
		t.Error("the answer is not in the record")
	}

	// An attempt without an answer does not take the evidence away.
	time.Sleep(time.Until(res.Outcome.NotBefore))
	o := e.opts
	o.Transport = failing{}
	res, _ = client.New(e.store, e.profile, &o).Send(e.ctx, keyring.Ref{Name: "inv-7"})
	if res.Answer == nil || res.Intent.AnswerOf != 3 || len(res.Intent.Attempts) < 4 {
		t.Errorf("answer %v of attempt %d, %d attempts", res.Answer, res.Intent.AnswerOf, len(res.Intent.Attempts))
	}
}

// failing is a transport that fails without a trace of what it did.
type failing struct{}

func (failing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("something SECRET went wrong")
}

func TestDoubtIsTheDefault(t *testing.T) {
	for _, c := range []struct {
		claim     string
		transport http.RoundTripper
	}{
		{"a transport that only says that it failed", failing{}},
		{"a transport that returns nothing", transport(func(*http.Request) (*http.Response, error) { return nil, nil })},
		{"a transport that panics", transport(func(*http.Request) (*http.Response, error) { panic("SECRET") })},
		{"a status that does not exist", transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 799, Body: io.NopCloser(strings.NewReader("SECRET"))}, nil
		})},
		{"a status below all", transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 7, Body: http.NoBody}, nil
		})},
		{"a status of nothing", transport(func(*http.Request) (*http.Response, error) {
			return &http.Response{Body: http.NoBody}, nil
		})},
	} {
		t.Run(c.claim, func(t *testing.T) {
			for _, p := range []provider.Profile{dedup(t), nodedup(t)} {
				e := start(t, p, nil, client.Options{Transport: c.transport, Retry: quick(2)})
				res, err := e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, keyring.StateUnknown)
				if strings.Contains(err.Error(), "SECRET") {
					t.Errorf("the error quotes the transport: %v", err)
				}
				want := 2
				if p.Terms("POST", "http://box.test/pay").Dedup == keyring.DedupNone {
					want = 1
				}
				if len(res.Intent.Attempts) != want {
					t.Errorf("%d attempts, want %d", len(res.Intent.Attempts), want)
				}
			}
		})
	}
}

type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func TestTheContextEndsACallAndNotItsRecord(t *testing.T) {
	for _, c := range []struct {
		claim string
		fault clienttest.Fault
		after time.Duration
		want  keyring.State
	}{
		{"before anything is sent", clienttest.Normal(), 0, keyring.StateNeverSent},
		{"while the provider is at it", clienttest.StallAfter(), time.Second, keyring.StateUnknown},
		{"between two attempts", clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)), 1100 * time.Millisecond, keyring.StateUnknown},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				// The first wait lies between one and two seconds, so that a context
				// with a deadline would be seen coming: cancel without warning.
				e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{MinWait: 2 * time.Second}})
				e.srv.Script(c.fault)
				ctx, cancel := context.WithCancel(e.ctx)
				defer cancel()
				var res *client.Result
				var err error
				if c.after == 0 {
					hooked := e.opts
					hooked.Access = func(_ context.Context, in keyring.Intent) error {
						if !in.Key.IsZero() { // after the record, before the sending
							cancel()
						}
						return nil
					}
					res, err = client.New(e.store, e.profile, &hooked).Do(ctx, keyring.Ref{Name: "inv-7"}, e.post("/pay", pay))
				} else {
					time.AfterFunc(c.after, cancel)
					res, err = e.client.Do(ctx, keyring.Ref{Name: "inv-7"}, e.post("/pay", pay))
				}
				e.state(res, err, c.want)
				if !errors.Is(err, context.Canceled) {
					t.Errorf("%v, want the context's error too", err)
				}
				if in := e.get("inv-7"); in.HeldBy != "" || in.State != c.want {
					t.Errorf("on record: %s, held by %q", in.State, in.HeldBy)
				}
				if c.want == keyring.StateUnknown && c.fault.String() != clienttest.StallAfter().String() && res.Answer == nil {
					t.Error("the last answer is lost")
				}
				e.srv.Release()
				time.Sleep(time.Minute)
				res, err = e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, keyring.StateDone)
				if e.srv.Effects() != 1 || len(e.srv.Keys()) != 1 {
					t.Errorf("%s", e.srv)
				}
			})
		})
	}
}
