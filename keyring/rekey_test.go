package keyring_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
)

func (w *world) rekey(seen keyring.Inspection, d keyring.Draft) keyring.Intent {
	w.Helper()
	in, err := w.ring.Rekey(w.ctx, seen, d)
	if err != nil {
		w.Fatal(err)
	}
	return in
}

func (w *world) refusal() keyring.Inspection {
	w.Helper()
	seen, err := w.ring.Refusal(w.ctx, ref)
	if err != nil {
		w.Fatal(err)
	}
	return seen
}

// noRekey checks that seen permits neither another key nor any change.
func (w *world) noRekey(seen keyring.Inspection, d keyring.Draft, want error) {
	w.Helper()
	before := w.get()
	var minted int
	defer keyring.CountMints(&minted)()
	if _, err := w.ring.Rekey(w.ctx, seen, d); !errors.Is(err, want) {
		w.Errorf("rekey: %v, want %v", err, want)
	}
	w.unchanged(before)
	if in := w.get(); in.Key != before.Key || in.Generation != before.Generation {
		w.Errorf("key %s of generation %d, it was %s of %d", in.Key, in.Generation, before.Key, before.Generation)
	}
	if minted > 0 {
		w.Errorf("%d keys were minted for it", minted)
	}
}

func unclear(w *world) {
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	w.clock.pass(settle)
}

func verdict(kind keyring.VerdictKind) func(*world) {
	return func(w *world) {
		w.attempt(w.begun(draft()), keyring.Verdict{Kind: kind}, keyring.After{})
		w.clock.pass(settle)
	}
}

func TestWhatPermitsAnotherKey(t *testing.T) {
	another := draft(func(d *keyring.Draft) { d.Request.Body = []byte(`{"amount":1150}`) })
	for _, c := range []struct {
		claim string
		run   func(w *world)
		seen  func(w *world) keyring.Inspection
		draft keyring.Draft
	}{
		{"absent, the same request", unclear, func(w *world) keyring.Inspection { return w.look(saw(keyring.FindingAbsent)) }, draft()},
		{"absent, another request", unclear, func(w *world) keyring.Inspection { return w.look(saw(keyring.FindingAbsent)) }, another},
		{"absent by a person", unclear, func(w *world) keyring.Inspection { return w.look(said(keyring.FindingAbsent)) }, another},
		{"something else", unclear, func(w *world) keyring.Inspection { return w.look(saw(keyring.FindingOther)) }, another},
		{"a conflict, and absent", verdict(keyring.VerdictConflict), func(w *world) keyring.Inspection { return w.look(saw(keyring.FindingAbsent)) }, draft()},
		{"pending, and absent by a person", verdict(keyring.VerdictPending), func(w *world) keyring.Inspection { return w.look(said(keyring.FindingAbsent)) }, draft()},
		{"pending, and something else by a person", verdict(keyring.VerdictPending), func(w *world) keyring.Inspection { return w.look(said(keyring.FindingOther)) }, draft()},
		{"the provider's refusal", verdict(keyring.VerdictRefused), (*world).refusal, another},
		{"the provider's refusal, the same request", verdict(keyring.VerdictRefused), (*world).refusal, draft()},
		{"refused, and absent", verdict(keyring.VerdictRefused), func(w *world) keyring.Inspection { return w.look(saw(keyring.FindingAbsent)) }, another},
		{"too old to be sent again, and absent", func(w *world) { unclear(w); w.clock.pass(48 * time.Hour) }, func(w *world) keyring.Inspection { return w.look(saw(keyring.FindingAbsent)) }, draft()},
		{"never sent, and absent", func(w *world) { _, _ = w.ring.Begin(w.ctx, ref, draft()) }, func(w *world) keyring.Inspection { return w.look(saw(keyring.FindingAbsent)) }, another},
	} {
		t.Run(c.claim, func(t *testing.T) {
			w := newWorld(t)
			c.run(w)
			seen := c.seen(w)
			before := w.get()
			in := w.rekey(seen, c.draft)
			if in.Key == before.Key || in.Key.IsZero() || in.Generation != 2 || in.Revision != before.Revision+1 {
				t.Errorf("key %s (was %s), generation %d, revision %d", in.Key, before.Key, in.Generation, in.Revision)
			}
			if in.State != keyring.StateNeverSent || len(in.Attempts) != 0 || len(in.Findings) != 0 || in.Final() {
				t.Errorf("%s, %d attempts, %d findings", in.State, len(in.Attempts), len(in.Findings))
			}
			if string(in.Request.Body) != string(c.draft.Request.Body) || in.Request.Header["Idempotency-Key"][0] != in.Key.String() {
				t.Errorf("%s, %v", in.Request.Body, in.Request.Header)
			}
			if got := w.get(); got.Key != in.Key || string(got.Request.Body) != string(in.Request.Body) || got.Request.Header["Idempotency-Key"][0] != in.Key.String() {
				t.Errorf("on record: key %s", got.Key)
			}
			open := 0
			for range w.ring.List(w.ctx, keyring.Query{OpenOnly: true}) {
				open++
			}
			if open != 1 {
				t.Errorf("%d open", open)
			}
			w.noRekey(seen, c.draft, keyring.ErrStale) // good for one change
			if got, err := w.ring.Begin(w.ctx, ref, c.draft); err != nil || got.Key != in.Key {
				t.Errorf("begun again: %v, key %s", err, got.Key)
			}

			old, err := w.ring.Generations(w.ctx, ref)
			if err != nil || len(old) != 2 {
				t.Fatalf("%v: %d generations", err, len(old))
			}
			if g := old[0]; g.Generation != 1 || g.Key != before.Key || len(g.Attempts) != len(before.Attempts) || g.State != before.State || g.Fingerprint != before.Fingerprint || len(g.Findings) != len(before.Findings) || g.Request.Body != nil {
				t.Errorf("%v: %s", g, g.State)
			}
			if g := old[1]; g.Generation != 2 || g.Key != in.Key || g.Revision != in.Revision {
				t.Errorf("%v", g)
			}
			key, err := w.acquire().Start(w.ctx)
			if err != nil || key != in.Key {
				t.Errorf("%v: sent under %s, want %s", err, key, in.Key)
			}
			if n := w.get().Attempts[0].Number; n != len(before.Attempts)+1 {
				t.Errorf("attempt number %d", n)
			}
		})
	}
}

