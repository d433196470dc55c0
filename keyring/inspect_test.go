package keyring_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/internal/clock"
	"github.com/samekey/samekey/keyring"
)

// settle is the wait that the terms of draft ask for: the default.
const settle = 15 * time.Minute

// saw is an inspector that always says kind, as a program does.
func saw(kind keyring.FindingKind) keyring.Inspector {
	return keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
		return keyring.Finding{Kind: kind, EffectID: "e9", By: "list by metadata", Evidence: "1 of 1 pages"}, nil
	})
}

// said is an inspector for what a person saw.
func said(kind keyring.FindingKind) keyring.Inspector {
	return keyring.Attest(keyring.Finding{Kind: kind, EffectID: "e9", By: "Kim"})
}

func (w *world) look(by keyring.Inspector) keyring.Inspection {
	w.Helper()
	seen, err := w.ring.Inspect(w.ctx, ref, by)
	if err != nil {
		w.Fatal(err)
	}
	return seen
}

func (w *world) noLook(by keyring.Inspector, want error) *keyring.Error {
	w.Helper()
	before := w.get()
	seen, err := w.ring.Inspect(w.ctx, ref, by)
	var ke *keyring.Error
	if !errors.Is(err, want) || !errors.As(err, &ke) {
		w.Fatalf("inspect: %v, want %v", err, want)
	}
	if _, err := w.ring.Rekey(w.ctx, seen, draft()); !errors.Is(err, keyring.ErrNeedsInspection) {
		w.Errorf("a look that failed permits a rekey: %v", err)
	}
	if !errors.Is(want, keyring.ErrTooSoon) && !errors.Is(want, keyring.ErrStale) {
		w.unchanged(before)
	}
	return ke
}

func (w *world) unchanged(before keyring.Intent) {
	w.Helper()
	if in := w.get(); in.Revision != before.Revision || in.State != before.State {
		w.Errorf("revision %d, %s; it was %d, %s", in.Revision, in.State, before.Revision, before.State)
	}
}

func TestNotFoundCountsOnceNothingCanBeOnItsWay(t *testing.T) {
	ended := func(w *world) { w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{}) }
	endless := func(w *world) {
		if _, err := w.begun(draft()).Start(w.ctx); err != nil {
			w.Fatal(err)
		}
	}
	for _, c := range []struct {
		claim string
		run   func(w *world)
		left  time.Duration // until it counts; 0: it counts
	}{
		{"nothing was ever sent", func(w *world) { _, _ = w.ring.Begin(w.ctx, ref, draft()) }, 0},
		{"turned away at the door", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictNotProcessed}, keyring.After{})
		}, 0},
		{"at once", ended, settle},
		{"a moment before", func(w *world) { ended(w); w.clock.pass(settle - time.Second) }, time.Second},
		{"from its end on", func(w *world) { ended(w); w.clock.pass(settle) }, 0},
		{"without an end, from its deadline on", func(w *world) { endless(w); w.clock.pass(settle) }, 30 * time.Second},
		{"without an end, after that", func(w *world) { endless(w); w.clock.pass(settle + 30*time.Second) }, 0},
		{"the latest of several", func(w *world) {
			ended(w)
			w.clock.pass(settle)
			w.attempt(w.acquire(), keyring.Verdict{}, keyring.After{})
		}, settle},
		{"a later refusal at the door takes nothing away", func(w *world) {
			h := w.begun(draft())
			w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
			w.clock.pass(settle - time.Minute)
			w.attempt(h, keyring.Verdict{Kind: keyring.VerdictNotProcessed}, keyring.After{})
		}, time.Minute - time.Second},
		{"a wall clock that jumps is no passing of time", func(w *world) { ended(w); w.clock.step(9*time.Hour, time.Minute) }, settle - time.Minute},
		{"nor is one that is set back a delay", func(w *world) { ended(w); w.clock.step(-9*time.Hour, settle) }, 0},
		{"across a restart by the wall clock", func(w *world) { ended(w); w.clock.reboot(settle - time.Minute) }, time.Minute},
		{"across a restart, long ago", func(w *world) { ended(w); w.clock.reboot(settle) }, 0},
		{"across a restart, without an end", func(w *world) { endless(w); w.clock.reboot(settle) }, 30 * time.Second},
		{"a restart with an earlier clock begins anew", func(w *world) { ended(w); w.clock.reboot(-time.Minute) }, settle},
		{"a wall clock that is not to be believed", func(w *world) {
			ended(w)
			w.ring = keyring.New(w.store, &keyring.Options{ClockTrusted: func() bool { return false }})
			w.clock.reboot(9 * time.Hour)
		}, settle},
		{"such a clock does not matter within one boot", func(w *world) {
			ended(w)
			w.ring = keyring.New(w.store, &keyring.Options{ClockTrusted: func() bool { return false }})
			w.clock.pass(settle)
		}, 0},
		{"a clock that the provider's disagreed with", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Date: w.clock.r.Wall.Add(time.Hour)}, keyring.After{})
			w.clock.reboot(time.Hour)
		}, settle},
		{"as long as the terms say", func(w *world) {
			w.attempt(w.begun(draft(func(d *keyring.Draft) { d.Terms.Settle = 2 * time.Hour })), keyring.Verdict{}, keyring.After{})
			w.clock.pass(settle)
		}, 2*time.Hour - settle},
	} {
		t.Run(c.claim, func(t *testing.T) {
			w := newWorld(t)
			c.run(w)
			before := w.get()
			if c.left == 0 {
				if seen := w.look(saw(keyring.FindingAbsent)); seen.Finding().Kind != keyring.FindingAbsent || seen.Intent().State != keyring.StateNeverSent {
					t.Errorf("%s, %s", seen.Finding().Kind, seen.Intent().State)
				}
				return
			}
			e := w.noLook(saw(keyring.FindingAbsent), keyring.ErrTooSoon)
			if want := w.clock.r.Wall.Add(c.left); !e.Until.Equal(want) {
				t.Errorf("until %v, want %v", e.Until, want)
			}
			in := w.get()
			if in.State != before.State || len(in.Findings) != 1 || in.Findings[0].Kind != keyring.FindingInconclusive || in.Findings[0].EffectID != "e9" {
				t.Errorf("%s, findings %v", in.State, in.Findings)
			}
			w.clock.pass(c.left) // the time that was told is the time that counts
			if seen := w.look(saw(keyring.FindingAbsent)); seen.Intent().State != keyring.StateNeverSent {
				t.Errorf("at the time it was told: %s", seen.Intent().State)
			}
		})
	}
}

