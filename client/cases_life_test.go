package client_test

import (
	"context"
	"errors"
	"fmt"
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

// withTerms is a profile for the provider in a box with these terms for one
// pattern.
func withTerms(t *testing.T, pattern string, terms keyring.Terms) provider.Profile {
	t.Helper()
	p, err := provider.New(provider.Spec{
		Name:         "box",
		ReplayHeader: "Idempotent-Replayed",
		Endpoints:    []provider.Endpoint{{Pattern: pattern, Terms: terms}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// lookout is an inspector that says what it was told to, and counts.
type lookout struct {
	mu    sync.Mutex
	say   []keyring.Finding // one after the other; the last one stays
	err   error
	asked int
	saw   keyring.State // of the intent it was asked about last
}

func sees(f ...keyring.Finding) *lookout { return &lookout{say: f} }

func (l *lookout) Inspect(_ context.Context, in keyring.Intent) (keyring.Finding, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked++
	l.saw = in.State
	if l.err != nil {
		return keyring.Finding{}, l.err
	}
	return l.say[min(l.asked, len(l.say))-1], nil
}

func (l *lookout) times() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked
}

// later lets time pass between the record of an answer and the look that
// follows, so that "absent" counts where the terms settle in a second.
func later() *client.Hooks {
	return &client.Hooks{Answer: func(context.Context, client.Event) { time.Sleep(time.Second) }}
}

// gaps are the times between the hits.
func (e *env) gaps(paths ...string) []time.Duration {
	var gaps []time.Duration
	seen := e.srv.Requests(paths...)
	for i := 1; i < len(seen); i++ {
		gaps = append(gaps, seen[i].At.Sub(seen[i-1].At))
	}
	return gaps
}

// TestC29: quick retries met a server that had acted but not yet stored the key.
func TestC29AGatewayTimeoutIsGivenTimeToSettle(t *testing.T) {
	gateway := clienttest.ActThenAnswer(504, clienttest.JSON(), []byte(`{}`)).Wait(time.Second)
	slow := &clienttest.Options{StoreLag: 3 * time.Second}
	terms := keyring.Terms{Dedup: keyring.DedupKey, KeepsRefusals: true, Retention: 24 * time.Hour}

	synctest.Test(t, func(t *testing.T) {
		e := start(t, withTerms(t, "POST /{rest...}", terms), slow, client.Options{Retry: retry.Exponential{MaxAttempts: 5}})
		e.srv.Script(gateway)
		res, err := e.do("toot-1", e.post("/statuses", pay))
		e.state(res, err, keyring.StateDone)
		e.want(counts{2, 1, 1, 1})
		if res.Outcome.Source != keyring.SourceReplay || res.Outcome.Verdict.EffectID != "eff_1" {
			t.Errorf("%+v, want the replay of the first hit's effect", res.Outcome)
		}
		if g := e.gaps(); g[0] < 6*time.Second { // the hit, a second until its 504, and five more
			t.Errorf("%v after the first hit, want 5 s after its answer", g)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		e := start(t, withTerms(t, "POST /{rest...}", terms), slow, client.Options{Retry: retry.Exponential{MaxAttempts: 5}})
		e.srv.Script(gateway.Forever())
		began := time.Now()
		var res *client.Result
		var err error
		for time.Since(began) < time.Minute { // a caller who asks again all the time
			res, err = e.do("toot-1", e.post("/statuses", pay))
			e.state(res, err, keyring.StateUnknown)
			time.Sleep(time.Second)
		}
		if hits := e.srv.Hits(); hits > 3 || hits < 2 {
			t.Errorf("%d hits in the first minute, want 2 or 3 (apart by %v)", hits, e.gaps())
		}
		for i, g := range e.gaps() {
			if want := []time.Duration{6 * time.Second, 21 * time.Second}[i]; g < want {
				t.Errorf("gap %d is %v, want at least %v", i+1, g, want)
			}
		}
		if !errors.Is(err, keyring.ErrTooSoon) || !res.Outcome.NotBefore.After(time.Now()) {
			t.Errorf("%v, not before %v; want a time to come back", err, res.Outcome.NotBefore)
		}
		if e.srv.Effects() != 1 || len(e.srv.Keys()) != 1 {
			t.Error(e.srv)
		}
	})
}

// The rest of the kind: what the doubt is made of does not matter, nor whether
// a restart lies in between.
func TestC29DoubtOfAnySortIsSpacedAcrossRestarts(t *testing.T) {
	for _, f := range []clienttest.Fault{
		clienttest.ActThenAnswer(500, clienttest.JSON(), []byte(`{}`)), clienttest.ActThenAnswer(502, nil, []byte("<html>")),
		clienttest.ActThenAnswer(503, clienttest.JSON(), nil), clienttest.ActThenAnswer(408, clienttest.JSON(), nil),
		clienttest.LoseAnswer(), clienttest.StallAfter(),
	} {
		t.Run(f.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				terms := keyring.Terms{Dedup: keyring.DedupKey, Retention: 24 * time.Hour}
				e := start(t, withTerms(t, "POST /{rest...}", terms), &clienttest.Options{StoreLag: 3 * time.Second},
					client.Options{Retry: retry.Exponential{MaxAttempts: 1}, AttemptTimeout: time.Second})
				e.srv.Script(f)
				res, err := e.do("toot-1", e.post("/statuses", pay))
				e.state(res, err, keyring.StateUnknown)
				ended := time.Now()
				for range 20 {
					e.restart(nil)
					if res, err = e.do("toot-1", e.post("/statuses", pay)); err == nil {
						break
					}
					if !errors.Is(err, keyring.ErrTooSoon) {
						t.Fatal(err)
					}
					time.Sleep(500 * time.Millisecond)
				}
				e.state(res, err, keyring.StateDone)
				if waited := e.srv.Requests()[1].At.Sub(ended); waited < 5*time.Second {
					t.Errorf("sent again %v after the attempt's end", waited)
				}
				e.want(counts{2, 1, 1, 1})
			})
		})
	}
}

// TestC39: the service recognises the repeat, and crashes while answering it.
func TestC39ALookSettlesWhatRepeatsCannot(t *testing.T) {
	found := keyring.Finding{Kind: keyring.FindingPresent, EffectID: "s1", By: "list by metadata"}
	for _, c := range []struct {
		claim string
		say   keyring.Finding
		want  keyring.State
		rekey error // what Rekey says afterwards
	}{
		{"found", found, keyring.StateDone, keyring.ErrFinal},
		{"not found", keyring.Finding{Kind: keyring.FindingAbsent}, keyring.StateNeverSent, nil},
		{"cannot tell", keyring.Finding{}, keyring.StateUnknown, keyring.ErrNeedsInspection},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				terms := keyring.Terms{Dedup: keyring.DedupKey, MarksRunning: true, Retention: 24 * time.Hour, Settle: time.Second}
				look := sees(c.say)
				e := start(t, withTerms(t, "POST /{rest...}", terms), nil, client.Options{Inspector: look, Hooks: later()})
				e.srv.Script(clienttest.LoseAnswer(), clienttest.Answer(500, clienttest.JSON(), []byte(`{}`)).Forever())
				res, err := e.do("toot-1", e.post("/statuses", pay))
				e.state(res, err, c.want)
				e.want(counts{3, 1, 1, 1})
				if look.times() != 1 || look.saw != keyring.StateUnknown {
					t.Errorf("asked %d times, last about one that was %s; want once, in doubt", look.times(), look.saw)
				}
				if c.want == keyring.StateDone {
					if res.Outcome.Source != keyring.SourceInspection || res.Outcome.Verdict.EffectID != "s1" {
						t.Errorf("%+v, want what was found", res.Outcome)
					}
					if _, err := e.client.Inspect(e.ctx, keyring.Ref{Name: "toot-1"}); !errors.Is(err, keyring.ErrFinal) {
						t.Errorf("looking again: %v, want ErrFinal", err)
					}
					return
				}
				seen, err := e.client.Inspect(e.ctx, keyring.Ref{Name: "toot-1"})
				if err != nil {
					t.Fatal(err)
				}
				in, err := e.client.Rekey(e.ctx, seen, e.post("/statuses", pay))
				if !errors.Is(err, c.rekey) {
					t.Fatalf("another key: %v, want %v", err, c.rekey)
				}
				if c.rekey == nil && (in.Generation != 2 || in.Key == res.Intent.Key) {
					t.Errorf("generation %d, key %s after %s", in.Generation, in.Key, res.Intent.Key)
				}
				e.want(counts{3, 1, 1, 1})
			})
		})
	}
}

