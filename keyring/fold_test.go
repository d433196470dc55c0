package keyring

import (
	"net/http"
	"testing"
	"time"

	"github.com/samekey/samekey/internal/clock"
)

var t0 = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// at is a reading d after t0, in the boot that the tests' records were made in.
func at(d time.Duration) clock.Reading {
	return clock.Reading{Wall: t0.Add(d), Mono: d, Boot: "boot-1"}
}

// scene is a record in the making.
type scene struct {
	rec  record
	view view
}

func newScene() *scene {
	s := &scene{}
	s.rec.Generations = []generation{{Number: 1, Key: "k1", Method: http.MethodPost}}
	s.rec.Last = stampOf(at(0))
	s.view = view{
		now: at(time.Minute), trusted: true, timeout: 30 * time.Second, unknown: time.Hour,
		terms: Terms{Dedup: DedupKey, Retention: 24 * time.Hour, MarksRunning: true},
	}
	return s
}

// with adds an attempt per verdict, a second apart and each a second long.
func (s *scene) with(verdicts ...Verdict) *scene {
	for _, v := range verdicts {
		n := s.rec.lastNumber() + 1
		start, end := stampOf(at(time.Duration(n)*time.Second)), stampOf(at(time.Duration(n)*time.Second+time.Second))
		g := s.rec.current()
		g.Attempts = append(g.Attempts, attempt{Number: n, Hold: "dead", Start: start, Deadline: 30 * time.Second, End: &end, Verdict: storedVerdict(v)})
		s.rec.Last = end
	}
	return s
}

// endless adds an attempt that has no end, under the given hold.
func (s *scene) endless(hold string) *scene {
	n := s.rec.lastNumber() + 1
	g := s.rec.current()
	g.Attempts = append(g.Attempts, attempt{Number: n, Hold: hold, Start: stampOf(at(time.Duration(n) * time.Second)), Deadline: 30 * time.Second})
	return s
}

func (s *scene) found(kind FindingKind) *scene {
	g := s.rec.current()
	g.Findings = append(g.Findings, finding{Kind: kind, After: s.rec.lastNumber(), At: stampOf(at(50 * time.Second))})
	return s
}

func (s *scene) rekeyed() *scene {
	n := len(s.rec.Generations) + 1
	s.rec.Generations = append(s.rec.Generations, generation{Number: n, Key: "k2", Method: http.MethodPost})
	return s
}

func (s *scene) terms(change func(*Terms)) *scene { change(&s.view.terms); return s }

func (s *scene) live() *scene {
	s.view.live = true
	s.rec.Hold = &holdMark{ID: "live", Since: stampOf(at(0)), Lease: 90 * time.Second}
	return s
}

func (s *scene) fold() (State, Outcome) { s.view.rec = &s.rec; return s.view.fold() }

