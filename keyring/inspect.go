package keyring

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/samekey/samekey/internal/clock"
)

// FindingKind is what a look at the provider's side says. The zero value says
// nothing.
type FindingKind uint8

const (
	// FindingInconclusive means that the look could not tell.
	FindingInconclusive FindingKind = iota
	// FindingPresent means that the effect is there.
	FindingPresent
	// FindingAbsent means that there is no effect. It counts only if the look
	// began Terms.Settle after the last moment at which an attempt could have
	// left.
	FindingAbsent
	// FindingOther means that something else stands where the effect would be: a
	// release of that name with other content, say.
	FindingOther
)

var findingNames = [...]string{"inconclusive", "present", "absent", "other"}

// String returns the word used in logs, such as "absent". A kind that this
// version does not know reads as "inconclusive".
func (k FindingKind) String() string {
	if int(k) < len(findingNames) {
		return findingNames[k]
	}
	return findingNames[FindingInconclusive]
}

// Finding is what a look at the provider's side said. It is recorded: nothing
// secret belongs in it.
type Finding struct {
	Kind     FindingKind
	EffectID string // the provider's id of what was found; at most 256 bytes
	By       string // who or what looked; at most 256 bytes
	Evidence string // what was seen, for whoever reads it later; at most 1024 bytes
	// At is when it was seen; zero: when the look began. "Absent" seen before it
	// counts, does not count.
	At time.Time
}

// Inspector looks at the provider's side for the effect of an intent: by a list
// filtered by metadata, a GET of a name of our own, a hash. It must not change
// anything there. An error means that the look itself failed; nothing is
// recorded then. Where it cannot tell, it says FindingInconclusive. It must not
// call methods of the hold that it looks for.
//
// "Not found" has to be known of a place where the effect would show, in the
// account that was charged, and not merely of a search index that lags behind.
type Inspector interface {
	Inspect(ctx context.Context, in Intent) (Finding, error)
}

// InspectorFunc is a function that is an [Inspector].
type InspectorFunc func(ctx context.Context, in Intent) (Finding, error)

// Inspect calls f.
func (f InspectorFunc) Inspect(ctx context.Context, in Intent) (Finding, error) { return f(ctx, in) }

// Attest returns an inspector for what a person saw. A person's word counts
// where a program's does not: after the provider said that it was still
// working, and for a damaged record. It waits for Terms.Settle like any other.
func Attest(f Finding) Inspector { return attested{f} }

type attested struct{ f Finding }

func (a attested) Inspect(context.Context, Intent) (Finding, error) { return a.f, nil }

// Inspection is the permission for one change that needs a look before it:
// [Ring.Rekey] or [Ring.Abandon]. Only [Ring.Inspect] and [Ring.Refusal] give
// one. It is void as soon as the intent changes in any way. The zero
// Inspection permits nothing.
type Inspection struct {
	ref      Ref
	key      Key // another keyring may have the same ref at the same revision
	revision uint64
	finding  Finding
	attested bool
	refusal  bool
	intent   Intent
}

// Finding returns what the look said; the zero Finding for one by
// [Ring.Refusal].
func (i Inspection) Finding() Finding { return i.finding }

// Intent returns what is known with the look taken into account.
func (i Inspection) Intent() Intent { return i.intent }

// Inspect asks by for a look at the provider's side and records what it says,
// durably. The outcome follows from it: "present" makes the intent Done,
// "other" Refused, and "absent" lifts the doubt about earlier attempts, so that
// the intent may be sent once more under its key, or get another one.
//
// It reports [ErrHeld] while somebody is sending the intent, [ErrFinal] for one
// that is done without open questions, [ErrTooSoon] with the earliest moment
// for a new look in Error.Until where "absent" does not count yet, [ErrStale]
// where the intent changed during the look (look again), [ErrDamaged] for a
// damaged record unless by is an [Attest], [ErrPurged], and what the inspector
// reports.
func (r *Ring) Inspect(ctx context.Context, ref Ref, by Inspector) (Inspection, error) {
	return r.InspectUnder(ctx, ref, by, nil)
}

