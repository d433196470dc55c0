package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
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

// What breaking found, each as a test.

func settling(t *testing.T, settle time.Duration) provider.Profile {
	t.Helper()
	p, err := provider.New(provider.Spec{Name: "box", Endpoints: []provider.Endpoint{{Pattern: "POST /pay", NoKey: true, Terms: keyring.Terms{Settle: settle}}}})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestALookCountsByTheStricterSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		absent := keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
			return keyring.Finding{Kind: keyring.FindingAbsent}, nil
		})
		e := start(t, settling(t, time.Second), &clienttest.Options{NoDedup: true}, client.Options{Retry: retry.Exponential{}})
		e.srv.Script(clienttest.LoseAnswer())
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		time.Sleep(5 * time.Minute)
		e.profile = settling(t, 2*time.Hour)
		e.restart(func(o *client.Options) { o.Inspector = absent })
		for _, call := range []func() error{
			func() error { _, err := e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"}); return err },
			func() error { _, err := e.client.Inspect(e.ctx, keyring.Ref{Name: "inv-7"}); return err },
		} {
			if err := call(); !errors.Is(err, keyring.ErrTooSoon) {
				t.Errorf("%v, want ErrTooSoon", err)
			}
		}
		if res, err := e.client.Send(e.ctx, keyring.Ref{Name: "inv-7"}); res == nil || !res.Outcome.NotBefore.After(time.Now()) {
			t.Errorf("%v: the outcome does not say when to look again", err)
		}
		e.want(counts{1, 1, 0, 1})
	})
}

func TestAProgramsAttestIsNoPersons(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{MaxAttempts: 1}, Inspector: keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent})})
		e.srv.Script(clienttest.Pending(409))
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StatePending)
		time.Sleep(time.Hour)
		seen, err := e.client.Inspect(e.ctx, keyring.Ref{Name: "inv-7"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := e.client.Rekey(e.ctx, seen, e.post("/pay", pay)); !errors.Is(err, keyring.ErrNeedsInspection) {
			t.Errorf("%v: another key after a program's look at what was pending", err)
		}
	})
}

func TestAnIdentityThatChangesBetweenAttemptsSendsNothing(t *testing.T) {
	who := "alice"
	e := start(t, dedup(t), nil, client.Options{
		Credential: func(context.Context) (string, error) { return who, nil },
		Authorize: func(_ context.Context, r *http.Request) error {
			r.Header.Set("Authorization", "Bearer "+who)
			return nil
		},
	})
	e.srv.Script(clienttest.LoseAnswer(), clienttest.Answer(401, clienttest.JSON(), []byte(`{}`)))
	o := e.opts
	attempts := 0
	o.Authorize = func(_ context.Context, r *http.Request) error {
		if attempts++; attempts > 2 { // told that it was turned away, it signs somebody else in
			who = "bob"
		}
		r.Header.Set("Authorization", "Bearer "+who)
		return nil
	}
	res, err := client.New(e.store, e.profile, &o).Do(e.ctx, keyring.Ref{Name: "inv-7"}, e.post("/pay", pay))
	e.state(res, err, keyring.StateUnknown)
	for _, s := range e.srv.Requests() {
		if s.Header.Get("Authorization") != "Bearer alice" {
			t.Errorf("hit %d went out as %s", s.N, s.Header.Get("Authorization"))
		}
	}
	res, err = e.do("inv-7", e.post("/pay", pay))
	if !errors.Is(err, keyring.ErrNeedsInspection) || !res.Outcome.NeedsInspection {
		t.Errorf("%v as bob, with doubt from alice", err)
	}
	if e.srv.Effects() != 1 {
		t.Error(e.srv)
	}
}

func TestErrorsOfTheOptionsAreNotQuoted(t *testing.T) {
	secret := &url.Error{Op: "Get", URL: "http://x.test/?api_key=SECRET", Err: errors.New("refused")}
	for claim, change := range map[string]func(*client.Options){
		"Credential": func(o *client.Options) { o.Credential = func(context.Context) (string, error) { return "", secret } },
		"Authorize":  func(o *client.Options) { o.Authorize = func(context.Context, *http.Request) error { return secret } },
		"Access":     func(o *client.Options) { o.Access = func(context.Context, keyring.Intent) error { return secret } },
		"Inspector": func(o *client.Options) {
			o.Inspector = keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) { return keyring.Finding{}, secret })
		},
	} {
		t.Run(claim, func(t *testing.T) {
			e := start(t, nodedup(t), &clienttest.Options{NoDedup: true}, client.Options{})
			e.srv.Script(clienttest.LoseAnswer())
			e.restart(change)
			_, err := e.do("inv-7", e.post("/pay", pay))
			var ue *url.Error
			if !errors.As(err, &ue) || !strings.Contains(err.Error(), "Options."+claim) {
				t.Errorf("%v does not lead to its cause", err)
			}
			if strings.Contains(fmt.Sprintf("%v %+v %q", err, err, err), "SECRET") {
				t.Errorf("%v quotes it", err)
			}
		})
	}
}

