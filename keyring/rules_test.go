package keyring_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
)

// The rules that carry the weight, one test each: leaving the rule out of the
// code makes its test fail. What comes of all of them together is tried in
// model_test.go.

var (
	doubt    = keyring.Verdict{}
	door     = keyring.Verdict{Kind: keyring.VerdictNotProcessed, Status: http.StatusUnauthorized}
	refused  = keyring.Verdict{Kind: keyring.VerdictRefused}
	front    = keyring.Verdict{Kind: keyring.VerdictRefused, Front: true}
	pending  = keyring.Verdict{Kind: keyring.VerdictPending}
	conflict = keyring.Verdict{Kind: keyring.VerdictConflict}
	already  = keyring.Verdict{Kind: keyring.VerdictAlready}
	done     = keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "e1"}
)

// told makes one attempt per verdict under d, each as soon as it may be, and
// says what is known then.
func (w *world) told(d keyring.Draft, verdicts ...keyring.Verdict) keyring.Intent {
	w.Helper()
	w.terms = d.Terms
	h := w.begun(d)
	var in keyring.Intent
	for _, v := range verdicts {
		_, err := h.Start(w.ctx)
		var ke *keyring.Error
		if errors.Is(err, keyring.ErrTooSoon) && errors.As(err, &ke) {
			w.clock.pass(ke.Until.Sub(w.clock.Read().Wall))
			_, err = h.Start(w.ctx)
		}
		if err != nil {
			w.Fatal(err)
		}
		if in, err = h.Finish(w.ctx, v, nil, keyring.After{Keep: true}); err != nil {
			w.Fatal(err)
		}
	}
	if err := h.Release(w.ctx); err != nil {
		w.Fatal(err)
	}
	if got := w.get(); got.State != in.State {
		w.Errorf("told %s, on record %s", in.State, got.State)
	}
	return in
}

func with(change func(*keyring.Terms)) keyring.Draft { return draft(terms(change)) }

func kept(t *keyring.Terms)    { t.KeepsRefusals = true }
func notKept(t *keyring.Terms) { t.KeepsRefusals = false }
func natural(t *keyring.Terms) {
	t.Dedup, t.Retention, t.KeepsRefusals = keyring.DedupNatural, 0, false
}

func TestRuleNotProcessedNeverExcusesEarlierDoubt(t *testing.T) {
	for _, before := range [][]keyring.Verdict{{doubt}, {pending}, {doubt, already}, {door, doubt, door}} {
		w := newWorld(t)
		if in := w.told(draft(), append(before, door)...); in.State != keyring.StateUnknown {
			t.Errorf("%s", in.State)
		}
	}
	w := newWorld(t)
	if in := w.told(draft(), door, door); in.State != keyring.StateNeverSent || !in.FirstSent.IsZero() {
		t.Errorf("turned away twice: %s, first sent %v", in.State, in.FirstSent)
	}
	w = newWorld(t)
	w.told(draft(), doubt, door)
	w.clock.pass(24 * time.Hour)
	w.refused(keyring.ErrNeedsInspection) // and it makes the key no younger
}

func TestRuleARefusalFromTheFrontSettlesNoDoubt(t *testing.T) {
	for _, before := range []keyring.Verdict{doubt, pending} {
		w := newWorld(t)
		if in := w.told(with(kept), before, front); in.Final() {
			t.Errorf("after %s: %s", before.Kind, in.State)
		}
	}
	for _, before := range [][]keyring.Verdict{nil, {door}} {
		w := newWorld(t)
		if in := w.told(with(kept), append(before, front)...); in.State != keyring.StateRefused {
			t.Errorf("without doubt: %s", in.State)
		}
	}
}