func TestARefIsComparedWithItsLatestRequest(t *testing.T) {
	w := newWorld(t)
	verdict(keyring.VerdictRefused)(w)
	another := draft(func(d *keyring.Draft) { d.Request.Body = []byte(`{"amount":1150}`) })
	w.rekey(w.refusal(), another)
	if _, err := w.ring.Begin(w.ctx, ref, another); err != nil {
		t.Error(err)
	}
	if _, err := w.ring.Begin(w.ctx, ref, draft()); !errors.Is(err, keyring.ErrDiffers) {
		t.Errorf("the request of the first key: %v", err)
	}
}

func TestWhatPermitsNoOtherKey(t *testing.T) {
	look := func(by keyring.Inspector) func(*world) keyring.Inspection {
		return func(w *world) keyring.Inspection { return w.look(by) }
	}
	own := func(w *world) keyring.Draft {
		return draft(func(d *keyring.Draft) { d.Key = w.get().Key })
	}
	plain := func(*world) keyring.Draft { return draft() }
	for _, c := range []struct {
		claim string
		run   func(w *world)
		seen  func(w *world) keyring.Inspection
		draft func(w *world) keyring.Draft
		want  error
	}{
		{"no look", unclear, func(*world) keyring.Inspection { return keyring.Inspection{} }, plain, keyring.ErrNeedsInspection},
		{"an inconclusive look", unclear, look(saw(keyring.FindingInconclusive)), plain, keyring.ErrNeedsInspection},
		{"an inconclusive look by a person", unclear, look(said(keyring.FindingInconclusive)), plain, keyring.ErrNeedsInspection},
		{"it was found", unclear, look(saw(keyring.FindingPresent)), plain, keyring.ErrFinal},
		{"pending, and a program found nothing", verdict(keyring.VerdictPending), look(saw(keyring.FindingAbsent)), plain, keyring.ErrNeedsInspection},
		{"pending, and a program found something else", verdict(keyring.VerdictPending), look(saw(keyring.FindingOther)), plain, keyring.ErrNeedsInspection},
		{"pending once, then unclear", func(w *world) {
			h := w.begun(draft())
			w.attempt(h, keyring.Verdict{Kind: keyring.VerdictPending}, keyring.After{Keep: true})
			w.attempt(h, keyring.Verdict{}, keyring.After{})
			w.clock.pass(settle)
		}, look(saw(keyring.FindingAbsent)), plain, keyring.ErrNeedsInspection},
		{"its own key again", unclear, look(saw(keyring.FindingAbsent)), own, keyring.ErrInvalid},
		{"the intent has changed since: an attempt", unclear, func(w *world) keyring.Inspection {
			seen := w.look(saw(keyring.FindingAbsent))
			w.attempt(w.acquire(), keyring.Verdict{Kind: keyring.VerdictNotProcessed}, keyring.After{})
			return seen
		}, plain, keyring.ErrStale},
		{"the intent has changed since: a hold that was given back", unclear, func(w *world) keyring.Inspection {
			seen := w.look(saw(keyring.FindingAbsent))
			_ = w.acquire().Release(w.ctx)
			return seen
		}, plain, keyring.ErrStale},
		{"the intent has changed since: another look", unclear, func(w *world) keyring.Inspection {
			seen := w.look(saw(keyring.FindingAbsent))
			w.look(saw(keyring.FindingAbsent))
			return seen
		}, plain, keyring.ErrStale},
		{"the intent has changed since: a refusal that is used twice", verdict(keyring.VerdictRefused), func(w *world) keyring.Inspection {
			seen := w.refusal()
			w.rekey(seen, draft())
			return seen
		}, plain, keyring.ErrStale},
		{"given up", unclear, func(w *world) keyring.Inspection {
			w.abandon(w.look(saw(keyring.FindingAbsent)))
			return w.look(saw(keyring.FindingAbsent))
		}, plain, keyring.ErrFinal},
		{"a request that cannot be sent", unclear, look(saw(keyring.FindingAbsent)), func(*world) keyring.Draft {
			return draft(func(d *keyring.Draft) { d.Request.URL = "nowhere" })
		}, keyring.ErrInvalid},
		{"terms that cannot be", unclear, look(saw(keyring.FindingAbsent)), func(*world) keyring.Draft {
			return draft(func(d *keyring.Draft) { d.Terms.Settle = -1 })
		}, keyring.ErrInvalid},
	} {
		t.Run(c.claim, func(t *testing.T) {
			w := newWorld(t)
			c.run(w)
			seen := c.seen(w)
			w.noRekey(seen, c.draft(w), c.want)
		})
	}
}