func TestNothingTellsWhetherARefIsTaken(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Retry: quick(1)})
	e.srv.Script(clienttest.LoseAnswer())
	_, _ = e.do("taken", e.post("/pay", pay))
	e.restart(func(o *client.Options) {
		o.Origins = []string{"http://box.test"}
		o.MaxBody = 1 << 10
		o.Access = func(context.Context, keyring.Intent) error { return errors.New("no") }
	})
	over, cancel := context.WithCancel(e.ctx)
	cancel()
	foreign := func() *http.Request {
		r := e.post("/pay", pay)
		r.URL.Host, r.Host = "evil.test", "evil.test"
		return r
	}
	for claim, call := range map[string]func(name string) error{
		"Do":                  func(n string) error { _, err := e.do(n, e.post("/pay", pay)); return err },
		"Do, another request": func(n string) error { _, err := e.do(n, e.post("/pay", "{}")); return err },
		"Do, a large body":    func(n string) error { _, err := e.do(n, e.post("/pay", strings.Repeat("x", 2<<10))); return err },
		"Do, another origin":  func(n string) error { _, err := e.do(n, foreign()); return err },
		"Begin": func(n string) error {
			_, err := e.client.Begin(e.ctx, keyring.Ref{Name: n}, e.post("/pay", pay))
			return err
		},
		"Send":            func(n string) error { _, err := e.client.Send(e.ctx, keyring.Ref{Name: n}); return err },
		"Send, cut short": func(n string) error { _, err := e.client.Send(over, keyring.Ref{Name: n}); return err },
		"Inspect":         func(n string) error { _, err := e.client.Inspect(e.ctx, keyring.Ref{Name: n}); return err },
	} {
		taken, free := call("taken"), call("free!")
		if taken == nil || free == nil {
			t.Fatalf("%s: %v, %v", claim, taken, free)
		}
		if a, b := strings.ReplaceAll(taken.Error(), "taken", "free!"), free.Error(); a != b {
			t.Errorf("%s tells them apart:\n%s\n%s", claim, a, b)
		}
		for _, is := range []error{client.ErrNotSent, client.ErrUnknown, keyring.ErrNotFound, keyring.ErrDiffers} {
			if errors.Is(taken, is) != errors.Is(free, is) {
				t.Errorf("%s tells them apart by %v", claim, is)
			}
		}
		if client.OutcomeOf(taken) != client.OutcomeOf(free) {
			t.Errorf("%s tells them apart by their outcomes", claim)
		}
	}
}

func TestAPanicInBegunLeavesNoDoubt(t *testing.T) {
	e := start(t, nodedup(t), &clienttest.Options{NoDedup: true}, client.Options{})
	good := e.client
	e.restart(func(o *client.Options) {
		o.Hooks = &client.Hooks{Begun: func(context.Context, client.Event) { panic("boom") }}
	})
	func() {
		defer func() { _ = recover() }()
		_, _ = e.do("inv-7", e.post("/pay", pay))
	}()
	if in := e.get("inv-7"); in.State != keyring.StateNeverSent || in.HeldBy != "" {
		t.Errorf("%s, held by %q", in.State, in.HeldBy)
	}
	e.client = good
	res, err := e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateDone)
}

func TestAGatewaysBillIsNoDecline(t *testing.T) {
	e := start(t, provider.Stripe(), nil, client.Options{Origins: []string{"http://box.test"}})
	for _, body := range []string{`{"message":"egress plan exceeded"}`, `{}`, `[]`} {
		name := "ref-" + fmt.Sprint(len(body))
		e.srv.Script(clienttest.LoseAnswer(), clienttest.Answer(402, clienttest.JSON(), []byte(body)))
		res, err := e.do(name, e.post("/v1/refunds", fmt.Sprintf(`{"n":%d}`, len(body))))
		if errors.Is(err, client.ErrRefused) || res.Outcome.State == keyring.StateRefused {
			t.Errorf("%s after a lost answer: %v", body, err)
		}
		e.srv.Unscript()
	}
}

