package retry

import "time"

// Policy says when another attempt is due. Next must be pure: the same
// Progress gives the same Decision, in every process and at every time. It may
// be called from many goroutines.
type Policy interface {
	Next(p Progress) Decision
}

// Progress is what a [Policy] decides by. A round begins with the first
// sending after the moment to come back that an earlier round left behind.
type Progress struct {
	// Attempts is how many attempts were made in this round. Zero or less: none
	// yet, and the question is when the first one is due.
	Attempts int
	// Total is how many attempts were made for the intent in all rounds.
	Total int
	// Elapsed is the time since the round began.
	Elapsed time.Duration
	// RetryAfter is the wait that the provider asked for. Zero: it asked for none.
	RetryAfter time.Duration
	// NotSooner is the wait that the rules of doubt demand, counted from now: an
	// earlier attempt may still be on its way. Zero: none. No policy may go
	// below it.
	NotSooner time.Duration
	// Left is the time until the context's deadline. Zero: there is none.
	// Negative: it is over.
	Left time.Duration
	// Key is the idempotency key. It spreads the waits of different intents, and
	// repeats them for the same one.
	Key string
}

// Action is what to do next.
type Action uint8

const (
	// Stop ends the round: no more attempts until somebody asks again. It is
	// zero on purpose: a forgotten decision sends nothing.
	Stop Action = iota
	// Sleep means to wait here, for Decision.Wait, and then to attempt again.
	Sleep
	// Defer means that another attempt is due, but later than it is worth
	// waiting here: note the moment and come back.
	Defer
)

// String returns "stop", "sleep" or "defer". An action that this version does
// not know reads as "stop".
func (a Action) String() string {
	switch a {
	case Sleep:
		return "sleep"
	case Defer:
		return "defer"
	case Stop:
	}
	return "stop"
}

// Decision is what a [Policy] says.
type Decision struct {
	Action Action
	// Wait is how long to sleep; for Stop and Defer it is how long from now the
	// earliest useful moment to come back lies. It is never negative.
	Wait time.Duration
	// Reason is one phrase for logs and errors.
	Reason string
}

// Never is the policy of a single attempt per round.
type Never struct{}

// Next permits the first attempt of a round and none after it. The wait of its
// Stop is what the provider (at most [MaxDefer]) and the rules of doubt ask
// for, and zero if neither does.
func (Never) Next(p Progress) Decision {
	wait := demanded(p)
	if p.Attempts > 0 {
		return Decision{Action: Stop, Wait: wait, Reason: "one attempt made, the policy allows no other"}
	}
	return first(wait, 0, p)
}

// MaxDefer is the farthest that a provider's wish is followed: 24 hours. A
// longer one is taken for a mistake, and asking once a day harms nobody.
const MaxDefer = 24 * time.Hour

// demanded is the wait that others than the policy ask for. The provider's
// wish has an upper limit; what the rules of doubt demand has none, since going
// below it may make a second effect.
func demanded(p Progress) time.Duration {
	return max(0, min(p.RetryAfter, MaxDefer), p.NotSooner)
}

// first decides about the first attempt of a round. maxWait zero: nothing is
// slept through.
func first(wait, maxWait time.Duration, p Progress) Decision {
	switch {
	case p.Left < 0:
		return Decision{Action: Defer, Wait: wait, Reason: "the context's time is over"}
	case wait == 0:
		return Decision{Action: Sleep, Reason: "the first attempt is due"}
	case wait > maxWait:
		return Decision{Action: Defer, Wait: wait, Reason: "the first attempt is due later than is worth waiting"}
	case tooLong(wait, p.Left):
		return Decision{Action: Defer, Wait: wait, Reason: "the wait does not fit the context's deadline"}
	}
	return Decision{Action: Sleep, Wait: wait, Reason: "the first attempt is due after this wait"}
}

// tooLong says whether a wait leaves nothing of the time until the deadline.
func tooLong(wait, left time.Duration) bool {
	return left != 0 && wait >= left
}