// TestC41: the registry published and answered 5xx; the repeat was told "exists".
func TestC41APublicationIsLookedForBeforeItIsSentAgain(t *testing.T) {
	pkg := []byte("the bytes of x 1.0.0")
	exists := clienttest.Answer(403, clienttest.JSON(), []byte(`{"code":"exists"}`))
	for _, c := range []struct {
		claim   string
		first   clienttest.Fault
		stored  string // the hash that GET gives; empty: 404
		then    clienttest.Fault
		want    keyring.State
		hits    int
		effects int
	}{
		{"it is there", clienttest.ActThenAnswer(503, clienttest.JSON(), nil), digest(pkg), exists, keyring.StateDone, 1, 1},
		{"something else is there", clienttest.Answer(503, clienttest.JSON(), nil), digest([]byte("other")), exists, keyring.StateRefused, 1, 0},
		{"nothing is there", clienttest.Answer(503, clienttest.JSON(), nil), "", clienttest.Normal(), keyring.StateDone, 2, 1},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				look := keyring.InspectorFunc(func(_ context.Context, in keyring.Intent) (keyring.Finding, error) {
					switch c.stored {
					case "":
						return keyring.Finding{Kind: keyring.FindingAbsent}, nil
					case digest(in.Request.Body):
						return keyring.Finding{Kind: keyring.FindingPresent}, nil
					}
					return keyring.Finding{Kind: keyring.FindingOther}, nil
				})
				e := start(t, withTerms(t, "PUT /pkg/{name}/{version}", keyring.Terms{Settle: time.Second}), &clienttest.Options{NoDedup: true},
					client.Options{Inspector: look, Hooks: later()})
				e.srv.Script(c.first, c.then)
				put := func() *http.Request {
					return e.request("PUT", "/pkg/x/1.0.0", newOnce(pkg))
				}
				res, err := e.do("x-1.0.0", put())
				e.state(res, err, c.want)
				if c.hits == 1 && res.Outcome.Source != keyring.SourceInspection {
					t.Errorf("source %s, want the look", res.Outcome.Source)
				}
				if c.want == keyring.StateRefused && !errors.Is(err, client.ErrRefused) {
					t.Errorf("%v, want ErrRefused", err)
				}
				e.want(counts{c.hits, c.effects, 0, 1})
				res, err = e.do("x-1.0.0", put()) // final is final
				e.state(res, err, c.want)
				e.want(counts{c.hits, c.effects, 0, 1})
			})
		})
	}
}

