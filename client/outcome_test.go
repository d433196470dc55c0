package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
	"github.com/samekey/samekey/retry"
)

// TestEachOutcomeSaysWhatToDoNext goes through every state, with every flag that
// it can have.
func TestEachOutcomeSaysWhatToDoNext(t *testing.T) {
	byKey := keyring.Terms{Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour}
	none := keyring.Terms{}
	v := func(kind keyring.VerdictKind) keyring.Verdict { return keyring.Verdict{Kind: kind, Status: 200} }
	unclear, pending, done := v(keyring.VerdictUnclear), v(keyring.VerdictPending), v(keyring.VerdictDone)
	look := func(v keyring.Verdict) keyring.Verdict { v.NoResend = true; return v }
	door := keyring.Verdict{Kind: keyring.VerdictNotProcessed, SignIn: true}
	effect := func(id string) keyring.Verdict {
		return keyring.Verdict{Kind: keyring.VerdictDone, EffectID: id, Unreadable: true}
	}
	type flags struct{ look, signIn, broken bool }
	states := map[keyring.State]bool{}
	actions := map[string]string{} // by sentence
	for _, c := range []struct {
		state    keyring.State
		flags    flags
		terms    keyring.Terms
		verdicts []keyring.Verdict
		then     func(t *testing.T, e *env)
		action   string // what the sentence has to say
	}{
		{keyring.StateNeverSent, flags{}, byKey, nil, nil, "send it again under the same ref"},
		{keyring.StateNeverSent, flags{signIn: true}, byKey, []keyring.Verdict{door}, nil, "sign in"},
		{keyring.StateSending, flags{}, byKey, nil, func(t *testing.T, e *env) {
			h, err := e.client.Ring().Acquire(e.ctx, inv7, keyring.Current{Terms: byKey})
			if err == nil {
				_, err = h.Start(e.ctx)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "wait for its outcome"},
		{keyring.StatePending, flags{}, byKey, []keyring.Verdict{pending}, nil, "ask again later"},
		{keyring.StatePending, flags{look: true}, byKey, []keyring.Verdict{look(pending)}, nil, "look at the provider for how it ends"},
		{keyring.StatePending, flags{look: true}, none, []keyring.Verdict{pending}, nil, "look at the provider for how it ends"},
		{keyring.StateUnknown, flags{}, byKey, []keyring.Verdict{unclear}, nil, "which cannot make a second effect"},
		{keyring.StateUnknown, flags{look: true}, byKey, []keyring.Verdict{look(unclear)}, nil, "sending it again is not safe"},
		{keyring.StateUnknown, flags{look: true}, none, []keyring.Verdict{unclear}, nil, "sending it again is not safe"},
		{keyring.StateUnknown, flags{signIn: true}, byKey, []keyring.Verdict{unclear, door}, nil, "sign in, then send"},
		{keyring.StateConflict, flags{look: true}, byKey, []keyring.Verdict{v(keyring.VerdictConflict)}, nil, "look at the provider to see what took effect"},
		{keyring.StateExpired, flags{look: true}, byKey, []keyring.Verdict{unclear}, func(*testing.T, *env) { time.Sleep(25 * time.Hour) }, "look at the provider before anything is sent again"},
		{keyring.StateDone, flags{}, byKey, []keyring.Verdict{done}, nil, "It took effect; there is nothing left to do"},
		{keyring.StateDone, flags{look: true}, byKey, []keyring.Verdict{effect("s1")}, nil, "look at the provider for the details"},
		{keyring.StateDone, flags{look: true, broken: true}, byKey, []keyring.Verdict{effect("s1"), effect("s2")}, nil, "undo what is too much"},
		{keyring.StateRefused, flags{}, byKey, []keyring.Verdict{v(keyring.VerdictRefused)}, nil, "correct the request"},
		{keyring.StateAbandoned, flags{}, byKey, []keyring.Verdict{unclear}, func(t *testing.T, e *env) {
			seen, err := e.client.Ring().Inspect(e.ctx, inv7, keyring.Attest(unsure))
			if err == nil {
				_, err = e.client.Ring().Abandon(e.ctx, seen)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, "given up; there is nothing left to do"},
		{keyring.StateDamaged, flags{look: true}, byKey, nil, func(t *testing.T, e *env) { e.damage(t, "inv-7") }, "record is damaged"},
	} {
		t.Run(fmt.Sprintf("%s %+v %s", c.state, c.flags, c.terms.Dedup), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := withTerms(t, "POST /pay", c.terms)
				e := start(t, p, nil, client.Options{})
				if _, err := e.client.Begin(e.ctx, inv7, e.post("/pay", pay)); err != nil {
					t.Fatal(err)
				}
				if len(c.verdicts) > 0 {
					h, err := e.client.Ring().Acquire(e.ctx, inv7, keyring.Current{Terms: p.Terms("POST", e.url+"/pay")})
					for i, v := range c.verdicts {
						if err == nil {
							_, err = h.Start(e.ctx)
						}
						if err == nil {
							_, err = h.Finish(e.ctx, v, nil, keyring.After{Keep: i < len(c.verdicts)-1})
						}
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if c.then != nil {
					c.then(t, e)
				}
				o := e.get("inv-7").Outcome()
				if got := (flags{o.NeedsInspection, o.NeedsSignIn, o.Broken}); o.State != c.state || got != c.flags {
					t.Fatalf("%s, %+v", o.State, got)
				}
				if !strings.Contains(o.Next, c.action) || !strings.HasSuffix(o.Next, ".") || strings.ToUpper(o.Next[:1]) != o.Next[:1] || strings.Contains(o.Next, "\n") {
					t.Errorf("%q does not say %q in a sentence", o.Next, c.action)
				}
				again := strings.Contains(o.Next, "send it again under the same ref")
				if again && (o.NeedsInspection || o.State.Final()) {
					t.Errorf("%q, where nothing may be sent", o.Next)
				}
				if o.NeedsInspection != strings.Contains(o.Next, "look at the provider") {
					t.Errorf("needs inspection: %v, and %q", o.NeedsInspection, o.Next)
				}
				if o.NeedsSignIn != strings.Contains(o.Next, "sign in") {
					t.Errorf("needs to sign in: %v, and %q", o.NeedsSignIn, o.Next)
				}
				states[o.State] = true
				if first, ok := actions[o.Next]; ok && first != c.action {
					t.Errorf("%q is said where one has to %q and where one has to %q", o.Next, first, c.action)
				}
				actions[o.Next] = c.action
			})
		})
	}
	for s := keyring.StateUnknown; s <= keyring.StateDamaged; s++ {
		if !states[s] {
			t.Errorf("no row is %s", s)
		}
	}
	if extra := keyring.StateDamaged + 1; extra.String() != keyring.StateUnknown.String() {
		t.Errorf("there is a new state, %s, and no row for it", extra)
	}
}

// damage flips a bit of a stored record.
func (e *env) damage(t *testing.T, name string) {
	t.Helper()
	rec, err := e.store.Load(e.ctx, keyring.Ref{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	rec.Data[len(rec.Data)/2] ^= 1
	rec.Revision++
	if err := e.store.Update(e.ctx, rec); err != nil {
		t.Fatal(err)
	}
}

// sentinels are all that an error may be asked about.
var sentinels = []error{
	client.ErrRefused, client.ErrPending, client.ErrConflict, client.ErrUnknown, client.ErrExpired, client.ErrNotSent,
	client.ErrSignIn, client.ErrAbandoned, client.ErrOrigin, client.ErrNoRef,
	keyring.ErrInvalid, keyring.ErrNotFound, keyring.ErrExists, keyring.ErrStale, keyring.ErrDiffers, keyring.ErrHeld,
	keyring.ErrNeedsInspection, keyring.ErrFinal, keyring.ErrTooSoon, keyring.ErrDamaged, keyring.ErrPurged,
	keyring.ErrFull, keyring.ErrNoSpace, keyring.ErrBusy, keyring.ErrUnreadable, keyring.ErrLost, keyring.ErrRolledBack, keyring.ErrClosed,
	context.Canceled, context.DeadlineExceeded,
}

// TestErrorsAreWhatTheySayThroughWrapping: exactly those, and no others.
func TestErrorsAreWhatTheySayThroughWrapping(t *testing.T) {
	wish := http.Header{"Content-Type": {"application/json"}, "Retry-After": {"3600"}}
	do := func(e *env) error { _, err := e.do("inv-7", e.post("/pay", pay)); return err }
	after := func(f clienttest.Fault, then func(e *env) error) func(e *env) error {
		return func(e *env) error {
			e.srv.Script(f)
			_ = do(e) // brings the intent into its state
			e.srv.Unscript()
			return then(e)
		}
	}
	with := func(f clienttest.Fault) func(e *env) error {
		return func(e *env) error { e.srv.Script(f.Forever()); return do(e) }
	}
	refused := clienttest.Decide(402, clienttest.JSON(), []byte(`{}`))
	rekey := func(e *env) error {
		seen, err := e.client.Ring().Refusal(e.ctx, inv7)
		if err == nil {
			_, err = e.client.Rekey(e.ctx, seen, e.post("/pay", pay))
		}
		if err == nil {
			_, err = e.client.Rekey(e.ctx, seen, e.post("/pay", pay))
		}
		return err
	}
	for _, c := range []struct {
		claim string
		err   func(e *env) error
		is    []error
		state keyring.State
	}{
		{"refused", with(refused), []error{client.ErrRefused}, keyring.StateRefused},
		{"pending", with(clienttest.Pending(409)), []error{client.ErrPending}, keyring.StatePending},
		{"accepted", with(clienttest.Answer(202, clienttest.JSON(), nil)), []error{client.ErrPending, keyring.ErrNeedsInspection}, keyring.StatePending},
		{"conflict", with(clienttest.Conflict()), []error{client.ErrConflict, keyring.ErrNeedsInspection}, keyring.StateConflict},
		{"unknown", with(clienttest.LoseAnswer()), []error{client.ErrUnknown}, keyring.StateUnknown},
		{"unknown, and too soon", after(clienttest.Answer(503, wish, nil), do), []error{client.ErrUnknown, keyring.ErrTooSoon}, keyring.StateUnknown},
		{"only a look helps", with(clienttest.Redirect(302, "/")), []error{client.ErrUnknown, keyring.ErrNeedsInspection}, keyring.StateUnknown},
		{
			"expired", after(clienttest.Answer(503, clienttest.JSON(), nil), func(e *env) error { time.Sleep(25 * time.Hour); return do(e) }),
			[]error{client.ErrExpired, keyring.ErrNeedsInspection},
			keyring.StateExpired,
		},
		{"not sent", with(clienttest.RefuseConnection()), []error{client.ErrNotSent}, keyring.StateNeverSent},
		{"not sent, and too soon", after(clienttest.Answer(429, wish, nil), do), []error{client.ErrNotSent, keyring.ErrTooSoon}, keyring.StateNeverSent},
		{"sign in", with(clienttest.Answer(401, clienttest.JSON(), nil)), []error{client.ErrNotSent, client.ErrSignIn}, keyring.StateNeverSent},
		{"sign in after doubt", after(clienttest.Answer(503, clienttest.JSON(), nil), func(e *env) error {
			time.Sleep(time.Minute)
			return with(clienttest.Answer(401, clienttest.JSON(), nil))(e)
		}), []error{client.ErrUnknown, client.ErrSignIn}, keyring.StateUnknown},
		{"abandoned", after(clienttest.Redirect(302, "/"), func(e *env) error {
			seen, err := e.client.Ring().Inspect(e.ctx, inv7, keyring.Attest(unsure))
			if err == nil {
				_, err = e.client.Ring().Abandon(e.ctx, seen)
			}
			return errors.Join(err, do(e))
		}), []error{client.ErrAbandoned}, keyring.StateAbandoned},
		{"refused and purged", after(refused, func(e *env) error {
			time.Sleep(48 * time.Hour)
			_, err := e.client.Ring().Purge(e.ctx, time.Now(), false)
			return errors.Join(err, do(e))
		}), []error{client.ErrRefused, keyring.ErrPurged}, keyring.StateRefused},
		{"damaged, by Send", func(e *env) error {
			_, err := e.client.Begin(e.ctx, inv7, e.post("/pay", pay))
			e.damage(e.t, "inv-7")
			_, serr := e.client.Send(e.ctx, inv7)
			return errors.Join(err, serr)
		}, []error{client.ErrUnknown, keyring.ErrDamaged, keyring.ErrNeedsInspection}, keyring.StateDamaged},
		{"damaged, by Do", after(refused, func(e *env) error { e.damage(e.t, "inv-7"); return do(e) }), []error{client.ErrUnknown, keyring.ErrDamaged, keyring.ErrNeedsInspection}, keyring.StateDamaged},
		{"another request", after(refused, func(e *env) error { _, err := e.do("inv-7", e.post("/pay", "{}")); return err }), []error{keyring.ErrDiffers}, keyring.StateRefused},
		{"a foreign origin", func(e *env) error { e.url = "http://evil.test"; return do(e) }, []error{client.ErrNotSent, client.ErrOrigin}, keyring.StateNeverSent},
		{"no name", func(e *env) error { _, err := e.do("", e.post("/pay", pay)); return err }, []error{client.ErrNoRef}, keyring.StateUnknown},
		{"a request that is none", func(e *env) error { _, err := e.do("inv-7", nil); return err }, []error{client.ErrNotSent, keyring.ErrInvalid}, keyring.StateNeverSent},
		{"not on record", func(e *env) error { _, err := e.client.Send(e.ctx, inv7); return err }, []error{client.ErrNotSent, keyring.ErrNotFound}, keyring.StateNeverSent},
		{"a look at what is done", after(clienttest.Normal(), func(e *env) error {
			e.restart(func(o *client.Options) { o.Inspector = sees(unsure) })
			_, err := e.client.Inspect(e.ctx, inv7)
			return err
		}), []error{keyring.ErrFinal}, keyring.StateDone},
		{"a used inspection", after(refused, rekey), []error{client.ErrNotSent, keyring.ErrStale}, keyring.StateNeverSent},
		{"no inspection", after(refused, func(e *env) error {
			_, err := e.client.Rekey(e.ctx, keyring.Inspection{}, e.post("/pay", pay))
			return err
		}), []error{keyring.ErrNeedsInspection}, keyring.StateUnknown},
		{"a full keyring", after(clienttest.Pending(409), func(e *env) error {
			e.restart(func(o *client.Options) { o.Keyring.MaxIntents = 1 })
			_, err := e.do("inv-8", e.post("/pay", pay))
			return err
		}), []error{client.ErrNotSent, keyring.ErrFull}, keyring.StateNeverSent},
		{"a closed client", func(e *env) error { e.client.Close(e.ctx); return do(e) }, []error{keyring.ErrClosed}, keyring.StateUnknown},
		{"a caller who had left before", func(e *env) error {
			ctx, cancel := context.WithCancel(e.ctx)
			cancel()
			_, err := e.client.Do(ctx, inv7, e.post("/pay", pay))
			return err
		}, []error{client.ErrNotSent, context.Canceled}, keyring.StateNeverSent},
		{"a caller who leaves", func(e *env) error {
			ctx, cancel := context.WithTimeout(e.ctx, time.Second)
			defer cancel()
			e.srv.Script(clienttest.StallAfter())
			_, err := e.client.Do(ctx, inv7, e.post("/pay", pay))
			return err
		}, []error{client.ErrUnknown, context.DeadlineExceeded}, keyring.StateUnknown},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, dedup(t), nil, client.Options{Retry: quick(1), Origins: []string{"http://box.test"}})
				err := c.err(e)
				if err == nil {
					t.Fatal("no error")
				}
				exactly(t, err, c.is, c.state)
			})
		})
	}
}

