package client_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

// queue begins intents, a second apart, and gives their names in that order.
// The names sort in another one.
func (e *env) queue(n int) []string {
	e.t.Helper()
	var names []string
	for i := range n {
		name := fmt.Sprintf("%02d", (i*7+3)%n)
		if _, err := e.client.Begin(e.ctx, keyring.Ref{Scope: e.opts.Scope, Name: name}, e.post("/pay/"+name, pay)); err != nil {
			e.t.Fatal(err)
		}
		names = append(names, name)
		time.Sleep(time.Second)
	}
	return names
}

// resumed is what Resume yielded, by name.
type resumed map[string]error

func (e *env) resume() resumed {
	e.t.Helper()
	got := resumed{}
	for res, err := range e.client.Resume(e.ctx) {
		if res == nil {
			e.t.Fatalf("no result: %v", err)
		}
		if (err == nil) != (res.Outcome.State == keyring.StateDone) {
			e.t.Errorf("%s: %s, error %v", res.Intent.Ref, res.Outcome.State, err)
		}
		if _, twice := got[res.Intent.Ref.Name]; twice {
			e.t.Errorf("%s is yielded twice", res.Intent.Ref)
		}
		got[res.Intent.Ref.Name] = err
	}
	return got
}

func TestResumeSendsOldestFirstAFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		e := start(t, dedup(t), &clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault {
			if n := now.Add(1); n > most.Load() {
				most.Store(n)
			}
			time.AfterFunc(999*time.Millisecond, func() { now.Add(-1) }) // before the next ones come
			return clienttest.Normal().Work(time.Second)
		}}, client.Options{})
		names := e.queue(12)
		e.restart(nil)
		began := time.Now()
		got := e.resume()
		if len(got) != 12 {
			t.Errorf("%d results, want 12: %v", len(got), got)
		}
		if most.Load() != 4 {
			t.Errorf("%d at a time, want 4", most.Load())
		}
		// Four leave at one moment, in no order among themselves.
		var waves [3][]string
		for _, s := range e.srv.Requests() {
			wave := int(s.At.Sub(began) / time.Second)
			waves[wave] = append(waves[wave], strings.TrimPrefix(s.Path, "/pay/"))
		}
		for i, wave := range waves {
			want := slices.Sorted(slices.Values(names[4*i : 4*i+4]))
			if slices.Sort(wave); !slices.Equal(wave, want) {
				t.Errorf("in second %d were sent %v, want %v", i, wave, want)
			}
		}
		e.want(counts{12, 12, 12, 1})
		if got := e.resume(); len(got) != 0 {
			t.Errorf("resumed again: %v", got)
		}
	})
}

func TestADeadHostDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), nil, client.Options{Retry: retry.Never{}, AttemptTimeout: 30 * time.Second})
		live := e.opts.Transport
		e.restart(func(o *client.Options) {
			o.Transport = transport(func(r *http.Request) (*http.Response, error) {
				if r.URL.Host == "box.test" {
					return live.RoundTrip(r)
				}
				<-r.Context().Done() // nobody is there
				return nil, r.Context().Err()
			})
		})
		for i, host := range []string{"http://dead.test", "http://box.test"} { // the dead one's are older
			e.url = host
			for j := range 9 {
				if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: fmt.Sprintf("%d-%d", i, j)}, e.post("/pay", fmt.Sprint(i, j))); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
		}
		began := time.Now()
		var order []string
		for res, err := range e.client.Resume(e.ctx) {
			order = append(order, res.Intent.Ref.Name[:1])
			if dead := res.Intent.Ref.Name[0] == '0'; dead != errors.Is(err, client.ErrUnknown) {
				t.Errorf("%s: %v", res.Intent.Ref, err)
			} else if at := time.Since(began); !dead && at != 0 {
				t.Errorf("%s came after %v", res.Intent.Ref, at)
			}
		}
		if got := strings.Join(order, ""); got != strings.Repeat("1", 9)+strings.Repeat("0", 9) {
			t.Errorf("came in the order %s", got)
		}
		if took := time.Since(began); took != 90*time.Second { // nine, four at a time
			t.Errorf("it took %v, want three times the attempt timeout", took)
		}
	})
}

func TestResumeListsWhatCannotBeSentNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, withTerms(t, "POST /pay", keyring.Terms{
			Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 6 * time.Hour,
		}), nil, client.Options{Retry: quick(1)})
		send := func(name, path string, f clienttest.Fault) {
			e.srv.Script(f)
			_, _ = e.do(name, e.post(path, pay)) // each is looked at below
			e.srv.Unscript()
		}
		begin := func(name string, change func(*http.Request)) {
			req := e.post("/pay", pay)
			change(req)
			if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: name}, req); err != nil {
				t.Fatal(err)
			}
		}
		send("expired", "/pay", clienttest.LoseAnswer())
		time.Sleep(7 * time.Hour)
		send("too soon", "/pay", clienttest.Answer(429, http.Header{"Content-Type": {"application/json"}, "Retry-After": {"3600"}}, []byte(`{}`)))
		send("look", "/unlisted", clienttest.LoseAnswer())
		send("advised against", "/pay", clienttest.Redirect(302, "/elsewhere"))
		send("conflict", "/pay", clienttest.Conflict())
		send("done", "/pay", clienttest.Normal())
		send("refused", "/pay", clienttest.Decide(402, clienttest.JSON(), []byte(`{"code":"declined"}`)))
		begin("sign in", func(r *http.Request) { r.Header.Set("Authorization", "Bearer secret") })
		begin("fine", func(*http.Request) {})
		begin("damaged", func(*http.Request) {})
		e.damage(t, "damaged")
		before := e.srv.Hits()

		e.restart(nil)
		got := e.resume()
		for name, want := range map[string][]error{
			"expired":         {client.ErrExpired, keyring.ErrNeedsInspection},
			"too soon":        {client.ErrNotSent, keyring.ErrTooSoon},
			"look":            {client.ErrUnknown, keyring.ErrNeedsInspection},
			"advised against": {client.ErrUnknown, keyring.ErrNeedsInspection},
			"conflict":        {client.ErrConflict, keyring.ErrNeedsInspection},
			"sign in":         {client.ErrNotSent, client.ErrSignIn},
			"damaged":         {client.ErrUnknown, keyring.ErrDamaged, keyring.ErrNeedsInspection},
			"fine":            nil,
		} {
			err, listed := got[name]
			if !listed {
				t.Errorf("%s is not listed", name)
			}
			if len(want) == 0 && err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for _, is := range want {
				if !errors.Is(err, is) {
					t.Errorf("%s: %v; want %v", name, err, is)
				}
			}
		}
		if len(got) != 8 {
			t.Errorf("listed: %v", got)
		}
		if hits := e.srv.Hits() - before; hits != 1 {
			t.Errorf("%d hits, want that of the one that is fine", hits)
		}
	})
}

func TestResumeLeavesOthersAlone(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{Scope: "acct_1"})
	other := client.New(e.store, provider.Draft(24*time.Hour, "POST /{rest...}"), &e.opts)
	for _, b := range []struct {
		by  *client.Client
		ref keyring.Ref
	}{
		{e.client, keyring.Ref{Scope: "acct_1", Name: "ours"}},
		{e.client, keyring.Ref{Scope: "acct_2", Name: "another account's"}},
		{e.client, keyring.Ref{Name: "nobody's"}},
		{other, keyring.Ref{Scope: "acct_1", Name: "another provider's"}},
	} {
		if _, err := b.by.Begin(e.ctx, b.ref, e.post("/pay", fmt.Sprintf("%q", b.ref))); err != nil {
			t.Fatal(err)
		}
	}
	got := e.resume()
	if err, ok := got["ours"]; len(got) != 1 || !ok || err != nil {
		t.Errorf("resumed: %v, want ours alone", got)
	}
	e.want(counts{1, 1, 1, 1})
	e.restart(func(o *client.Options) { o.Scope = "" })
	if got := e.resume(); len(got) != 1 || e.srv.Hits() != 2 {
		t.Errorf("without a scope: %v, %d hits", got, e.srv.Hits())
	}
}

