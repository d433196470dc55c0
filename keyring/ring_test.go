package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey/internal/clock"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
)

// clocks are wall and monotonic clock apart, as a test drives them.
type clocks struct {
	mu sync.Mutex
	r  clock.Reading
}

func newClocks() *clocks {
	return &clocks{r: clock.Reading{Wall: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC), Boot: "boot-1"}}
}

func (c *clocks) Read() clock.Reading { c.mu.Lock(); defer c.mu.Unlock(); return c.r }

// pass lets time pass on both clocks.
func (c *clocks) pass(d time.Duration) { c.step(d, d) }

// step moves the clocks apart: a sleep moves the wall clock alone.
func (c *clocks) step(wall, mono time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.r.Wall, c.r.Mono = c.r.Wall.Add(wall), c.r.Mono+mono
}

// reboot starts the monotonic clock anew.
func (c *clocks) reboot(wall time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.r = clock.Reading{Wall: c.r.Wall.Add(wall), Boot: c.r.Boot + "+"}
}

var ref = keyring.Ref{Name: "order-8123/charge"}

func draft(change ...func(*keyring.Draft)) keyring.Draft {
	d := keyring.Draft{
		Request: keyring.Request{Method: "POST", URL: "https://api.example.com/charges", Body: []byte(`{"amount":1250}`)},
		Terms:   keyring.Terms{Profile: "p", Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour},
		Contract: keyring.Contract{Place: func(r keyring.Request, k keyring.Key) (keyring.Request, error) {
			r.Header = map[string][]string{"Idempotency-Key": {k.String()}}
			return r, nil
		}},
	}
	for _, c := range change {
		c(&d)
	}
	return d
}

type world struct {
	*testing.T
	ctx   context.Context
	clock *clocks
	store keyring.Store
	ring  *keyring.Ring
	terms keyring.Terms // those that hold now
}

func newWorld(t *testing.T) *world {
	c := newClocks()
	w := &world{T: t, ctx: clock.With(t.Context(), c), clock: c, store: keyringtest.NewStore(), terms: draft().Terms}
	w.ring = keyring.New(w.store, nil)
	return w
}

func (w *world) begun(d keyring.Draft) *keyring.Hold {
	w.Helper()
	_, h, err := w.ring.BeginHeld(w.ctx, ref, d)
	if err != nil || h == nil {
		w.Fatalf("no hold: %v", err)
	}
	return h
}

// attempt makes one attempt that says v.
func (w *world) attempt(h *keyring.Hold, v keyring.Verdict, after keyring.After) keyring.Intent {
	w.Helper()
	if _, err := h.Start(w.ctx); err != nil {
		w.Fatal(err)
	}
	w.clock.pass(time.Second)
	in, err := h.Finish(w.ctx, v, nil, after)
	if err != nil {
		w.Fatal(err)
	}
	return in
}

func (w *world) acquire() *keyring.Hold {
	w.Helper()
	h, err := w.ring.Acquire(w.ctx, ref, keyring.Current{Terms: w.terms})
	if err != nil {
		w.Fatal(err)
	}
	return h
}

func (w *world) refused(want error) *keyring.Error {
	w.Helper()
	_, err := w.ring.Acquire(w.ctx, ref, keyring.Current{Terms: w.terms})
	var ke *keyring.Error
	if !errors.Is(err, want) || !errors.As(err, &ke) {
		w.Fatalf("acquire: %v, want %v", err, want)
	}
	return ke
}

func (w *world) get() keyring.Intent {
	w.Helper()
	in, err := w.ring.Get(w.ctx, ref)
	if err != nil {
		w.Fatal(err)
	}
	return in
}

// TestC01KeysAreMintedByBeginAlone counts the calls of the function that makes
// keys.
func TestC01KeysAreMintedByBeginAlone(t *testing.T) {
	w := newWorld(t)
	var minted int
	defer keyring.CountMints(&minted)()
	h := w.begun(draft())
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	w.attempt(h, keyring.Verdict{Kind: keyring.VerdictNotProcessed}, keyring.After{})
	for range 3 {
		if _, err := w.ring.Begin(w.ctx, ref, draft()); err != nil {
			t.Fatal(err)
		}
		w.attempt(w.acquire(), keyring.Verdict{}, keyring.After{})
	}
	if minted != 1 {
		t.Errorf("%d keys were minted, want 1", minted)
	}
}