// TestC43: a delete that timed out although it had worked. A 404 alone is no
// success.
func TestC43AGoneObjectIsOurSuccessOnlyAfterDoubt(t *testing.T) {
	gone := clienttest.Answer(404, clienttest.JSON(), []byte(`{"error":"not_found"}`))
	page := clienttest.Answer(404, http.Header{"Content-Type": {"text/html"}}, []byte("<html>no such page</html>"))
	for _, c := range []struct {
		claim   string
		faults  []clienttest.Fault
		want    keyring.State
		src     keyring.Source
		hits    int
		effects int
	}{
		{"gone after a lost answer", []clienttest.Fault{clienttest.LoseAnswer(), gone.Forever()}, keyring.StateDone, keyring.SourceInference, 2, 1},
		{"410 after a lost answer", []clienttest.Fault{clienttest.LoseAnswer(), clienttest.Answer(410, clienttest.JSON(), nil)}, keyring.StateDone, keyring.SourceInference, 2, 1},
		{"gone on the first hit", []clienttest.Fault{gone}, keyring.StateRefused, keyring.SourceProvider, 1, 0},
		{"gone after one that never left", []clienttest.Fault{clienttest.RefuseConnection(), gone}, keyring.StateRefused, keyring.SourceProvider, 1, 0},
		{"a front's page after a lost answer", []clienttest.Fault{clienttest.LoseAnswer(), page.Forever()}, keyring.StateUnknown, keyring.SourceRecord, 3, 1},
		{"a 404 that says nothing after a lost answer", []clienttest.Fault{clienttest.LoseAnswer(), clienttest.Answer(404, nil, nil).Forever()}, keyring.StateUnknown, keyring.SourceRecord, 3, 1},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				terms := keyring.Terms{Dedup: keyring.DedupNatural}
				e := start(t, withTerms(t, "DELETE /posts/{id}", terms), &clienttest.Options{NoDedup: true},
					client.Options{Retry: retry.Exponential{MaxAttempts: 3}})
				e.srv.Script(c.faults...)
				res, err := e.do("delete-7", e.request("DELETE", "/posts/7", nil))
				e.state(res, err, c.want)
				if res.Outcome.Source != c.src {
					t.Errorf("source %s, want %s", res.Outcome.Source, c.src)
				}
				e.want(counts{c.hits, c.effects, 0, 1})
				for _, s := range e.srv.Requests() {
					if s.Length > 0 || s.Chunked || s.Header.Get("Idempotency-Key") != "" {
						t.Errorf("a body of %d bytes, key %q", s.Length, s.Header.Get("Idempotency-Key"))
					}
				}
			})
		})
	}
}

