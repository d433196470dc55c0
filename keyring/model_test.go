package keyring_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/internal/clock"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
)

// What all rules together come to: two processes over one store, a provider
// that keeps its promises, and whatever can happen in between. The schedules
// are random with fixed seeds, so that a failure comes again.

// provider is what the other side promises, and does.
type provider struct {
	name                  string
	dedup                 keyring.Dedup
	keeps, marks, replays bool // keeps refusals; recognises a running key; replays, else "exists"
	retention, longest    time.Duration
	sessions, suspends    bool // dead processes are known; the machine sleeps, else its clock is set back
}

var providers = []provider{
	{name: "keeps refusals", dedup: keyring.DedupKey, keeps: true, marks: true, replays: true, retention: 24 * time.Hour, longest: 5 * time.Minute, sessions: true},
	{name: "keeps successes only", dedup: keyring.DedupKey, marks: true, replays: true, retention: 24 * time.Hour, longest: 5 * time.Minute, suspends: true},
	{name: "answers exists", dedup: keyring.DedupKey, marks: true, retention: 3 * time.Hour, longest: time.Minute, sessions: true, suspends: true},
	{name: "stores the key after the effect", dedup: keyring.DedupKey, keeps: true, replays: true, retention: 3 * time.Hour, longest: 2 * time.Second, sessions: true, suspends: true},
	{name: "stores it after, successes only", dedup: keyring.DedupKey, replays: true, retention: 24 * time.Hour, longest: 2 * time.Second, sessions: true},
	{name: "no de-duplication", dedup: keyring.DedupNone, longest: 5 * time.Minute, suspends: true},
	{name: "natural", dedup: keyring.DedupNatural, longest: 2 * time.Second, sessions: true},
}

func (p provider) terms() keyring.Terms {
	return keyring.Terms{Dedup: p.dedup, KeepsRefusals: p.keeps, MarksRunning: p.marks, Retention: p.retention}
}

func TestNoScheduleMakesTwoEffects(t *testing.T) {
	const schedules = 250 // for each provider
	for i, prov := range providers {
		t.Run(prov.name, func(t *testing.T) {
			t.Parallel()
			var all tally
			for seed := range uint64(schedules) {
				p := newPlay(t, prov, rand.New(rand.NewPCG(uint64(i), seed)))
				p.run(60)
				if p.wrong != "" {
					t.Fatalf("seed %d: %s\n%s", seed, p.wrong, strings.Join(p.trace, "\n"))
				}
				all.add(p.tally)
			}
			// A test in which nothing happens would find nothing.
			for what, n := range map[string]int{
				"writes": all.writes, "effects": all.effects, "second attempts, or told to look": all.resends + all.told, "crashes": all.crashes,
				"absent": all.absent, "other keys": all.rekeys, "too late to write": all.late,
				"looks that went stale": all.stale, "answers of the store lost": all.lost,
			} {
				if n < 5 {
					t.Errorf("%s: %d in all schedules", what, n)
				}
			}
		})
	}
}

// tally counts what happened.
type tally struct{ writes, effects, resends, crashes, absent, rekeys, told, late, stale, lost int }

func (t *tally) add(u tally) {
	t.writes, t.effects, t.resends, t.crashes, t.absent = t.writes+u.writes, t.effects+u.effects, t.resends+u.resends, t.crashes+u.crashes, t.absent+u.absent
	t.rekeys, t.told, t.late, t.stale, t.lost = t.rekeys+u.rekeys, t.told+u.told, t.late+u.late, t.stale+u.stale, t.lost+u.lost
}

// play is one schedule.
type play struct {
	provider
	tally
	t     *testing.T
	rng   *rand.Rand
	ctx   context.Context
	clock *clocks
	now   time.Duration // the true time
	store keyring.Store
	procs [2]*process
	dead  map[string]bool // sessions
	names int

	trusted, moved bool // the wall clock may be believed; it was set at least once
	steady         bool // the store loses no answer now
	looking        bool

	events []event
	sent   []sending
	memory map[string]*remembered // by key, the provider's
	made   []string               // effects, by the key they were made under
	keys   []string               // by generation
	poor   bool                   // the operation would refuse now
	seen   keyring.Inspection     // in a person's hand

	checked    uint64 // the revision
	checkedFor int    // and the effects

	wrong string
	trace []string
}

type event struct {
	due time.Duration
	do  func()
}

// sending is one attempt, as it really was.
type sending struct {
	generation int
	start      time.Duration
	written    bool
	nothing    bool // it was told that it did nothing
	absent     bool // a look that counted found nothing of it
}