// exactly checks an error below two layers of somebody else's.
func exactly(t *testing.T, err error, want []error, state keyring.State) {
	t.Helper()
	for _, wrapped := range []error{
		fmt.Errorf("charging: %w", fmt.Errorf("order 8123: %w", err)),
		errors.Join(errors.New("another"), fmt.Errorf("order 8123: %w", err)),
	} {
		for _, s := range sentinels {
			should := false
			for _, w := range want {
				should = should || w == s //nolint:errorlint // the sentinels themselves are compared
			}
			if errors.Is(wrapped, s) != should {
				t.Errorf("%v: is %q: %v, want %v", wrapped, s, !should, should)
			}
		}
		var ce *client.Error
		if !errors.As(wrapped, &ce) || ce.Op == "" || !strings.HasPrefix(ce.Error(), "samekey: ") {
			t.Errorf("%v is no *client.Error", wrapped)
		}
		if o := client.OutcomeOf(wrapped); o.State != state {
			t.Errorf("%v: %s, want %s", wrapped, o.State, state)
		}
	}
}

// broken is a store that answers each write, or everything, with an error.
type broken struct {
	*keyringtest.Store
	write, read error
}

func (b broken) Create(context.Context, keyring.Record, keyring.Limits) error { return b.write }
func (b broken) Update(context.Context, keyring.Record) error                 { return b.write }