// TestC45: an endpoint that silently ignores the key.
func TestC45AnEndpointThatIsNotListedGetsOneHit(t *testing.T) {
	look := sees(keyring.Finding{})
	e := start(t, withTerms(t, "POST /payments", keyring.Terms{Dedup: keyring.DedupKey, Retention: 24 * time.Hour}),
		&clienttest.Options{NoDedup: true}, client.Options{Retry: quick(5), Inspector: look})
	e.srv.Script(clienttest.LoseAnswer())
	res, err := e.do("post-1", e.post("/scheduled", pay))
	e.state(res, err, keyring.StateUnknown)
	if !errors.Is(err, keyring.ErrNeedsInspection) || !res.Outcome.NeedsInspection || look.times() != 1 {
		t.Errorf("%v, needs inspection %v, asked %d times", err, res.Outcome.NeedsInspection, look.times())
	}
	for range 3 {
		e.restart(nil)
		res, err = e.do("post-1", e.post("/scheduled", pay))
		e.state(res, err, keyring.StateUnknown)
	}
	e.want(counts{1, 1, 1, 1})
}

// Listed by mistake: the repeat for a lost answer makes one more object.
func TestC45TwoEffectsUnderOneKeyGetNoThirdHit(t *testing.T) {
	n := 0
	e := start(t, dedup(t), &clienttest.Options{NoDedup: true, Act: func(clienttest.Seen) (int, http.Header, []byte) {
		n++
		return 201, clienttest.JSON(), fmt.Appendf(nil, `{"id":"s%d","text":%q}`, n, strings.Repeat("x", 100))
	}}, client.Options{Retry: quick(5)})
	e.srv.Script(clienttest.CutAnswer(30))
	res, err := e.do("post-1", e.post("/scheduled", pay))
	e.state(res, err, keyring.StateDone)
	first, second := res.Intent.Attempts[0].Verdict, res.Intent.Attempts[1].Verdict
	if !res.Outcome.Broken || !first.Unreadable || first.EffectID != "s1" || second.EffectID != "s2" {
		t.Errorf("broken %v, %+v, %+v; want both ids and Broken", res.Outcome.Broken, first, second)
	}
	res, err = e.do("post-1", e.post("/scheduled", pay))
	e.state(res, err, keyring.StateDone)
	e.want(counts{2, 2, 1, 1})
}