func TestAKeyIsARandomUUID(t *testing.T) {
	form := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	seen := map[string]bool{}
	w := newWorld(t)
	for range 1000 {
		in, err := w.ring.Begin(w.ctx, keyring.Ref{}, draft())
		if err != nil {
			t.Fatal(err)
		}
		if k := in.Key.String(); !form.MatchString(k) || seen[k] {
			t.Fatalf("key %q", k)
		}
		seen[in.Key.String()] = true
	}
}

func TestWithoutRandomnessNothingIsStored(t *testing.T) {
	w := newWorld(t)
	dry := errors.New("no entropy")
	restore := keyring.FailMints(dry)
	_, err := w.ring.Begin(w.ctx, ref, draft())
	restore()
	if !errors.Is(err, dry) {
		t.Errorf("%v", err)
	}
	if _, err := w.ring.Get(w.ctx, ref); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
}

func TestRefsAreComparedInNFC(t *testing.T) {
	w := newWorld(t)
	composed, decomposed := keyring.Ref{Name: "caf\u00e9"}, keyring.Ref{Name: "cafe\u0301"}
	a, err := w.ring.Begin(w.ctx, composed, draft())
	if err != nil {
		t.Fatal(err)
	}
	b, err := w.ring.Begin(w.ctx, decomposed, draft())
	if err != nil || a.Key != b.Key {
		t.Errorf("%v: keys %s and %s", err, a.Key, b.Key)
	}
}

func TestSimultaneousBeginsGiveOneKey(t *testing.T) {
	w := newWorld(t)
	keys := make([]string, 64)
	held := make([]bool, 64)
	var wg sync.WaitGroup
	for i := range keys {
		wg.Go(func() {
			in, h, err := w.ring.BeginHeld(w.ctx, ref, draft())
			if err != nil {
				t.Error(err)
			}
			keys[i], held[i] = in.Key.String(), h != nil
		})
	}
	wg.Wait()
	holds := 0
	for i := range keys {
		if keys[i] != keys[0] {
			t.Error("two keys")
		}
		if held[i] {
			holds++
		}
	}
	if holds != 1 {
		t.Errorf("%d of them may send, want 1", holds)
	}
}

// C59: attempts of many goroutines on one intent are all counted.
func TestC59NoAttemptIsLostBetweenSenders(t *testing.T) {
	w := newWorld(t)
	if _, err := w.ring.Begin(w.ctx, ref, draft()); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for {
				h, err := w.ring.Acquire(w.ctx, ref, keyring.Current{Terms: w.terms})
				if errors.Is(err, keyring.ErrHeld) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				if _, err := h.Start(w.ctx); err != nil {
					t.Error(err)
				}
				if _, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictNotProcessed}, nil, keyring.After{}); err != nil {
					t.Error(err)
				}
				return
			}
		})
	}
	wg.Wait()
	if n := len(w.get().Attempts); n != 50 {
		t.Errorf("%d attempts on record, want 50", n)
	}
}