func TestWhatALookSaysDecides(t *testing.T) {
	for _, c := range []struct {
		kind   keyring.FindingKind
		state  keyring.State
		source keyring.Source
		effect string
	}{
		{keyring.FindingPresent, keyring.StateDone, keyring.SourceInspection, "e9"},
		{keyring.FindingOther, keyring.StateRefused, keyring.SourceInspection, "e9"},
		{keyring.FindingAbsent, keyring.StateNeverSent, keyring.SourceRecord, ""},
		{keyring.FindingInconclusive, keyring.StateUnknown, keyring.SourceRecord, ""},
		{77, keyring.StateUnknown, keyring.SourceRecord, ""},
	} {
		for name, by := range map[string]keyring.Inspector{"a program": saw(c.kind), "a person": said(c.kind)} {
			t.Run(c.kind.String()+" by "+name, func(t *testing.T) {
				w := newWorld(t)
				w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
				w.clock.pass(settle)
				began := w.clock.r.Wall
				seen := w.look(by)
				out := seen.Intent().Outcome()
				if out.State != c.state || out.Source != c.source || out.Verdict.EffectID != c.effect || out.Broken {
					t.Errorf("%+v", out)
				}
				in := w.get()
				if in.State != c.state || len(in.Findings) != 1 {
					t.Fatalf("on record: %s, findings %v", in.State, in.Findings)
				}
				if f := in.Findings[0]; f != seen.Finding() || f.EffectID != "e9" || f.By == "" || !f.At.Equal(began) {
					t.Errorf("%+v, told %+v", f, seen.Finding())
				}
			})
		}
	}
}

// What is final is not asked about again; what is open to question is.
func TestWhatIsLookedAtThoughFinal(t *testing.T) {
	done := keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "e1"}
	w := newWorld(t)
	w.attempt(w.begun(draft()), done, keyring.After{})
	w.noLook(saw(keyring.FindingPresent), keyring.ErrFinal)

	w = newWorld(t)
	done.Unreadable = true
	w.attempt(w.begun(draft()), done, keyring.After{})
	if seen := w.look(saw(keyring.FindingPresent)); seen.Intent().State != keyring.StateDone {
		t.Errorf("%s", seen.Intent().State)
	}

	w = newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictRefused}, keyring.After{})
	if seen := w.look(saw(keyring.FindingPresent)); seen.Intent().State != keyring.StateDone {
		t.Errorf("refused, and found after all: %s", seen.Intent().State)
	}
}