// TestResumeGoesOnAfterACrash: an attempt whose sender is gone is doubt, and
// goes out again under its key.
func TestResumeGoesOnAfterACrash(t *testing.T) {
	e := start(t, dedup(t), nil, client.Options{})
	ref := keyring.Ref{Name: "inv-7"}
	in, err := e.client.Begin(e.ctx, ref, e.post("/pay", pay))
	if err != nil {
		t.Fatal(err)
	}
	h, err := e.client.Ring().Acquire(e.ctx, ref, keyring.Current{Terms: in.Terms})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(e.ctx); err != nil {
		t.Fatal(err)
	}
	e.store = e.store.Reopen()
	e.restart(nil)
	if got := e.resume(); len(got) != 1 || got["inv-7"] != nil {
		t.Errorf("resumed: %v", got)
	}
	if now := e.get("inv-7"); len(now.Attempts) != 2 || now.Key != in.Key || e.srv.Keys()[0] != in.Key.String() {
		t.Errorf("%d attempts under %s, the wire had %q; want 2 under %s", len(now.Attempts), now.Key, e.srv.Keys(), in.Key)
	}
	e.want(counts{1, 1, 1, 1})
}

func TestLeavingTheLoopStartsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), &clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault {
			return clienttest.Normal().Work(time.Second)
		}}, client.Options{})
		names := e.queue(20)
		for _, err := range e.client.Resume(e.ctx) {
			if err != nil {
				t.Error(err)
			}
			break
		}
		sent := e.srv.Hits()
		if sent > 8 { // the first four, and those that took their place meanwhile
			t.Errorf("%d were sent for one result", sent)
		}
		done := 0
		for _, name := range names {
			in := e.get(name)
			if in.HeldBy != "" || in.State != keyring.StateDone && in.State != keyring.StateNeverSent {
				t.Errorf("%s is %s, held by %q", name, in.State, in.HeldBy)
			}
			if in.State == keyring.StateDone {
				done++
			}
		}
		if done != sent {
			t.Errorf("%d of %d are on record", done, sent)
		}
		time.Sleep(time.Minute)
		if e.srv.Hits() != sent {
			t.Errorf("%d more were sent after the loop", e.srv.Hits()-sent)
		}
		if got := e.resume(); len(got) != 20-sent {
			t.Errorf("%d resumed, want the other %d", len(got), 20-sent)
		}
		e.want(counts{20, 20, 20, 1})
	})
}

func TestResumeEnds(t *testing.T) {
	for _, c := range []struct {
		claim string
		end   func(e *env, cancel func()) error
		is    error
	}{
		{"when its context ends", func(_ *env, cancel func()) error { cancel(); return nil }, context.Canceled},
		{"when the client is closed", func(e *env, _ func()) error {
			ctx, cancel := context.WithCancel(e.ctx)
			cancel() // no grace
			if err := e.client.Close(ctx); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("closing: %w", err)
			}
			return nil
		}, keyring.ErrClosed},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, dedup(t), &clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault {
					return clienttest.Normal().Work(10 * time.Second)
				}}, client.Options{})
				names := e.queue(9)
				ctx, cancel := context.WithCancel(e.ctx)
				defer cancel()
				ended := make(chan error, 1)
				time.AfterFunc(time.Second, func() { ended <- c.end(e, cancel) })
				began := time.Now()
				got := map[string]bool{}
				for res, err := range e.client.Resume(ctx) {
					if res == nil {
						t.Fatal(err)
					}
					got[res.Intent.Ref.Name] = true
					if !errors.Is(err, c.is) {
						t.Errorf("%s: %v; want %v", res.Intent.Ref, err, c.is)
					}
				}
				if took := time.Since(began); took != time.Second {
					t.Errorf("it went on for %v", took)
				}
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if e.srv.Hits() != 4 || len(got) != 9 {
					t.Errorf("%d hits, %d outcomes; want the first four, and a word on each of the nine", e.srv.Hits(), len(got))
				}
				for _, name := range names {
					if in := e.get(name); in.HeldBy != "" || in.State != keyring.StateUnknown && in.State != keyring.StateNeverSent {
						t.Errorf("%s is %s, held by %q", name, in.State, in.HeldBy)
					}
				}
				time.Sleep(time.Minute)
				e.restart(nil)
				if got := e.resume(); len(got) != 9 {
					t.Errorf("%d resumed later", len(got))
				}
				if e.srv.Effects() != 9 || len(e.srv.Keys()) != 9 {
					t.Error(e.srv)
				}
			})
		})
	}
}

func TestCloseWaitsForResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, dedup(t), &clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault {
			return clienttest.Normal().Work(time.Second)
		}}, client.Options{})
		e.queue(4)
		var wg sync.WaitGroup
		wg.Go(func() { e.resume() })
		synctest.Wait()
		if err := e.client.Close(e.ctx); err != nil {
			t.Error(err)
		}
		e.want(counts{4, 4, 4, 1})
		wg.Wait()
		for res, err := range e.client.Resume(e.ctx) {
			if res != nil || !errors.Is(err, keyring.ErrClosed) {
				t.Errorf("%v, %v; want ErrClosed", res, err)
			}
		}
	})
}

// TestTwoResumesAndTheirCallersShareOneSending: whoever comes second gets the
// outcome of the first.
func TestTwoResumesAndTheirCallersShareOneSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := start(t, nodedup(t), &clienttest.Options{NoDedup: true, Fault: func(clienttest.Seen) clienttest.Fault {
			return clienttest.Normal().Work(time.Second)
		}}, client.Options{})
		names := e.queue(6)
		var wg sync.WaitGroup
		for range 2 {
			wg.Go(func() {
				if got := e.resume(); len(got) != 6 {
					t.Errorf("%d outcomes, want 6", len(got))
				}
			})
		}
		for _, name := range names {
			wg.Go(func() {
				res, err := e.do(name, e.post("/pay/"+name, pay))
				e.state(res, err, keyring.StateDone)
			})
		}
		wg.Wait()
		e.want(counts{6, 6, 6, 1})
	})
}

// failingScan is a store that can list some records, or none.
type failingScan struct {
	*keyringtest.Store
	after int
	err   error
}

func (f failingScan) Scan(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
	return func(yield func(keyring.Record, error) bool) {
		n := 0
		for rec, err := range f.Store.Scan(ctx, q) {
			if n == f.after {
				break
			}
			if n++; !yield(rec, err) {
				return
			}
		}
		yield(keyring.Record{}, f.err)
	}
}

func TestAnErrorOfTheKeyringIsYielded(t *testing.T) {
	for _, after := range []int{0, 2} {
		e := start(t, dedup(t), nil, client.Options{})
		for i := range 3 {
			if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: fmt.Sprint(i)}, e.post("/pay", pay)); err != nil {
				t.Fatal(err)
			}
		}
		broken := errors.New("the disk is gone")
		yields := 0
		for res, err := range client.New(failingScan{e.store, after, broken}, e.profile, &e.opts).Resume(e.ctx) {
			yields++
			var ce *client.Error
			if res != nil || !errors.Is(err, broken) || !errors.As(err, &ce) || ce.Op != "resume" {
				t.Errorf("%v, %v; want the store's error", res, err)
			}
		}
		if yields != 1 {
			t.Errorf("%d yields", yields)
		}
		e.want(counts{}) // what was listed before may be a part of the truth only
	}
	for res, err := range client.New(nil, dedup(t), nil).Resume(t.Context()) {
		if res != nil || !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("%v, %v; want ErrInvalid", res, err)
		}
	}
}

func TestResumeAsksAccess(t *testing.T) {
	denied := errors.New("not yours")
	e := start(t, dedup(t), nil, client.Options{})
	for _, name := range []string{"mine", "theirs"} {
		if _, err := e.client.Begin(e.ctx, keyring.Ref{Name: name}, e.post("/pay", pay)); err != nil {
			t.Fatal(err)
		}
	}
	e.restart(func(o *client.Options) {
		o.Access = func(_ context.Context, in keyring.Intent) error {
			if in.Ref.Name == "theirs" {
				return denied
			}
			return nil
		}
	})
	mine := 0
	for res, err := range e.client.Resume(e.ctx) {
		if res == nil || err != nil || res.Intent.Ref.Name == "theirs" {
			t.Errorf("%v, %v: not even the ref of what Access refuses is told", res, err)
		}
		mine++
	}
	if mine != 1 {
		t.Errorf("%d of mine", mine)
	}
	e.want(counts{1, 1, 1, 1})
}