func TestTheStateFollowsFromWhatIsRecorded(t *testing.T) {
	unclear := Verdict{}
	door := Verdict{Kind: VerdictNotProcessed}
	pending := Verdict{Kind: VerdictPending}
	conflict := Verdict{Kind: VerdictConflict}
	already := Verdict{Kind: VerdictAlready}
	refused := Verdict{Kind: VerdictRefused}
	front := Verdict{Kind: VerdictRefused, Front: true}
	done := Verdict{Kind: VerdictDone, EffectID: "e1"}
	none := func(t *Terms) { *t = Terms{} }
	keeps := func(t *Terms) { t.KeepsRefusals = true }
	natural := func(t *Terms) { *t = Terms{Dedup: DedupNatural} }

	for _, c := range []struct {
		claim  string
		scene  *scene
		want   State
		source Source
	}{
		{"nothing was sent", newScene(), StateNeverSent, SourceRecord},
		{"a dial error proves that nothing happened", newScene().with(door), StateNeverSent, SourceRecord},
		{"a timeout is doubt", newScene().with(unclear), StateUnknown, SourceRecord},
		{"a later 401 does not excuse an earlier timeout", newScene().with(unclear, door), StateUnknown, SourceRecord},
		{"a verdict of a later version is doubt", newScene().with(Verdict{Kind: 200}), StateUnknown, SourceRecord},
		{"a verdict of a later version is doubt before a refusal too", newScene().with(Verdict{Kind: 200}, refused), StateUnknown, SourceRecord},

		{"done is done", newScene().with(done), StateDone, SourceProvider},
		{"a replay says so", newScene().with(unclear, Verdict{Kind: VerdictDone, Replayed: true}), StateDone, SourceReplay},
		{"done wins over all that comes later", newScene().with(done, refused, conflict, unclear), StateDone, SourceProvider},
		{"done wins even over abandoned", abandoned(newScene().with(done)), StateDone, SourceProvider},
		{"done in an earlier generation wins", newScene().with(done).rekeyed().with(unclear), StateDone, SourceProvider},
		{"found at the provider", newScene().with(unclear).found(FindingPresent), StateDone, SourceInspection},
		{"abandoned after a look", abandoned(newScene().with(unclear)), StateAbandoned, SourceInspection},
		{"something else stands in its place", newScene().with(unclear).found(FindingOther), StateRefused, SourceInspection},
		{"an inconclusive look changes nothing", newScene().with(unclear).found(FindingInconclusive), StateUnknown, SourceRecord},

		{"a refusal refuses", newScene().with(refused), StateRefused, SourceProvider},
		{"a refusal after the door was shut refuses", newScene().with(door, refused), StateRefused, SourceProvider},
		{"a refusal after doubt leaves the doubt", newScene().with(unclear, refused), StateUnknown, SourceRecord},
		{"it settles the doubt where refusals are kept under the key", newScene().with(unclear, refused).terms(keeps), StateRefused, SourceProvider},
		{"but not one from in front of the de-duplication", newScene().with(unclear, front).terms(keeps), StateUnknown, SourceRecord},
		{"and not where the endpoint does not de-duplicate", newScene().with(unclear, refused).terms(func(t *Terms) { t.KeepsRefusals, t.Dedup = true, DedupNone }), StateUnknown, SourceRecord},
		{"a front refusal with nothing before it refuses", newScene().with(front), StateRefused, SourceProvider},
		{"a refusal after pending leaves the doubt", newScene().with(pending, refused), StateUnknown, SourceRecord},
		{"an attempt without an end is doubt before a refusal", newScene().endless("dead").with(refused), StateUnknown, SourceRecord},

		{"an attempt under a live hold is being sent", newScene().endless("live").live(), StateSending, SourceRecord},
		{"an attempt whose hold is over is doubt", newScene().endless("dead"), StateUnknown, SourceRecord},
		{"an attempt of an earlier holder is doubt beside a live hold", newScene().endless("dead").live(), StateUnknown, SourceRecord},

		{"it exists already, and we did not send before", newScene().with(already), StateRefused, SourceProvider},
		{"it exists already, perhaps by our own doing", newScene().with(unclear, already), StateUnknown, SourceRecord},
		{"perhaps by our own doing under an earlier key", newScene().with(unclear).rekeyed().with(already), StateUnknown, SourceRecord},
		{"a name that we put, by our own doing or not, is doubt", newScene().with(unclear, already).terms(natural), StateUnknown, SourceRecord},
		{"gone after an unclear delete is done, by inference", deleting(newScene().with(unclear, already).terms(natural)), StateDone, SourceInference},
		{"gone before anything was sent is refused", deleting(newScene().with(already).terms(natural)), StateRefused, SourceProvider},

		{"a conflict", newScene().with(conflict), StateConflict, SourceProvider},
		{"a conflict after doubt may be our own success", newScene().with(unclear, conflict), StateConflict, SourceProvider},
		{"pending while the key is young", newScene().with(pending), StatePending, SourceProvider},
		{"pending that was followed by doubt is unknown", newScene().with(pending, unclear), StateUnknown, SourceRecord},

		{"doubt under a key that is too old", aged(newScene().with(unclear), 23*time.Hour), StateExpired, SourceRecord},
		{"pending under a key that is too old", aged(newScene().with(pending), 23*time.Hour), StateExpired, SourceRecord},
		{"a key that was never sent has no age", aged(newScene().with(door), 1000*time.Hour), StateNeverSent, SourceRecord},
		{"a provider that never forgets", aged(newScene().with(unclear).terms(func(t *Terms) { t.Retention = Forever }), 1e6*time.Hour), StateUnknown, SourceRecord},
		{"an unknown retention is taken for an hour", aged(newScene().with(unclear).terms(func(t *Terms) { t.Retention = 0 }), 55*time.Minute), StateExpired, SourceRecord},
		{"no key, no age: doubt without de-duplication", aged(newScene().with(unclear).terms(none), 1000*time.Hour), StateUnknown, SourceRecord},

		{"nothing found cancels the doubt before it", newScene().with(unclear).found(FindingAbsent), StateNeverSent, SourceRecord},
		{"but not the doubt after it", newScene().with(unclear).found(FindingAbsent).with(unclear), StateUnknown, SourceRecord},
		{"nothing found does not undo a late success", newScene().with(done).found(FindingAbsent), StateDone, SourceProvider},
		{"a refusal after a cancelled doubt refuses", newScene().with(unclear).found(FindingAbsent).with(refused), StateRefused, SourceProvider},
	} {
		t.Run(c.claim, func(t *testing.T) {
			got, out := c.scene.fold()
			if got != c.want || out.State != c.want {
				t.Errorf("state %s (outcome %s), want %s", got, out.State, c.want)
			}
			if out.Source != c.source {
				t.Errorf("source %s, want %s", out.Source, c.source)
			}
			if out.Next == "" {
				t.Error("the outcome does not say what to do next")
			}
		})
	}
}

