package keyring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/samekey/samekey/internal/clock"
)

// maxRaces bounds how often an update is tried again because the record moved
// on meanwhile. Each round loses to a write that went through, so that many
// in a row mean that something else is wrong.
const maxRaces = 100

// Hold is the sole right to send an intent. It is given by [Ring.BeginHeld]
// and [Ring.Acquire], lasts for the lease, and is given back by the
// [Hold.Finish] that does not keep it, or by [Hold.Release]. The order is
// Start, send, Finish, for each attempt.
type Hold struct {
	ring *Ring
	id   string
	now  Current

	mu       sync.Mutex
	entry    entry
	attempt  int  // number of the attempt under way; 0: none
	prepared bool // that attempt's start is on record, its key not yet handed out
	unsent   int  // number of an attempt whose start may be on record, and whose key was not handed out
	over     bool // given back, or taken over
}

// Acquire takes the right to send an intent that is on record, under what holds
// now.
//
// It reports [ErrNotFound], [ErrDamaged], [ErrFinal], [ErrHeld] with the end
// of the other's lease in Error.Until, [ErrTooSoon] with the earliest moment
// in Error.Until, and [ErrNeedsInspection] where nothing may be sent again
// under this key. The hold of a sender that is known to be dead is taken over
// at once.
func (r *Ring) Acquire(ctx context.Context, ref Ref, now Current) (*Hold, error) {
	if err := checkIdentity(now.Identity); err != nil {
		return nil, wrap("acquire", ref, err)
	}
	for range maxRaces {
		e, err := r.load(ctx, "acquire", ref)
		if err != nil {
			return nil, err
		}
		h := &Hold{ring: r, now: now, entry: e}
		v, err := h.permitted(ctx, "acquire")
		if err != nil {
			r.keepClockDoubt(ctx, e, v)
			return nil, wrap("acquire", e.stored.Ref, err)
		}
		mark, err := r.hold(ctx, v.now)
		if err != nil {
			return nil, wrap("acquire", e.stored.Ref, err)
		}
		h.id = mark.ID
		h.entry, err = r.update(ctx, e, func(rec *record) { rec.Hold = mark })
		if err == nil {
			return h, nil
		}
		if !errors.Is(err, ErrStale) {
			return nil, wrap("acquire", e.stored.Ref, err)
		}
	}
	return nil, wrap("acquire", ref, ErrStale)
}

// Inspect is [Ring.Inspect] for whoever holds the intent: a look between two
// attempts, which nobody else can slip into.
func (h *Hold) Inspect(ctx context.Context, by Inspector) (Inspection, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ref := h.entry.stored.Ref
	switch {
	case h.over:
		return Inspection{}, wrap("inspect", ref, ErrHeld)
	case h.attempt != 0:
		return Inspection{}, wrap("inspect", ref, fmt.Errorf("%w: an attempt is under way under this hold; finish it first", ErrInvalid))
	}
	seen, err := h.ring.inspect(ctx, h.entry, by, h.id, &h.now.Terms)
	switch rerr := h.reload(ctx); {
	case rerr == nil:
		h.over = !h.ours() // somebody went on after our lease had ended
	case err == nil:
		err = rerr
	}
	return seen, wrap("inspect", ref, err)
}

// As names the credential in use from the next [Hold.Start] on, see
// [Current]. The attempt that [Ring.BeginHeld] has prepared keeps the one that
// it was recorded under. It reports [ErrInvalid] for a name that cannot be one.
func (h *Hold) As(identity string) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := checkIdentity(identity); err != nil {
		return wrap("start", h.entry.stored.Ref, err)
	}
	if !h.prepared {
		h.now.Identity = identity
	}
	return nil
}

// Intent returns what is known about the intent as this hold saw it last.
func (h *Hold) Intent(ctx context.Context) Intent {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ring.intent(ctx, h.entry, &h.now.Terms)
}

// Start records a new attempt and returns the key to send with it. It is the
// only way to the key for a sender, and returns after the record is durable,
// so that sending without recording has nothing to send.
//
// It reports [ErrTooSoon] with the earliest moment in Error.Until,
// [ErrNeedsInspection] where nothing may be sent again under this key,
// [ErrFinal], [ErrHeld] when the hold has been lost to another sender or was
// given back, [ErrInvalid] when an attempt is under way already, and the
// errors of the store.
func (h *Hold) Start(ctx context.Context) (Key, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key, err := h.start(ctx)
	return key, wrap("start", h.entry.stored.Ref, err)
}

