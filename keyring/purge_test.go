package keyring_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
)

// stored is what the store has for ref.
func (w *world) stored() keyring.Record {
	w.Helper()
	rec, err := w.store.Load(w.ctx, ref)
	if err != nil {
		w.Fatal(err)
	}
	return rec
}

// purge purges what was last changed before this moment, and says how much.
func (w *world) purge(dryRun bool) int {
	w.Helper()
	n, err := w.ring.Purge(w.ctx, w.clock.Read().Wall, dryRun)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

func terms(change func(*keyring.Terms)) func(*keyring.Draft) {
	return func(d *keyring.Draft) { change(&d.Terms) }
}

func TestWhatMayBePurged(t *testing.T) {
	const long = 1000 * time.Hour
	ends := func(v keyring.Verdict, change ...func(*keyring.Draft)) func(*world) {
		return func(w *world) {
			w.attempt(w.begun(draft(change...)), v, keyring.After{})
			w.clock.pass(long)
		}
	}
	done := keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "e1"}
	for _, c := range []struct {
		claim string
		run   func(w *world)
		want  int
	}{
		{"done, and forgotten", ends(done), 1},
		{"refused, and forgotten", ends(keyring.Verdict{Kind: keyring.VerdictRefused}), 1},
		{"given up, and forgotten", func(w *world) { ends(keyring.Verdict{})(w); w.abandon(w.look(said(0))); w.clock.pass(time.Hour) }, 1},
		{"found, and forgotten", func(w *world) {
			ends(keyring.Verdict{})(w)
			w.look(saw(keyring.FindingPresent))
			w.clock.pass(time.Hour)
		}, 1},
		{"done, where there is nothing to remember", func(w *world) {
			ends(done, terms(func(t *keyring.Terms) { t.Dedup, t.Retention = keyring.DedupNone, 0 }))(w)
		}, 1},
		{"given up before anything was sent", func(w *world) {
			_, _ = w.ring.Begin(w.ctx, ref, draft(terms(func(t *keyring.Terms) { t.Retention = keyring.Forever })))
			w.abandon(w.look(said(0)))
			w.clock.pass(time.Hour)
		}, 1},

		{"the provider still remembers", func(w *world) {
			w.attempt(w.begun(draft()), done, keyring.After{})
			w.clock.pass(24*time.Hour - time.Second)
		}, 0},
		{"a second later", func(w *world) {
			w.attempt(w.begun(draft()), done, keyring.After{})
			w.clock.pass(24 * time.Hour)
		}, 1},
		{"an earlier key is still remembered", func(w *world) {
			w.attempt(w.begun(draft(terms(func(t *keyring.Terms) { t.Retention = 2 * long }))), keyring.Verdict{Kind: keyring.VerdictRefused}, keyring.After{})
			w.rekey(w.refusal(), draft())
			w.attempt(w.acquire(), done, keyring.After{})
			w.clock.pass(long)
		}, 0},
		{"until that is forgotten too", func(w *world) {
			w.attempt(w.begun(draft(terms(func(t *keyring.Terms) { t.Retention = 2 * long }))), keyring.Verdict{Kind: keyring.VerdictRefused}, keyring.After{})
			w.rekey(w.refusal(), draft())
			w.attempt(w.acquire(), done, keyring.After{})
			w.clock.pass(2 * long)
		}, 1},
		{"the current key is still remembered", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictRefused}, keyring.After{})
			w.rekey(w.refusal(), draft(terms(func(t *keyring.Terms) { t.Retention = 2 * long })))
			w.terms.Retention = 2 * long
			w.attempt(w.acquire(), done, keyring.After{})
			w.clock.pass(long)
		}, 0},
		{"remembered for ever", ends(done, terms(func(t *keyring.Terms) { t.Retention = keyring.Forever })), 0},
		{"retention unknown, an hour", func(w *world) {
			w.attempt(w.begun(draft(terms(func(t *keyring.Terms) { t.Retention = 0 }))), done, keyring.After{})
			w.clock.pass(time.Hour - time.Second)
		}, 0},
		{"retention unknown, more than that", ends(done, terms(func(t *keyring.Terms) { t.Retention = 0 })), 1},
		{"age unknown: an earlier clock after a restart", func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{}, keyring.After{})
			w.clock.pass(long)
			w.look(saw(keyring.FindingPresent))
			w.clock.reboot(-time.Hour)
		}, 0},
		{"age unknown: the provider's clock disagrees", func(w *world) {
			v := done
			v.Date = w.clock.Read().Wall.Add(time.Hour)
			ends(v)(w)
		}, 0},
		{"age unknown: a clock that is not to be believed", func(w *world) {
			ends(done)(w)
			w.ring = keyring.New(w.store, &keyring.Options{ClockTrusted: func() bool { return false }})
		}, 0},

		{"never sent", func(w *world) { _, _ = w.ring.Begin(w.ctx, ref, draft()); w.clock.pass(long) }, 0},
		{"unclear", ends(keyring.Verdict{}), 0},
		{"pending", ends(keyring.Verdict{Kind: keyring.VerdictPending}), 0},
		{"a conflict", ends(keyring.Verdict{Kind: keyring.VerdictConflict}), 0},
		{"sent under another key after its success", func(w *world) {
			h := w.begun(draft())
			if _, err := h.Start(w.ctx); err != nil {
				w.Fatal(err)
			}
			w.clock.pass(settle + time.Minute)
			w.rekey(w.look(saw(keyring.FindingAbsent)), draft())
			w.attempt(w.acquire(), done, keyring.After{})
			if _, err := h.Finish(w.ctx, done, nil, keyring.After{}); err != nil || !w.get().Outcome().Broken {
				w.Fatalf("%v: not broken", err)
			}
			w.clock.pass(long)
		}, 0},
		{"held", func(w *world) {
			h := w.begun(draft())
			w.attempt(h, keyring.Verdict{}, keyring.After{Keep: true})
			if _, err := h.Inspect(w.ctx, saw(keyring.FindingPresent)); err != nil {
				w.Fatal(err)
			}
			w.clock.step(long, time.Second) // a suspended machine: the lease goes on
		}, 0},
	} {
		t.Run(c.claim, func(t *testing.T) {
			w := newWorld(t)
			c.run(w)
			before := w.get()
			if n := w.purge(true); n != c.want {
				t.Errorf("dry run: %d", n)
			}
			w.unchanged(before)
			if n := w.purge(false); n != c.want {
				t.Errorf("%d purged", n)
			}
			in := w.get()
			if in.Purged != (c.want == 1) || in.State != before.State {
				t.Errorf("purged %v, %s, it was %s", in.Purged, in.State, before.State)
			}
			if c.want == 0 {
				w.unchanged(before)
			}
			if n := w.purge(false); n != 0 {
				t.Errorf("purged again: %d", n)
			}
		})
	}
}