func TestRuleARefusalSettlesDoubtOnlyWhereRefusalsAreKept(t *testing.T) {
	for _, c := range []struct {
		dedup keyring.Dedup
		kept  bool
		want  keyring.State
	}{
		{keyring.DedupKey, true, keyring.StateRefused},
		{keyring.DedupKey, false, keyring.StateUnknown},
		{keyring.DedupNatural, true, keyring.StateUnknown},
	} {
		w := newWorld(t)
		d := with(func(t *keyring.Terms) { t.Dedup, t.KeepsRefusals = c.dedup, c.kept })
		if in := w.told(d, doubt, refused); in.State != c.want {
			t.Errorf("%s, kept %v: %s, want %s", c.dedup, c.kept, in.State, c.want)
		}
	}
	// What the provider keeps counts as it is now, too.
	w := newWorld(t)
	h := w.begun(with(kept))
	w.attempt(h, doubt, keyring.After{})
	worse := with(notKept).Terms
	h, err := w.ring.Acquire(w.ctx, ref, keyring.Current{Terms: worse})
	if err != nil {
		t.Fatal(err)
	}
	if in := w.attempt(h, refused, keyring.After{}); in.State != keyring.StateUnknown {
		t.Errorf("terms that got worse: %s", in.State)
	}
}

// A refusal that is told late may have been overtaken by an attempt that took
// effect: the numbers of attempts say nothing about when they were told.
func TestRuleARefusalSettlesNoDoubtOfAnAttemptThatOvertookIt(t *testing.T) {
	late := func(t *testing.T, d keyring.Draft, first, second keyring.Verdict) keyring.Intent {
		w := newWorld(t)
		h := w.begun(d)
		if _, err := h.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.clock.pass(2 * time.Minute)
		w.terms = d.Terms
		other := w.acquire()
		if _, err := other.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		in, err := h.Finish(w.ctx, first, nil, keyring.After{})
		if err != nil {
			t.Fatal(err)
		}
		if want := first == refused && d.Terms.KeepsRefusals && d.Terms.Dedup == keyring.DedupKey; in.Final() != want {
			t.Errorf("%s while another attempt is under way: %s", first.Kind, in.State)
		}
		if in, err = other.Finish(w.ctx, second, nil, keyring.After{}); err != nil {
			t.Fatal(err)
		}
		return in
	}
	for _, c := range []struct {
		claim         string
		draft         keyring.Draft
		first, second keyring.Verdict
		want          keyring.State
	}{
		{"not kept", with(notKept), refused, doubt, keyring.StateUnknown},
		{"not kept, nothing came of the other", with(notKept), refused, door, keyring.StateRefused},
		{"kept", with(kept), refused, doubt, keyring.StateRefused},
		{"from the front", with(kept), front, doubt, keyring.StateUnknown},
		{"natural", with(natural), refused, doubt, keyring.StateUnknown},
		{"what exists may be the other's", with(natural), already, doubt, keyring.StateUnknown},
		{"what exists was there before", with(natural), already, door, keyring.StateRefused},
	} {
		if in := late(t, c.draft, c.first, c.second); in.State != c.want {
			t.Errorf("%s: %s, want %s", c.claim, in.State, c.want)
		}
	}
}

func TestRuleAConflictMayBeOurOwnSuccess(t *testing.T) {
	for _, before := range [][]keyring.Verdict{nil, {doubt}, {door}} {
		w := newWorld(t)
		in := w.told(draft(), append(before, conflict)...)
		if in.State != keyring.StateConflict || in.Final() || !in.Outcome().NeedsInspection {
			t.Errorf("%s", in.State)
		}
		w.refused(keyring.ErrNeedsInspection)
	}
}

