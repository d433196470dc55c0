package client_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

var (
	present = keyring.Finding{Kind: keyring.FindingPresent, EffectID: "s1"}
	absent  = keyring.Finding{Kind: keyring.FindingAbsent}
	other   = keyring.Finding{Kind: keyring.FindingOther}
	unsure  = keyring.Finding{}
)

var inv7 = keyring.Ref{Name: "inv-7"}

func TestTheInspectorIsAskedWhenOnlyALookHelps(t *testing.T) {
	none := keyring.Terms{Settle: time.Second}
	slow := keyring.Terms{} // "absent" counts after a quarter of an hour
	byKey := keyring.Terms{Dedup: keyring.DedupKey, MarksRunning: true, Retention: 24 * time.Hour, Settle: time.Second}
	failed := errors.New("the list cannot be had")
	lost := clienttest.LoseRequest()
	for _, c := range []struct {
		claim  string
		terms  keyring.Terms
		faults []clienttest.Fault
		say    []keyring.Finding
		err    error // of the look
		want   keyring.State
		is     []error
		hits   int
		asked  int
	}{
		{"a success needs no look", none, nil, []keyring.Finding{absent}, nil, keyring.StateDone, nil, 1, 0},
		{"a refusal needs no look", none, []clienttest.Fault{clienttest.Decide(402, clienttest.JSON(), []byte(`{}`))}, []keyring.Finding{absent}, nil, keyring.StateRefused, []error{client.ErrRefused}, 1, 0},
		{"what never left needs no look", none, []clienttest.Fault{clienttest.RefuseConnection()}, []keyring.Finding{absent}, nil, keyring.StateDone, nil, 1, 0},
		{"present", none, []clienttest.Fault{lost}, []keyring.Finding{present}, nil, keyring.StateDone, nil, 1, 1},
		{"other", none, []clienttest.Fault{lost}, []keyring.Finding{other}, nil, keyring.StateRefused, []error{client.ErrRefused}, 1, 1},
		{"cannot tell", none, []clienttest.Fault{lost}, []keyring.Finding{unsure}, nil, keyring.StateUnknown, []error{client.ErrUnknown, keyring.ErrNeedsInspection}, 1, 1},
		{"a kind that is none", none, []clienttest.Fault{lost}, []keyring.Finding{{Kind: 99}}, nil, keyring.StateUnknown, []error{keyring.ErrNeedsInspection}, 1, 1},
		{"the look fails", none, []clienttest.Fault{lost}, nil, failed, keyring.StateUnknown, []error{failed, keyring.ErrNeedsInspection}, 1, 1},
		{"absent", none, []clienttest.Fault{lost}, []keyring.Finding{absent}, nil, keyring.StateDone, nil, 2, 1},
		{"absent twice", none, []clienttest.Fault{lost, lost}, []keyring.Finding{absent}, nil, keyring.StateDone, nil, 3, 2},
		{"absent as often as the policy has attempts", none, []clienttest.Fault{lost.Forever()}, []keyring.Finding{absent}, nil, keyring.StateNeverSent, []error{client.ErrNotSent}, 3, 3},
		{"absent, then present", none, []clienttest.Fault{lost, clienttest.LoseAnswer()}, []keyring.Finding{absent, present}, nil, keyring.StateDone, nil, 2, 2},
		{"absent, too early to count", slow, []clienttest.Fault{lost}, []keyring.Finding{absent}, nil, keyring.StateUnknown, []error{keyring.ErrTooSoon, keyring.ErrNeedsInspection}, 1, 1},
		{"with de-duplication, after a round", byKey, []clienttest.Fault{lost.Forever()}, []keyring.Finding{present}, nil, keyring.StateDone, nil, 3, 1},
		{"with de-duplication, absent after a round", byKey, []clienttest.Fault{lost.Forever()}, []keyring.Finding{absent}, nil, keyring.StateNeverSent, []error{client.ErrNotSent}, 3, 1},
		{"a conflict", byKey, []clienttest.Fault{clienttest.Conflict()}, []keyring.Finding{present}, nil, keyring.StateDone, nil, 1, 1},
		{"an accepted one", byKey, []clienttest.Fault{clienttest.Answer(202, clienttest.JSON(), []byte(`{}`))}, []keyring.Finding{present}, nil, keyring.StateDone, nil, 1, 1},
		{"a pending one is asked again, not looked for", byKey, []clienttest.Fault{clienttest.Pending(409).Forever()}, []keyring.Finding{present}, nil, keyring.StatePending, []error{client.ErrPending}, 3, 0},
		{"rejected credentials are not looked for", byKey, []clienttest.Fault{clienttest.Answer(401, clienttest.JSON(), []byte(`{}`))}, []keyring.Finding{present}, nil, keyring.StateNeverSent, []error{client.ErrSignIn}, 1, 0},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				look := &lookout{say: c.say, err: c.err}
				e := start(t, withTerms(t, "POST /{rest...}", c.terms), &clienttest.Options{NoDedup: true}, client.Options{Inspector: look, Hooks: later()})
				e.srv.Script(c.faults...)
				res, err := e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, c.want)
				for _, is := range c.is {
					if !errors.Is(err, is) {
						t.Errorf("%v; want %v", err, is)
					}
				}
				if e.srv.Hits() != c.hits || look.times() != c.asked || e.srv.Effects() > 1 || len(e.srv.Keys()) > 1 {
					t.Errorf("asked %d times, want %d; %d hits, want %d: %s", look.times(), c.asked, e.srv.Hits(), c.hits, e.srv)
				}
				in := e.get("inv-7")
				if in.HeldBy != "" || c.err != nil && len(in.Findings) != 0 {
					t.Errorf("held by %q, findings %v", in.HeldBy, in.Findings)
				}
				if c.asked > 0 && c.want == keyring.StateDone && c.say[min(c.asked, len(c.say))-1] == present &&
					(res.Outcome.Source != keyring.SourceInspection || res.Outcome.Verdict.EffectID != "s1") {
					t.Errorf("%+v; want what was found", res.Outcome)
				}
			})
		})
	}
}