// "Absent" lifts the doubt before it, and permits one more attempt; the next
// doubt stands again.
func TestAbsentPermitsOneMoreAttempt(t *testing.T) {
	for name, dedup := range map[string]keyring.Dedup{"none": keyring.DedupNone, "natural": keyring.DedupNatural, "key": keyring.DedupKey} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			d := draft(func(d *keyring.Draft) {
				d.Terms.Dedup = dedup
				d.Terms.MarksRunning = false
				if dedup == keyring.DedupNatural {
					d.Terms.Retention = 0
				}
			})
			w.terms = d.Terms
			w.attempt(w.begun(d), keyring.Verdict{NoResend: true}, keyring.After{Wait: 20 * time.Hour})
			key := w.get().Key
			w.refused(keyring.ErrNeedsInspection)
			w.clock.pass(settle)
			if in := w.look(saw(keyring.FindingAbsent)).Intent(); in.State != keyring.StateNeverSent || !in.NotBefore.IsZero() {
				t.Fatalf("%s, not before %v: the wait was for an attempt that came to nothing", in.State, in.NotBefore)
			}
			h := w.acquire()
			again, err := h.Start(w.ctx)
			if err != nil || again != key {
				t.Fatalf("%v: key %s, want %s", err, again, key)
			}
			if in := w.get(); in.State != keyring.StateSending {
				t.Errorf("%s", in.State)
			}
			if _, err := h.Finish(w.ctx, keyring.Verdict{NoResend: true}, nil, keyring.After{}); err != nil {
				t.Fatal(err)
			}
			if in := w.get(); in.State != keyring.StateUnknown {
				t.Errorf("an earlier look says nothing about a later attempt: %s", in.State)
			}
			w.refused(keyring.ErrNeedsInspection)
			w.noLook(saw(keyring.FindingAbsent), keyring.ErrTooSoon)
		})
	}
}

func TestAbsentTooSoonCancelsNothing(t *testing.T) {
	w := newWorld(t)
	w.terms.Dedup = keyring.DedupNone
	w.attempt(w.begun(draft(func(d *keyring.Draft) { d.Terms = w.terms })), keyring.Verdict{}, keyring.After{})
	w.noLook(saw(keyring.FindingAbsent), keyring.ErrTooSoon)
	w.noLook(said(keyring.FindingAbsent), keyring.ErrTooSoon)
	w.clock.pass(9 * time.Hour)
	if in := w.get(); in.State != keyring.StateUnknown {
		t.Errorf("a look that came too soon counts later: %s", in.State)
	}
	w.refused(keyring.ErrNeedsInspection)
}

// A look is about the intent as it was when the look began.
func TestAnIntentThatChangesDuringTheLook(t *testing.T) {
	for claim, change := range map[string]func(w *world){
		"another attempt": func(w *world) { w.attempt(w.acquire(), keyring.Verdict{}, keyring.After{}) },
		"another look":    func(w *world) { w.look(saw(keyring.FindingInconclusive)) },
		"a hold":          func(w *world) { w.acquire() },
		"given up":        func(w *world) { w.abandon(w.look(saw(keyring.FindingInconclusive))) },
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.pass(settle)
			findings := 0
			w.noLook(keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
				change(w)
				findings = len(w.get().Findings)
				return keyring.Finding{Kind: keyring.FindingAbsent}, nil
			}), keyring.ErrStale)
			if n := len(w.get().Findings); n != findings {
				t.Errorf("%d findings on record, want %d", n, findings)
			}
		})
	}
}

func (w *world) abandon(seen keyring.Inspection) keyring.Intent {
	w.Helper()
	in, err := w.ring.Abandon(w.ctx, seen)
	if err != nil {
		w.Fatal(err)
	}
	return in
}

// The settle time is judged by the clock at the beginning of the look: one
// that takes long began too early all the same.
func TestALookCountsFromItsBeginning(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	w.clock.pass(settle - time.Second)
	w.noLook(keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
		w.clock.pass(time.Hour)
		return keyring.Finding{Kind: keyring.FindingAbsent}, nil
	}), keyring.ErrTooSoon)
}