// Nobody but the provider refuses: what a look found is no refusal, and after
// "still working" only a person's look permits another key.
func TestOnlyTheProvidersRefusalIsOne(t *testing.T) {
	for claim, run := range map[string]func(w *world){
		"unclear":                        unclear,
		"pending":                        verdict(keyring.VerdictPending),
		"done":                           verdict(keyring.VerdictDone),
		"conflict":                       verdict(keyring.VerdictConflict),
		"never sent":                     verdict(keyring.VerdictNotProcessed),
		"given up":                       func(w *world) { unclear(w); w.abandon(w.look(saw(keyring.FindingAbsent))) },
		"found another":                  func(w *world) { unclear(w); w.look(saw(keyring.FindingOther)) },
		"pending, and found another":     func(w *world) { verdict(keyring.VerdictPending)(w); w.look(saw(keyring.FindingOther)) },
		"a refusal that settles nothing": func(w *world) { refusedInDoubt(w) },
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			run(w)
			before := w.get()
			want := keyring.ErrNeedsInspection
			switch before.State {
			case keyring.StateDone, keyring.StateAbandoned:
				want = keyring.ErrFinal
			case keyring.StateNeverSent:
				want = keyring.ErrInvalid
			default:
			}
			seen, err := w.ring.Refusal(w.ctx, ref)
			if !errors.Is(err, want) {
				t.Errorf("%v, want %v", err, want)
			}
			w.noRekey(seen, draft(), keyring.ErrNeedsInspection)
			w.unchanged(before)
		})
	}
	w := newWorld(t)
	verdict(keyring.VerdictRefused)(w)
	if seen := w.refusal(); seen.Finding() != (keyring.Finding{}) || seen.Intent().State != keyring.StateRefused {
		t.Errorf("%v, %s", seen.Finding(), seen.Intent().State)
	}
}

// refusedInDoubt leaves a refusal after doubt, at a provider that forgets its
// refusals.
func refusedInDoubt(w *world) {
	w.terms.KeepsRefusals = false
	h := w.begun(draft(func(d *keyring.Draft) { d.Terms = w.terms }))
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	w.attempt(h, keyring.Verdict{Kind: keyring.VerdictRefused}, keyring.After{})
}