// TestWhatIsAbsentIsSentAgainInItsTime: a look is no way round the policy's
// waits, nor round the budget.
func TestWhatIsAbsentIsSentAgainInItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, withTerms(t, "POST /pay", keyring.Terms{Settle: time.Second}), &clienttest.Options{NoDedup: true},
			client.Options{Inspector: sees(absent), Hooks: later(), Retry: retry.Exponential{MinWait: 10 * time.Second, MaxWait: 10 * time.Second, MaxAttempts: 3}})
		e.srv.Script(clienttest.LoseRequest(), clienttest.LoseRequest())
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateDone)
		for i, g := range e.gaps() {
			if g < 10*time.Second {
				t.Errorf("gap %d is %v, want what the policy says, 10 s", i+1, g)
			}
		}
		e.want(counts{3, 1, 1, 1})
	})
	synctest.Test(t, func(t *testing.T) {
		e := start(t, withTerms(t, "POST /pay", keyring.Terms{Settle: time.Second}), &clienttest.Options{NoDedup: true},
			client.Options{Inspector: sees(absent), Hooks: later(), Budget: &retry.Budget{Burst: 1}})
		e.srv.Script(clienttest.LoseRequest().Forever())
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateNeverSent)
		e.want(counts{2, 0, 1, 1})
	})
	synctest.Test(t, func(t *testing.T) { // the caller gives up while waiting
		e := start(t, withTerms(t, "POST /pay", keyring.Terms{Settle: time.Second}), &clienttest.Options{NoDedup: true},
			client.Options{Inspector: sees(absent), Hooks: later(), Retry: retry.Exponential{MinWait: 10 * time.Second}})
		e.srv.Script(clienttest.LoseRequest())
		ctx, cancel := context.WithCancel(e.ctx)
		time.AfterFunc(5*time.Second, cancel)
		res, err := e.client.Do(ctx, inv7, e.post("/pay", pay))
		e.state(res, err, keyring.StateNeverSent)
		if !errors.Is(err, context.Canceled) || e.get("inv-7").HeldBy != "" {
			t.Errorf("%v, held by %q", err, e.get("inv-7").HeldBy)
		}
		e.want(counts{1, 0, 1, 1})
	})
}

