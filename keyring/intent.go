package keyring

import (
	"bytes"
	"slices"
	"time"
)

// Intent is what the keyring knows about one thing that is to happen once, as
// of the moment it was read. It is a copy: changing it changes nothing.
type Intent struct {
	Ref         Ref
	Key         Key // of the current generation
	Generation  int // 1 for the first key
	Revision    uint64
	Request     Request // what is sent, without credentials
	Fingerprint Fingerprint
	Terms       Terms // those it was begun under
	State       State
	Begun       time.Time
	FirstSent   time.Time // start of the first attempt that may have arrived; zero: none
	NotBefore   time.Time // earliest useful moment to send again; zero: now, or never
	Attempts    []Attempt // under the current key, oldest first
	Answer      []byte    // to an attempt under the current key, or the one that said Done; nil: none
	AnswerOf    int       // number of the attempt that Answer belongs to; 0: none
	Findings    []Finding // under the current key, oldest first, as they count
	Purged      bool      // the details are gone; how it ended is known

	// Needs names the places that held credentials when the intent was begun,
	// such as "header Authorization". Their values are not stored; without them
	// the request cannot go out.
	Needs []string

	HeldBy    string    // who has the sole right to send; empty: nobody
	HeldUntil time.Time // when that right ends by itself

	outcome     Outcome
	resendUntil time.Time
}

// Final says whether nothing more will be sent for this intent.
func (in Intent) Final() bool { return in.State.Final() }

// Outcome says what is known, and what may be done next.
func (in Intent) Outcome() Outcome {
	if in.outcome.State != in.State || in.outcome.Next == "" { // an Intent made by hand
		o := Outcome{State: in.State, NotBefore: in.NotBefore}
		o.Next = o.next()
		return o
	}
	return in.outcome
}

// ResendUntil is the last moment at which another attempt may be started under
// this key, by the wall clock. It is zero where nothing may be sent again, and
// where there is no such moment: nothing was sent yet, or the provider never
// forgets.
func (in Intent) ResendUntil() time.Time { return in.resendUntil }

// entry is a record as it was read, with its request.
type entry struct {
	stored  Record
	rec     *record    // nil where its bytes are damaged, or purged
	tomb    *tombstone // what is left of a purged one
	request Request
	damage  error // of the record or its request
}

// readEntry decodes what the store returned. Damage is a finding, not an
// error: the intent is listed, and nothing is ever sent for it.
func readEntry(stored Record) entry {
	e := entry{stored: stored}
	if isTombstone(stored.Data) {
		e.tomb, e.damage = decodeTombstone(stored.Ref, stored.Data)
		return e
	}
	rec, err := decodeData(stored.Ref, stored.Data)
	if err != nil {
		e.damage = err
		return e
	}
	g := rec.current()
	if rec.Revision != stored.Revision || g.Number != stored.Generation || g.fingerprint() != stored.Fingerprint {
		e.damage = errChecksum
		return e
	}
	e.rec = rec
	if len(g.Fixed) == 0 {
		e.request, e.damage = decodeRequest(stored.Ref, stored.Request, g.RequestSum)
	}
	return e
}

// intent describes the entry as seen now.
func (e entry) intent(v view) Intent {
	in := Intent{
		Ref:         e.stored.Ref,
		Generation:  e.stored.Generation,
		Revision:    e.stored.Revision,
		Fingerprint: e.stored.Fingerprint,
	}
	if e.tomb != nil {
		in.State, in.Purged = e.tomb.State, true
		in.outcome = Outcome{State: in.State, Verdict: Verdict{EffectID: e.tomb.EffectID, Why: "purged"}}
		in.outcome.Next = in.outcome.next()
		return in
	}
	if e.damage != nil {
		in.State = StateDamaged
		in.outcome = Outcome{State: StateDamaged, NeedsInspection: true, Verdict: Verdict{Why: e.damage.Error()}}
		in.outcome.Next = in.outcome.next()
		return in
	}
	g := e.rec.current()
	in.Key = Key{g.Key}
	in.Request = e.request.clone()
	in.Terms = g.Terms.terms()
	in.Begun = e.rec.Begun.Wall
	in.Needs = slices.Clone(g.Needs)
	if e.rec.showsAnswer() {
		in.Answer, in.AnswerOf = bytes.Clone(e.rec.Answer), e.rec.AnswerOf
	}
	for i := range g.Attempts {
		in.Attempts = append(in.Attempts, g.Attempts[i].attempt())
	}
	for i := range g.Findings {
		in.Findings = append(in.Findings, g.Findings[i].finding())
	}
	if first := g.firstSent(); first != nil {
		in.FirstSent = first.Start.Wall
	}
	in.State, in.outcome = v.fold()
	in.NotBefore = in.outcome.NotBefore
	in.resendUntil = v.resendUntil(in.outcome)
	if e.rec.Hold != nil && v.live {
		in.HeldBy = e.rec.Hold.Owner
		in.HeldUntil = v.heldUntil()
	}
	return in
}

// showsAnswer says whether the answer on record is one to the current key, or
// the one that said that the effect exists: what an earlier key was told is
// nothing to read this one's end from.
func (r *record) showsAnswer() bool {
	for gi := range r.Generations {
		for i := range r.Generations[gi].Attempts {
			if a := &r.Generations[gi].Attempts[i]; a.Number == r.AnswerOf {
				return gi == len(r.Generations)-1 || a.Verdict.Kind == VerdictDone
			}
		}
	}
	return false
}

// heldUntil is when the hold on record ends by itself, by our wall clock.
func (v view) heldUntil() time.Time {
	return v.now.Wall.Add(v.rec.Hold.Lease - since(v.now, v.rec.Hold.Since))
}

func (v view) resendUntil(out Outcome) time.Time {
	first := v.rec.current().firstSent()
	if first == nil || !v.mayStart(&out, v.facts()) {
		return time.Time{}
	}
	limit, forever := v.terms.horizon(v.timeout, v.unknown)
	age, _ := v.rec.age(v.now, v.trusted)
	if forever || limit < age {
		return time.Time{}
	}
	return v.now.Wall.Add(limit - age)
}

func (a *attempt) attempt() Attempt {
	out := Attempt{Number: a.Number, Start: a.Start.Wall, Verdict: a.Verdict.verdict(), Owner: a.Owner, Identity: a.Identity}
	if a.End != nil {
		out.End = a.End.Wall
	}
	return out
}

func (t storedTerms) terms() Terms       { return Terms(t) }
func (v storedVerdict) verdict() Verdict { return Verdict(v) }

// String names the intent and its state, for logs and failure messages. It
// holds neither request nor answer.
func (in Intent) String() string {
	return in.Ref.String() + " (" + in.State.String() + ", key " + in.Key.String() + ")"
}
