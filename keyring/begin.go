package keyring

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/internal/clock"
)

// Begin records an intent: ref, key, request and terms, durable when it
// returns. It sends nothing, and copies what it is given.
//
// Where ref is on record already, the intent on record is returned if d asks
// for the same, whatever its state; otherwise nothing changes and the error
// is [ErrDiffers] with the differing places in Error.Fields. A ref without a
// name is a new intent each time, under a name of its own.
//
// It reports [ErrInvalid] for a ref, request, terms or key that cannot be
// used, [ErrDamaged] where the record is damaged, [ErrFull] where a limit is
// reached, and the errors of the store. Nothing was stored then, unless the
// store's own error leaves that open; the same call finds out.
func (r *Ring) Begin(ctx context.Context, ref Ref, d Draft) (Intent, error) {
	e, _, err := r.begin(ctx, ref, d, false)
	if err != nil {
		return Intent{}, wrap("begin", ref, err)
	}
	return r.intent(ctx, e, &d.Terms), nil
}

// BeginHeld is [Ring.Begin] for a sender: a new intent is recorded together
// with the hold and the start of its first attempt, in one durable write. The
// first [Hold.Start] then returns the key without writing again.
//
// The hold is nil where the intent was on record already; look at its state,
// then at [Ring.Acquire].
func (r *Ring) BeginHeld(ctx context.Context, ref Ref, d Draft) (Intent, *Hold, error) {
	e, created, err := r.begin(ctx, ref, d, true)
	if err != nil {
		return Intent{}, nil, wrap("begin", ref, err)
	}
	in := r.intent(ctx, e, &d.Terms)
	if !created {
		return in, nil, nil
	}
	now := Current{Terms: d.Terms, Identity: e.rec.current().Attempts[0].Identity}
	return in, &Hold{ring: r, entry: e, id: e.rec.Hold.ID, now: now, attempt: 1, prepared: true}, nil
}

// begin finds or makes the record. created says which.
func (r *Ring) begin(ctx context.Context, ref Ref, d Draft, held bool) (e entry, created bool, err error) {
	if err := r.ready(ctx); err != nil {
		return entry{}, false, err
	}
	normal, err := ref.Normal()
	if err != nil {
		return entry{}, false, err
	}
	s, err := d.shape(canon.Latest)
	if err != nil {
		return entry{}, false, err
	}
	if normal.Name == "" {
		normal.Name = uuid.NewString()
	}
	for {
		e, err := r.match(ctx, normal, d, s)
		if !errors.Is(err, ErrNotFound) {
			return e, err == nil && held && r.lostBegin(e), err
		}
		e, err = r.make(ctx, normal, d, s, held)
		if !errors.Is(err, ErrExists) {
			return e, err == nil, err
		}
		// Somebody else began it between the two steps: theirs counts.
		if err := ctx.Err(); err != nil {
			return entry{}, false, err
		}
	}
}

// match returns the record of ref if d asks for the same.
func (r *Ring) match(ctx context.Context, ref Ref, d Draft, s shape) (entry, error) {
	stored, err := r.store.Load(ctx, ref)
	if err != nil {
		return entry{}, err
	}
	e := readEntry(stored)
	if e.damage != nil {
		return entry{}, fmt.Errorf("%w: %w", ErrDamaged, e.damage)
	}
	if e.rec == nil || len(e.rec.current().Fixed) > 0 { // no more than the fingerprint is left
		return e, d.matchFingerprint(ref, s, e.stored.Fingerprint)
	}
	g := e.rec.current()
	if s.fingerprint.form != g.Form { // an older record is compared by its own form
		if s, err = d.shape(g.Form); err != nil {
			return entry{}, err
		}
	}
	fields := canon.Differences(g.canonParts(), s.parts)
	if !d.Key.IsZero() && d.Key.String() != g.Key {
		fields = append(fields, "key")
	}
	if len(fields) > 0 {
		return entry{}, &Error{Op: "begin", Ref: ref, Fields: fields, Err: ErrDiffers}
	}
	return e, nil
}