func TestCallsAtTheSameTimeShareOneLook(t *testing.T) {
	for _, c := range []struct {
		claim string
		say   keyring.Finding
		want  keyring.State
		hits  int
	}{
		{"present", present, keyring.StateDone, 1},
		{"absent", absent, keyring.StateDone, 2},
		{"other", other, keyring.StateRefused, 1},
		{"cannot tell", unsure, keyring.StateUnknown, 1},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				look := sees(c.say)
				e := start(t, withTerms(t, "POST /pay", keyring.Terms{Settle: time.Second}), &clienttest.Options{NoDedup: true}, client.Options{
					Hooks: later(),
					Inspector: keyring.InspectorFunc(func(ctx context.Context, in keyring.Intent) (keyring.Finding, error) {
						time.Sleep(10 * time.Second) // a slow list
						return look.Inspect(ctx, in)
					}),
				})
				e.srv.Script(clienttest.LoseRequest())
				var wg sync.WaitGroup
				for i := range 20 {
					wg.Go(func() {
						time.Sleep(time.Duration(i) * 100 * time.Millisecond)
						res, err := e.do("inv-7", e.post("/pay", pay))
						e.state(res, err, c.want)
					})
				}
				wg.Wait()
				if look.times() != 1 || e.srv.Hits() != c.hits {
					t.Errorf("asked %d times, %d hits; want once, %d", look.times(), e.srv.Hits(), c.hits)
				}
			})
		})
	}
}

// TestALaterCallAsksTheInspectorFirst: doubt that an earlier process left.
func TestALaterCallAsksTheInspectorFirst(t *testing.T) {
	for _, c := range []struct {
		claim string
		terms keyring.Terms
		fault clienttest.Fault
		sleep time.Duration
		say   keyring.Finding
		want  keyring.State
		hits  int // in the later call
	}{
		{"present", keyring.Terms{}, clienttest.LoseAnswer(), time.Hour, present, keyring.StateDone, 0},
		{"absent", keyring.Terms{}, clienttest.LoseRequest(), time.Hour, absent, keyring.StateDone, 1},
		{"absent, too early", keyring.Terms{}, clienttest.LoseRequest(), time.Minute, absent, keyring.StateUnknown, 0},
		{"cannot tell", keyring.Terms{}, clienttest.LoseRequest(), time.Hour, unsure, keyring.StateUnknown, 0},
		{"expired, present", keyring.Terms{Dedup: keyring.DedupKey, Retention: time.Hour}, clienttest.LoseAnswer(), 2 * time.Hour, present, keyring.StateDone, 0},
		{"expired, absent", keyring.Terms{Dedup: keyring.DedupKey, Retention: time.Hour}, clienttest.LoseRequest(), 2 * time.Hour, absent, keyring.StateDone, 1},
	} {
		for name, again := range map[string]func(e *env) (*client.Result, error){
			"Do":   func(e *env) (*client.Result, error) { return e.do("inv-7", e.post("/pay", pay)) },
			"Send": func(e *env) (*client.Result, error) { return e.client.Send(e.ctx, inv7) },
			"Resume": func(e *env) (res *client.Result, err error) {
				for res, err = range e.client.Resume(e.ctx) {
				}
				return res, err
			},
		} {
			t.Run(c.claim+", by "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := start(t, withTerms(t, "POST /pay", c.terms), &clienttest.Options{NoDedup: true}, client.Options{Retry: quick(1)})
					e.srv.Script(c.fault)
					_, _ = e.do("inv-7", e.post("/pay", pay)) // ends in doubt
					time.Sleep(c.sleep)
					look := sees(c.say)
					e.restart(func(o *client.Options) { o.Inspector = look })
					res, err := again(e)
					e.state(res, err, c.want)
					if look.times() != 1 || e.srv.Hits() != 1+c.hits || e.srv.Effects() > 1 {
						t.Errorf("asked %d times: %s", look.times(), e.srv)
					}
					if c.want != keyring.StateDone && !errors.Is(err, keyring.ErrNeedsInspection) {
						t.Errorf("%v; want ErrNeedsInspection", err)
					}
				})
			})
		}
	}
}

