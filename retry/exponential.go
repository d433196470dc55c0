package retry

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v4"
)

// ErrInvalid is what the errors of this package match: a policy's fields do
// not go together. The text says what to change.
var ErrInvalid = errors.New("invalid retry policy")

// What the fields of [Exponential] mean when they are zero. The waits add up
// to less than a minute, within which most restarts and failovers are over,
// and stay below the timeouts of programs that a person waits for.
const (
	defaultMinWait     = time.Second
	defaultMaxWait     = 30 * time.Second
	defaultMaxAttempts = 5
	defaultBudget      = 2 * time.Minute
)

// Exponential waits longer after each attempt. Its zero value is the default
// policy. A negative field counts as zero in [Exponential.Next] and is reported
// by [Exponential.Err].
//
// The interval after attempt n of a round is Base doubled n-1 times, at most
// MaxWait. The wait lies between half of the interval and all of it, at a point
// that follows from the key and the number of the attempt: clients that failed
// together do not come back together, and the same question has the same
// answer.
type Exponential struct {
	// MinWait is the shortest wait between two attempts, whatever the provider
	// wishes. Zero means 1 second.
	MinWait time.Duration
	// MaxWait is the longest wait that is slept through; what is due later is
	// deferred. Zero means 30 seconds, or MinWait if that is longer.
	MaxWait time.Duration
	// Base is the first interval. Zero means twice MinWait, so that the first
	// waits are spread too. It is at most MaxWait.
	Base time.Duration
	// MaxAttempts is the number of attempts in one round. Zero means 5.
	MaxAttempts int
	// Budget is the time that a round may take, up to the start of its last
	// attempt. Zero means 2 minutes.
	Budget time.Duration
}

// Err reports [ErrInvalid] for fields that are negative or contradict each
// other. [Exponential.Next] copes with those too, by taking defaults and the
// longer of two waits, but not in the way that was meant.
func (e Exponential) Err() error {
	for _, f := range []struct {
		name string
		neg  bool
	}{
		{"MinWait", e.MinWait < 0},
		{"MaxWait", e.MaxWait < 0},
		{"Base", e.Base < 0},
		{"MaxAttempts", e.MaxAttempts < 0},
		{"Budget", e.Budget < 0},
	} {
		if f.neg {
			return fmt.Errorf("%w: %s is negative; leave it zero for the default", ErrInvalid, f.name)
		}
	}
	minWait := orDefault(e.MinWait, defaultMinWait)
	maxWait := orDefault(e.MaxWait, max(defaultMaxWait, minWait))
	switch {
	case minWait > maxWait:
		return fmt.Errorf("%w: MinWait %v is longer than MaxWait %v", ErrInvalid, minWait, maxWait)
	case maxWait > MaxDefer:
		return fmt.Errorf("%w: MaxWait %v is longer than %v; come back instead of sleeping", ErrInvalid, maxWait, MaxDefer)
	case minWait > orDefault(e.Budget, defaultBudget):
		return fmt.Errorf("%w: MinWait %v is longer than the Budget, so that no second attempt is ever made; see Never", ErrInvalid, minWait)
	case e.Base > maxWait:
		return fmt.Errorf("%w: Base %v is longer than MaxWait %v", ErrInvalid, e.Base, maxWait)
	}
	return nil
}

// normal returns e with all fields set, positive and in order.
func (e Exponential) normal() Exponential {
	e.MinWait = min(orDefault(e.MinWait, defaultMinWait), MaxDefer)
	e.MaxWait = min(max(orDefault(e.MaxWait, defaultMaxWait), e.MinWait), MaxDefer)
	e.Base = min(orDefault(e.Base, 2*e.MinWait), e.MaxWait)
	e.MaxAttempts = orDefault(e.MaxAttempts, defaultMaxAttempts)
	e.Budget = orDefault(e.Budget, defaultBudget)
	return e
}

// orDefault returns v, or def if v is not positive.
func orDefault[T int | time.Duration](v, def T) T {
	if v > 0 {
		return v
	}
	return def
}

// Next decides by p alone. In this order: the attempts of the round are used
// up (Stop); the wait is longer than MaxWait (Defer); it would end after the
// budget (Stop); it does not fit the context's deadline (Defer); otherwise
// Sleep.
//
// A provider's wish is a lower limit for the wait, as are MinWait and
// Progress.NotSooner. A wish shorter than MinWait is therefore lengthened, one
// longer than MaxWait deferred, by at most [MaxDefer]. The wait of a Stop is
// that of the attempt which is not made, so that asking again at once does not
// undo the limit.
func (e Exponential) Next(p Progress) Decision {
	e = e.normal()
	if p.Attempts <= 0 {
		return first(demanded(p), e.MaxWait, p)
	}
	wait := max(e.backoff(p), demanded(p))
	switch {
	case p.Attempts >= e.MaxAttempts:
		return Decision{Action: Stop, Wait: wait, Reason: fmt.Sprintf("%d attempts made, the limit of a round", p.Attempts)}
	case wait > e.MaxWait:
		reason := "the provider asks for a longer wait than is worth sleeping"
		if p.NotSooner >= wait {
			reason = "an earlier attempt may be on its way for longer than is worth sleeping"
		}
		return Decision{Action: Defer, Wait: wait, Reason: reason}
	case wait > e.Budget-max(p.Elapsed, 0): // this way round so that it cannot overflow
		return Decision{Action: Stop, Wait: wait, Reason: fmt.Sprintf("the next attempt would begin after the round's budget of %v", e.Budget)}
	case p.Left < 0:
		return Decision{Action: Defer, Wait: wait, Reason: "the context's time is over"}
	case tooLong(wait, p.Left):
		return Decision{Action: Defer, Wait: wait, Reason: "the wait does not fit the context's deadline"}
	}
	return Decision{Action: Sleep, Wait: wait, Reason: "backing off"}
}

// backoff is the policy's own wait after attempt p.Attempts, in a normal e.
func (e Exponential) backoff(p Progress) time.Duration {
	b := backoff.ExponentialBackOff{
		InitialInterval:     e.Base, // the library does not hold it to MaxInterval; normal does
		RandomizationFactor: 0,      // its randomness would not repeat
		Multiplier:          2,
		MaxInterval:         e.MaxWait,
		MaxElapsedTime:      0, // it reads a clock; the budget is ours
		Stop:                backoff.Stop,
		Clock:               stopped{},
	}
	b.Reset()
	interval := e.Base
	// From a nanosecond to MaxDefer it is 47 doublings; 64 are enough for all.
	for range min(p.Attempts, 64) {
		interval = b.NextBackOff()
	}
	half := interval / 2
	wait := interval - time.Duration(spread(p)*float64(half))
	return min(max(wait, e.MinWait), e.MaxWait)
}

// spread maps key and attempt to a number in [0, 1).
func spread(p Progress) float64 {
	seed := binary.BigEndian.AppendUint64([]byte(p.Key), uint64(int64(max(p.Total, p.Attempts))))
	sum := sha256.Sum256(seed)
	return float64(binary.BigEndian.Uint64(sum[:])>>11) / math.Exp2(53)
}

// stopped is a clock that stands still, so that nothing depends on the time.
type stopped struct{}

// Now returns the zero time.
func (stopped) Now() time.Time { return time.Time{} }