func TestAPersonsWordGoesByTheStricterSettleToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, settling(t, time.Second), &clienttest.Options{NoDedup: true}, client.Options{Retry: retry.Exponential{}})
		e.srv.Script(clienttest.LoseAnswer())
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		time.Sleep(5 * time.Minute)
		e.profile = settling(t, 2*time.Hour)
		e.restart(nil)
		absent := keyring.Finding{Kind: keyring.FindingAbsent, By: "ann"}
		if _, err := e.client.Attest(e.ctx, keyring.Ref{Name: "inv-7"}, absent); !errors.Is(err, keyring.ErrTooSoon) {
			t.Errorf("%v, want ErrTooSoon", err)
		}
		time.Sleep(2 * time.Hour)
		if _, err := e.client.Attest(e.ctx, keyring.Ref{Name: "inv-7"}, absent); err != nil {
			t.Error(err)
		}
	})
}

// What an inspector's error wraps is no word of the ring's.
func TestAnInspectorsErrorTakesNoWarningAway(t *testing.T) {
	for _, cause := range []error{keyring.ErrFinal, &keyring.Error{Op: "get", Until: time.Now().Add(99 * time.Hour), Err: keyring.ErrTooSoon}} {
		e := start(t, nodedup(t), &clienttest.Options{NoDedup: true}, client.Options{Inspector: keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
			return keyring.Finding{}, fmt.Errorf("my list: %w", cause)
		})})
		e.srv.Script(clienttest.LoseAnswer())
		for range 2 {
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, keyring.StateUnknown)
			if !errors.Is(err, keyring.ErrNeedsInspection) || !res.Outcome.NeedsInspection || !strings.Contains(err.Error(), "Options.Inspector") || !res.Outcome.NotBefore.IsZero() {
				t.Errorf("%v, not before %v", err, res.Outcome.NotBefore)
			}
		}
	}
}

func TestResumeTellsNothingOfWhatIsRefusedMeanwhile(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: "theirs"}, e.post("/pay", pay)); err != nil {
		t.Fatal(err)
	}
	asked := 0
	e.restart(func(o *client.Options) {
		o.Access = func(context.Context, keyring.Intent) error {
			if asked++; asked > 1 { // allowed while it is listed, and not any more
				return errors.New("no")
			}
			return nil
		}
	})
	for res, err := range e.client.Resume(e.ctx) {
		t.Errorf("%v, %v", res, err)
	}
	if asked < 2 {
		t.Error("this has tried nothing")
	}
	e.want(counts{})
}

// Authorize itself signs somebody else in, after the attempt was recorded.
func TestAnIdentityThatAuthorizeChangesSendsNothing(t *testing.T) {
	who, calls := "alice", 0
	e := start(t, dedup(t), nil, client.Options{
		Credential: func(context.Context) (string, error) { return who, nil },
		Authorize: func(_ context.Context, r *http.Request) error {
			if calls++; calls > 1 {
				who = "bob"
			}
			r.Header.Set("Authorization", "Bearer "+who)
			return nil
		},
	})
	e.srv.Script(clienttest.LoseAnswer())
	res, err := e.do("inv-7", e.post("/pay", pay))
	e.state(res, err, keyring.StateUnknown)
	if calls < 2 {
		t.Error("there was no second attempt: this has tried nothing")
	}
	for _, s := range e.srv.Requests() {
		if s.Header.Get("Authorization") != "Bearer alice" {
			t.Errorf("hit %d went out as %s", s.N, s.Header.Get("Authorization"))
		}
	}
	e.want(counts{1, 1, 1, 1})
}

// The outcome that was waited for is the one that is told: a hold that is lost
// before anything was sent starts no round of its own.
func TestALostHoldTakesTheOthersOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{MaxAttempts: 1}})
		ref := keyring.Ref{Name: "inv-7"}
		if _, err := e.client.Begin(e.ctx, ref, e.post("/pay", pay)); err != nil {
			t.Fatal(err)
		}
		other := e.client
		stolen := false
		e.restart(func(o *client.Options) {
			// Asked after the hold was acquired: the lease passes, another one sends.
			o.Access = func(_ context.Context, in keyring.Intent) error {
				if in.HeldBy != "" && !stolen {
					stolen = true
					time.Sleep(10 * time.Minute)
					e.srv.Script(clienttest.LoseAnswer())
					res, err := other.Send(e.ctx, ref)
					e.state(res, err, keyring.StateUnknown)
				}
				return nil
			}
		})
		res, err := e.client.Send(e.ctx, ref)
		e.state(res, err, keyring.StateUnknown)
		if !stolen {
			t.Error("the hold was not lost: this has tried nothing")
		}
		e.want(counts{1, 1, 1, 1})
	})
}