func TestRuleAlreadyMayBeOurOwnSuccess(t *testing.T) {
	method := func(m string) keyring.Draft {
		d := with(natural)
		d.Request.Method = m
		return d
	}
	for _, c := range []struct {
		claim string
		draft keyring.Draft
		told  []keyring.Verdict
		want  keyring.State
	}{
		{"a name that was taken before we came", method("PUT"), []keyring.Verdict{already}, keyring.StateRefused},
		{"or after we were turned away", method("PUT"), []keyring.Verdict{door, already}, keyring.StateRefused},
		{"a name that we may have taken", method("PUT"), []keyring.Verdict{doubt, already}, keyring.StateUnknown},
		{"the same where a key is used", draft(), []keyring.Verdict{doubt, already}, keyring.StateUnknown},
		{"twice", draft(), []keyring.Verdict{doubt, already, already}, keyring.StateUnknown},
		{"an object that was gone before we came", method("DELETE"), []keyring.Verdict{already}, keyring.StateRefused},
		{"an object that we asked to delete", method("DELETE"), []keyring.Verdict{doubt, already}, keyring.StateDone},
	} {
		w := newWorld(t)
		if in := w.told(c.draft, c.told...); in.State != c.want {
			t.Errorf("%s: %s, want %s", c.claim, in.State, c.want)
		}
	}

	// Doubt under an earlier key counts as well: what exists may be its.
	w := newWorld(t)
	w.told(method("PUT"), doubt)
	w.clock.pass(settle)
	w.rekey(w.look(said(keyring.FindingOther)), method("PUT"))
	if in := w.attempt(w.acquire(), already, keyring.After{}); in.Final() {
		t.Errorf("after doubt under an earlier key: %s", in.State)
	}
}

func TestRuleNothingIsWrittenAfterTheDeadlineAndNoLeaseEndsBeforeIt(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft())
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if left := h.Left(w.ctx); left != 30*time.Second {
		t.Errorf("%v", left)
	}
	w.clock.pass(30 * time.Second)
	if left := h.Left(w.ctx); left > 0 {
		t.Errorf("%v left at the deadline", left)
	}
	w.refused(keyring.ErrHeld)
	w.clock.pass(time.Minute - time.Second)
	w.refused(keyring.ErrHeld)

	// The lease of a hold that is kept begins anew with each attempt.
	w = newWorld(t)
	h = w.begun(draft())
	w.attempt(h, doubt, keyring.After{Keep: true})
	w.clock.pass(80 * time.Second)
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(80 * time.Second)
	w.refused(keyring.ErrHeld)

	for _, o := range []keyring.Options{
		{Lease: 89 * time.Second},
		{Lease: time.Minute, AttemptTimeout: time.Second},
		{AttemptTimeout: time.Hour, Lease: time.Hour},
	} {
		if _, err := keyring.New(w.store, &o).Get(w.ctx, ref); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("a lease of %v for attempts of %v: %v", o.Lease, o.AttemptTimeout, err)
		}
	}
}

func TestRuleDoubtIsSpaced(t *testing.T) {
	unmarked := with(func(t *keyring.Terms) { t.MarksRunning = false })
	left := func(w *world) time.Duration {
		w.Helper()
		w.terms = unmarked.Terms
		return w.refused(keyring.ErrTooSoon).Until.Sub(w.clock.Read().Wall)
	}
	w := newWorld(t)
	for n, want := range []time.Duration{5, 20, 40, 80, 160} {
		var h *keyring.Hold
		if n == 0 {
			h = w.begun(unmarked)
		} else {
			w.clock.pass(left(w))
			h = w.acquire()
		}
		w.attempt(h, doubt, keyring.After{})
		if d := left(w); d != want*time.Second {
			t.Errorf("after %d unclear attempts: %v, want %v", n+1, d, want*time.Second)
		}
	}
	// Turned away in between: the doubt is spaced no less, and no more.
	w.clock.pass(159 * time.Second)
	if d := left(w); d != time.Second {
		t.Errorf("%v", d)
	}
	w.clock.pass(time.Second)
	w.attempt(w.acquire(), door, keyring.After{})
	if _, err := w.acquire().Start(w.ctx); err != nil {
		t.Errorf("after it was turned away: %v", err)
	}

	// After a crash it counts from the deadline: until then it could leave.
	w = newWorld(t)
	w.ring = keyring.New(&sessions{Store: w.store, name: "s1"}, nil)
	if _, err := w.begun(unmarked).Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.ring = keyring.New(&sessions{Store: w.store, name: "s2", gone: "s1"}, nil)
	if d := left(w); d != 35*time.Second {
		t.Errorf("after a crash: %v", d)
	}
	w.clock.step(9*time.Hour, 34*time.Second)
	if d := left(w); d != time.Second {
		t.Errorf("by the wall clock, too: %v", d)
	}
	w.clock.pass(time.Second)
	w.acquire()

	// Of two attempts the one that can arrive later counts.
	w = newWorld(t)
	first := w.begun(unmarked)
	if _, err := first.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(90 * time.Second)
	w.terms = unmarked.Terms
	w.attempt(w.acquire(), doubt, keyring.After{})
	w.clock.pass(19 * time.Second)
	if _, err := first.Finish(w.ctx, doubt, nil, keyring.After{}); err != nil {
		t.Fatal(err)
	}
	if d := left(w); d != 20*time.Second {
		t.Errorf("after an end that came late: %v", d)
	}

	// A Preview says the same as what comes.
	w = newWorld(t)
	h := w.begun(unmarked)
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if p := h.Preview(w.ctx, doubt); p.Wait != 5*time.Second || !p.Again {
		t.Errorf("preview: %+v", p)
	}
}