func TestAHoldIsExclusiveUntilItsLeaseEnds(t *testing.T) {
	w := newWorld(t)
	first := w.begun(draft())
	if _, err := first.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	e := w.refused(keyring.ErrHeld)
	if want := w.clock.r.Wall.Add(90 * time.Second); !e.Until.Equal(want) {
		t.Errorf("until %v, want %v", e.Until, want)
	}
	w.clock.step(9*time.Hour, time.Second) // a wall clock that jumps does not end a lease
	w.refused(keyring.ErrHeld)
	w.clock.step(-9*time.Hour, 0)
	if in := w.get(); in.State != keyring.StateSending || in.HeldBy == "" {
		t.Errorf("%s, held by %q", in.State, in.HeldBy)
	}
	w.clock.pass(90 * time.Second)
	if in := w.get(); in.State != keyring.StateUnknown {
		t.Errorf("after the lease: %s", in.State)
	}
	second := w.acquire()
	if _, err := second.Start(w.ctx); err != nil {
		t.Fatal(err)
	}

	// The first one comes late: its verdict fills its own slot, no more.
	in, err := first.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "e1"}, []byte("first"), keyring.After{Keep: true, Wait: time.Hour})
	if err != nil || in.State != keyring.StateDone {
		t.Fatalf("%v: %s", err, in.State)
	}
	if _, err := first.Start(w.ctx); !errors.Is(err, keyring.ErrHeld) {
		t.Errorf("a lost hold may start: %v", err)
	}
	in, err = second.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictRefused}, []byte("second"), keyring.After{})
	if err != nil || in.State != keyring.StateDone || string(in.Answer) != "first" || len(in.Attempts) != 2 {
		t.Errorf("%v: %s, answer %q, %d attempts", err, in.State, in.Answer, len(in.Attempts))
	}
	w.refused(keyring.ErrFinal)
}

func TestADeadSendersHoldIsTakenOverAtOnce(t *testing.T) {
	w := newWorld(t)
	store := &sessions{Store: w.store, name: "s1"}
	w.ring = keyring.New(store, nil)
	if _, err := w.begun(draft()).Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.refused(keyring.ErrHeld)
	store.name, store.gone = "s2", "s1"
	if in := w.get(); in.State != keyring.StateUnknown || in.HeldBy != "" {
		t.Errorf("%s, held by %q", in.State, in.HeldBy)
	}
	w.acquire()
	store.gone = "nobody"
	w.refused(keyring.ErrHeld)
}

// sessions gives a store sessions of the test's making.
type sessions struct {
	keyring.Store
	name, gone string
}

func (s *sessions) Session() string { return s.name }
func (s *sessions) Gone(_ context.Context, name string) (bool, error) {
	return name == s.gone, nil
}