func abandoned(s *scene) *scene {
	end := stampOf(at(50 * time.Second))
	s.rec.current().Abandoned = &end
	return s
}

func deleting(s *scene) *scene { s.rec.current().Method = http.MethodDelete; return s }

func aged(s *scene, d time.Duration) *scene { s.view.now = at(d); return s }

func TestAnOutcomeSaysWhatIsNeeded(t *testing.T) {
	type needs struct{ inspection, signIn, broken bool }
	signIn := Verdict{Kind: VerdictNotProcessed, SignIn: true}
	for _, c := range []struct {
		claim string
		scene *scene
		want  needs
	}{
		{"doubt where keys are recognised can be sent again", newScene().with(Verdict{}), needs{}},
		{"doubt elsewhere needs a look", newScene().with(Verdict{}).terms(func(t *Terms) { *t = Terms{} }), needs{inspection: true}},
		{"doubt that a resend cannot lift needs a look", newScene().with(Verdict{NoResend: true}), needs{inspection: true}},
		{"accepted for later needs a look", newScene().with(Verdict{Kind: VerdictPending, NoResend: true}), needs{inspection: true}},
		{"a conflict needs a look", newScene().with(Verdict{Kind: VerdictConflict}), needs{inspection: true}},
		{"an expired key needs a look", aged(newScene().with(Verdict{}), 30*time.Hour), needs{inspection: true}},
		{"a rejected credential needs a sign-in", newScene().with(signIn), needs{signIn: true}},
		{"a rejected credential after doubt needs a sign-in", newScene().with(Verdict{}, signIn), needs{signIn: true}},
		{"two effects under one key", newScene().with(Verdict{Kind: VerdictDone, EffectID: "a", Unreadable: true}, Verdict{Kind: VerdictDone, EffectID: "b"}), needs{broken: true, inspection: true}},
		{"effects under two keys", newScene().with(Verdict{Kind: VerdictDone}).rekeyed().with(Verdict{Kind: VerdictDone}), needs{broken: true, inspection: true}},
		{"something was sent under a second key beside the first one's effect", newScene().with(Verdict{Kind: VerdictDone}).rekeyed().with(Verdict{}), needs{broken: true, inspection: true}},
		{"an effect whose answer is unreadable", newScene().with(Verdict{Kind: VerdictDone, Unreadable: true}), needs{inspection: true}},
		{"an effect", newScene().with(Verdict{Kind: VerdictDone}), needs{}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			_, out := c.scene.fold()
			if got := (needs{out.NeedsInspection, out.NeedsSignIn, out.Broken}); got != c.want {
				t.Errorf("%+v, want %+v", got, c.want)
			}
		})
	}
}