// Only what was last changed before the given moment goes.
func TestPurgeKeepsWhatIsYoungerThanAsked(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft(terms(func(t *keyring.Terms) { t.Retention = time.Minute }))), keyring.Verdict{Kind: keyring.VerdictDone}, keyring.After{})
	ended := w.clock.Read().Wall
	w.clock.pass(1000 * time.Hour)
	for before, want := range map[time.Time]int{ended: 0, ended.Add(-time.Hour): 0, {}: 0} {
		if n, err := w.ring.Purge(w.ctx, before, false); err != nil || n != want {
			t.Errorf("before %v: %v, %d purged", before, err, n)
		}
	}
	if n, err := w.ring.Purge(w.ctx, ended.Add(time.Second), false); err != nil || n != 1 {
		t.Errorf("%v, %d purged", err, n)
	}
}

func TestWhatIsLeftOfAPurgedIntent(t *testing.T) {
	ends := map[keyring.State]func(w *world){
		keyring.StateDone: func(w *world) {
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "ch_3MmlLrLkdIwHu7ix0snN0B15"}, keyring.After{})
		},
		keyring.StateRefused:   func(w *world) { verdict(keyring.VerdictRefused)(w) },
		keyring.StateAbandoned: func(w *world) { unclear(w); w.abandon(w.look(said(0))) },
	}
	for state, end := range ends {
		t.Run(state.String(), func(t *testing.T) {
			w := newWorld(t)
			end(w)
			w.clock.pass(1000 * time.Hour)
			before, stored := w.get(), w.stored()
			if n := w.purge(false); n != 1 {
				t.Fatalf("%d purged", n)
			}
			left := w.stored()
			if len(left.Data) >= 200 || len(left.Request) != 0 || left.Open {
				t.Errorf("%d bytes and a request of %d are left, open %v", len(left.Data), len(left.Request), left.Open)
			}
			if left.Revision != stored.Revision+1 || left.Generation != stored.Generation || left.Fingerprint != stored.Fingerprint {
				t.Errorf("revision %d, generation %d", left.Revision, left.Generation)
			}
			for _, s := range []string{"amount", before.Key.String(), "example.com"} {
				if strings.Contains(string(left.Data), s) {
					t.Errorf("%q is left", s)
				}
			}
			in, err := w.ring.Begin(w.ctx, ref, draft())
			if err != nil || in.State != state || !in.Purged || !in.Final() || in.Outcome().Next == "" {
				t.Errorf("an equal request: %v, %s, purged %v", err, in.State, in.Purged)
			}
			if got, want := in.Outcome().Verdict.EffectID, before.Outcome().Verdict.EffectID; got != want {
				t.Errorf("effect id %q, want %q", got, want)
			}
			_, err = w.ring.Begin(w.ctx, ref, draft(func(d *keyring.Draft) { d.Request.Method = "PUT" }))
			var ke *keyring.Error
			if !errors.Is(err, keyring.ErrDiffers) || !errors.As(err, &ke) || !slices.Equal(ke.Fields, []string{"request"}) {
				t.Errorf("another request: %v", err)
			}
			if _, h, err := w.ring.BeginHeld(w.ctx, ref, draft()); err != nil || h != nil {
				t.Errorf("held: %v, %v", err, h)
			}
			w.refused(keyring.ErrPurged)
			w.noLook(saw(keyring.FindingAbsent), keyring.ErrPurged)
			w.noLook(said(keyring.FindingAbsent), keyring.ErrPurged)
			if _, err := w.ring.Refusal(w.ctx, ref); !errors.Is(err, keyring.ErrPurged) {
				t.Errorf("refusal: %v", err)
			}
			if _, err := w.ring.Generations(w.ctx, ref); !errors.Is(err, keyring.ErrPurged) {
				t.Errorf("generations: %v", err)
			}
			if got := w.stored(); got.Revision != left.Revision {
				t.Errorf("revision %d: asking changed it", got.Revision)
			}
			listed := 0
			for in, err := range w.ring.List(w.ctx, keyring.Query{}) {
				if listed++; err != nil || !in.Purged || in.State != state {
					t.Errorf("listed: %v, %v", err, in)
				}
			}
			for in := range w.ring.List(w.ctx, keyring.Query{OpenOnly: true}) {
				t.Errorf("listed as open: %v", in)
			}
			if listed != 1 {
				t.Errorf("%d listed", listed)
			}
		})
	}
}