func TestNobodyLooksWhileSomebodySends(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft())
	asked := false
	by := keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
		asked = true
		return keyring.Finding{Kind: keyring.FindingPresent}, nil
	})
	if e := w.noLook(by, keyring.ErrHeld); !e.Until.Equal(w.clock.r.Wall.Add(90 * time.Second)) {
		t.Errorf("until %v", e.Until)
	}
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	w.noLook(by, keyring.ErrHeld)
	if asked {
		t.Error("the inspector was asked")
	}
	if err := h.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.look(by)
}

func TestAHolderLooksBetweenTwoAttempts(t *testing.T) {
	w := newWorld(t)
	w.terms.Dedup = keyring.DedupNone
	w.terms.Settle = time.Second
	h := w.begun(draft(func(d *keyring.Draft) { d.Terms = w.terms }))
	if _, err := h.Inspect(w.ctx, saw(keyring.FindingAbsent)); !errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("during an attempt: %v", err)
	}
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	if _, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrNeedsInspection) {
		t.Fatal(err)
	}
	w.clock.pass(time.Second)
	seen, err := h.Inspect(w.ctx, saw(keyring.FindingAbsent))
	if err != nil || seen.Intent().State != keyring.StateNeverSent || h.Intent(w.ctx).State != keyring.StateNeverSent {
		t.Fatalf("%v: %s", err, seen.Intent().State)
	}
	if w.get().HeldBy == "" {
		t.Error("the look gave the hold away")
	}
	w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
	if _, err := h.Inspect(w.ctx, saw(keyring.FindingPresent)); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrFinal) {
		t.Errorf("found, and sent again: %v", err)
	}
	if err := h.Release(w.ctx); err != nil || w.get().HeldBy != "" {
		t.Errorf("%v: held by %q", err, w.get().HeldBy)
	}
	if _, err := h.Inspect(w.ctx, saw(keyring.FindingPresent)); !errors.Is(err, keyring.ErrHeld) {
		t.Errorf("after giving the hold back: %v", err)
	}
}

// A holder that is overtaken during its look may not go on.
func TestAHolderThatIsOvertakenMayNotGoOn(t *testing.T) {
	for claim, overtake := range map[string]func(w *world){
		"by a sender at work":       func(w *world) { w.acquire() },
		"by one that is through":    func(w *world) { w.attempt(w.acquire(), keyring.Verdict{}, keyring.After{}) },
		"by one that rekeyed":       func(w *world) { w.rekey(w.look(saw(keyring.FindingAbsent)), draft()) },
		"by one that was forgotten": func(w *world) { w.abandon(w.look(saw(keyring.FindingAbsent))) },
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			h := w.begun(draft())
			w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
			w.clock.pass(settle)
			overtake(w)
			seen, err := h.Inspect(w.ctx, saw(keyring.FindingAbsent))
			if err == nil {
				t.Errorf("%v", seen.Finding())
			}
			before := w.get()
			if _, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrHeld) && !errors.Is(err, keyring.ErrFinal) {
				t.Errorf("start: %v", err)
			}
			if err := h.Release(w.ctx); err != nil {
				t.Error(err)
			}
			w.unchanged(before)
		})
	}
}

func TestALookThatFails(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	w.clock.pass(settle)
	down := errors.New("the provider's list is down")
	w.noLook(keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
		return keyring.Finding{Kind: keyring.FindingAbsent}, down
	}), down)
	w.noLook(nil, keyring.ErrInvalid)
	before := w.get()
	func() {
		defer func() {
			if recover() == nil {
				t.Error("a panic of the inspector was swallowed")
			}
		}()
		_, _ = w.ring.Inspect(w.ctx, ref, keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
			panic("inspector")
		}))
	}()
	w.unchanged(before)
	for claim, f := range map[string]keyring.Finding{
		"a long effect id":   {EffectID: strings.Repeat("x", 257)},
		"a long name":        {By: strings.Repeat("x", 257)},
		"long evidence":      {Evidence: strings.Repeat("x", 1025)},
		"a control sequence": {Evidence: "\x1b[2J"},
		"a line break":       {By: "a\nb"},
		"half a rune":        {EffectID: "\xc3"},
	} {
		f.Kind = keyring.FindingPresent
		t.Run(claim, func(*testing.T) { w.noLook(keyring.Attest(f), keyring.ErrInvalid) })
	}
	longest := keyring.Finding{Kind: keyring.FindingPresent, EffectID: strings.Repeat("x", 256), By: strings.Repeat("y", 256), Evidence: strings.Repeat("z", 1024)}
	w.look(keyring.Attest(longest))
	if f := w.get().Findings[0]; f.EffectID != longest.EffectID || f.By != longest.By || f.Evidence != longest.Evidence {
		t.Error("the longest that is allowed is not on record whole")
	}
}