func TestDoubtIsSpaced(t *testing.T) {
	plain := func(t *Terms) { t.MarksRunning = false }
	for _, c := range []struct {
		claim string
		scene *scene
		now   time.Duration
		want  time.Duration // until the next attempt may start
	}{
		// Attempt n runs from second n to second n+1.
		{"five seconds after the first doubt", newScene().with(Verdict{}).terms(plain), 3 * time.Second, 4 * time.Second},
		{"twenty after the second", newScene().with(Verdict{}, Verdict{}).terms(plain), 3 * time.Second, 20 * time.Second},
		{"forty after the third", newScene().with(Verdict{}, Verdict{}, Verdict{}).terms(plain), 4 * time.Second, 40 * time.Second},
		{"none where a running key is recognised", newScene().with(Verdict{}, Verdict{}), 3 * time.Second, 0},
		{"none after what was turned away", newScene().with(Verdict{Kind: VerdictNotProcessed}).terms(plain), 2 * time.Second, 0},
		{"an attempt without an end counts to its deadline", newScene().endless("dead").terms(plain), 2 * time.Second, 34 * time.Second},
		{"the profile's own spacing", newScene().with(Verdict{}).terms(func(t *Terms) { t.MarksRunning, t.Spacing = false, time.Minute }), 2 * time.Second, time.Minute},
		{"none left once the time has passed", newScene().with(Verdict{}).terms(plain), time.Minute, 0},
	} {
		t.Run(c.claim, func(t *testing.T) {
			c.scene.view.now = at(c.now)
			_, out := c.scene.fold()
			var got time.Duration
			if !out.NotBefore.IsZero() {
				got = out.NotBefore.Sub(c.scene.view.now.Wall)
			}
			if got != c.want {
				t.Errorf("the next attempt may start in %v, want %v", got, c.want)
			}
		})
	}
}

func TestAKeyGrowsOlderOnly(t *testing.T) {
	type reading = clock.Reading
	for _, c := range []struct {
		claim   string
		now     reading
		prepare func(*record)
		trusted bool
		age     time.Duration
		known   bool
	}{
		{"by both clocks", at(time.Hour), nil, true, time.Hour - time.Second, true},
		{"by the wall clock across a sleep", reading{Wall: t0.Add(9 * time.Hour), Mono: time.Hour, Boot: "boot-1"}, nil, true, 9*time.Hour - time.Second, true},
		{"by the monotonic clock when the wall clock went back", reading{Wall: t0.Add(-2 * time.Hour), Mono: time.Hour, Boot: "boot-1"}, nil, true, time.Hour - time.Second, true},
		{"by the wall clock after a restart", reading{Wall: t0.Add(3 * time.Hour), Mono: time.Second, Boot: "boot-2"}, nil, true, 3*time.Hour - time.Second, true},
		{"unknown after a restart with an earlier clock", reading{Wall: t0.Add(-time.Hour), Mono: time.Second, Boot: "boot-2"}, nil, true, 0, false},
		{"known after a restart with a clock corrected by a second", reading{Wall: t0.Add(time.Second), Mono: time.Second, Boot: "boot-2"}, nil, true, 0, true},
		{"never below what is on record", at(time.Hour), func(r *record) { r.current().Age = 5 * time.Hour }, true, 5 * time.Hour, true},
		{"unknown while the provider's clock disagrees", at(time.Hour), func(r *record) { r.ClockOff = true }, true, time.Hour - time.Second, false},
		{"unknown while the application does not trust the clock", at(time.Hour), nil, false, time.Hour - time.Second, false},
	} {
		t.Run(c.claim, func(t *testing.T) {
			s := newScene().with(Verdict{})
			if c.prepare != nil {
				c.prepare(&s.rec)
			}
			age, known := s.rec.age(c.now, c.trusted)
			if known != c.known || known && age != c.age {
				t.Errorf("age %v, known %v; want %v, %v", age, known, c.age, c.known)
			}
		})
	}
}