func TestInspectAndRekeyAskAccess(t *testing.T) {
	denied := errors.New("not yours")
	synctest.Test(t, func(t *testing.T) {
		allowed := true
		var during func()
		look := keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
			if during != nil {
				during()
			}
			return absent, nil
		})
		asked := 0
		e := start(t, withTerms(t, "POST /pay", keyring.Terms{}), &clienttest.Options{NoDedup: true}, client.Options{Retry: quick(1)})
		e.srv.Script(clienttest.LoseRequest())
		_, _ = e.do("inv-7", e.post("/pay", pay))
		time.Sleep(time.Hour)
		e.restart(func(o *client.Options) {
			o.Inspector = look
			o.Access = func(context.Context, keyring.Intent) error {
				asked++
				if !allowed {
					return denied
				}
				return nil
			}
		})
		no := func(what string, seen keyring.Intent, err error) {
			t.Helper()
			var ce *client.Error
			if !errors.Is(err, denied) || !errors.As(err, &ce) || ce.Outcome != (keyring.Outcome{}) || !ce.Key.IsZero() {
				t.Errorf("%s: %v, outcome %+v; want the refusal and nothing else", what, err, client.OutcomeOf(err))
			}
			if seen.Revision != 0 || seen.Request.URL != "" {
				t.Errorf("%s: %+v was handed out", what, seen)
			}
		}
		allowed, during = false, func() { t.Error("the provider was asked for somebody who may not know") }
		seen, err := e.client.Inspect(e.ctx, inv7)
		no("before the look", seen.Intent(), err)

		allowed, during = true, func() { allowed = false } // taken away while the look goes on
		seen, err = e.client.Inspect(e.ctx, inv7)
		no("after the look", seen.Intent(), err)
		if _, err := e.client.Rekey(e.ctx, seen, e.post("/pay", pay)); !errors.Is(err, keyring.ErrNeedsInspection) {
			t.Errorf("%v: what was handed out permits something", err)
		}

		allowed, during = true, nil
		if seen, err = e.client.Inspect(e.ctx, inv7); err != nil {
			t.Fatal(err)
		}
		allowed = false
		in, err := e.client.Rekey(e.ctx, seen, e.post("/pay", pay))
		no("rekey", in, err)
		if asked < 6 {
			t.Errorf("Access was asked %d times", asked)
		}
		allowed = true
		if in := e.get("inv-7"); in.Generation != 1 {
			t.Errorf("generation %d", in.Generation)
		}
		e.want(counts{1, 0, 1, 1})
	})
}