func TestRuleNotFoundCountsOnlyAfterTheSettleTime(t *testing.T) {
	w := newWorld(t)
	w.told(draft(), doubt)
	w.clock.pass(settle - 1)
	w.noLook(saw(keyring.FindingAbsent), keyring.ErrTooSoon)
	if in := w.get(); in.State != keyring.StateUnknown {
		t.Errorf("%s", in.State)
	}
	w.clock.pass(1)
	if in := w.look(saw(keyring.FindingAbsent)).Intent(); in.State != keyring.StateNeverSent {
		t.Errorf("%s", in.State)
	}
}

func TestRuleALookIsVoidWhenTheIntentHasChanged(t *testing.T) {
	w := newWorld(t)
	w.told(draft(), doubt)
	w.clock.pass(settle)
	w.noLook(keyring.InspectorFunc(func(context.Context, keyring.Intent) (keyring.Finding, error) {
		w.attempt(w.acquire(), doubt, keyring.After{}) // and this one may have had the effect
		return keyring.Finding{Kind: keyring.FindingAbsent}, nil
	}), keyring.ErrStale)
	if in := w.get(); in.State != keyring.StateUnknown || len(in.Findings) != 0 {
		t.Errorf("%s, findings %v", in.State, in.Findings)
	}
}

func TestRuleALateFinishFillsItsOwnSlot(t *testing.T) {
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
	if _, err := first.Finish(w.ctx, refused, nil, keyring.After{}); err != nil {
		t.Fatal(err)
	}
	in := w.get()
	if len(in.Attempts) != 2 || in.Attempts[0].Verdict.Kind != keyring.VerdictRefused || !in.Attempts[1].End.IsZero() || in.HeldBy == "" {
		t.Errorf("%+v, held by %q", in.Attempts, in.HeldBy)
	}
	if in, err := second.Finish(w.ctx, done, nil, keyring.After{}); err != nil || in.State != keyring.StateDone {
		t.Errorf("%v: %s", err, in.State)
	}
}

// TestRuleDoneWins: over all that is recorded before or after it.
func TestRuleDoneWins(t *testing.T) {
	for _, first := range []keyring.Verdict{refused, conflict, already, doubt, door} {
		w := newWorld(t)
		late := w.begun(draft())
		if _, err := late.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.clock.pass(2 * time.Minute)
		w.attempt(w.acquire(), first, keyring.After{})
		if in, err := late.Finish(w.ctx, done, nil, keyring.After{}); err != nil || in.State != keyring.StateDone || in.Outcome().Broken {
			t.Errorf("after %s: %v, %s", first.Kind, err, in.State)
		}
	}
	w := newWorld(t)
	late := w.begun(draft())
	if _, err := late.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(settle + time.Minute)
	w.rekey(w.look(saw(keyring.FindingAbsent)), draft())
	w.abandon(w.look(saw(keyring.FindingInconclusive)))
	if in, err := late.Finish(w.ctx, done, nil, keyring.After{}); err != nil || in.State != keyring.StateDone {
		t.Errorf("an earlier key's, after it was given up: %v, %s", err, in.State)
	}
}