func (h *Hold) start(ctx context.Context) (Key, error) {
	if h.over {
		return Key{}, ErrHeld
	}
	if err := h.ring.ready(ctx); err != nil {
		return Key{}, err
	}
	if h.prepared {
		h.prepared = false
		return Key{h.entry.rec.current().Key}, nil
	}
	if h.attempt != 0 {
		return Key{}, fmt.Errorf("%w: an attempt is under way under this hold; finish it first", ErrInvalid)
	}
	for range maxRaces {
		v, err := h.permitted(ctx, "start")
		if err != nil {
			return Key{}, err
		}
		mark := *h.entry.rec.Hold
		mark.Since = stampOf(v.now)
		if err := h.ring.stampByTimer(ctx, &mark); err != nil {
			return Key{}, err
		}
		number := h.entry.rec.lastNumber() + 1
		e, err := h.ring.update(ctx, h.entry, func(rec *record) {
			rec.Hold = &mark
			rec.Park = nil
			rec.startRound(v.now)
			g := rec.current()
			g.Attempts = append(g.Attempts, h.ring.attempt(number, &mark, v.now, h.now.Identity))
		})
		if err == nil {
			h.entry, h.attempt, h.unsent = e, number, 0
			return Key{e.rec.current().Key}, nil
		}
		if !errors.Is(err, ErrStale) {
			h.unsent = number
			return Key{}, err
		}
		if err := h.reload(ctx); err != nil {
			return Key{}, err
		}
		if !h.ours() {
			h.over = true
			return Key{}, ErrHeld
		}
	}
	return Key{}, ErrStale
}

// reload reads the record again after it has moved on.
func (h *Hold) reload(ctx context.Context) error {
	e, err := h.ring.load(ctx, "load", h.entry.stored.Ref)
	if err != nil {
		return err
	}
	if err := e.unusable(); err != nil {
		return err
	}
	h.entry = e
	return nil
}

// ours says whether the record names this hold.
func (h *Hold) ours() bool { return h.entry.rec.Hold != nil && h.entry.rec.Hold.ID == h.id }

// Left is how much time the attempt under way has before its deadline, by the
// wall and the monotonic clock, whichever says less. Once it is zero or less,
// nothing of the attempt may be written to the wire any more: ask immediately
// before the first byte. It is zero where no attempt is under way.
func (h *Hold) Left(ctx context.Context) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	a := h.slot(h.entry.rec)
	if a == nil {
		return 0
	}
	return a.Deadline - sinceAtMost(clock.Now(ctx), a.Start)
}

// slot finds the attempt under way in rec.
func (h *Hold) slot(rec *record) *attempt { return h.slotOf(rec, h.attempt) }

// slotOf finds an attempt of this hold by its number.
func (h *Hold) slotOf(rec *record, number int) *attempt {
	for gi := range rec.Generations {
		g := &rec.Generations[gi]
		for i := range g.Attempts {
			if a := &g.Attempts[i]; a.Number == number && a.Hold == h.id {
				return a
			}
		}
	}
	return nil
}

// After says what follows an attempt.
type After struct {
	// Keep keeps the hold for another attempt. Otherwise it is given back.
	Keep bool
	// Wait is how long nobody should send again, from now on; 0: no such wait.
	// It is bounded by 24 hours.
	Wait time.Duration
}

// MaxWait is the longest wait that is recorded with [After].
const MaxWait = 24 * time.Hour