// A refusal may have been overtaken by an attempt under way.
func TestARefusalIsVoidWithTheNextChange(t *testing.T) {
	w := newWorld(t)
	verdict(keyring.VerdictRefused)(w)
	seen := w.refusal()
	w.look(saw(keyring.FindingPresent))
	w.noRekey(seen, draft(), keyring.ErrStale)
	if _, err := w.ring.Abandon(w.ctx, seen); !errors.Is(err, keyring.ErrStale) {
		t.Errorf("abandon: %v", err)
	}
}

func TestAKeyIsNotUsedTwiceByOneRef(t *testing.T) {
	w := newWorld(t)
	first, err := keyring.ParseKey("first")
	if err != nil {
		t.Fatal(err)
	}
	w.attempt(w.begun(draft(func(d *keyring.Draft) { d.Key = first })), keyring.Verdict{Kind: keyring.VerdictRefused}, keyring.After{})
	w.rekey(w.refusal(), draft())
	w.attempt(w.acquire(), keyring.Verdict{Kind: keyring.VerdictRefused}, keyring.After{})
	w.noRekey(w.refusal(), draft(func(d *keyring.Draft) { d.Key = first }), keyring.ErrInvalid)
	third, err := keyring.ParseKey("third")
	if err != nil {
		t.Fatal(err)
	}
	if in := w.rekey(w.refusal(), draft(func(d *keyring.Draft) { d.Key = third })); in.Key != third || in.Generation != 3 {
		t.Errorf("%v, generation %d", in.Key, in.Generation)
	}
}

func TestAnAnswerIsShownWhereItBelongs(t *testing.T) {
	w := newWorld(t)
	finish := func(h *keyring.Hold, v keyring.Verdict, answer string) {
		t.Helper()
		if _, err := h.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		var b []byte
		if answer != "" {
			b = []byte(answer)
		}
		if _, err := h.Finish(w.ctx, v, b, keyring.After{}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		all, err := w.ring.Generations(w.ctx, ref)
		if err != nil || len(all) != len(want) {
			t.Fatalf("%v: %d generations", err, len(all))
		}
		for i, in := range all {
			if string(in.Answer) != want[i] || (in.AnswerOf == 0) != (want[i] == "") {
				t.Errorf("generation %d: answer %q of attempt %d, want %q", i+1, in.Answer, in.AnswerOf, want[i])
			}
		}
		if got := string(w.get().Answer); got != want[len(want)-1] {
			t.Errorf("answer %q", got)
		}
	}
	finish(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictRefused}, "no funds")
	check("no funds")
	w.rekey(w.refusal(), draft())
	check("no funds", "")
	finish(w.acquire(), keyring.Verdict{Kind: keyring.VerdictRefused}, "")
	check("no funds", "")
	w.rekey(w.refusal(), draft())
	check("no funds", "", "")
	finish(w.acquire(), keyring.Verdict{Kind: keyring.VerdictDone}, "paid")
	check("", "", "paid")
}

// An earlier key's effect that shows up late is the effect all the same.
func TestALateSuccessOfAnEarlierKey(t *testing.T) {
	late := func(t *testing.T) (*world, *keyring.Hold) {
		w := newWorld(t)
		h := w.begun(draft())
		if _, err := h.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.clock.pass(settle + 30*time.Second)
		w.rekey(w.look(saw(keyring.FindingAbsent)), draft())
		return w, h
	}
	finish := func(w *world, h *keyring.Hold) keyring.Intent {
		w.Helper()
		in, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "e1"}, []byte("late"), keyring.After{Keep: true, Wait: time.Hour})
		if err != nil {
			w.Fatal(err)
		}
		if got := w.get(); in.State != keyring.StateDone || got.State != keyring.StateDone || got.Generation != 2 || string(got.Answer) != "late" || got.AnswerOf != 1 || got.Outcome().Verdict.EffectID != "e1" {
			w.Errorf("%s, on record %s, answer %q", in.State, got.State, got.Answer)
		}
		if in.Outcome().Broken != w.get().Outcome().Broken {
			w.Error("told other than it is on record")
		}
		return in
	}

	w, h := late(t)
	if in := finish(w, h); in.Outcome().Broken {
		t.Error("broken, though the later key was never sent")
	}
	w.refused(keyring.ErrFinal)

	w, h = late(t)
	w.attempt(w.acquire(), keyring.Verdict{Kind: keyring.VerdictNotProcessed}, keyring.After{})
	if in := finish(w, h); in.Outcome().Broken {
		t.Error("broken, though the later key was turned away at the door")
	}

	w, h = late(t)
	w.attempt(w.acquire(), keyring.Verdict{}, keyring.After{})
	if in := finish(w, h); !in.Outcome().Broken || !in.Outcome().NeedsInspection {
		t.Error("not broken, though the later key was sent")
	}

	w, h = late(t)
	second := w.acquire()
	if _, err := second.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if in := finish(w, h); !in.Outcome().Broken {
		t.Error("not broken, though the later key is being sent")
	}
	if in, err := second.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "e2"}, nil, keyring.After{}); err != nil || !in.Outcome().Broken || string(in.Answer) != "late" {
		t.Errorf("%v: %v", err, in.Outcome())
	}
	if _, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrHeld) {
		t.Errorf("the earlier key's hold may start: %v", err)
	}
}

