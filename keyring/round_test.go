package keyring_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
)

// round checks what h says about the round under way.
func (w *world) round(h *keyring.Hold, attempts int, elapsed time.Duration) {
	w.Helper()
	if n, d := h.Round(w.ctx); n != attempts || d != elapsed {
		w.Errorf("%d attempts in %v, want %d in %v", n, d, attempts, elapsed)
	}
}

func TestARoundCountsUntilTheHoldIsGivenBack(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft())
	w.round(h, 1, 0)
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	w.round(h, 1, time.Second)
	w.clock.step(9*time.Hour, 10*time.Second) // by the monotonic clock
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	w.round(h, 2, 12*time.Second)
	w.attempt(h, keyring.Verdict{Kind: keyring.VerdictNotProcessed}, keyring.After{})
	w.round(h, 0, 0)

	h = w.acquire()
	w.round(h, 0, 0)
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.round(h, 1, 0)
	if err := h.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.round(w.acquire(), 0, 0)
}

// A round that a crash cut short goes on: a program that dies at each attempt
// must not be given a fresh round each time.
func TestARoundGoesOnAfterACrash(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft())
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	for n := range 3 { // each time the holder is never heard of again
		w.clock.pass(2 * time.Minute)
		h = w.acquire()
		w.round(h, n+1, time.Duration(n+1)*2*time.Minute+time.Second)
		if _, err := h.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.round(h, n+2, time.Duration(n+1)*2*time.Minute+time.Second)
	}
	w.clock.reboot(2 * time.Minute)
	h = w.acquire()
	w.round(h, 4, 8*time.Minute+time.Second) // across a restart by the wall clock
	w.clock.reboot(-time.Hour)
	w.round(h, 4, 0) // and never less than nothing
}

// A Finish that comes from a hold which is lost does not end the round of the
// one that took over.
func TestALateFinishLeavesTheRoundAlone(t *testing.T) {
	w := newWorld(t)
	first := w.begun(draft())
	if _, err := first.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(2 * time.Minute)
	second := w.acquire()
	if _, err := second.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Finish(w.ctx, keyring.Verdict{}, nil, keyring.After{Wait: time.Hour}); err != nil {
		t.Fatal(err)
	}
	if err := first.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Finish(w.ctx, keyring.Verdict{}, nil, keyring.After{Keep: true}); err != nil {
		t.Fatal(err)
	}
	w.round(second, 2, 2*time.Minute)
	if _, err := second.Start(w.ctx); err != nil {
		t.Errorf("the late finish parked it: %v", err)
	}
}

func TestAnAttemptThatWasOnlyPreparedIsNoRound(t *testing.T) {
	w := newWorld(t)
	if err := w.begun(draft()).Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.round(w.acquire(), 0, 0)
}

func TestDoubtUnderAnotherIdentityNeedsALook(t *testing.T) {
	as := func(name string) keyring.Current { return keyring.Current{Terms: draft().Terms, Identity: name} }
	for _, c := range []struct {
		claim       string
		first, then string
		verdict     keyring.Verdict
		refused     bool
	}{
		{"the same", "key_1", "key_1", keyring.Verdict{}, false},
		{"another", "key_1", "key_2", keyring.Verdict{}, true},
		{"another, after pending", "key_1", "key_2", keyring.Verdict{Kind: keyring.VerdictPending}, true},
		{"another, after it was turned away", "key_1", "key_2", keyring.Verdict{Kind: keyring.VerdictNotProcessed, SignIn: true}, false},
		{"not told now", "key_1", "", keyring.Verdict{}, false},
		{"not told then", "", "key_2", keyring.Verdict{}, false},
	} {
		t.Run(c.claim, func(t *testing.T) {
			w := newWorld(t)
			w.attempt(w.begun(draft(func(d *keyring.Draft) { d.Identity = c.first })), c.verdict, keyring.After{})
			if got := w.get().Attempts[0].Identity; got != c.first {
				t.Errorf("%q is on record", got)
			}
			h, err := w.ring.Acquire(w.ctx, ref, as(c.then))
			if c.refused {
				if !errors.Is(err, keyring.ErrNeedsInspection) || !strings.Contains(err.Error(), "key_1") || !strings.Contains(err.Error(), "key_2") {
					t.Fatalf("%v", err)
				}
				w.clock.pass(settle)
				w.look(said(keyring.FindingAbsent)) // which lifts the doubt, whoever sent it
				if h, err = w.ring.Acquire(w.ctx, ref, as(c.then)); err != nil {
					t.Fatalf("after a look: %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			}
			if _, err := h.Start(w.ctx); err != nil {
				t.Fatal(err)
			}
			if a := w.get().Attempts; a[len(a)-1].Identity != c.then {
				t.Errorf("%q is on record, want %q", a[len(a)-1].Identity, c.then)
			}
		})
	}
}

// An attempt without an end is doubt like any other; and a look at the first
// one says nothing about the next.
func TestAnIdentityIsCheckedForEachDoubt(t *testing.T) {
	w := newWorld(t)
	as := func(name string) keyring.Current { return keyring.Current{Terms: draft().Terms, Identity: name} }
	if _, err := w.begun(draft(func(d *keyring.Draft) { d.Identity = "key_1" })).Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(settle + time.Minute)
	if _, err := w.ring.Acquire(w.ctx, ref, as("key_2")); !errors.Is(err, keyring.ErrNeedsInspection) {
		t.Errorf("%v", err)
	}
	w.look(saw(keyring.FindingAbsent))
	h, err := w.ring.Acquire(w.ctx, ref, as("key_2"))
	if err != nil {
		t.Fatal(err)
	}
	w.attempt(h, keyring.Verdict{}, keyring.After{})
	if _, err := w.ring.Acquire(w.ctx, ref, as("key_1")); !errors.Is(err, keyring.ErrNeedsInspection) {
		t.Errorf("%v", err)
	}
	if _, err := w.ring.Acquire(w.ctx, ref, as("key_2")); err != nil {
		t.Error(err)
	}
}

// A new key is nobody's yet.
func TestARekeyedIntentIsSentByAnybody(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft(func(d *keyring.Draft) { d.Identity = "key_1" })), keyring.Verdict{}, keyring.After{})
	w.clock.pass(settle)
	w.rekey(w.look(saw(keyring.FindingAbsent)), draft())
	if _, err := w.ring.Acquire(w.ctx, ref, keyring.Current{Terms: draft().Terms, Identity: "key_2"}); err != nil {
		t.Error(err)
	}
}

func TestAnIdentityThatCannotBe(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"a\nb", "\xff", strings.Repeat("x", keyring.MaxRef+1)} {
		if _, err := w.ring.Begin(w.ctx, ref, draft(func(d *keyring.Draft) { d.Identity = name })); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("begin as %q: %v", name[:1], err)
		}
		if _, err := w.ring.Acquire(w.ctx, ref, keyring.Current{Identity: name}); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("acquire as %q: %v", name[:1], err)
		}
	}
}