func (b broken) Load(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
	if b.read != nil {
		return keyring.Record{}, b.read
	}
	return b.Store.Load(ctx, ref)
}

func (b broken) Scan(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
	if b.read != nil {
		return func(yield func(keyring.Record, error) bool) { yield(keyring.Record{}, b.read) }
	}
	return b.Store.Scan(ctx, q)
}

// TestWhatTheStoreReportsArrives, and nothing is sent.
func TestWhatTheStoreReportsArrives(t *testing.T) {
	for _, c := range []struct {
		write, read error
		state       keyring.State
	}{
		{keyring.ErrNoSpace, nil, keyring.StateNeverSent},
		{keyring.ErrFull, nil, keyring.StateNeverSent},
		{keyring.ErrBusy, keyring.ErrBusy, keyring.StateUnknown},
		{keyring.ErrUnreadable, keyring.ErrUnreadable, keyring.StateUnknown},
		{keyring.ErrLost, keyring.ErrLost, keyring.StateUnknown},
		{keyring.ErrRolledBack, nil, keyring.StateNeverSent},
		{keyring.ErrClosed, keyring.ErrClosed, keyring.StateUnknown},
	} {
		t.Run(c.write.Error(), func(t *testing.T) {
			e := start(t, dedup(t), nil, client.Options{})
			cl := client.New(broken{e.store, fmt.Errorf("badger: %w", c.write), c.read}, e.profile, &e.opts)
			res, err := cl.Do(e.ctx, inv7, e.post("/pay", pay))
			if res != nil || err == nil {
				t.Fatalf("%v, %v", res, err)
			}
			is := []error{c.write}
			if c.state == keyring.StateNeverSent { // reading shows that the write came to nothing
				is = append(is, client.ErrNotSent)
			}
			exactly(t, err, is, c.state)
			if _, err := cl.Begin(e.ctx, inv7, e.post("/pay", pay)); !errors.Is(err, c.write) {
				t.Errorf("Begin: %v", err)
			}
			e.want(counts{})
		})
	}
}