// A rekey ends every right to send the earlier key, and one that somebody is
// using stands against it.
func TestARekeyAndAHold(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft())
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	w.clock.pass(settle) // the lease is over, but nobody took it
	w.rekey(w.look(saw(keyring.FindingAbsent)), draft())
	if key, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrHeld) || !key.IsZero() {
		t.Errorf("%v: key %s", err, key)
	}
	if len(w.get().Attempts) != 0 {
		t.Error("the old hold has sent under the new key")
	}

	w = newWorld(t)
	h = w.begun(draft(func(d *keyring.Draft) { d.Terms.Settle = time.Second }))
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	w.clock.pass(time.Second)
	seen, err := h.Inspect(w.ctx, saw(keyring.FindingAbsent))
	if err != nil {
		t.Fatal(err)
	}
	w.noRekey(seen, draft(), keyring.ErrHeld)
	before := w.get()
	if _, err := w.ring.Abandon(w.ctx, seen); !errors.Is(err, keyring.ErrHeld) {
		t.Errorf("abandon: %v", err)
	}
	w.unchanged(before)
}

func TestOfSimultaneousRekeysOneWins(t *testing.T) {
	w := newWorld(t)
	unclear(w)
	seen := w.look(saw(keyring.FindingAbsent))
	var wg sync.WaitGroup
	keys := make([]keyring.Key, 32)
	for i := range keys {
		wg.Go(func() {
			in, err := w.ring.Rekey(w.ctx, seen, draft())
			switch {
			case err == nil:
				keys[i] = in.Key
			case !errors.Is(err, keyring.ErrStale):
				t.Error(err)
			}
		})
	}
	wg.Wait()
	won := 0
	for _, k := range keys {
		if !k.IsZero() {
			won++
			if k != w.get().Key {
				t.Errorf("key %s was told, %s is on record", k, w.get().Key)
			}
		}
	}
	if in := w.get(); won != 1 || in.Generation != 2 {
		t.Errorf("%d won, generation %d", won, in.Generation)
	}
}

func TestARekeyWhoseAnswerWasLost(t *testing.T) {
	w := newWorld(t)
	unclear(w)
	seen := w.look(saw(keyring.FindingAbsent))
	w.ring = keyring.New(&lossy{Store: w.store, apply: true, fail: 1}, nil)
	in := w.rekey(seen, draft())
	if got := w.get(); got.Key != in.Key || got.Generation != 2 {
		t.Errorf("told %s, on record %s, generation %d", in.Key, got.Key, got.Generation)
	}

	w = newWorld(t)
	unclear(w)
	seen = w.look(saw(keyring.FindingAbsent))
	w.ring = keyring.New(&lossy{Store: w.store, fail: 1}, nil)
	before := w.get()
	if _, err := w.ring.Rekey(w.ctx, seen, draft()); !errors.Is(err, errLost) {
		t.Errorf("%v", err)
	}
	w.unchanged(before)
	w.rekey(seen, draft()) // nothing came of the first, so it is still good
}