type remembered struct {
	running, refused bool
	since            time.Duration
	id               string
}

// process is one of the two senders.
type process struct {
	keyring.Store
	p       *play
	name    string
	ring    *keyring.Ring
	hold    *keyring.Hold
	phase   phase
	key     keyring.Key
	number  int // of the attempt, from 1
	verdict keyring.Verdict
	looking bool
}

type phase int

const (
	idle    phase = iota
	started       // on record, not written
	written
	told // a verdict is at hand
)

func newPlay(t *testing.T, prov provider, rng *rand.Rand) *play {
	c := newClocks()
	p := &play{
		provider: prov, t: t, rng: rng, clock: c, ctx: clock.With(t.Context(), c), store: keyringtest.NewStore(),
		dead: map[string]bool{}, trusted: true, memory: map[string]*remembered{},
	}
	for i := range p.procs {
		p.procs[i] = &process{Store: p.store, p: p}
		p.procs[i].boot()
	}
	return p
}

// boot gives the process a new life.
func (q *process) boot() {
	q.p.dead[q.name] = true
	q.p.names++
	q.name = fmt.Sprint("session ", q.p.names)
	q.hold, q.phase = nil, idle
	q.ring = keyring.New(q, &keyring.Options{Owner: q.name, ClockTrusted: func() bool { return q.p.trusted }})
}

func (q *process) Session() string { return q.name }

func (q *process) Gone(_ context.Context, name string) (bool, error) {
	return q.p.sessions && q.p.dead[name], nil
}

// Update loses an answer or a write now and then.
func (q *process) Update(ctx context.Context, rec keyring.Record) error {
	if q.p.steady || !q.p.chance(6) {
		return q.Store.Update(ctx, rec)
	}
	q.p.lost++
	if q.p.chance(50) {
		if err := q.Store.Update(ctx, rec); err != nil {
			return err
		}
	}
	return errLost
}

func (p *play) chance(percent int) bool { return p.rng.IntN(100) < percent }

func (p *play) upTo(d time.Duration) time.Duration { return time.Duration(p.rng.Int64N(int64(d) + 1)) }

func (p *play) note(format string, args ...any) {
	p.trace = append(p.trace, fmt.Sprintf("%12v  ", p.now)+fmt.Sprintf(format, args...))
}

func (p *play) fail(format string, args ...any) {
	if p.wrong == "" {
		p.wrong = fmt.Sprintf(format, args...)
	}
}

func (p *play) run(steps int) {
	for range steps {
		if p.wrong != "" {
			return
		}
		p.step()
		p.check()
	}
	p.pass(time.Hour, false) // what is on its way arrives
}

func (p *play) step() {
	switch n := p.rng.IntN(100); {
	case n < 50:
		p.procs[p.rng.IntN(2)].step()
	case n < 65:
		p.pass(p.upTo(3*time.Second), false)
	case n < 72:
		p.pass(p.upTo(time.Minute), false)
	case n < 79:
		p.pass(p.upTo(20*time.Minute), false)
	case n < 81:
		p.pass(p.upTo(12*time.Hour), p.suspends && p.chance(50))
	case n < 85:
		q := p.procs[p.rng.IntN(2)]
		p.note("%s crashes", q.name)
		q.boot()
		p.crashes++
	case n < 87:
		p.poor = !p.poor
		p.note("the operation would refuse now: %v", p.poor)
	case n < 88:
		p.setClock()
	case n < 89:
		p.reboot()
	case n < 95:
		p.look()
	default:
		p.rekey()
	}
}

// pass lets true time pass. What is due meanwhile happens when it is due.
func (p *play) pass(d time.Duration, asleep bool) {
	p.note("%v pass, asleep: %v", d, asleep)
	to := p.now + d
	for p.wrong == "" {
		slices.SortStableFunc(p.events, func(a, b event) int { return int(a.due - b.due) })
		if len(p.events) == 0 || p.events[0].due > to {
			break
		}
		e := p.events[0]
		p.events = p.events[1:]
		p.tick(e.due-p.now, asleep)
		e.do()
		p.check()
	}
	p.tick(to-p.now, asleep)
}

func (p *play) tick(d time.Duration, asleep bool) {
	p.now += d
	if asleep {
		p.clock.step(d, 0)
	} else {
		p.clock.pass(d)
	}
}

func (p *play) later(d time.Duration, do func()) { p.events = append(p.events, event{p.now + d, do}) }