func TestInspectReports(t *testing.T) {
	e := start(t, nodedup(t), &clienttest.Options{NoDedup: true}, client.Options{})
	is := func(what string, err, want error) {
		t.Helper()
		var ce *client.Error
		if !errors.Is(err, want) || !errors.As(err, &ce) || ce.Op != "inspect" {
			t.Errorf("%s: %v; want %v", what, err, want)
		}
	}
	_, err := e.client.Inspect(e.ctx, inv7)
	is("no inspector", err, keyring.ErrInvalid)
	look := sees(absent)
	e.restart(func(o *client.Options) { o.Inspector = look })
	_, err = e.client.Inspect(e.ctx, inv7)
	is("a ref that is not on record", err, keyring.ErrNotFound)
	_, err = e.client.Inspect(e.ctx, keyring.Ref{})
	is("no ref", err, keyring.ErrInvalid)
	res, derr := e.do("inv-7", e.post("/pay", pay))
	e.state(res, derr, keyring.StateDone)
	_, err = e.client.Inspect(e.ctx, inv7)
	is("one that is done", err, keyring.ErrFinal)

	// What this inspector cannot find is no word about another provider's intent.
	e.srv.Script(clienttest.LoseAnswer())
	_, _ = e.do("inv-8", e.post("/pay", pay))
	if asked := look.times(); asked != 1 {
		t.Fatalf("asked %d times", asked)
	}
	e.profile = provider.Draft(time.Hour, "POST /other")
	e.restart(func(o *client.Options) { o.Inspector = look })
	_, err = e.client.Inspect(e.ctx, keyring.Ref{Name: "inv-8"})
	is("an intent of another profile", err, keyring.ErrInvalid)
	if look.times() != 1 || len(e.get("inv-8").Findings) != 1 {
		t.Errorf("asked %d times, findings %v", look.times(), e.get("inv-8").Findings)
	}
	e.client.Close(e.ctx)
	_, err = e.client.Inspect(e.ctx, inv7)
	is("a closed client", err, keyring.ErrClosed)
}

func TestRekeySendsTheNewRequestUnderTheNewKey(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	e.srv.Script(clienttest.Decide(402, clienttest.JSON(), []byte(`{"code":"declined"}`)))
	cardA, cardB := `{"card":"A"}`, `{"card":"B"}`
	first, err := e.do("inv-7", e.post("/pay", cardA))
	e.state(first, err, keyring.StateRefused)

	if _, err := e.client.Rekey(e.ctx, keyring.Inspection{}, e.post("/pay", cardB)); !errors.Is(err, keyring.ErrNeedsInspection) {
		t.Errorf("without an inspection: %v", err)
	}
	seen, err := e.client.Ring().Refusal(e.ctx, inv7)
	if err != nil {
		t.Fatal(err)
	}
	in, err := e.client.Rekey(e.ctx, seen, e.post("/pay", cardB))
	if err != nil || in.Generation != 2 || in.Key == first.Intent.Key || in.State != keyring.StateNeverSent {
		t.Fatalf("%v %v: generation %d, key %s after %s", in, err, in.Generation, in.Key, first.Intent.Key)
	}
	e.want(counts{1, 0, 1, 1}) // it sends nothing
	if _, err := e.client.Rekey(e.ctx, seen, e.post("/pay", cardB)); !errors.Is(err, keyring.ErrStale) {
		t.Errorf("with a used inspection: %v, want ErrStale", err)
	}
	var ke *keyring.Error
	if _, err := e.do("inv-7", e.post("/pay", cardA)); !errors.Is(err, keyring.ErrDiffers) || !errors.As(err, &ke) || strings.Join(ke.Fields, " ") != "body" {
		t.Errorf("with the old request: %v, want ErrDiffers in the body", err)
	}
	e.want(counts{1, 0, 1, 1})
	res, err := e.do("inv-7", e.post("/pay", cardB))
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 1, 2, 2})
	sent := e.srv.Requests()[1]
	if sent.Key != in.Key.String() || sent.BodyDigest != digest([]byte(cardB)) || res.Intent.Key != in.Key {
		t.Errorf("sent %s under %q, want card B under %s", sent.BodyDigest, sent.Key, in.Key)
	}
	gens, err := e.client.Ring().Generations(e.ctx, inv7)
	if err != nil || len(gens) != 2 || gens[0].Key != first.Intent.Key || gens[0].State != keyring.StateRefused {
		t.Errorf("generations %v, %v", gens, err)
	}
}