// TestTheLastAnswerAndTheContextsErrorAreKeptTogether: that the caller gave up
// is no reason to forget what was known.
func TestTheLastAnswerAndTheContextsErrorAreKeptTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{MinWait: 10 * time.Second}})
		h := http.Header{"Content-Type": {"application/json"}, "Request-Id": {"r-9"}}
		e.srv.Script(clienttest.Answer(503, h, []byte(`{"code":"overloaded"}`)))
		why := errors.New("the user closed the window")
		ctx, cancel := context.WithCancelCause(e.ctx)
		time.AfterFunc(5*time.Second, func() { cancel(why) })
		res, err := e.client.Do(ctx, inv7, e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		wrapped := fmt.Errorf("charging: %w", fmt.Errorf("order 8123: %w", err))
		if !errors.Is(wrapped, why) || !errors.Is(wrapped, client.ErrUnknown) {
			t.Errorf("%v; want the reason of the caller and what is known", wrapped)
		}
		v := client.OutcomeOf(wrapped).Verdict
		if v.Status != 503 || v.Code != "overloaded" || v.RequestID != "r-9" || res.Answer == nil || string(res.Answer.Body) != `{"code":"overloaded"}` {
			t.Errorf("%+v, answer %v; want the last answer", v, res.Answer)
		}
		for _, want := range []string{"503", "overloaded", "r-9", why.Error()} {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%v does not say %s", err, want)
			}
		}
		if res.Outcome.NotBefore.IsZero() {
			t.Error("the wait that was under way is forgotten")
		}
		e.want(counts{1, 0, 1, 1})
	})
}