// matchFingerprint compares with a record of which the parts are gone.
func (d Draft) matchFingerprint(ref Ref, s shape, want Fingerprint) error {
	if s.fingerprint.form != want.form {
		var err error
		if s, err = d.shape(want.form); err != nil {
			return err
		}
	}
	if s.fingerprint != want {
		return &Error{Op: "begin", Ref: ref, Fields: []string{"request"}, Err: ErrDiffers}
	}
	return nil
}

// make mints the key, places it and stores the new record.
func (r *Ring) make(ctx context.Context, ref Ref, d Draft, s shape, held bool) (entry, error) {
	key := d.Key
	if key.IsZero() {
		var err error
		if key, err = mint(); err != nil {
			return entry{}, err
		}
	}
	request, err := d.Contract.place(s.request, key)
	if err != nil {
		return entry{}, err
	}
	now := clock.Now(ctx)
	rec := &record{
		Ref:         ref,
		Begun:       stampOf(now),
		Last:        stampOf(now),
		Generations: []generation{newGeneration(1, key, request, d.Terms, s)},
	}
	if held {
		if rec.Hold, err = r.hold(ctx, now); err != nil {
			return entry{}, err
		}
		rec.current().Attempts = []attempt{r.attempt(1, rec.Hold, now, d.Identity)}
		rec.startRound(now)
	}
	e, err := r.create(ctx, rec, request)
	switch {
	case errors.Is(err, ErrFull):
		return e, r.full(ctx, ref, err)
	case err != nil && held && !errors.Is(err, ErrExists):
		r.lost.Store(rec.Hold.ID, struct{}{})
	}
	return e, err
}

// lostBegin says whether the hold on record is one of this ring's own whose
// record was reported as failed, and so was never used. It says so once.
func (r *Ring) lostBegin(e entry) bool {
	if e.rec == nil || e.rec.Hold == nil {
		return false
	}
	_, ok := r.lost.LoadAndDelete(e.rec.Hold.ID)
	return ok
}

// full says what a full keyring is full of: how many are open in all, and which
// of the same scope are open for longest.
func (r *Ring) full(ctx context.Context, ref Ref, cause error) error {
	const most = 5
	out := &Error{Op: "begin", Ref: ref, Err: cause}
	var oldest []Intent
	for stored, err := range r.store.Scan(ctx, Query{AllScopes: true, OpenOnly: true}) {
		if err != nil {
			break // the cause stands, with less detail
		}
		out.Open++
		if stored.Ref.Scope != ref.Scope {
			continue
		}
		in := Intent{Ref: stored.Ref}
		if e := readEntry(stored); e.rec != nil {
			in.Begun = e.rec.Begun.Wall
		}
		oldest = append(oldest, in)
		if len(oldest) > 100 {
			oldest = firstBegun(oldest, most)
		}
	}
	for _, in := range firstBegun(oldest, most) {
		out.Oldest = append(out.Oldest, in.Ref)
	}
	return out
}

// firstBegun returns the n intents that were begun first, in that order.
func firstBegun(intents []Intent, n int) []Intent {
	slices.SortFunc(intents, func(a, b Intent) int { return a.Begun.Compare(b.Begun) })
	return intents[:min(n, len(intents))]
}

func newGeneration(number int, key Key, request Request, terms Terms, s shape) generation {
	return generation{
		Number: number,
		Key:    key.String(),
		Form:   s.fingerprint.form,
		Parts:  storedParts(s.parts),
		Method: request.Method,
		Needs:  s.needs,
		Terms:  storedTerms(terms),
	}
}

// attempt is the start of an attempt under hold h.
func (r *Ring) attempt(number int, h *holdMark, now clock.Reading, identity string) attempt {
	return attempt{Number: number, Hold: h.ID, Owner: h.Owner, Identity: identity, Start: stampOf(now), Deadline: r.opts.AttemptTimeout}
}