// A look that is under way when its caller gives up is still recorded whole or
// not at all.
func TestALookWhoseCallerGaveUp(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	ctx, cancel := context.WithCancel(w.ctx)
	_, err := w.ring.Inspect(ctx, ref, keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
		cancel()
		return keyring.Finding{Kind: keyring.FindingPresent}, nil
	}))
	if in := w.get(); err != nil || in.State != keyring.StateDone {
		t.Errorf("%v: %s", err, in.State)
	}
	before := w.get()
	if _, err := w.ring.Inspect(ctx, ref, saw(keyring.FindingPresent)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	w.unchanged(before)
}

func TestAPersonsTimeOfSeeingIsKept(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	at := w.clock.r.Wall.Add(-time.Hour).In(time.FixedZone("", 3600))
	w.look(keyring.Attest(keyring.Finding{Kind: keyring.FindingPresent, At: at}))
	if got := w.get().Findings[0].At; !got.Equal(at) {
		t.Errorf("%v, want %v", got, at)
	}
}

// A finding's own time does not make an early look count.
func TestASettleTimeCannotBeClaimed(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	w.noLook(keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent, At: w.clock.r.Wall.Add(9 * time.Hour)}), keyring.ErrTooSoon)
}

// damagedStore gives one record back other than it was stored, until it is
// written again.
type damagedStore struct {
	keyring.Store
	harm func(*keyring.Record)
}

func (d *damagedStore) Load(ctx context.Context, r keyring.Ref) (keyring.Record, error) {
	rec, err := d.Store.Load(ctx, r)
	if err == nil && d.harm != nil {
		d.harm(&rec)
	}
	return rec, err
}

func (d *damagedStore) Update(ctx context.Context, rec keyring.Record) error {
	err := d.Store.Update(ctx, rec)
	if err == nil {
		d.harm = nil
	}
	return err
}

func TestADamagedRecordIsClosedByAPersonAlone(t *testing.T) {
	for what, harm := range map[string]func(*keyring.Record){
		"its request": func(r *keyring.Record) { r.Request = r.Request[:10] },
		"its bytes":   func(r *keyring.Record) { r.Data[20]++ },
	} {
		for kind, want := range map[keyring.FindingKind]keyring.State{
			keyring.FindingPresent: keyring.StateDone,
			keyring.FindingAbsent:  keyring.StateAbandoned,
			keyring.FindingOther:   keyring.StateRefused,
		} {
			t.Run(what+", "+kind.String(), func(t *testing.T) {
				w := newWorld(t)
				store := &damagedStore{Store: w.store}
				w.ring = keyring.New(store, nil)
				w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
				before := w.get()
				w.clock.pass(settle)
				store.harm = harm
				w.noLook(saw(kind), keyring.ErrDamaged)
				w.noLook(said(keyring.FindingInconclusive), keyring.ErrInvalid)
				w.noLook(keyring.Attest(keyring.Finding{Kind: kind, By: "\x00"}), keyring.ErrInvalid)
				if _, err := w.ring.Refusal(w.ctx, ref); !errors.Is(err, keyring.ErrDamaged) {
					t.Errorf("refusal: %v", err)
				}
				if _, err := w.ring.Generations(w.ctx, ref); !errors.Is(err, keyring.ErrDamaged) {
					t.Errorf("generations: %v", err)
				}

				seen := w.look(said(kind))
				in := w.get()
				if in.State != want || seen.Intent().State != want || in.Revision != before.Revision+1 || !in.Final() {
					t.Fatalf("%s, revision %d", in.State, in.Revision)
				}
				if f := in.Findings; len(f) != 1 || f[0].By != "Kim" || f[0].Kind != kind {
					t.Errorf("%v", f)
				}
				if got := in.Outcome().Verdict.EffectID; want != keyring.StateAbandoned && got != "e9" {
					t.Errorf("effect id %q", got)
				}
				w.refused(keyring.ErrFinal)
				if in.Request.URL != "" || len(in.Request.Body) > 0 {
					t.Error("a damaged request is shown")
				}
				got, err := w.ring.Begin(w.ctx, ref, draft())
				if err != nil || got.State != want {
					t.Errorf("an equal request: %v, %s", err, got.State)
				}
				_, err = w.ring.Begin(w.ctx, ref, draft(func(d *keyring.Draft) { d.Request.Body = []byte("{}") }))
				var ke *keyring.Error
				if !errors.Is(err, keyring.ErrDiffers) || !errors.As(err, &ke) || len(ke.Fields) != 1 || ke.Fields[0] != "request" {
					t.Errorf("another request: %v", err)
				}
				for in, err := range w.ring.List(w.ctx, keyring.Query{OpenOnly: true}) {
					t.Errorf("listed as open: %v, %v", in, err)
				}
			})
		}
	}
}