func TestAPermissionFromBeforeAPurgeIsVoid(t *testing.T) {
	w := newWorld(t)
	verdict(keyring.VerdictRefused)(w)
	seen := w.refusal()
	w.clock.pass(1000 * time.Hour)
	w.purge(false)
	if _, err := w.ring.Rekey(w.ctx, seen, draft()); !errors.Is(err, keyring.ErrStale) {
		t.Errorf("rekey: %v", err)
	}
	if _, err := w.ring.Abandon(w.ctx, seen); !errors.Is(err, keyring.ErrStale) {
		t.Errorf("abandon: %v", err)
	}
}

// A sender that comes back after its intent was given up and purged is told so.
func TestALateAnswerForAPurgedIntent(t *testing.T) {
	w := newWorld(t)
	h := w.begun(draft())
	if _, err := h.Start(w.ctx); err != nil {
		t.Fatal(err)
	}
	w.clock.pass(1000 * time.Hour)
	w.abandon(w.look(said(0)))
	w.clock.pass(time.Hour)
	w.purge(false)
	if _, err := h.Finish(w.ctx, keyring.Verdict{Kind: keyring.VerdictDone}, nil, keyring.After{}); !errors.Is(err, keyring.ErrPurged) {
		t.Errorf("%v", err)
	}
	if in := w.get(); !in.Purged || in.State != keyring.StateAbandoned {
		t.Errorf("%s, purged %v", in.State, in.Purged)
	}
}