// An effect whose answer could not be read may be asked about again under its
// key, and never leaves Done.
func TestRuleDoneIsNotLeftForItsAnswer(t *testing.T) {
	unread := done
	unread.Unreadable = true
	w := newWorld(t)
	h := w.begun(draft())
	w.attempt(h, unread, keyring.After{Keep: true})
	if in := w.attempt(h, refused, keyring.After{Keep: true}); in.State != keyring.StateDone {
		t.Errorf("%s", in.State)
	}
	w.clock.pass(24 * time.Hour)
	if _, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrFinal) {
		t.Errorf("asked again when the key may be forgotten: %v", err)
	}
	w = newWorld(t)
	h = w.begun(with(natural))
	w.attempt(h, unread, keyring.After{Keep: true})
	if _, err := h.Start(w.ctx); !errors.Is(err, keyring.ErrFinal) {
		t.Errorf("asked again where there is no key: %v", err)
	}
}

func TestRuleMargin(t *testing.T) {
	for _, c := range []struct {
		claim string
		terms func(*keyring.Terms)
		opts  keyring.Options
		last  time.Duration // the greatest age at which it may be sent; below 0: none
	}{
		{"an hour of a long one", func(t *keyring.Terms) { t.Retention = 30 * 24 * time.Hour }, keyring.Options{}, 30*24*time.Hour - time.Hour - 30*time.Second},
		{"a tenth of a short one", func(t *keyring.Terms) { t.Retention = time.Hour }, keyring.Options{}, 54*time.Minute - 30*time.Second},
		{"never less than two attempts", func(t *keyring.Terms) { t.Retention = 5 * time.Minute }, keyring.Options{}, 4*time.Minute - 30*time.Second},
		{"too short for any", func(t *keyring.Terms) { t.Retention = time.Minute }, keyring.Options{}, -1},
		{"what the terms say", func(t *keyring.Terms) { t.Margin = 3 * time.Hour }, keyring.Options{}, 21*time.Hour - 30*time.Second},
		{"unless that is less than two attempts", func(t *keyring.Terms) { t.Margin = time.Second }, keyring.Options{}, 23*time.Hour - 30*time.Second},
		{"long attempts", func(*keyring.Terms) {}, keyring.Options{AttemptTimeout: time.Hour}, 24*time.Hour - 3*time.Hour},
		{"unknown: an hour", func(t *keyring.Terms) { t.Retention = 0 }, keyring.Options{}, 54*time.Minute - 30*time.Second},
		{"unknown: what is assumed", func(t *keyring.Terms) { t.Retention = 0 }, keyring.Options{UnknownRetention: 5 * time.Minute}, 4*time.Minute - 30*time.Second},
	} {
		t.Run(c.claim, func(t *testing.T) {
			w := newWorld(t)
			w.ring = keyring.New(w.store, &c.opts)
			d := with(c.terms)
			w.terms = d.Terms
			begun := w.clock.Read().Wall
			in := w.attempt(w.begun(d), doubt, keyring.After{})
			if c.last < 0 {
				w.refused(keyring.ErrNeedsInspection)
				if !in.ResendUntil().IsZero() {
					t.Errorf("until %v", in.ResendUntil())
				}
				return
			}
			if got := in.ResendUntil(); !got.Equal(begun.Add(c.last)) {
				t.Errorf("until %v, want %v", got, begun.Add(c.last))
			}
			w.clock.pass(c.last - time.Second)
			if err := w.acquire().Release(w.ctx); err != nil {
				t.Fatal(err)
			}
			w.clock.pass(1)
			w.refused(keyring.ErrNeedsInspection)
			if in := w.get(); in.State != keyring.StateExpired {
				t.Errorf("%s", in.State)
			}
		})
	}
	w := newWorld(t)
	forever := with(func(t *keyring.Terms) { t.Retention = keyring.Forever })
	if in := w.told(forever, doubt); !in.ResendUntil().IsZero() {
		t.Errorf("for ever: until %v", in.ResendUntil())
	}
	w.clock.pass(100000 * time.Hour)
	w.acquire()
}