func TestTheRulesForAnotherAttempt(t *testing.T) {
	unspaced := func(d *keyring.Draft) { d.Terms.MarksRunning = false }
	for _, c := range []struct {
		claim string
		run   func(w *world)
		want  error
	}{
		{"nothing was sent", func(w *world) { _, _ = w.ring.Begin(w.ctx, ref, draft()) }, nil},
		{"it was turned away", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictNotProcessed}, keyring.After{})
		}, nil},
		{"doubt", func(w *world) { w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{}) }, nil},
		{"doubt, before it can have arrived", func(w *world) { w.attempt(w.begun(draft(unspaced)), keyring.Verdict{}, keyring.After{}) }, keyring.ErrTooSoon},
		{"doubt, once it must have arrived", func(w *world) {
			w.attempt(w.begun(draft(unspaced)), keyring.Verdict{}, keyring.After{})
			w.clock.pass(5 * time.Second)
		}, nil},
		{"a jump of the wall clock is no passing of time", func(w *world) {
			w.attempt(w.begun(draft(unspaced)), keyring.Verdict{}, keyring.After{})
			w.clock.step(time.Minute, 0)
		}, keyring.ErrTooSoon},
		{"a wait that was agreed on", func(w *world) { w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{Wait: time.Hour}) }, keyring.ErrTooSoon},
		{"once it is over", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{Wait: time.Hour})
			w.clock.pass(time.Hour)
		}, nil},
		{"never more than a day", func(w *world) {
			w.terms.Retention = keyring.Forever
			w.attempt(w.begun(draft(func(d *keyring.Draft) { d.Terms = w.terms })), keyring.Verdict{}, keyring.After{Wait: 1000 * time.Hour})
			w.clock.pass(24 * time.Hour)
		}, nil},
		{"the last moment of the retention", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.pass(23*time.Hour - 30*time.Second - time.Second)
		}, nil},
		{"a second after it", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.pass(23*time.Hour - 30*time.Second)
		}, keyring.ErrNeedsInspection},
		{"a night's sleep counts", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.step(23*time.Hour, 0)
		}, keyring.ErrNeedsInspection},
		{"setting the clock back makes nothing younger", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.pass(23 * time.Hour)
			w.clock.step(-12*time.Hour, 0)
		}, keyring.ErrNeedsInspection},
		{"a restart with an earlier clock", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.reboot(-time.Hour)
		}, keyring.ErrNeedsInspection},
		{"and still, when that clock has caught up", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.reboot(-time.Hour)
			w.refused(keyring.ErrNeedsInspection)
			w.clock.pass(2 * time.Hour)
		}, keyring.ErrNeedsInspection},
		{"a restart with a good clock", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.reboot(time.Hour)
		}, nil},
		{"a provider's clock that disagrees", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Date: w.clock.r.Wall.Add(time.Hour)}, keyring.After{})
		}, keyring.ErrNeedsInspection},
		{"a provider's clock that agrees", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Date: w.clock.r.Wall.Add(time.Minute)}, keyring.After{})
		}, nil},
		{"doubt without de-duplication", func(w *world) {
			w.attempt(w.begun(draft(func(d *keyring.Draft) { d.Terms.Dedup = keyring.DedupNone })), keyring.Verdict{}, keyring.After{})
		}, keyring.ErrNeedsInspection},
		{"doubt that only a look lifts", func(w *world) { w.attempt(w.begun(draft()), keyring.Verdict{NoResend: true}, keyring.After{}) }, keyring.ErrNeedsInspection},
		{"a conflict", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictConflict}, keyring.After{})
		}, keyring.ErrNeedsInspection},
		{"done", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictDone}, keyring.After{})
		}, keyring.ErrFinal},
		{"done, with an answer that could not be read", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictDone, Unreadable: true}, keyring.After{})
		}, keyring.ErrFinal},
		{"refused", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictRefused}, keyring.After{})
		}, keyring.ErrFinal},
	} {
		t.Run(c.claim, func(t *testing.T) {
			w := newWorld(t)
			c.run(w)
			before := w.get()
			if c.want == nil {
				key, err := w.acquire().Start(w.ctx)
				if err != nil || key != before.Key {
					t.Errorf("%v: key %s, want %s", err, key, before.Key)
				}
				return
			}
			e := w.refused(c.want)
			if errors.Is(c.want, keyring.ErrTooSoon) == e.Until.IsZero() {
				t.Errorf("until %v", e.Until)
			}
			if in := w.get(); in.Key != before.Key || len(in.Attempts) != len(before.Attempts) {
				t.Error("being refused changed the intent")
			}
		})
	}
}

func TestTermsThatGotWorseCountFromThenOn(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	w.clock.pass(2 * time.Hour)
	worse := draft().Terms
	worse.Retention = time.Hour
	if _, err := w.ring.Acquire(w.ctx, ref, keyring.Current{Terms: worse}); !errors.Is(err, keyring.ErrNeedsInspection) {
		t.Errorf("%v, want ErrNeedsInspection", err)
	}
	better := draft().Terms
	better.Retention = keyring.Forever
	w.clock.pass(22 * time.Hour)
	if _, err := w.ring.Acquire(w.ctx, ref, keyring.Current{Terms: better}); !errors.Is(err, keyring.ErrNeedsInspection) {
		t.Errorf("%v: terms that got better do not count for what was begun before", err)
	}
}

func TestAnAttemptHasADeadline(t *testing.T) {
	for claim, move := range map[string]func(*clocks){
		"by both clocks":          func(c *clocks) { c.pass(30 * time.Second) },
		"by the wall clock":       func(c *clocks) { c.step(30*time.Second, 0) },
		"by the monotonic clock":  func(c *clocks) { c.step(-time.Hour, 30*time.Second) },
		"after a suspended night": func(c *clocks) { c.step(9*time.Hour, time.Second) },
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			h := w.begun(draft())
			if h.Left(w.ctx) != 30*time.Second {
				t.Errorf("%v left at the start", h.Left(w.ctx))
			}
			move(w.clock)
			if left := h.Left(w.ctx); left > 0 {
				t.Errorf("%v left", left)
			}
		})
	}
}