func TestADamagedTombstone(t *testing.T) {
	for claim, harm := range map[string]func(*keyring.Record){
		"another state":  func(r *keyring.Record) { r.Data[4] = byte(keyring.StateRefused) },
		"another effect": func(r *keyring.Record) { r.Data[30]++ },
		"a later format": func(r *keyring.Record) { r.Data[3]++ },
		"cut":            func(r *keyring.Record) { r.Data = r.Data[:20] },
		"cut at the end": func(r *keyring.Record) { r.Data = r.Data[:len(r.Data)-1] },
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictDone, EffectID: "e1"}, keyring.After{})
			w.clock.pass(1000 * time.Hour)
			w.purge(false)
			store := &damagedStore{Store: w.store, harm: harm}
			w.ring = keyring.New(store, nil)
			if in := w.get(); in.State != keyring.StateDamaged || in.Purged || in.Outcome().Next == "" {
				t.Errorf("%s", in.State)
			}
			w.refused(keyring.ErrDamaged)
			if _, err := w.ring.Begin(w.ctx, ref, draft()); !errors.Is(err, keyring.ErrDamaged) {
				t.Errorf("begin: %v", err)
			}
			w.look(said(keyring.FindingPresent))
			if in, err := w.ring.Begin(w.ctx, ref, draft()); err != nil || in.State != keyring.StateDone {
				t.Errorf("closed: %v, %s", err, in.State)
			}
		})
	}
}

// A tombstone belongs to its ref: one that is put in another's place is damage.
func TestATombstoneIsNotTakenForAnothers(t *testing.T) {
	w := newWorld(t)
	w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictDone}, keyring.After{})
	w.clock.pass(1000 * time.Hour)
	w.purge(false)
	rec := w.stored()
	rec.Ref.Name, rec.Revision = "another", 1
	if err := w.store.Create(w.ctx, rec, keyring.Limits{}); err != nil {
		t.Fatal(err)
	}
	if in, err := w.ring.Get(w.ctx, rec.Ref); err != nil || in.State != keyring.StateDamaged {
		t.Errorf("%v: %s", err, in.State)
	}
}

// Purge goes over all scopes, leaves what it may not touch, and reports what
// the store reports.
func TestPurgeGoesOverAllScopes(t *testing.T) {
	w := newWorld(t)
	for i := range 6 {
		r := keyring.Ref{Scope: fmt.Sprint("acct_", i%3), Name: fmt.Sprint(i)}
		_, h, err := w.ring.BeginHeld(w.ctx, r, draft())
		if err != nil {
			t.Fatal(err)
		}
		kind := keyring.VerdictDone
		if i == 4 {
			kind = keyring.VerdictUnclear
		}
		w.attempt(h, keyring.Verdict{Kind: kind}, keyring.After{})
	}
	w.clock.pass(1000 * time.Hour)
	store := &lossy{Store: w.store, fail: 1}
	w.ring = keyring.New(store, nil)
	if n, err := w.ring.Purge(w.ctx, w.clock.Read().Wall, false); !errors.Is(err, errLost) || n != 0 {
		t.Errorf("%v, %d purged", err, n)
	}
	if n := w.purge(true); n != 5 {
		t.Errorf("dry run: %d", n)
	}
	if n := w.purge(false); n != 5 {
		t.Errorf("%d purged", n)
	}
	open := 0
	for in := range w.ring.List(w.ctx, keyring.Query{AllScopes: true, OpenOnly: true}) {
		if open++; in.Ref.Name != "4" || in.Purged {
			t.Errorf("open: %v", in)
		}
	}
	if open != 1 {
		t.Errorf("%d open", open)
	}
}