// The attempts of a record of which the request alone is damaged stay on
// record, and a sender that was on its way can still say what it was told.
func TestALateAnswerForAClosedRecordCounts(t *testing.T) {
	w := newWorld(t)
	store := &damagedStore{Store: w.store}
	w.ring = keyring.New(store, nil)
	h := w.begun(draft())
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	store.harm = func(r *keyring.Record) { r.Request = nil }
	if _, err := w.ring.Inspect(w.ctx, ref, said(keyring.FindingAbsent)); !errors.Is(err, keyring.ErrHeld) {
		t.Errorf("while it is being sent: %v, want ErrHeld", err)
	}
	w.clock.pass(2 * time.Minute) // the lease is over, and it may still be on its way
	if _, err := w.ring.Inspect(w.ctx, ref, said(keyring.FindingAbsent)); !errors.Is(err, keyring.ErrTooSoon) {
		t.Errorf("before it has settled: %v, want ErrTooSoon", err)
	}
	w.clock.pass(time.Hour)
	w.look(said(keyring.FindingAbsent))
	in, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "e1"}, []byte("yes"), keyring.After{})
	if err != nil || in.State != keyring.StateDone || w.get().State != keyring.StateDone || string(w.get().Answer) != "yes" {
		t.Errorf("%v: %s", err, in.State)
	}
}

// A record that was closed as "something else stands there" may get another
// key; its generations go on counting where they were.
func TestGenerationsGoOnAfterDamage(t *testing.T) {
	w := newWorld(t)
	store := &damagedStore{Store: w.store}
	w.ring = keyring.New(store, nil)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	w.clock.pass(settle)
	w.rekey(w.look(saw(keyring.FindingAbsent)), draft())
	store.harm = func(r *keyring.Record) { r.Data[20]++ }
	in := w.rekey(w.look(said(keyring.FindingOther)), draft())
	if in.Generation != 3 || in.State != keyring.StateNeverSent || w.get().Generation != 3 {
		t.Errorf("generation %d, %s", in.Generation, in.State)
	}
	all, err := w.ring.Generations(w.ctx, ref)
	if err != nil || len(all) != 2 || all[0].Generation != 2 || all[1].Generation != 3 {
		t.Errorf("%v: %v", err, all)
	}
}

func TestAHoldWhoseRecordIsGoneLooksAtNothing(t *testing.T) {
	w := newWorld(t)
	if _, err := w.ring.Inspect(w.ctx, ref, saw(keyring.FindingPresent)); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := w.ring.Refusal(w.ctx, ref); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("%v", err)
	}
	if _, err := w.ring.Generations(w.ctx, ref); !errors.Is(err, keyring.ErrNotFound) {
		t.Errorf("%v", err)
	}
}

// The inspector sees the intent that it is to look for, and the caller's
// context.
func TestTheInspectorIsToldWhatToLookFor(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{RequestID: "req_1"}, keyring.After{})
	w.look(keyring.InspectorFunc(func(ctx context.Context, in keyring.Intent) (keyring.Finding, error) {
		if in.Ref != ref || in.Key != w.get().Key || string(in.Request.Body) != `{"amount":1250}` || len(in.Attempts) != 1 || in.Attempts[0].Verdict.RequestID != "req_1" {
			t.Errorf("%v", in)
		}
		if clock.Now(ctx) != w.clock.Read() {
			t.Error("another context")
		}
		in.Request.Body[0] = '!' // a copy: nothing comes of it
		return keyring.Finding{}, nil
	}))
	if w.get().Request.Body[0] != '{' {
		t.Error("the inspector changed the request")
	}
}