func TestAnAttemptMustBeAbleToEndWithinTheRetention(t *testing.T) {
	const timeout, unknown = 30 * time.Second, time.Hour
	for _, c := range []struct {
		claim   string
		terms   Terms
		limit   time.Duration
		forever bool
	}{
		{"a day keeps one hour", Terms{Dedup: DedupKey, Retention: 24 * time.Hour}, 23*time.Hour - timeout, false},
		{"an hour keeps a tenth", Terms{Dedup: DedupKey, Retention: time.Hour}, 54*time.Minute - timeout, false},
		{"ten minutes keep two attempts' time", Terms{Dedup: DedupKey, Retention: 10 * time.Minute}, 9*time.Minute - timeout, false},
		{"a minute permits no resend", Terms{Dedup: DedupKey, Retention: time.Minute}, -timeout, false},
		{"the profile's margin", Terms{Dedup: DedupKey, Retention: time.Hour, Margin: 20 * time.Minute}, 40*time.Minute - timeout, false},
		{"a margin that is too thin is not taken", Terms{Dedup: DedupKey, Retention: time.Hour, Margin: time.Second}, 54*time.Minute - timeout, false},
		{"unknown", Terms{Dedup: DedupKey}, 54*time.Minute - timeout, false},
		{"never forgets", Terms{Dedup: DedupKey, Retention: Forever}, 0, true},
		{"a natural key", Terms{Dedup: DedupNatural}, 0, true},
	} {
		t.Run(c.claim, func(t *testing.T) {
			limit, forever := c.terms.horizon(timeout, unknown)
			if forever != c.forever || !forever && limit != c.limit {
				t.Errorf("limit %v, forever %v; want %v, %v", limit, forever, c.limit, c.forever)
			}
		})
	}
}

func TestOfTwoTermsTheStricterHold(t *testing.T) {
	generous := Terms{Profile: "p", Dedup: DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour, Margin: time.Minute, Spacing: time.Second, Settle: time.Minute}
	for _, c := range []struct {
		claim string
		other Terms
		want  Terms
	}{
		{"equal ones stay", generous, generous},
		{"another de-duplication is none", with(generous, func(t *Terms) { t.Dedup = DedupNatural }), with(generous, func(t *Terms) { t.Dedup = DedupNone })},
		{"a shorter retention", with(generous, func(t *Terms) { t.Retention = time.Hour }), with(generous, func(t *Terms) { t.Retention = time.Hour })},
		{"a longer retention does not count", with(generous, func(t *Terms) { t.Retention = Forever }), generous},
		{"an unknown retention counts as its horizon", with(generous, func(t *Terms) { t.Retention = 0 }), with(generous, func(t *Terms) { t.Retention = time.Hour })},
		{"longer waits", with(generous, func(t *Terms) { t.Margin, t.Spacing, t.Settle = time.Hour, time.Hour, time.Hour }), with(generous, func(t *Terms) { t.Margin, t.Spacing, t.Settle = time.Hour, time.Hour, time.Hour })},
		{"a default that is longer", with(generous, func(t *Terms) { t.Spacing, t.Settle = 0, 0 }), with(generous, func(t *Terms) { t.Spacing, t.Settle = defaultSpacing, defaultSettle })},
		{"a margin that is the default, an hour", with(generous, func(t *Terms) { t.Margin = 0 }), with(generous, func(t *Terms) { t.Margin = time.Hour })},
		{"less is kept and marked", with(generous, func(t *Terms) { t.KeepsRefusals, t.MarksRunning = false, false }), with(generous, func(t *Terms) { t.KeepsRefusals, t.MarksRunning = false, false })},
	} {
		t.Run(c.claim, func(t *testing.T) {
			if got := generous.stricter(c.other, time.Hour); got != c.want {
				t.Errorf("stored then current: %+v, want %+v", got, c.want)
			}
			if got := c.other.stricter(generous, time.Hour); got != c.want {
				t.Errorf("current then stored: %+v, want %+v", got, c.want)
			}
		})
	}
}

func with(t Terms, change func(*Terms)) Terms { change(&t); return t }