func TestOrderOfStepsIsEnforced(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft())
	if _, err := h.Finish(w.ctx, keyring.Verdict{}, nil, keyring.After{}); !errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("finish before start: %v", err)
	}
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("start after start: %v", err)
	}
	if _, err := h.Finish(w.ctx, keyring.Verdict{}, nil, keyring.After{}); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone}, nil, keyring.After{}); !errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("finish after finish: %v", err)
	}
	if _, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrHeld) {
		t.Errorf("start after giving the hold back: %v", err)
	}
	if err := h.Release(w.ctx); err != nil {
		t.Errorf("releasing again: %v", err)
	}
	if w.get().State != keyring.StateUnknown {
		t.Errorf("%s", w.get().State)
	}
}

func TestReleasing(t *testing.T) {
	w := newWorld(t)
	if err := w.begun(draft()).Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if in := w.get(); in.State != keyring.StateNeverSent || in.HeldBy != "" {
		t.Errorf("whose key was never handed out: %s, held by %q", in.State, in.HeldBy)
	}
	h := w.acquire()
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if err := h.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if in := w.get(); in.State != keyring.StateUnknown || in.HeldBy != "" {
		t.Errorf("whose key was handed out: %s, held by %q", in.State, in.HeldBy)
	}
}

func TestLimitsRefuseTheNewAndKeepTheOld(t *testing.T) {
	w := newWorld(t)
	w.ring = keyring.New(w.store, &keyring.Options{MaxOpen: 2, MaxIntents: 3})
	begin := func(name string) error {
		_, err := w.ring.Begin(w.ctx, keyring.Ref{Name: name}, draft())
		return err
	}
	finish := func(name string) {
		h, err := w.ring.Acquire(w.ctx, keyring.Ref{Name: name}, keyring.Current{Terms: draft().Terms})
		if err != nil {
			t.Fatal(err)
		}
		w.attempt(h, keyring.Verdict{Kind: keyring.VerdictDone}, keyring.After{})
	}
	for i := range 2 {
		if err := begin(fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := begin("2"); !errors.Is(err, keyring.ErrFull) {
		t.Errorf("%v, want ErrFull", err)
	}
	if err := begin("0"); err != nil {
		t.Errorf("a known one is refused: %v", err)
	}
	finish("0")
	if err := begin("2"); err != nil {
		t.Error(err)
	}
	finish("1")
	if err := begin("3"); !errors.Is(err, keyring.ErrFull) {
		t.Errorf("%v, want ErrFull: three intents are on record", err)
	}
}

// lossy applies writes and loses the answer, or loses the write.
type lossy struct {
	keyring.Store
	apply bool
	fail  int // how many writes from now on
}

var errLost = errors.New("the answer was lost")

func (l *lossy) do(write func() error) error {
	if l.fail == 0 {
		return write()
	}
	l.fail--
	if l.apply {
		if err := write(); err != nil {
			return err
		}
	}
	return errLost
}

func (l *lossy) Create(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
	return l.do(func() error { return l.Store.Create(ctx, rec, lim) })
}

func (l *lossy) Update(ctx context.Context, rec keyring.Record) error {
	return l.do(func() error { return l.Store.Update(ctx, rec) })
}

func TestAWriteWhoseAnswerWasLostIsLookedUp(t *testing.T) {
	w := newWorld(t)
	store := &lossy{Store: w.store, apply: true, fail: 1000}
	w.ring = keyring.New(store, nil)
	h := w.begun(draft())
	key := h.Intent(w.ctx).Key
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	if in := w.attempt(h, keyring.Verdict{Kind: keyring.VerdictDone}, keyring.After{}); in.State != keyring.StateDone || in.Key != key || len(in.Attempts) != 2 {
		t.Errorf("%s, key %s, %d attempts", in.State, in.Key, len(in.Attempts))
	}
}

func TestAWriteThatWasLostIsReported(t *testing.T) {
	w := newWorld(t)
	store := &lossy{Store: w.store, fail: 1}
	w.ring = keyring.New(store, nil)
	if _, _, err := w.ring.BeginHeld(w.ctx, ref, draft()); !errors.Is(err, errLost) {
		t.Errorf("begin: %v", err)
	}
	h := w.begun(draft())
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	store.fail = 1
	if _, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone}, nil, keyring.After{}); !errors.Is(err, errLost) {
		t.Errorf("finish: %v", err)
	}
	if in := w.get(); in.State != keyring.StateSending {
		t.Errorf("%s", in.State)
	}
	if in, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone}, nil, keyring.After{}); err != nil || in.State != keyring.StateDone {
		t.Errorf("finish again: %v, %s", err, in.State)
	}
}