// InspectUnder is [Ring.Inspect] under the terms that hold now, as terms gives
// them for the intent: of those and the stored ones the stricter say when
// "absent" counts. Nil means the stored ones alone.
func (r *Ring) InspectUnder(ctx context.Context, ref Ref, by Inspector, terms func(Intent) Terms) (Inspection, error) {
	e, err := r.load(ctx, "inspect", ref)
	if err != nil {
		return Inspection{}, err
	}
	var now *Terms
	if terms != nil && e.unusable() == nil {
		t := terms(r.intent(ctx, e, nil))
		now = &t
	}
	seen, err := r.inspect(ctx, e, by, "", now)
	return seen, wrap("inspect", e.stored.Ref, err)
}

// inspect is a look by whoever has the hold of that id, or by anybody while
// nobody has one.
func (r *Ring) inspect(ctx context.Context, e entry, by Inspector, hold string, now *Terms) (Inspection, error) {
	person, isPerson := by.(attested)
	switch {
	case by == nil:
		return Inspection{}, fmt.Errorf("%w: the inspector is nil", ErrInvalid)
	case e.tomb != nil:
		return Inspection{}, ErrPurged
	case e.damage != nil && isPerson:
		return r.closeDamaged(ctx, e, person.f)
	case e.damage != nil:
		return Inspection{}, fmt.Errorf("%w: %w", ErrDamaged, e.damage)
	}
	v := r.view(ctx, e, now)
	state, out := v.fold()
	switch {
	case v.live && e.rec.Hold.ID != hold:
		return Inspection{}, &Error{Op: "inspect", Ref: e.stored.Ref, Until: v.heldUntil(), Err: ErrHeld}
	case state == StateDone && !out.NeedsInspection:
		return Inspection{}, ErrFinal
	}
	f, err := by.Inspect(ctx, e.intent(v))
	if err != nil {
		return Inspection{}, fmt.Errorf("the look failed: %w", err)
	}
	if f, err = f.checked(v.now.Wall); err != nil {
		return Inspection{}, err
	}
	var until time.Duration
	if f.Kind == FindingAbsent {
		until = v.unsettled(r.clockTrusted(), v.now.Wall.Sub(f.At))
	}
	stored := finding{
		Kind: f.Kind, EffectID: f.EffectID, By: f.By, Evidence: f.Evidence, Said: f.At,
		At: stampOf(v.now), After: e.rec.lastNumber(), Attested: isPerson,
	}
	if until > 0 {
		stored.Kind, stored.TooSoon = FindingInconclusive, true
	}
	// The record must still be the one that was read before the look began.
	next, err := r.update(ctx, e, func(rec *record) {
		rec.current().addFinding(stored)
		if stored.Kind == FindingAbsent {
			rec.Park = nil // the wait was about an attempt that came to nothing
		}
	})
	if err != nil {
		return Inspection{}, err
	}
	if until > 0 {
		return Inspection{}, &Error{Op: "inspect", Ref: e.stored.Ref, Until: v.now.Wall.Add(until), Err: fmt.Errorf("%w to count as absent", ErrTooSoon)}
	}
	return Inspection{
		ref: e.stored.Ref, key: Key{next.rec.current().Key}, revision: next.stored.Revision, finding: f, attested: isPerson, intent: r.intent(ctx, next, nil),
	}, nil
}

// maxFindings bounds the findings that said nothing, of which a program that
// looks too often makes many. Those that count are all kept, and the first of
// each boot, which the settle time can be counted from.
const maxFindings = 20

func (g *generation) addFinding(f finding) {
	g.Findings = append(g.Findings, f)
	if len(g.Findings) <= maxFindings {
		return
	}
	for i := 1; i < len(g.Findings); i++ {
		if g.Findings[i].Kind == FindingInconclusive && g.Findings[i].At.Boot == g.Findings[i-1].At.Boot {
			g.Findings = append(g.Findings[:i:i], g.Findings[i+1:]...)
			return
		}
	}
}