func TestRuleTheAgeOfAKey(t *testing.T) {
	const last = 23*time.Hour - 30*time.Second
	// It counts from the first attempt that may have arrived.
	w := newWorld(t)
	w.told(draft(), door)
	w.clock.pass(100 * time.Hour)
	if in := w.get(); in.State != keyring.StateNeverSent {
		t.Errorf("%s: a first attempt is always permitted", in.State)
	}
	w.attempt(w.acquire(), doubt, keyring.After{})
	w.clock.pass(last - time.Second)
	w.attempt(w.acquire(), doubt, keyring.After{}) // and a later one makes it no younger
	w.clock.pass(1)
	w.refused(keyring.ErrNeedsInspection)

	// It never decreases: what was seen is on record when the clocks forget it.
	w = newWorld(t)
	w.told(draft(), doubt)
	w.clock.pass(last)
	w.clock.step(-12*time.Hour, 0)
	w.look(said(keyring.FindingInconclusive)) // a write takes note of the age
	w.clock.pass(time.Minute)
	w.look(said(keyring.FindingInconclusive))
	w.clock.reboot(0)
	w.refused(keyring.ErrNeedsInspection)

	// It is unknown while the provider's clock disagrees, and known again once
	// they agree.
	w = newWorld(t)
	h := w.begun(draft())
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	in, err := h.Finish(w.ctx, keyring.Verdict{Date: w.clock.Read().Wall.Add(-6 * time.Minute)}, nil, keyring.After{Keep: true})
	if err != nil || in.State != keyring.StateExpired {
		t.Errorf("%v: %s", err, in.State)
	}
	for _, replayed := range []bool{false, true} { // the date of a stored answer is of no use
		w = newWorld(t)
		late := w.begun(draft())
		if _, err := late.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.clock.pass(2 * time.Minute)
		w.attempt(w.acquire(), keyring.Verdict{Date: w.clock.Read().Wall.Add(-time.Hour)}, keyring.After{})
		w.refused(keyring.ErrNeedsInspection)
		if _, err := late.Finish(w.ctx, keyring.Verdict{Date: w.clock.Read().Wall, Replayed: replayed}, nil, keyring.After{}); err != nil {
			t.Fatal(err)
		}
		if replayed {
			w.refused(keyring.ErrNeedsInspection)
		} else {
			w.acquire()
		}
	}
}

// hijacked lets somebody else write first, and loses its own write.
type hijacked struct {
	keyring.Store
	first func()
}

func (h *hijacked) Update(ctx context.Context, rec keyring.Record) error {
	if h.first == nil {
		return h.Store.Update(ctx, rec)
	}
	first := h.first
	h.first = nil
	first()
	return errLost
}