func TestRekeyRefusesBadInput(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Origins: []string{"http://box.test"}})
	e.srv.Script(clienttest.Decide(402, clienttest.JSON(), []byte(`{}`)))
	_, _ = e.do("inv-7", e.post("/pay", pay))
	seen, err := e.client.Ring().Refusal(e.ctx, inv7)
	if err != nil {
		t.Fatal(err)
	}
	foreign := e.post("/pay", pay)
	foreign.URL.Host, foreign.Host = "evil.test", ""
	old := e.post("/pay", pay)
	old.Header.Set("Idempotency-Key", e.get("inv-7").Key.String())
	for _, c := range []struct {
		claim string
		req   *http.Request
		want  error
	}{
		{"no request", nil, keyring.ErrInvalid},
		{"a foreign origin", foreign, client.ErrOrigin},
		{"the key it had before", old, keyring.ErrInvalid},
	} {
		if _, err := e.client.Rekey(e.ctx, seen, c.req); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.claim, err, c.want)
		}
	}
	in, err := e.client.Rekey(e.ctx, seen, e.post("/pay", pay)) // none of it used the inspection up
	if err != nil || in.Generation != 2 {
		t.Errorf("%v, %v", in, err)
	}
}

func TestAPurgedIntentIsAnsweredWithoutItsDetails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{})
		res, err := e.do("done", e.post("/pay", pay))
		e.state(res, err, keyring.StateDone)
		e.srv.Script(clienttest.Decide(402, clienttest.JSON(), []byte(`{}`)))
		res, err = e.do("refused", e.post("/pay", pay))
		e.state(res, err, keyring.StateRefused)
		e.srv.Script(clienttest.Redirect(302, "/"))
		_, _ = e.do("abandoned", e.post("/pay", pay))
		seen, err := e.client.Ring().Inspect(e.ctx, keyring.Ref{Name: "abandoned"}, keyring.Attest(unsure))
		if err == nil {
			_, err = e.client.Ring().Abandon(e.ctx, seen)
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(48 * time.Hour)
		if n, err := e.client.Ring().Purge(e.ctx, time.Now(), false); n != 3 || err != nil {
			t.Fatalf("%d purged, %v", n, err)
		}
		before := e.counts()

		e.restart(nil)
		res, err = e.do("done", e.post("/pay", pay))
		e.state(res, err, keyring.StateDone)
		if resp := res.Response(); resp != nil {
			resp.Body.Close()
			t.Errorf("a response: %v", resp)
		}
		if res.Answer != nil || !res.Intent.Purged || res.Outcome.Source != keyring.SourceRecord || res.Outcome.Verdict.EffectID == "" {
			t.Errorf("%+v, answer %v; want the effect's id and no answer", res.Outcome, res.Answer)
		}
		for name, is := range map[string]error{"refused": client.ErrRefused, "abandoned": client.ErrAbandoned} {
			res, err := e.do(name, e.post("/pay", pay))
			if !errors.Is(err, keyring.ErrPurged) || !errors.Is(err, is) || res == nil || !res.Intent.Purged {
				t.Errorf("%s: %v, %v; want ErrPurged and %v", name, res, err, is)
			}
			if _, err := e.client.Send(e.ctx, keyring.Ref{Name: name}); !errors.Is(err, keyring.ErrPurged) {
				t.Errorf("%s: %v, want ErrPurged", name, err)
			}
		}
		for _, name := range []string{"done", "refused", "abandoned"} {
			if _, err := e.do(name, e.post("/pay", "{}")); !errors.Is(err, keyring.ErrDiffers) {
				t.Errorf("%s with another request: %v, want ErrDiffers", name, err)
			}
		}
		e.want(before)
	})
}

