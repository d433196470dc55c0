package keyring

import (
	"time"

	"github.com/samekey/samekey/internal/clock"
)

// methodDelete is the one method whose repetition is told "gone" by our own
// success.
const methodDelete = "DELETE"

// view is everything that the state depends on.
type view struct {
	rec     *record
	now     clock.Reading
	terms   Terms         // the stricter of the stored and the current ones
	live    bool          // the hold on record still runs
	trusted bool          // the wall clock may be believed
	timeout time.Duration // of an attempt that would be started now
	unknown time.Duration // retention to assume where the provider publishes none
}

// facts are what the rows of the fold ask about. An attempt without an end
// counts as unclear, unless it is the one under way.
type facts struct {
	done        *attempt // the effect exists, under any key
	doneNow     bool     // and under the current one
	doneIDs     int      // different effect ids seen
	doneGens    int      // keys under which an effect was seen
	laterSent   bool     // something was sent under a later key than the first effect's
	present     *finding
	other       *finding
	turnedDown  *attempt // the first refusal
	refused     *attempt // the first refusal that counts
	sending     *attempt
	already     *attempt
	conflict    *attempt
	pending     *attempt // the last attempt, if it is pending
	last        *attempt // the last attempt with an end
	doubt       *attempt // the last unclear, pending or already one
	doubts      int      // attempts under this key that were not NotProcessed, nor cancelled
	alreadyOpen bool     // what is there already may be ours
	noResend    *attempt // doubt that sending again cannot lift
}

// fold computes the state from everything recorded. The first row that
// applies wins; docs/states.md has the table with its reasons.
func (v view) fold() (State, Outcome) {
	f := v.facts()
	old := v.tooOld()
	out := Outcome{}
	decide := func(s State, src Source, a *attempt) (State, Outcome) {
		out.State, out.Source = s, src
		if a != nil {
			out.Verdict = a.Verdict.verdict()
			if a.End == nil {
				out.Verdict.Why = "the attempt's end is not on record"
			}
		}
		v.finish(&out, f)
		return s, out
	}
	natural := v.terms.Dedup == DedupNatural && v.rec.current().Method == methodDelete
	switch {
	case f.done != nil:
		src := SourceProvider
		if f.done.Verdict.Replayed {
			src = SourceReplay
		}
		return decide(StateDone, src, f.done)
	case f.present != nil:
		out.Verdict = Verdict{Kind: VerdictDone, EffectID: f.present.EffectID, Why: "found at the provider"}
		return decide(StateDone, SourceInspection, nil)
	case v.rec.current().Abandoned != nil:
		return decide(StateAbandoned, SourceInspection, f.last)
	case f.other != nil:
		out.Verdict = Verdict{Kind: VerdictRefused, EffectID: f.other.EffectID, Why: "the provider has something else in its place"}
		return decide(StateRefused, SourceInspection, nil)
	case f.refused != nil:
		return decide(StateRefused, SourceProvider, f.refused)
	case f.sending != nil:
		return decide(StateSending, SourceRecord, f.last)
	case f.already != nil && !f.alreadyOpen:
		return decide(StateRefused, SourceProvider, f.already)
	case f.already != nil && natural:
		return decide(StateDone, SourceInference, f.already)
	case f.conflict != nil:
		return decide(StateConflict, SourceProvider, f.conflict)
	case f.pending != nil && !old:
		return decide(StatePending, SourceProvider, f.pending)
	case f.doubt != nil && old:
		return decide(StateExpired, SourceRecord, f.doubt)
	case f.doubt != nil:
		return decide(StateUnknown, SourceRecord, f.doubt)
	default:
		return decide(StateNeverSent, SourceRecord, f.last)
	}
}

// facts walks over the attempts in order.
func (v view) facts() facts {
	var f facts
	ids := map[string]bool{}
	current := len(v.rec.Generations) - 1
	protected := v.terms.Dedup == DedupNatural || v.terms.Dedup == DedupKey && !v.tooOld()
	// Doubt counts whether its attempt has the lower or the higher number: an
	// attempt that was told late may have been overtaken by one which took effect.
	doubtAny := false // in any generation
	for gi := range v.rec.Generations {
		g := &v.rec.Generations[gi]
		for i := range g.Findings {
			switch n := &g.Findings[i]; n.Kind {
			case FindingPresent:
				if f.present == nil {
					f.present = n
				}
			case FindingOther:
				if gi == current {
					f.other = n
				}
			case FindingAbsent, FindingInconclusive:
			}
		}
		doneHere, doubtHere := false, false
		for i := range g.Attempts {
			a := &g.Attempts[i]
			if f.done != nil && !doneHere && a.Verdict.Kind != VerdictNotProcessed {
				f.laterSent = true
			}
			under := a.End == nil && v.live && v.rec.Hold != nil && v.rec.Hold.ID == a.Hold
			kind := a.Verdict.Kind
			cancelled := kind.doubt() && !under && g.lifted(a, protected)
			if kind == VerdictDone {
				doneHere = true
				if f.done == nil || f.done.Verdict.Unreadable && !a.Verdict.Unreadable {
					f.done, f.doneNow = a, gi == current
				}
				if id := a.Verdict.EffectID; id != "" {
					ids[id] = true
				}
			}
			if gi == current {
				if a.End != nil {
					f.last = a
				}
				v.rows(&f, a, under, cancelled)
			}
			if !cancelled && kind.doubt() { // one that is under way included
				doubtHere, doubtAny = true, true
			}
		}
		if doneHere {
			f.doneGens++
		}
		if gi == current && !doubtHere && f.refused == nil {
			f.refused = f.turnedDown
		}
	}
	f.alreadyOpen = doubtAny
	f.doneIDs = len(ids)
	return f
}