func TestAnotherProcesssWriteIsNotTakenForOurs(t *testing.T) {
	w := newWorld(t)
	if _, err := w.ring.Begin(w.ctx, ref, draft()); err != nil {
		t.Fatal(err)
	}
	// Two rings acquire at once; each sees its answer lost.
	a, b := keyring.New(&lossy{Store: w.store, apply: true, fail: 1}, nil), keyring.New(&lossy{Store: w.store, apply: false, fail: 1}, nil)
	if _, err := a.Acquire(w.ctx, ref, keyring.Current{Terms: draft().Terms}); err != nil {
		t.Fatalf("whose write went through: %v", err)
	}
	if _, err := b.Acquire(w.ctx, ref, keyring.Current{Terms: draft().Terms}); !errors.Is(err, keyring.ErrHeld) {
		t.Errorf("the other one: %v, want ErrHeld", err)
	}
}

func TestADamagedRecordIsListedAndNothingIsDoneWithIt(t *testing.T) {
	for claim, harm := range map[string]func(*keyring.Record){
		"the request is gone":      func(r *keyring.Record) { r.Request = []byte{} },
		"the request has changed":  func(r *keyring.Record) { r.Request[len(r.Request)-2]++ },
		"the request is cut":       func(r *keyring.Record) { r.Request = r.Request[:len(r.Request)/2] },
		"the record is gone":       func(r *keyring.Record) { r.Data = nil },
		"the record has changed":   func(r *keyring.Record) { r.Data[20]++ },
		"the record is an old one": func(r *keyring.Record) { r.Revision++ },
		"another generation":       func(r *keyring.Record) { r.Generation++ },
		"another fingerprint":      func(r *keyring.Record) { r.Fingerprint = keyring.Fingerprint{} },
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			for _, name := range []string{ref.Name, "another"} {
				if _, err := w.ring.Begin(w.ctx, keyring.Ref{Name: name}, draft()); err != nil {
					t.Fatal(err)
				}
			}
			w.ring = keyring.New(&harmed{Store: w.store, harm: harm}, nil)
			in := w.get()
			if in.State != keyring.StateDamaged || in.Final() || in.Outcome().Next == "" {
				t.Errorf("%s", in.State)
			}
			w.refused(keyring.ErrDamaged)
			if _, err := w.ring.Begin(w.ctx, ref, draft()); !errors.Is(err, keyring.ErrDamaged) {
				t.Errorf("begin: %v", err)
			}
			listed := map[string]keyring.State{}
			for in, err := range w.ring.List(w.ctx, keyring.Query{OpenOnly: true}) {
				if err != nil {
					t.Fatal(err)
				}
				listed[in.Ref.Name] = in.State
			}
			if len(listed) != 2 || listed[ref.Name] != keyring.StateDamaged || listed["another"] != keyring.StateNeverSent {
				t.Errorf("listed: %v", listed)
			}
		})
	}
}

// harmed returns one record other than it was stored.
type harmed struct {
	keyring.Store
	harm func(*keyring.Record)
}

func (h *harmed) Load(ctx context.Context, r keyring.Ref) (keyring.Record, error) {
	rec, err := h.Store.Load(ctx, r)
	if err == nil && r == ref {
		h.harm(&rec)
	}
	return rec, err
}

