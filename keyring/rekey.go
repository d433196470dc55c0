package keyring

import (
	"context"
	"fmt"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/internal/clock"
)

// Rekey begins the next generation of an intent: a new key under the same ref,
// with the same request or another one. It sends nothing. Earlier generations
// stay on record, see [Ring.Generations]; should one of them turn out to have
// had its effect after all, the intent is Done, and Broken if the new one was
// sent.
//
// It needs an inspection of the intent as it is: one that found nothing, or
// something else, or the provider's refusal. It reports [ErrNeedsInspection]
// for one that found anything else, for a zero one, and, where the provider
// said that it was still working on it, for one that is not a person's;
// [ErrStale] when the intent has changed since; [ErrFinal] for one that is done
// or abandoned; [ErrHeld]; and what [Ring.Begin] reports for its draft.
func (r *Ring) Rekey(ctx context.Context, seen Inspection, d Draft) (Intent, error) {
	e, err := r.seen(ctx, "rekey", seen)
	if err != nil {
		return Intent{}, wrap("rekey", seen.ref, err)
	}
	next, err := r.rekey(ctx, e, seen, d)
	if err != nil {
		return Intent{}, wrap("rekey", seen.ref, err)
	}
	return r.intent(ctx, next, &d.Terms), nil
}

// seen loads the intent of an inspection, if it still is what was inspected.
func (r *Ring) seen(ctx context.Context, op string, seen Inspection) (entry, error) {
	if err := r.ready(ctx); err != nil {
		return entry{}, err
	}
	if seen.revision == 0 {
		return entry{}, fmt.Errorf("%w: this inspection is empty; only Inspect and Refusal give one", ErrNeedsInspection)
	}
	e, err := r.load(ctx, op, seen.ref)
	if err != nil {
		return entry{}, err
	}
	if e.stored.Revision != seen.revision {
		return entry{}, fmt.Errorf("%w: look again", ErrStale)
	}
	if err := e.unusable(); err != nil {
		return entry{}, err
	}
	if e.rec.current().Key != seen.key.String() {
		return entry{}, fmt.Errorf("%w: the inspection is of another keyring", ErrStale)
	}
	return e, nil
}

func (r *Ring) rekey(ctx context.Context, e entry, seen Inspection, d Draft) (entry, error) {
	v := r.view(ctx, e, nil)
	state, _ := v.fold()
	switch {
	case v.live:
		return entry{}, &Error{Op: "rekey", Ref: e.stored.Ref, Until: v.heldUntil(), Err: ErrHeld}
	case state == StateDone || state == StateAbandoned:
		return entry{}, ErrFinal
	case seen.refusal && state == StateRefused:
	case seen.finding.Kind != FindingAbsent && seen.finding.Kind != FindingOther:
		return entry{}, fmt.Errorf("%w: the look said %s, which permits no other key", ErrNeedsInspection, seen.finding.Kind)
	case !seen.attested && e.rec.current().wasPending():
		return entry{}, fmt.Errorf("%w: the provider said that it was still working on it; only a person can say that nothing came of it, see Attest", ErrNeedsInspection)
	}
	s, err := d.shape(canon.Latest)
	if err != nil {
		return entry{}, err
	}
	key := d.Key
	if key.IsZero() {
		if key, err = mint(); err != nil {
			return entry{}, err
		}
	}
	for _, g := range e.rec.Generations {
		if g.Key == key.String() {
			return entry{}, fmt.Errorf("%w: this ref had that key before", ErrInvalid)
		}
	}
	request, err := d.Contract.place(s.request, key)
	if err != nil {
		return entry{}, err
	}
	rec := e.rec.clone()
	rec.Generations = append(rec.Generations, newGeneration(rec.current().Number+1, key, request, d.Terms, s))
	rec.Hold, rec.Park, rec.Round = nil, nil, nil
	rec.Revision = e.stored.Revision + 1
	raw := rec.takeRequest(request)
	next, err := r.write(ctx, rec, raw, r.store.Update)
	next.request = request
	return next, err
}

// wasPending says whether the provider ever said, under this key, that it was
// still working.
func (g *generation) wasPending() bool {
	for _, a := range g.Attempts {
		if a.Verdict.Kind == VerdictPending {
			return true
		}
	}
	return false
}

// Abandon gives an intent up, for good: nothing is sent for it any more, and
// its ref stays taken. It needs an inspection of the intent as it is, whatever
// that said, and reports [ErrNeedsInspection] for a zero one, [ErrStale] when
// the intent has changed since, [ErrFinal] for one that is done or abandoned,
// and [ErrHeld].
func (r *Ring) Abandon(ctx context.Context, seen Inspection) (Intent, error) {
	e, err := r.seen(ctx, "abandon", seen)
	if err != nil {
		return Intent{}, wrap("abandon", seen.ref, err)
	}
	v := r.view(ctx, e, nil)
	switch state, _ := v.fold(); {
	case v.live:
		return Intent{}, &Error{Op: "abandon", Ref: seen.ref, Until: v.heldUntil(), Err: ErrHeld}
	case state == StateDone || state == StateAbandoned:
		return Intent{}, wrap("abandon", seen.ref, ErrFinal)
	}
	at := stampOf(clock.Now(ctx))
	next, err := r.update(ctx, e, func(rec *record) {
		rec.current().Abandoned = &at
		rec.Hold, rec.Park = nil, nil
	})
	if err != nil {
		return Intent{}, wrap("abandon", seen.ref, err)
	}
	return r.intent(ctx, next, nil), nil
}

// Generations returns one intent per key that ref has had, oldest first. The
// last one is what [Ring.Get] returns; of the earlier ones the request is not
// kept, only what it was sent as, what came of it, and how it is told apart
// from others. It reports [ErrNotFound], [ErrDamaged] and [ErrPurged].
func (r *Ring) Generations(ctx context.Context, ref Ref) ([]Intent, error) {
	e, err := r.load(ctx, "generations", ref)
	if err != nil {
		return nil, err
	}
	if err := e.unusable(); err != nil {
		return nil, wrap("generations", e.stored.Ref, err)
	}
	intents := make([]Intent, 0, len(e.rec.Generations))
	for n := 1; n < len(e.rec.Generations); n++ {
		old := e
		old.rec = e.rec.clone()
		old.rec.Generations = old.rec.Generations[:n]
		old.rec.Hold, old.rec.Park = nil, nil
		old.request = Request{Method: old.rec.current().Method}
		old.stored.Generation = old.rec.current().Number
		old.stored.Fingerprint = old.rec.current().fingerprint()
		intents = append(intents, r.intent(ctx, old, nil))
	}
	return append(intents, r.intent(ctx, e, nil)), nil
}