// A full keyring says how full it is, and of what, within the caller's scope.
func TestAFullKeyringSaysOfWhat(t *testing.T) {
	w := newWorld(t)
	w.ring = keyring.New(w.store, &keyring.Options{MaxOpen: 150})
	begin := func(scope, name string) error {
		w.clock.pass(time.Second)
		_, err := w.ring.Begin(w.ctx, keyring.Ref{Scope: scope, Name: name}, draft())
		return err
	}
	for i := range 150 {
		scope, name := "mine", fmt.Sprintf("%03d", 999-i) // by time, not by name
		if i%10 == 0 {
			scope = "theirs"
		}
		if err := begin(scope, name); err != nil {
			t.Fatal(err)
		}
	}
	err := begin("mine", "new")
	var ke *keyring.Error
	if !errors.Is(err, keyring.ErrFull) || !errors.As(err, &ke) {
		t.Fatalf("%v", err)
	}
	want := []keyring.Ref{{Scope: "mine", Name: "998"}, {Scope: "mine", Name: "997"}, {Scope: "mine", Name: "996"}, {Scope: "mine", Name: "995"}, {Scope: "mine", Name: "994"}}
	if ke.Open != 150 || !slices.Equal(ke.Oldest, want) || ke.Op != "begin" || ke.Ref != (keyring.Ref{Scope: "mine", Name: "new"}) {
		t.Errorf("%d open, oldest %v, %s %v", ke.Open, ke.Oldest, ke.Op, ke.Ref)
	}
	if text := err.Error(); !strings.HasPrefix(text, "keyring: begin [mine] new: the keyring is full") || !strings.HasSuffix(text, "150 open intents, the limit is 150; open for longest: [mine] 998, [mine] 997, [mine] 996, [mine] 995, [mine] 994") {
		t.Error(text)
	}
	if err := begin("nobody's", "new"); !errors.As(err, &ke) || ke.Open != 150 || len(ke.Oldest) != 0 || strings.Contains(err.Error(), "longest") || strings.Contains(err.Error(), "mine") {
		t.Errorf("%v", err)
	}
	if err := begin("theirs", "new"); !errors.As(err, &ke) || len(ke.Oldest) != 5 || ke.Oldest[0] != (keyring.Ref{Scope: "theirs", Name: "999"}) {
		t.Errorf("%v", err)
	}
}

// Purged intents still count: the bound is on what the store has to keep.
func TestAPurgedIntentIsNotOpen(t *testing.T) {
	w := newWorld(t)
	w.ring = keyring.New(w.store, &keyring.Options{MaxOpen: 1, MaxIntents: 2})
	w.attempt(w.begun(draft()), keyring.Verdict{Kind: keyring.VerdictDone}, keyring.After{})
	w.clock.pass(1000 * time.Hour)
	w.purge(false)
	if _, err := w.ring.Begin(w.ctx, keyring.Ref{Name: "second"}, draft()); err != nil {
		t.Error(err)
	}
	_, err := w.ring.Begin(w.ctx, keyring.Ref{Name: "third"}, draft())
	var ke *keyring.Error
	if !errors.As(err, &ke) || !errors.Is(err, keyring.ErrFull) || ke.Open != 1 || !slices.Equal(ke.Oldest, []keyring.Ref{{Name: "second"}}) {
		t.Errorf("%v", err)
	}
}