// Finish records what the attempt under way told us, with the answer as the
// sender wants to have it back, and returns what is known now.
//
// A Finish that comes late, after the hold was taken over, still fills in its
// own attempt and leaves the other's hold alone. An intent that is done stays
// done whatever is recorded later, and keeps the answer that said so.
//
// It reports [ErrInvalid] when no attempt is under way, and the errors of the
// store; the attempt then counts as unclear until a later Finish succeeds.
func (h *Hold) Finish(ctx context.Context, v Verdict, answer []byte, after After) (Intent, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ref := h.entry.stored.Ref
	if h.attempt == 0 || h.prepared {
		return Intent{}, wrap("finish", ref, fmt.Errorf("%w: no attempt is under way", ErrInvalid))
	}
	if int(v.Kind) >= len(verdictNames) {
		v.Kind = VerdictUnclear
	}
	for range maxRaces {
		now := clock.Now(ctx)
		if h.slot(h.entry.rec) == nil { // its bytes were lost, and a person has closed it since
			return Intent{}, wrap("finish", ref, fmt.Errorf("%w: the attempt is not on record any more", ErrDamaged))
		}
		e, err := h.ring.update(ctx, h.entry, func(rec *record) { h.record(rec, now, v, answer, after) })
		if err == nil {
			h.entry, h.attempt = e, 0
			h.over = !after.Keep || !h.ours()
			return h.ring.intent(ctx, e, &h.now.Terms), nil
		}
		if !errors.Is(err, ErrStale) {
			return Intent{}, wrap("finish", ref, err)
		}
		if err := h.reload(ctx); err != nil {
			return Intent{}, wrap("finish", ref, err)
		}
	}
	return Intent{}, wrap("finish", ref, ErrStale)
}

// record fills in the attempt's slot, and what follows from it.
func (h *Hold) record(rec *record, now clock.Reading, v Verdict, answer []byte, after After) {
	a := h.slot(rec)
	if a == nil { // purged meanwhile, say: there is nothing left to fill in
		return
	}
	end := stampOf(now)
	a.End, a.Verdict = &end, storedVerdict(v)
	rec.takeAnswer(a, answer)
	if !v.Date.IsZero() && !v.Replayed {
		skew := now.Wall.Sub(v.Date)
		rec.ClockOff = skew > maxSkew || skew < -maxSkew
	}
	if rec.Hold == nil || rec.Hold.ID != h.id {
		return
	}
	rec.Park = nil
	if after.Wait > 0 {
		rec.Park = &park{Since: end, Wait: min(after.Wait, MaxWait)}
	}
	if !after.Keep {
		rec.Hold = nil
		if rec.Round != nil {
			rec.Round.Over = true
		}
	}
}

// takeAnswer keeps the answer that counts: the one that said that the effect
// exists, in full if there is one, else the latest.
func (rec *record) takeAnswer(a *attempt, answer []byte) {
	if answer == nil {
		return
	}
	var kept *attempt
	for gi := range rec.Generations {
		for i := range rec.Generations[gi].Attempts {
			if k := &rec.Generations[gi].Attempts[i]; k.Number == rec.AnswerOf && k.Number != a.Number {
				kept = k
			}
		}
	}
	if kept != nil && kept.Verdict.Kind == VerdictDone {
		better := a.Verdict.Kind == VerdictDone && kept.Verdict.Unreadable && !a.Verdict.Unreadable
		if !better {
			return
		}
	}
	rec.Answer, rec.AnswerOf = append([]byte{}, answer...), a.Number
}

// Release gives the hold back without another attempt. An attempt that was
// started and not finished counts as unclear from then on; the one that
// [Ring.BeginHeld] prepared, and whose key was never handed out, as not
// processed. It is harmless after the hold was given back or lost.
func (h *Hold) Release(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	for range maxRaces {
		if h.over {
			return nil
		}
		if !h.ours() {
			h.over = true
			return nil
		}
		now := clock.Now(ctx)
		e, err := h.ring.update(ctx, h.entry, func(rec *record) {
			rec.Hold = nil
			if rec.Round != nil {
				rec.Round.Over = true
			}
			a := h.slotOf(rec, h.attempt)
			if !h.prepared {
				a = h.slotOf(rec, h.unsent)
			}
			if a != nil && a.End == nil {
				end := stampOf(now)
				a.End, a.Verdict = &end, storedVerdict{Kind: VerdictNotProcessed, Why: "given up before it was sent"}
			}
		})
		if err == nil {
			h.entry, h.over = e, true
			return nil
		}
		if !errors.Is(err, ErrStale) {
			return wrap("release", h.entry.stored.Ref, err)
		}
		if err := h.reload(ctx); err != nil {
			return wrap("release", h.entry.stored.Ref, err)
		}
	}
	return wrap("release", h.entry.stored.Ref, ErrStale)
}