func TestDoubtUnderAnotherIdentityNeedsALook(t *testing.T) {
	for _, c := range []struct {
		claim string
		fault clienttest.Fault
		then  string // the identity of the later call
		look  *lookout
		want  keyring.State
		hits  int
	}{
		{"the same identity", clienttest.LoseAnswer(), "acct-1", nil, keyring.StateDone, 2},
		{"another one", clienttest.LoseAnswer(), "acct-2", nil, keyring.StateUnknown, 1},
		{"another one after what was not processed", clienttest.Answer(401, clienttest.JSON(), nil), "acct-2", nil, keyring.StateDone, 2},
		{"another one that looks and finds it", clienttest.LoseAnswer(), "acct-2", sees(present), keyring.StateDone, 1},
		{"another one that looks and cannot tell", clienttest.LoseAnswer(), "acct-2", sees(unsure), keyring.StateUnknown, 1},
		{"another one that looks and finds nothing", clienttest.LoseRequest(), "acct-2", sees(absent), keyring.StateDone, 2},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				as := "acct-1"
				e := start(t, dedup(t), nil, client.Options{Retry: quick(1), Credential: func(context.Context) (string, error) { return as, nil }})
				e.srv.Script(c.fault)
				_, _ = e.do("inv-7", e.post("/pay", pay))
				time.Sleep(time.Hour)
				as = c.then
				if c.look != nil {
					e.restart(func(o *client.Options) { o.Inspector = c.look })
				}
				res, err := e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, c.want)
				if e.srv.Hits() != c.hits || e.srv.Effects() > 1 || len(e.srv.Keys()) != 1 {
					t.Errorf("%d hits, want %d: %s", e.srv.Hits(), c.hits, e.srv)
				}
				attempts := res.Intent.Attempts
				if attempts[0].Identity != "acct-1" || len(attempts) == 2 && attempts[1].Identity != c.then {
					t.Errorf("attempts %+v", attempts)
				}
				if c.want == keyring.StateUnknown {
					if !errors.Is(err, keyring.ErrNeedsInspection) || !res.Outcome.NeedsInspection || strings.Contains(res.Outcome.Next, "send it again under the same ref") {
						t.Errorf("%v: needs inspection %v, next %q", err, res.Outcome.NeedsInspection, res.Outcome.Next)
					}
				}
			})
		})
	}
	failed := errors.New("nobody is signed in")
	e := start(t, dedup(t), nil, client.Options{Credential: func(context.Context) (string, error) { return "", failed }})
	if res, err := e.do("inv-7", e.post("/pay", pay)); res != nil || !errors.Is(err, failed) {
		t.Errorf("%v, %v; want the error of Options.Credential", res, err)
	}
	e.want(counts{})
}

// TestLaterCallsAtTheSameTimeShareWhatTheyFind: whoever looked in vain because
// another look was faster goes by that one.
func TestLaterCallsAtTheSameTimeShareWhatTheyFind(t *testing.T) {
	for _, c := range []struct {
		claim string
		say   keyring.Finding
		want  keyring.State
		hits  int
	}{
		{"present", present, keyring.StateDone, 1},
		{"absent", absent, keyring.StateDone, 2},
		{"other", other, keyring.StateRefused, 1},
		{"cannot tell", unsure, keyring.StateUnknown, 1},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, nodedup(t), &clienttest.Options{NoDedup: true}, client.Options{Retry: quick(1)})
				e.srv.Script(clienttest.LoseRequest(), clienttest.Normal().Work(time.Second))
				_, _ = e.do("inv-7", e.post("/pay", pay))
				time.Sleep(time.Hour)
				looks := 0
				var mu sync.Mutex
				e.restart(func(o *client.Options) {
					o.Inspector = keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
						mu.Lock()
						looks++
						d := time.Duration(looks) * time.Second
						mu.Unlock()
						time.Sleep(d)
						return c.say, nil
					})
				})
				var wg sync.WaitGroup
				for range 5 {
					wg.Go(func() {
						res, err := e.do("inv-7", e.post("/pay", pay))
						e.state(res, err, c.want)
					})
				}
				wg.Wait()
				if e.srv.Hits() != c.hits || len(e.get("inv-7").Findings) != 1 {
					t.Errorf("%d hits, findings %v; want %d, one", e.srv.Hits(), e.get("inv-7").Findings, c.hits)
				}
			})
		})
	}
}