func TestC45TwoEffectsUnderOneKeyAreSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), &clienttest.Options{NoDedup: true}, client.Options{})
		ref := keyring.Ref{Name: "post-1"}
		in, err := e.client.Begin(e.ctx, ref, e.post("/scheduled", pay))
		if err != nil {
			t.Fatal(err)
		}
		slow, err := e.client.Ring().Acquire(e.ctx, ref, keyring.Current{Terms: in.Terms})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := slow.Start(e.ctx); err != nil { // an answer that is long in coming
			t.Fatal(err)
		}
		res, err := e.do("post-1", e.post("/scheduled", pay))
		e.state(res, err, keyring.StateDone)
		if _, err := slow.Finish(e.ctx, keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "s1"}, nil, keyring.After{}); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			res, err = e.do("post-1", e.post("/scheduled", pay))
			e.state(res, err, keyring.StateDone)
			if !res.Outcome.Broken || !res.Outcome.NeedsInspection || !strings.Contains(res.Outcome.Next, "More than one effect") {
				t.Errorf("%+v; want Broken", res.Outcome)
			}
			ids := map[string]bool{}
			for _, a := range res.Intent.Attempts {
				ids[a.Verdict.EffectID] = true
			}
			if !ids["s1"] || !ids["eff_1"] {
				t.Errorf("ids %v on record, want both", ids)
			}
			e.restart(nil)
		}
		e.want(counts{1, 1, 1, 1})
	})
}

// TestC49: two overlapping replays of the queue sent the same requests twice.
func TestC49OverlappingResumesSendOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, nodedup(t), &clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault {
			return clienttest.Normal().Work(200 * time.Millisecond)
		}, NoDedup: true}, client.Options{})
		for i := range 3 {
			if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: fmt.Sprint("q-", i)}, e.post("/posts", fmt.Sprintf(`{"n":%d}`, i))); err != nil {
				t.Fatal(err)
			}
		}
		var wg sync.WaitGroup
		for range 2 {
			cl := client.New(e.store, e.profile, &e.opts)
			wg.Go(func() {
				for range 5 {
					for res, err := range cl.Resume(e.ctx) {
						if err != nil || res.Outcome.State != keyring.StateDone {
							t.Errorf("%v, %v", res, err)
						}
					}
				}
			})
		}
		wg.Wait()
		e.want(counts{3, 3, 3, 3})
		for _, s := range e.srv.Requests() {
			if s.KeyHit != 1 {
				t.Errorf("key %s was hit %d times", s.Key, s.KeyHit)
			}
		}
	})
}

// TestC51: a second resource was made before anybody asked about the first.
func TestC51AnIntentInDoubtIsLeftAloneAndListed(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Retry: quick(1)})
	e.srv.Script(clienttest.LoseAnswer())
	body := `{"size":1}`
	res, err := e.do("db-1", e.post("/databases", body))
	e.state(res, err, keyring.StateUnknown)
	before := e.srv.Hits()

	e.restart(nil)
	in, err := e.client.Begin(e.ctx, keyring.Ref{Name: "db-1"}, e.post("/databases", body))
	if err != nil || in.Key != res.Intent.Key || in.State != keyring.StateUnknown || in.Revision != res.Intent.Revision {
		t.Errorf("%v %v; want the intent on record, unchanged", in, err)
	}
	_, err = e.client.Begin(e.ctx, keyring.Ref{Name: "db-1"}, e.post("/databases", `{"size":2}`))
	var ke *keyring.Error
	var ce *client.Error
	if !errors.Is(err, keyring.ErrDiffers) || !errors.As(err, &ke) || ke.Ref.Name != "db-1" || !errors.As(err, &ce) || ce.Key != res.Intent.Key {
		t.Errorf("%v; want ErrDiffers with the ref and key of the first", err)
	}
	for _, name := range []string{"db-2", "vpc", "user"} {
		if in, err := e.client.Begin(e.ctx, keyring.Ref{Name: name}, e.post("/databases", fmt.Sprintf(`{"name":%q}`, name))); err != nil || in.State != keyring.StateNeverSent {
			t.Errorf("%s: %v %v", name, in.State, err)
		}
	}
	if hits := e.srv.Hits() - before; hits != 0 {
		t.Errorf("%d hits", hits)
	}
	listed := 0
	for in, err := range e.client.Ring().List(e.ctx, keyring.Query{OpenOnly: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if in.State == keyring.StateUnknown {
			listed++
			if in.Ref.Name != "db-1" || in.Outcome().Next == "" || in.ResendUntil().IsZero() {
				t.Errorf("%v: next %q, until %v", in, in.Outcome().Next, in.ResendUntil())
			}
		}
	}
	gens, err := e.client.Ring().Generations(e.ctx, keyring.Ref{Name: "db-1"})
	if err != nil || len(gens) != 1 || listed != 1 {
		t.Errorf("%d keys for db-1 (%v), %d listed in doubt; want one", len(gens), err, listed)
	}
}