// setClock sets the wall clock. A machine that also sleeps has it set forward
// only: of a night that is taken back again no clock of the machine knows.
func (p *play) setClock() {
	d := p.upTo(10 * time.Hour)
	if !p.suspends && p.chance(50) {
		d = -d
	}
	p.moved = true
	p.note("the wall clock is set by %v", d)
	p.clock.step(d, 0)
}

// reboot ends both processes. A clock that was set before is not believed
// afterwards; one that was not may come up with the right time, or earlier
// than what is on record, which the ring has to notice by itself.
func (p *play) reboot() {
	if p.looking {
		return
	}
	p.pass(10*time.Second+p.upTo(time.Minute), false)
	wall := time.Duration(0)
	switch {
	case p.moved:
		p.trusted = false
		wall = p.upTo(20*time.Hour) - 10*time.Hour
	case p.chance(30):
		if last := p.last(); !last.IsZero() {
			p.moved = true
			wall = last.Sub(p.clock.Read().Wall) - 6*time.Minute - p.upTo(time.Hour)
		}
	}
	p.note("restart, the wall clock moves by %v, trusted: %v", wall, p.trusted)
	p.clock.reboot(wall)
	p.steady = true
	for _, q := range p.procs {
		q.boot()
		if q.acquire() { // programs look at what is open as they start
			p.must(q.hold.Release(p.ctx))
			q.hold = nil
		}
	}
	p.steady = false
}

// last is the latest moment on record, or earlier.
func (p *play) last() time.Time {
	in, err := p.procs[0].ring.Get(p.ctx, ref)
	if err != nil {
		return time.Time{}
	}
	last := in.Begun
	for _, a := range in.Attempts {
		for _, t := range []time.Time{a.Start, a.End} {
			if t.After(last) {
				last = t
			}
		}
	}
	return last
}

func (p *play) must(err error, but ...error) bool {
	if err == nil {
		return true
	}
	for _, b := range append(but, errLost) {
		if errors.Is(err, b) {
			return false
		}
	}
	p.fail("unexpected: %v", err)
	return false
}

func (p *play) draft() keyring.Draft {
	return draft(func(d *keyring.Draft) {
		d.Terms = p.terms()
		if p.dedup == keyring.DedupNatural {
			d.Request.Method = "PUT"
		}
	})
}

// acquire takes the right to send, if it may be had.
func (q *process) acquire() bool {
	p := q.p
	var err error
	if len(p.keys) == 0 {
		var in keyring.Intent
		if in, q.hold, err = q.ring.BeginHeld(p.ctx, ref, p.draft()); err == nil {
			p.keys = append(p.keys, in.Key.String())
		}
		return p.must(err)
	}
	q.hold, err = q.ring.Acquire(p.ctx, ref, keyring.Current{Terms: p.terms()})
	if errors.Is(err, keyring.ErrNeedsInspection) {
		p.told++
	}
	return p.must(err, keyring.ErrHeld, keyring.ErrTooSoon, keyring.ErrNeedsInspection, keyring.ErrFinal)
}

func (q *process) step() {
	p := q.p
	if q.looking {
		return
	}
	switch q.phase {
	case idle:
		switch {
		case q.hold == nil && !q.acquire():
		case p.chance(5):
			p.note("%s gives the hold back", q.name)
			if p.must(q.hold.Release(p.ctx)) {
				q.hold = nil
			}
		default:
			q.start()
		}
	case started:
		q.write()
	case written:
		p.note("%s gives up waiting for attempt %d", q.name, q.number)
		q.phase, q.verdict = told, keyring.Verdict{}
	case told:
		keep := p.chance(40)
		in, err := q.hold.Finish(p.ctx, q.verdict, nil, keyring.After{Keep: keep})
		if !p.must(err) {
			return // and tries again
		}
		p.note("%s finishes attempt %d: %s, keeps the hold: %v; %s", q.name, q.number, q.verdict.Kind, keep, in.State)
		p.sent[q.number-1].nothing = q.verdict.Kind == keyring.VerdictNotProcessed
		q.phase = idle
		if !keep {
			q.hold = nil
		}
	}
}

func (q *process) start() {
	p := q.p
	key, err := q.hold.Start(p.ctx)
	if !p.must(err, keyring.ErrHeld, keyring.ErrTooSoon, keyring.ErrNeedsInspection, keyring.ErrFinal) {
		if errors.Is(err, keyring.ErrHeld) || errors.Is(err, keyring.ErrFinal) {
			q.hold = nil
		}
		return
	}
	in := q.hold.Intent(p.ctx)
	attempts := in.Attempts
	q.phase, q.key, q.number = started, key, attempts[len(attempts)-1].Number
	for len(p.sent) < q.number { // a start may be on record of which nobody heard
		p.sent = append(p.sent, sending{generation: in.Generation, start: p.now})
	}
	p.note("%s starts attempt %d under %s", q.name, q.number, key)
}