func (h *harmed) Scan(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
	return func(yield func(keyring.Record, error) bool) {
		for rec, err := range h.Store.Scan(ctx, q) {
			if err == nil && rec.Ref == ref {
				h.harm(&rec)
			}
			if !yield(rec, err) {
				return
			}
		}
	}
}

func TestKeysThatAreRefused(t *testing.T) {
	for _, s := range []string{"", " ", "a b", "a\n", "é", "\x7f", `a"b`, `a\b`, strings.Repeat("x", keyring.MaxKey+1)} {
		if _, err := keyring.ParseKey(s); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("%q: %v, want ErrInvalid", s, err)
		}
	}
	for _, s := range []string{"a", "order:8123/x_y-z~", strings.Repeat("x", keyring.MaxKey)} {
		if k, err := keyring.ParseKey(s); err != nil || k.String() != s {
			t.Errorf("%q: %v", s, err)
		}
	}
}

func TestACallersOwnKeyIsTaken(t *testing.T) {
	w := newWorld(t)
	key, err := keyring.ParseKey("mine-1")
	if err != nil {
		t.Fatal(err)
	}
	in, err := w.ring.Begin(w.ctx, ref, draft(func(d *keyring.Draft) { d.Key = key }))
	if err != nil || in.Key != key || in.Request.Header["Idempotency-Key"][0] != "mine-1" {
		t.Errorf("%v: %v", err, in.Key)
	}
}

// blind loses the answers of writes and cannot be read either.
type blind struct {
	keyring.Store
	on bool
}

func (b *blind) Create(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
	err := b.Store.Create(ctx, rec, lim)
	if b.on {
		return errLost
	}
	return err
}

func (b *blind) Update(ctx context.Context, rec keyring.Record) error {
	err := b.Store.Update(ctx, rec)
	if b.on {
		return errLost
	}
	return err
}

func (b *blind) Load(ctx context.Context, r keyring.Ref) (keyring.Record, error) {
	if b.on {
		return keyring.Record{}, errLost
	}
	return b.Store.Load(ctx, r)
}

func TestAHoldThatWasReportedAsFailedIsFoundAgain(t *testing.T) {
	w := newWorld(t)
	store := &blind{Store: w.store}
	// The ref is looked for before it is written: all fails from the write on.
	w.ring = keyring.New(&afterFirstLoad{store}, nil)
	if _, _, err := w.ring.BeginHeld(w.ctx, ref, draft()); !errors.Is(err, errLost) {
		t.Fatalf("%v", err)
	}
	store.on = false
	_, h, err := w.ring.BeginHeld(w.ctx, ref, draft())
	if err != nil || h == nil {
		t.Fatalf("the ring's own unused hold is taken for another's: %v", err)
	}
	if _, again, err := w.ring.BeginHeld(w.ctx, ref, draft()); err != nil || again != nil {
		t.Errorf("and given out twice: %v", err)
	}
	w.attempt(h, keyring.Verdict{Kind: keyring.VerdictDone}, keyring.After{})
}

// afterFirstLoad turns its store blind after one look.
type afterFirstLoad struct{ *blind }

func (a *afterFirstLoad) Load(ctx context.Context, r keyring.Ref) (keyring.Record, error) {
	rec, err := a.blind.Load(ctx, r)
	if errors.Is(err, keyring.ErrNotFound) {
		a.on = true
	}
	return rec, err
}

func TestAStartThatWasReportedAsFailedSentNothing(t *testing.T) {
	w := newWorld(t)
	store := &blind{Store: w.store}
	w.ring = keyring.New(store, nil)
	if _, err := w.ring.Begin(w.ctx, ref, draft(func(d *keyring.Draft) { d.Terms.Dedup = keyring.DedupNone })); err != nil {
		t.Fatal(err)
	}
	h := w.acquire()
	store.on = true
	if _, err := h.Start(w.ctx); !errors.Is(err, errLost) {
		t.Fatalf("%v", err)
	}
	store.on = false
	if err := h.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if in := w.get(); in.State != keyring.StateNeverSent || in.HeldBy != "" {
		t.Errorf("%s, held by %q", in.State, in.HeldBy)
	}
	w.acquire()
}