// lifted says whether a look that found nothing lifts the doubt about an
// attempt. After the provider said that it was still working, a program's look
// does so only where a repeat is protected; and what was told after a look is
// not lifted by it.
func (g *generation) lifted(a *attempt, protected bool) bool {
	for i := range g.Findings {
		f := &g.Findings[i]
		switch {
		case f.Kind != FindingAbsent || f.After < a.Number:
		case a.Verdict.Kind != VerdictPending:
			return true
		case (f.Attested || protected) && (a.End == nil || !a.End.after(f.At)):
			return true
		}
	}
	return false
}

// absentAfter is the number of the last attempt whose doubt is lifted by a look
// that found nothing; 0: none.
func (g *generation) absentAfter() int {
	last := 0
	for i := range g.Findings {
		if f := &g.Findings[i]; f.Kind == FindingAbsent {
			last = max(last, f.After)
		}
	}
	return last
}

// checked bounds what is recorded of a finding.
func (f Finding) checked(now time.Time) (Finding, error) {
	if int(f.Kind) >= len(findingNames) {
		f.Kind = FindingInconclusive
	}
	for _, s := range []struct {
		name string
		text string
		most int
	}{{"EffectID", f.EffectID, 256}, {"By", f.By, 256}, {"Evidence", f.Evidence, 1024}} {
		if len(s.text) > s.most || strings.ContainsFunc(s.text, func(c rune) bool { return unicode.IsControl(c) || c == unicode.ReplacementChar }) {
			return f, fmt.Errorf("%w: the finding's %s has more than %d bytes, a control character or invalid UTF-8", ErrInvalid, s.name, s.most)
		}
	}
	if f.At.IsZero() {
		f.At = now
	}
	f.At = f.At.Round(0).UTC()
	if y := f.At.Year(); y < 1970 || y > 9999 { // a null date of some list, say
		return f, fmt.Errorf("%w: the finding's At is in the year %d; leave it zero for now", ErrInvalid, y)
	}
	return f, nil
}

func (f *finding) finding() Finding {
	return Finding{Kind: f.Kind, EffectID: f.EffectID, By: f.By, Evidence: f.Evidence, At: f.Said}
}

// unsettled is how long it takes until "not found" counts: Terms.Settle after
// the last moment at which any attempt of the generation could have left. Where
// the clock that would have to tell cannot be believed, it is counted from the
// first look in this boot that came after the attempt: too soon as that was, it
// is the earliest moment that we are sure of. What was seen before the look
// began, ago, counts from then.
func (v view) unsettled(trusted bool, ago time.Duration) time.Duration {
	// No sum of these overflows; what counts only after fifty years, never does.
	const most = 50 * 365 * 24 * time.Hour
	settle := min(cmpOr(v.terms.Settle, defaultSettle), most)
	ago = min(max(0, ago), most)
	var left time.Duration
	for i := range v.rec.current().Attempts {
		a := &v.rec.current().Attempts[i]
		last, grace := a.Start, a.Deadline
		if a.End != nil {
			if a.Verdict.Kind == VerdictNotProcessed {
				continue
			}
			last, grace = *a.End, 0
		}
		gone := since(v.now, last)
		if v.now.Boot != last.Boot && (!trusted || v.rec.ClockOff || v.rec.wentBack(v.now)) {
			gone = v.sinceLook(a.Number)
		}
		left = max(left, settle+min(grace, most)-min(max(-most, gone), most)+ago)
	}
	return left
}

// sinceLook is how long ago the first look in this boot was that began when the
// attempt of that number was on record; 0: there was none.
func (v view) sinceLook(number int) time.Duration {
	var d time.Duration
	for i := range v.rec.current().Findings {
		if f := &v.rec.current().Findings[i]; f.At.Boot == v.now.Boot && f.After >= number {
			d = max(d, v.now.Mono-f.At.Mono)
		}
	}
	return d
}