// write puts the request on the wire, unless it is too late.
func (q *process) write() {
	p := q.p
	n := q.number
	if q.hold.Left(p.ctx) <= 0 || p.chance(10) {
		if q.hold.Left(p.ctx) <= 0 {
			p.late++
		}
		p.note("%s does not write attempt %d", q.name, n)
		q.phase, q.verdict = told, keyring.Verdict{Kind: keyring.VerdictNotProcessed}
		return
	}
	p.note("%s writes attempt %d", q.name, n)
	q.phase = written
	p.writes++
	p.sent[n-1].written = true
	s := p.sent[n-1]
	if q.key.String() != p.keys[s.generation-1] {
		p.fail("attempt %d is sent under %s, the key of its generation is %s", n, q.key, p.keys[s.generation-1])
	}
	for i, first := range p.sent[:n-1] {
		if first.generation != s.generation || !first.written || first.nothing || first.absent {
			continue
		}
		p.resends++
		if p.dedup == keyring.DedupNone {
			p.fail("attempt %d is sent after %d, which may have had its effect", n, i+1)
		}
		margin := min(p.retention/10, time.Hour)
		if age := p.now - first.start; p.dedup == keyring.DedupKey && age > p.retention-margin {
			p.fail("attempt %d is sent %v after %d, the provider may have forgotten the key", n, age, i+1)
		}
		break
	}
	if !p.chance(20) {
		key := q.key.String()
		p.later(p.upTo(2*time.Second), func() { p.arrive(q, n, q.name, key) })
	}
}

// arrive is what the provider does with a request.
func (p *play) arrive(q *process, n int, name, key string) {
	p.note("attempt %d arrives", n)
	answer := func(v keyring.Verdict) {
		if p.chance(50) {
			v.Date = p.clock.Read().Wall.Add(p.now - p.shown()).Truncate(time.Second)
		}
		if p.chance(30) || q.name != name || q.number != n || q.phase != written {
			p.note("the answer %s to attempt %d is lost", v.Kind, n)
			return
		}
		p.note("attempt %d is told %s", n, v.Kind)
		q.phase, q.verdict = told, v
	}
	m := p.memory[key]
	if m != nil && !m.running && p.dedup == keyring.DedupKey && p.now-m.since >= p.retention {
		m = nil
	}
	switch {
	case p.chance(10):
		answer(keyring.Verdict{Kind: keyring.VerdictNotProcessed, SignIn: true})
	case p.chance(6):
		answer(keyring.Verdict{Kind: keyring.VerdictRefused, Front: true})
	case p.dedup == keyring.DedupNatural && len(p.made) > 0:
		answer(keyring.Verdict{Kind: keyring.VerdictAlready})
	case p.dedup == keyring.DedupKey && m != nil && m.running:
		answer(keyring.Verdict{Kind: []keyring.VerdictKind{keyring.VerdictPending, keyring.VerdictUnclear}[p.rng.IntN(2)]})
	case p.dedup == keyring.DedupKey && m != nil && m.refused:
		answer(keyring.Verdict{Kind: keyring.VerdictRefused, Replayed: true})
	case p.dedup == keyring.DedupKey && m != nil && p.replays:
		answer(keyring.Verdict{Kind: keyring.VerdictDone, EffectID: m.id, Replayed: true})
	case p.dedup == keyring.DedupKey && m != nil:
		answer(keyring.Verdict{Kind: keyring.VerdictAlready})
	case p.poor:
		if p.keeps {
			p.memory[key] = &remembered{refused: true, since: p.now}
		}
		answer(keyring.Verdict{Kind: keyring.VerdictRefused})
	default:
		if p.marks {
			p.memory[key] = &remembered{running: true, since: p.now}
		}
		since := p.now
		p.later(p.upTo(p.longest), func() {
			if p.dedup == keyring.DedupNatural && len(p.made) > 0 {
				answer(keyring.Verdict{Kind: keyring.VerdictAlready})
				return
			}
			p.effects++
			p.made = append(p.made, key)
			id := fmt.Sprint("e", len(p.made))
			p.note("EFFECT %s of attempt %d", id, n)
			if key != p.keys[len(p.keys)-1] {
				p.fail("an effect under an earlier key")
			}
			p.memory[key] = &remembered{since: since, id: id}
			answer(keyring.Verdict{Kind: keyring.VerdictDone, EffectID: id})
		})
	}
}

