package client

import (
	"context"
	"time"

	"github.com/samekey/samekey/internal/clock"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/retry"
)

// Event is what a hook is told: never a body, a query value or a credential.
// Fields that do not apply are zero.
type Event struct {
	Ref         keyring.Ref
	Key         keyring.Key
	Generation  int
	Fingerprint keyring.Fingerprint
	State       keyring.State
	Attempt     int             // number of the attempt concerned
	Verdict     keyring.Verdict // Answer: what the attempt told us
	Outcome     keyring.Outcome // Final and NeedsInspection: what is known
	Until       time.Time       // Waiting: when the next attempt is due
	Reason      string          // Waiting: why
}

// Hooks are functions that are told what happens to intents, in the goroutine
// of the call and in its context. Nil ones are left out. They must return
// soon: a call waits for them. A hook that panics ends its call like any panic;
// what was recorded before stays.
type Hooks struct {
	// Begun: the intent is on record; nothing of it was sent yet.
	Begun func(context.Context, Event)
	// Attempt: an attempt is on record and about to be sent.
	Attempt func(context.Context, Event)
	// Answer: what came of an attempt is on record, whether or not there was an
	// answer.
	Answer func(context.Context, Event)
	// Waiting: another attempt is due at Event.Until, in this call or a later
	// one.
	Waiting func(context.Context, Event)
	// Final: a call ends, and the intent is final.
	Final func(context.Context, Event)
	// NeedsInspection: a call ends, and only a look at the provider's side helps.
	NeedsInspection func(context.Context, Event)
}

func event(in keyring.Intent) Event {
	return Event{Ref: in.Ref, Key: in.Key, Generation: in.Generation, Fingerprint: in.Fingerprint, State: in.State}
}

func call1(ctx context.Context, hook func(context.Context, Event), e Event) {
	if hook != nil {
		hook(ctx, e)
	}
}

func (c *Client) tellBegun(ctx context.Context, in keyring.Intent) {
	c.logBegun(ctx, in)
	call1(ctx, c.opts.Hooks.Begun, event(in))
}

func (c *Client) tellAttempt(ctx context.Context, h *keyring.Hold) {
	if c.opts.Hooks.Attempt == nil { // an intent is a copy, body and all
		return
	}
	in := h.Intent(ctx)
	e := event(in)
	e.Attempt = lastAttempt(in)
	call1(ctx, c.opts.Hooks.Attempt, e)
}

func (c *Client) tellAnswer(ctx context.Context, in keyring.Intent, v keyring.Verdict, d retry.Decision) {
	c.logAttempt(ctx, in, v, d)
	e := event(in)
	e.Attempt, e.Verdict = lastAttempt(in), v
	call1(ctx, c.opts.Hooks.Answer, e)
	if in.State != keyring.StateDone && !in.NotBefore.IsZero() || d.Action == retry.Sleep {
		e.Until, e.Reason = in.NotBefore, d.Reason
		if e.Until.IsZero() {
			e.Until = clock.Now(ctx).Wall // at once
		}
		call1(ctx, c.opts.Hooks.Waiting, e)
	}
}

func (c *Client) tellOutcome(ctx context.Context, in keyring.Intent, out keyring.Outcome, cause error) {
	c.logOutcome(ctx, in, out, cause)
	e := event(in)
	e.Attempt, e.Outcome = lastAttempt(in), out
	switch {
	case out.NeedsInspection:
		call1(ctx, c.opts.Hooks.NeedsInspection, e)
	case in.Final():
		call1(ctx, c.opts.Hooks.Final, e)
	}
}

func lastAttempt(in keyring.Intent) int {
	if n := len(in.Attempts); n > 0 {
		return in.Attempts[n-1].Number
	}
	return 0
}
