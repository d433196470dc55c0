package keyring

import (
	"context"
	"fmt"
	"time"

	"github.com/samekey/samekey/internal/clock"
)

// permitted says whether another attempt may be started under this hold (one
// without an id is yet to be taken), and now.
func (h *Hold) permitted(ctx context.Context, op string) (view, error) {
	if err := h.entry.unusable(); err != nil {
		return view{}, err
	}
	v := h.ring.view(ctx, h.entry, &h.now.Terms)
	state, out := v.fold()
	f := v.facts()
	switch {
	case state.Final() && (h.id == "" || !v.mayStart(&out, f)):
		return v, ErrFinal
	case v.live && v.rec.Hold.ID != h.id:
		return v, &Error{Op: op, Ref: h.entry.stored.Ref, Until: v.heldUntil(), Err: ErrHeld}
	case state == StateSending:
		return v, fmt.Errorf("%w: an attempt is under way under this hold; finish it first", ErrInvalid)
	case !v.mayStart(&out, f):
		return v, ErrNeedsInspection
	}
	if a := v.rec.current().sentAs(h.now.Identity); a != nil {
		return v, fmt.Errorf("%w: attempt %d was sent as %s, not as %s", ErrNeedsInspection, a.Number, a.Identity, h.now.Identity)
	}
	if wait := v.wait(f); wait > 0 {
		return v, &Error{Op: op, Ref: h.entry.stored.Ref, Until: v.now.Wall.Add(wait), Err: fmt.Errorf("%w to send it again", ErrTooSoon)}
	}
	return v, nil
}

// sentAs finds an attempt in doubt that was sent under another identity.
func (g *generation) sentAs(identity string) *attempt {
	absent := g.absentAfter()
	for i := range g.Attempts {
		a := &g.Attempts[i]
		if a.Number <= absent && a.Verdict.Kind.doubt() || a.End != nil && a.Verdict.Kind == VerdictNotProcessed {
			continue
		}
		if identity != "" && a.Identity != "" && a.Identity != identity {
			return a
		}
	}
	return nil
}

// keepClockDoubt records that the clock was seen to have gone back, since it
// will not show any more once the clock has caught up. Failing to is no
// reason to report anything else than what is reported already.
func (r *Ring) keepClockDoubt(ctx context.Context, e entry, v view) {
	if e.unusable() == nil && v.trusted && e.rec.wentBack(v.now) && !e.rec.ClockOff {
		_, _ = r.update(ctx, e, func(*record) {}) // the write itself takes note; nothing depends on it here
	}
}

// Prospect is what a verdict would leave behind.
type Prospect struct {
	Outcome Outcome
	Again   bool          // another attempt under this key would be permitted
	Wait    time.Duration // which the rules about doubt demand before it; 0: none
}

// Preview says what finishing the attempt under way with v would leave behind.
// It changes nothing. Senders decide by it whether to keep the hold.
func (h *Hold) Preview(ctx context.Context, v Verdict) Prospect {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.entry.rec == nil || h.attempt == 0 {
		return Prospect{}
	}
	rec := h.entry.rec.clone()
	h.record(rec, clock.Now(ctx), v, nil, After{Keep: true})
	e := h.entry
	e.rec = rec
	view := h.ring.view(ctx, e, &h.now.Terms)
	_, out := view.fold()
	f := view.facts()
	return Prospect{Outcome: out, Again: view.mayStart(&out, f), Wait: view.spaced(f)}
}

// Round says how many attempts were started in the round under way, the latest
// included, and how long ago it began, by the monotonic clock where the boot is
// the same. A round ends with the [Hold.Finish] that does not keep the hold; one
// that a crash cut short goes on under the next hold.
func (h *Hold) Round(ctx context.Context) (attempts int, elapsed time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.entry.rec.Round
	if r == nil || r.Over {
		return 0, 0
	}
	return r.Attempts, max(0, since(clock.Now(ctx), r.Since))
}