// rows takes in one attempt under the current key.
func (v view) rows(f *facts, a *attempt, under, cancelled bool) {
	kind := a.Verdict.Kind
	f.pending = nil
	if under {
		f.sending = a
		f.doubts++
		return
	}
	if kind != VerdictNotProcessed && !cancelled {
		f.doubts++
	}
	if kind.doubt() {
		if cancelled {
			return
		}
		f.doubt = a
		if kind == VerdictPending {
			f.pending = a
		}
		if a.Verdict.NoResend {
			f.noResend = a
		}
		return
	}
	switch kind {
	case VerdictConflict:
		if f.conflict == nil {
			f.conflict = a
		}
	case VerdictAlready:
		if f.already == nil {
			f.already = a
		}
		f.doubt = a
	case VerdictRefused:
		if kept := !a.Verdict.Front && v.terms.KeepsRefusals && v.terms.Dedup == DedupKey; kept && f.refused == nil {
			f.refused = a
		}
		if f.turnedDown == nil {
			f.turnedDown = a
		}
	case VerdictNotProcessed, VerdictDone, VerdictUnclear, VerdictPending:
	}
}

// tooOld says whether an attempt started now could end after the provider has
// forgotten the key, or whether that cannot be told. Where nothing is
// de-duplicated by key there is no age to speak of.
func (v view) tooOld() bool {
	if v.terms.Dedup == DedupNone {
		return false
	}
	limit, forever := v.terms.horizon(v.timeout, v.unknown)
	if forever {
		return false
	}
	age, known := v.rec.age(v.now, v.trusted)
	return v.rec.current().firstSent() != nil && (!known || age > limit)
}

// finish fills in what follows from the state.
func (v view) finish(out *Outcome, f facts) {
	out.Broken = f.doneGens > 1 || f.doneIDs > 1 || f.laterSent
	switch out.State {
	case StateConflict, StateExpired, StateDamaged:
		out.NeedsInspection = true
	case StateUnknown, StatePending:
		out.NeedsInspection = v.terms.Dedup == DedupNone || f.noResend != nil
	case StateDone:
		out.NeedsInspection = out.Broken || out.Verdict.Unreadable
	case StateNeverSent, StateSending, StateRefused, StateAbandoned:
	}
	if out.State == StateNeverSent || out.State == StateUnknown {
		out.NeedsSignIn = f.last != nil && f.last.Verdict.Kind == VerdictNotProcessed && f.last.Verdict.SignIn
	}
	if wait := v.wait(f); wait > 0 && v.mayStart(out, f) {
		out.NotBefore = v.now.Wall.Add(wait)
	}
	out.Next = out.next()
}

// mayStart says whether another attempt is permitted in this state, apart
// from when.
func (v view) mayStart(out *Outcome, f facts) bool {
	switch out.State {
	case StateNeverSent:
		return true
	case StateUnknown, StatePending:
		return !out.NeedsInspection
	case StateDone: // for the answer alone; see Hold.Start
		return f.done != nil && f.doneNow && f.done.Verdict.Unreadable && !out.Broken && v.terms.Dedup == DedupKey && !v.tooOld()
	case StateSending, StateConflict, StateExpired, StateRefused, StateAbandoned, StateDamaged:
	}
	return false
}

// wait is how long the next attempt has to wait.
func (v view) wait(f facts) time.Duration { return max(v.parked(), v.spaced(f)) }

// parked is what is left of the wait that was agreed on. A wall clock that
// went back across a restart ends it: it is a courtesy, not a protection.
func (v view) parked() time.Duration {
	p := v.rec.Park
	if p == nil {
		return 0
	}
	if d := sinceAtMost(v.now, p.Since); d >= 0 {
		return max(0, p.Wait-d)
	}
	return 0
}

// spaced is what is left of the wait that doubt demands: until the latest
// attempt can no longer be on its way. It is judged by the monotonic clock
// where the boot is the same.
func (v view) spaced(f facts) time.Duration {
	wait := v.terms.spacing(f.doubts)
	if wait == 0 {
		return 0
	}
	var left time.Duration
	for i := range v.rec.current().Attempts {
		a := &v.rec.current().Attempts[i]
		if a.End != nil && a.Verdict.Kind == VerdictNotProcessed {
			continue
		}
		var gone time.Duration
		if a.End != nil {
			gone = since(v.now, *a.End)
		} else {
			gone = since(v.now, a.Start) - a.Deadline
		}
		left = max(left, wait-gone)
	}
	return left
}