// shown is the true time that our wall clock shows.
func (p *play) shown() time.Duration { return p.clock.Read().Wall.Sub(newClocks().r.Wall) }

// look asks the provider what there is, by a program or a person. Now and then
// the others go on meanwhile.
func (p *play) look() {
	if p.looking || len(p.keys) == 0 {
		return
	}
	q := p.procs[p.rng.IntN(2)]
	attempts := 0
	ask := func(_ context.Context, in keyring.Intent) (keyring.Finding, error) {
		f := keyring.Finding{Kind: keyring.FindingAbsent}
		if attempts = len(p.sent); len(p.made) > 0 {
			f.Kind, f.EffectID = keyring.FindingPresent, "e1"
		}
		if p.chance(20) {
			f.Kind = keyring.FindingInconclusive
		}
		p.looking = true
		for range p.rng.IntN(3) * p.rng.IntN(6) {
			p.step()
			p.check()
		}
		p.looking = false
		return f, nil
	}
	var by keyring.Inspector = keyring.InspectorFunc(ask)
	if p.chance(50) { // a person's eyes are not slower here
		p.steady = true
		f, _ := ask(p.ctx, keyring.Intent{})
		p.steady = false
		if attempts != len(p.sent) || len(p.made) > 0 && f.Kind == keyring.FindingAbsent {
			return // nobody attests what has changed meanwhile
		}
		by = keyring.Attest(f)
	}
	var seen keyring.Inspection
	var err error
	if q.hold != nil && q.phase == idle && p.chance(50) {
		q.looking = true
		seen, err = q.hold.Inspect(p.ctx, by)
		q.looking = false
	} else {
		seen, err = q.ring.Inspect(p.ctx, ref, by)
	}
	p.note("a look by %T: %s, %v", by, seen.Finding().Kind, err)
	if errors.Is(err, keyring.ErrStale) {
		p.stale++
	}
	if !p.must(err, keyring.ErrStale, keyring.ErrHeld, keyring.ErrTooSoon, keyring.ErrFinal, keyring.ErrInvalid) {
		return
	}
	p.seen = seen
	if seen.Finding().Kind == keyring.FindingAbsent {
		p.absent++
		for i := range attempts {
			p.sent[i].absent = true
		}
	}
}

// rekey uses the permission at hand, however old it is, or asks for a refusal.
func (p *play) rekey() {
	q := p.procs[p.rng.IntN(2)]
	seen := p.seen
	if p.chance(30) && len(p.keys) > 0 {
		var err error
		if seen, err = q.ring.Refusal(p.ctx, ref); !p.must(err, keyring.ErrNeedsInspection, keyring.ErrFinal, keyring.ErrInvalid) {
			return
		}
	}
	in, err := q.ring.Rekey(p.ctx, seen, p.draft())
	if !p.must(err, keyring.ErrStale, keyring.ErrHeld, keyring.ErrFinal, keyring.ErrNeedsInspection) {
		return
	}
	p.rekeys++
	p.note("another key: %s", in.Key)
	if slices.Contains(p.keys, in.Key.String()) {
		p.fail("key %s a second time", in.Key)
	}
	p.keys = append(p.keys, in.Key.String())
}

// check compares what anybody would be told now with how it is.
func (p *play) check() {
	if len(p.keys) == 0 || p.wrong != "" {
		return
	}
	effects := len(p.made)
	rec, err := p.store.Load(p.ctx, ref)
	if err != nil || rec.Revision == p.checked && effects == p.checkedFor {
		return // what is wrong to tell does not become so by the time alone
	}
	p.checked, p.checkedFor = rec.Revision, effects
	in, err := p.procs[0].ring.Get(p.ctx, ref)
	if err != nil {
		p.fail("get: %v", err)
		return
	}
	switch {
	case effects > 1:
		p.fail("%d effects", effects)
	case effects > 0 && (in.State == keyring.StateRefused || in.State == keyring.StateNeverSent):
		p.fail("told %s while an effect exists", in.State)
	case effects == 0 && in.State == keyring.StateDone:
		p.fail("told done without an effect")
	case in.Outcome().Broken:
		p.fail("told that there is more than one effect")
	case in.Generation != len(p.keys) || in.Key.String() != p.keys[len(p.keys)-1]:
		p.fail("key %s of generation %d on record, it was %s of %d", in.Key, in.Generation, p.keys[len(p.keys)-1], len(p.keys))
	}
}