// TestC59: attempts lost to conflicting writes, and writes after the end.
func TestC59NoAttemptIsLostToConcurrentHolders(t *testing.T) {
	const goroutines = 50
	e := start(t, dedup(t), nil, client.Options{})
	ref := keyring.Ref{Name: "inv-7"}
	in, err := e.client.Begin(e.ctx, ref, e.post("/pay", pay))
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for {
				h, err := e.client.Ring().Acquire(e.ctx, ref, keyring.Current{Terms: in.Terms})
				if errors.Is(err, keyring.ErrHeld) {
					time.Sleep(time.Millisecond)
					continue
				}
				if err == nil {
					_, err = h.Start(e.ctx)
				}
				if err == nil {
					_, err = h.Finish(e.ctx, keyring.Verdict{Kind: keyring.VerdictNotProcessed}, nil, keyring.After{})
				}
				if err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	wg.Wait()
	if n := len(e.get("inv-7").Attempts); n != goroutines {
		t.Errorf("%d attempts on record, want %d", n, goroutines)
	}
}

func TestC59CloseKeepsWhatIsInFlight(t *testing.T) {
	for _, c := range []struct {
		latency time.Duration
		want    keyring.State
		closes  error
	}{
		{time.Second, keyring.StateDone, nil},
		{5 * time.Second, keyring.StateUnknown, context.DeadlineExceeded},
	} {
		t.Run(c.latency.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, dedup(t), &clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault {
					return clienttest.Normal().Work(c.latency)
				}}, client.Options{})
				var wg sync.WaitGroup
				name := func(i int) string { return fmt.Sprint("inv-", i) }
				for i := range 10 {
					if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: name(i)}, e.post("/pay", fmt.Sprintf(`{"n":%d}`, i))); err != nil {
						t.Fatal(err)
					}
					wg.Go(func() {
						res, err := e.client.Send(e.ctx, keyring.Ref{Name: name(i)})
						e.state(res, err, c.want)
						if c.closes != nil && !errors.Is(err, keyring.ErrClosed) {
							t.Errorf("%v, want ErrClosed too", err)
						}
					})
				}
				synctest.Wait() // all ten are under way
				grace, cancel := context.WithTimeout(e.ctx, 2*time.Second)
				defer cancel()
				if err := e.client.Close(grace); !errors.Is(err, c.closes) {
					t.Errorf("closing: %v, want %v", err, c.closes)
				}
				for i := range 10 { // on record by now, not some time later
					if in := e.get(name(i)); in.State != c.want || in.HeldBy != "" {
						t.Errorf("%s is %s, held by %q", name(i), in.State, in.HeldBy)
					}
				}
				if err := e.client.Close(e.ctx); err != nil {
					t.Errorf("closing again: %v", err)
				}
				if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: "late"}, e.post("/pay", pay)); !errors.Is(err, keyring.ErrClosed) {
					t.Errorf("%v, want ErrClosed", err)
				}
				wg.Wait()
				if e.srv.Hits() != 10 || len(e.srv.Keys()) != 10 {
					t.Error(e.srv)
				}
			})
		})
	}
}