// Two processes write the same revision, and the answer to one of them is
// lost: what is on record then is the other's.
func TestRuleAWriteIsKnownByItsOwnID(t *testing.T) {
	w := newWorld(t)
	store := &hijacked{Store: w.store}
	a, b := keyring.New(store, nil), w.ring
	w.ring = a
	first := w.begun(draft())
	w.attempt(first, doubt, keyring.After{Keep: true})
	w.clock.pass(2 * time.Minute)
	var theirs *keyring.Hold
	store.first = func() {
		w.ring = b
		theirs = w.acquire()
	}
	if key, err := first.Start(w.ctx); !errors.Is(err, errLost) || !key.IsZero() {
		t.Fatalf("%v: key %q for a start that is not on record", err, key)
	}
	if n := len(w.get().Attempts); n != 1 {
		t.Errorf("%d attempts", n)
	}
	if _, err := theirs.Start(w.ctx); err != nil {
		t.Error(err)
	}
	if _, err := first.Start(w.ctx); !errors.Is(err, keyring.ErrHeld) {
		t.Errorf("again: %v", err)
	}

	// The same with a finding.
	w = newWorld(t)
	w.told(draft(), doubt)
	w.clock.pass(settle)
	store = &hijacked{Store: w.store}
	b = w.ring
	store.first = func() { w.ring = b; w.look(saw(keyring.FindingInconclusive)) }
	w.ring = keyring.New(store, nil)
	if seen, err := w.ring.Inspect(w.ctx, ref, saw(keyring.FindingAbsent)); !errors.Is(err, errLost) {
		t.Errorf("%v: %v is not on record", err, seen.Finding())
	}
	if w.get().State != keyring.StateUnknown {
		t.Errorf("%s", w.get().State)
	}
}

func TestRuleWithoutDeduplicationThereIsOneSend(t *testing.T) {
	w := newWorld(t)
	d := with(func(t *keyring.Terms) { t.Dedup = keyring.DedupNone })
	if in := w.told(d, door, doubt); in.State != keyring.StateUnknown || !in.Outcome().NeedsInspection || !in.ResendUntil().IsZero() {
		t.Errorf("%s, until %v", in.State, in.ResendUntil())
	}
	w.refused(keyring.ErrNeedsInspection)
	// What the terms were when it was begun is not made better by what they are.
	w.terms.Dedup = keyring.DedupKey
	w.refused(keyring.ErrNeedsInspection)

	w = newWorld(t)
	w.told(draft(), doubt)
	w.terms.Dedup = keyring.DedupNone
	w.refused(keyring.ErrNeedsInspection)
}

// An attempt without an end is doubt once nobody can be at it any more.
func TestRuleAnAttemptWithoutAnEndIsDoubt(t *testing.T) {
	w := newWorld(t)
	if _, err := w.begun(draft()).Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	if in := w.get(); in.State != keyring.StateSending {
		t.Errorf("%s", in.State)
	}
	w.clock.pass(90 * time.Second)
	if in := w.get(); in.State != keyring.StateUnknown {
		t.Errorf("%s", in.State)
	}
	w.terms = with(notKept).Terms
	if in := w.attempt(w.acquire(), refused, keyring.After{}); in.Final() {
		t.Errorf("a refusal after it: %s", in.State)
	}
}

// A look counts from when it says that something was seen.
func TestRuleAFindingCountsFromWhenItWasSeen(t *testing.T) {
	w := newWorld(t)
	before := w.clock.r.Wall.Add(-time.Hour)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	w.clock.pass(24 * time.Hour)
	_, err := w.ring.Inspect(w.ctx, ref, keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent, At: before}))
	if !errors.Is(err, keyring.ErrTooSoon) {
		t.Errorf("seen before the first attempt: %v, want ErrTooSoon", err)
	}
	if _, err = w.ring.Inspect(w.ctx, ref, keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent, At: w.clock.r.Wall.Add(-time.Hour)})); err != nil {
		t.Errorf("seen an hour ago: %v", err)
	}
}

// A late, unreadable success under an earlier key is no reason to fetch its
// answer under the present one.
func TestRuleALateDoneStopsTheLaterKey(t *testing.T) {
	for _, unreadable := range []bool{false, true} {
		w := newWorld(t)
		first := w.begun(draft())
		if _, err := first.Start(w.ctx); err != nil {
			t.Fatal(err)
		}
		w.clock.pass(24 * time.Hour)
		seen, err := w.ring.Inspect(w.ctx, ref, keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent}))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.ring.Rekey(w.ctx, seen, draft()); err != nil {
			t.Fatal(err)
		}
		second := w.acquire()
		if _, err := first.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone, Unreadable: unreadable}, nil, keyring.After{}); err != nil {
			t.Fatal(err)
		}
		if key, err := second.Start(w.ctx); !errors.Is(err, keyring.ErrFinal) {
			t.Errorf("unreadable %v: key %q, %v; want ErrFinal", unreadable, key, err)
		}
	}
}