func TestARekeyWithoutRandomness(t *testing.T) {
	w := newWorld(t)
	unclear(w)
	seen := w.look(saw(keyring.FindingAbsent))
	dry := errors.New("no entropy")
	restore := keyring.FailMints(dry)
	_, err := w.ring.Rekey(w.ctx, seen, draft())
	restore()
	if !errors.Is(err, dry) || w.get().Generation != 1 {
		t.Errorf("%v, generation %d", err, w.get().Generation)
	}
}

func TestGivingUp(t *testing.T) {
	for claim, c := range map[string]struct {
		run  func(w *world) keyring.Inspection
		want error
	}{
		"no look":        {func(w *world) keyring.Inspection { unclear(w); return keyring.Inspection{} }, keyring.ErrNeedsInspection},
		"absent":         {func(w *world) keyring.Inspection { unclear(w); return w.look(saw(keyring.FindingAbsent)) }, nil},
		"inconclusive":   {func(w *world) keyring.Inspection { unclear(w); return w.look(saw(keyring.FindingInconclusive)) }, nil},
		"another":        {func(w *world) keyring.Inspection { unclear(w); return w.look(saw(keyring.FindingOther)) }, nil},
		"refused":        {func(w *world) keyring.Inspection { verdict(keyring.VerdictRefused)(w); return w.refusal() }, nil},
		"found":          {func(w *world) keyring.Inspection { unclear(w); return w.look(saw(keyring.FindingPresent)) }, keyring.ErrFinal},
		"given up twice": {func(w *world) keyring.Inspection { unclear(w); w.abandon(w.look(said(0))); return w.look(said(0)) }, keyring.ErrFinal},
		"changed since":  {func(w *world) keyring.Inspection { unclear(w); s := w.look(said(0)); w.look(said(0)); return s }, keyring.ErrStale},
		"pending, a program's": {func(w *world) keyring.Inspection {
			verdict(keyring.VerdictPending)(w)
			return w.look(saw(keyring.FindingInconclusive))
		}, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			seen := c.run(w)
			before := w.get()
			in, err := w.ring.Abandon(w.ctx, seen)
			if !errors.Is(err, c.want) {
				t.Fatalf("%v, want %v", err, c.want)
			}
			if err != nil {
				w.unchanged(before)
				return
			}
			if in.State != keyring.StateAbandoned || w.get().State != keyring.StateAbandoned || in.Key != before.Key {
				t.Errorf("%s", in.State)
			}
			w.refused(keyring.ErrFinal)
			if got, err := w.ring.Begin(w.ctx, ref, draft()); err != nil || got.State != keyring.StateAbandoned {
				t.Errorf("begun again: %v, %s", err, got.State)
			}
			if seen := w.look(saw(keyring.FindingPresent)); seen.Intent().State != keyring.StateDone {
				t.Errorf("given up, and found after all: %s", seen.Intent().State)
			}
		})
	}
}

// Giving up does not undo what was sent: an answer that comes late still
// tells that it took effect.
func TestALateSuccessWinsOverGivingUp(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft())
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(2 * time.Minute)
	w.abandon(w.look(said(keyring.FindingInconclusive)))
	if in, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone}, nil, keyring.After{}); err != nil || in.State != keyring.StateDone || in.Outcome().Broken {
		t.Errorf("%v: %s", err, in.State)
	}
}

// The first key's findings say nothing about the second one.
func TestFindingsCountWithinTheirGeneration(t *testing.T) {
	w := newWorld(t)
	unclear(w)
	w.rekey(w.look(saw(keyring.FindingOther)), draft())
	if w.get().State != keyring.StateNeverSent {
		t.Fatalf("%s", w.get().State)
	}
	w.attempt(w.acquire(), keyring.Verdict{}, keyring.After{})
	if in := w.get(); in.State != keyring.StateUnknown {
		t.Errorf("%s", in.State)
	}
	w.noLook(saw(keyring.FindingAbsent), keyring.ErrTooSoon)
}

func TestRekeyTellsWhatItCannotReach(t *testing.T) {
	w := newWorld(t)
	unclear(w)
	seen := w.look(saw(keyring.FindingAbsent))
	ctx, cancel := context.WithCancel(w.ctx)
	cancel()
	if _, err := w.ring.Rekey(ctx, seen, draft()); !errors.Is(err, context.Canceled) {
		t.Errorf("rekey: %v", err)
	}
	if _, err := w.ring.Abandon(ctx, seen); !errors.Is(err, context.Canceled) {
		t.Errorf("abandon: %v", err)
	}
	w.rekey(seen, draft())
}