// Refusal gives the permission that the provider's own final refusal is: to
// correct the request under the same ref, with another key. Where the provider
// did not refuse, it reports [ErrFinal] for what is done or abandoned,
// [ErrInvalid] for what was never sent or is under way, and
// [ErrNeedsInspection] for the rest. What a look found is no refusal, and
// permits what its own [Inspection] does.
func (r *Ring) Refusal(ctx context.Context, ref Ref) (Inspection, error) {
	e, err := r.load(ctx, "refusal", ref)
	if err != nil {
		return Inspection{}, err
	}
	if err := e.unusable(); err != nil {
		return Inspection{}, wrap("refusal", e.stored.Ref, err)
	}
	in := r.intent(ctx, e, nil)
	switch {
	case in.State == StateRefused && in.outcome.Source == SourceProvider:
	case in.State == StateDone, in.State == StateAbandoned:
		return Inspection{}, wrap("refusal", e.stored.Ref, fmt.Errorf("%w: it was not refused, it is %s", ErrFinal, in.State))
	case in.State == StateNeverSent, in.State == StateSending:
		return Inspection{}, wrap("refusal", e.stored.Ref, fmt.Errorf("%w: it was not refused, it is %s", ErrInvalid, in.State))
	default:
		return Inspection{}, wrap("refusal", e.stored.Ref, fmt.Errorf("%w: the provider did not refuse it, it is %s", ErrNeedsInspection, in.State))
	}
	return Inspection{ref: e.stored.Ref, key: in.Key, revision: e.stored.Revision, refusal: true, intent: in}, nil
}

// unusable says why nothing can be done with an entry.
func (e entry) unusable() error {
	switch {
	case e.damage != nil:
		return fmt.Errorf("%w: %w", ErrDamaged, e.damage)
	case e.tomb != nil:
		return ErrPurged
	}
	return nil
}

// closeDamaged replaces a damaged record by what a person says about it. Only
// the fingerprint is left of its request; nothing is ever sent for it.
func (r *Ring) closeDamaged(ctx context.Context, e entry, f Finding) (Inspection, error) {
	now := clock.Now(ctx)
	f, err := f.checked(now.Wall)
	if err != nil {
		return Inspection{}, err
	}
	if f.Kind == FindingInconclusive {
		return Inspection{}, fmt.Errorf("%w: to close a damaged record, say whether the effect is present, absent or another", ErrInvalid)
	}
	if e.rec != nil { // its request alone is damaged: it may be under way, or have been a moment ago
		v := r.view(ctx, e, nil)
		if v.live {
			return Inspection{}, &Error{Op: "inspect", Ref: e.stored.Ref, Until: v.heldUntil(), Err: ErrHeld}
		}
		if until := v.unsettled(r.clockTrusted(), v.now.Wall.Sub(f.At)); f.Kind == FindingAbsent && until > 0 {
			return Inspection{}, &Error{Op: "inspect", Ref: e.stored.Ref, Until: v.now.Wall.Add(until), Err: fmt.Errorf("%w to count as absent", ErrTooSoon)}
		}
	}
	rec := &record{Ref: e.stored.Ref, Begun: stampOf(now), Last: stampOf(now)}
	if e.rec != nil {
		rec = e.rec.clone()
	} else {
		rec.Generations = []generation{{Number: max(e.stored.Generation, 1)}}
	}
	g := rec.current()
	at := stampOf(now)
	if f.Kind == FindingAbsent { // there is no request left to send
		g.Abandoned = &at
	}
	g.Findings = append(g.Findings, finding{
		Kind: f.Kind, EffectID: f.EffectID, By: f.By, Evidence: f.Evidence, Said: f.At, At: at, After: rec.lastNumber(), Attested: true,
	})
	g.Fixed, g.Parts, g.RequestSum = e.stored.Fingerprint.Bytes(), nil, nil
	rec.Hold, rec.Park = nil, nil
	rec.Revision = e.stored.Revision + 1
	next, err := r.write(ctx, rec, []byte{}, r.store.Update)
	if err != nil {
		return Inspection{}, err
	}
	return Inspection{
		ref: e.stored.Ref, key: Key{next.rec.current().Key}, revision: next.stored.Revision, finding: f, attested: true, intent: r.intent(ctx, next, nil),
	}, nil
}