func TestRuleAFindingOfNoRealDateIsRefused(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
	for _, at := range []time.Time{time.Date(1, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600)), time.Date(1700, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(12000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		_, err := w.ring.Inspect(w.ctx, ref, keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent, At: at}))
		if !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("%v: %v, want ErrInvalid", at, err)
		}
	}
	_, err := w.ring.Inspect(w.ctx, ref, keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent, At: time.Unix(86400, 0)}))
	if !errors.Is(err, keyring.ErrTooSoon) {
		t.Errorf("seen in 1970: %v, want ErrTooSoon", err)
	}
}

func TestRuleSettleForeverNeverSettles(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft(func(d *keyring.Draft) { d.Terms.Settle = keyring.Forever }))
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.clock.pass(24 * time.Hour)
		if _, err := w.ring.Inspect(w.ctx, ref, saw(keyring.FindingAbsent)); !errors.Is(err, keyring.ErrTooSoon) {
			t.Errorf("%v, want ErrTooSoon", err)
		}
	}
}

// Where a repeat is not protected, a program that finds nothing does not lift
// what the provider said it was working on; a person does.
func TestRuleAProgramDoesNotLiftPendingWithoutDedup(t *testing.T) {
	for _, c := range []struct {
		claim string
		dedup keyring.Dedup
		by    keyring.Inspector
		want  keyring.State
	}{
		{"a program, nothing de-duplicated", keyring.DedupNone, saw(keyring.FindingAbsent), keyring.StatePending},
		{"a person, nothing de-duplicated", keyring.DedupNone, keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent}), keyring.StateNeverSent},
		{"a program, by key", keyring.DedupKey, saw(keyring.FindingAbsent), keyring.StateNeverSent},
	} {
		t.Run(c.claim, func(t *testing.T) {
			w := newWorld(t)
			w.attempt(w.begun(draft(func(d *keyring.Draft) { d.Terms.Dedup, d.Terms.KeepsRefusals = c.dedup, false })), keyring.Verdict{Kind: keyring.VerdictPending}, keyring.After{})
			w.clock.pass(time.Hour)
			if _, err := w.ring.Inspect(w.ctx, ref, c.by); err != nil {
				t.Fatal(err)
			}
			if got := w.get().State; got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

func TestRulePendingToldAfterALookCounts(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft(func(d *keyring.Draft) { d.Terms.Dedup, d.Terms.KeepsRefusals = keyring.DedupNone, false }))
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(24 * time.Hour)
	if _, err := w.ring.Inspect(w.ctx, ref, keyring.Attest(keyring.Finding{Kind: keyring.FindingAbsent})); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(time.Second)
	if _, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictPending}, nil, keyring.After{}); err != nil {
		t.Fatal(err)
	}
	if got := w.get().State; got != keyring.StatePending {
		t.Errorf("%s, want pending", got)
	}
}

// A start that failed and was tried again is a start like any other.
func TestRuleAStartTriedAgainIsNoLostOne(t *testing.T) {
	w := newWorld(t)
	store := &lossy{Store: w.store}
	w.ring = keyring.New(store, nil)
	if _, err := w.ring.Begin(w.ctx, ref, draft()); err != nil {
		t.Fatal(err)
	}
	h := w.acquire()
	store.fail = 1
	if _, err := h.Start(w.ctx); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	store.fail = 1
	if _, err := h.Finish(w.ctx, keyring.Verdict{}, nil, keyring.After{}); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
	if err := h.Release(w.ctx); err != nil {
		t.Fatal(err)
	}
	if got := w.get().State; got != keyring.StateUnknown {
		t.Errorf("%s, want unknown: its key was handed out", got)
	}
}
