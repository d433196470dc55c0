// Package clock reads the time in the way that samekey's rules need it: the
// wall clock and the monotonic clock apart, with the boot they belong to,
// because a sleeping laptop moves only the first, and a set clock moves it
// backwards.
//
// It is the one seam through which tests change the time. It travels in the
// context, so that tests may run in parallel.
package clock

import (
	"context"
	"time"
)

// Reading is one look at the clocks.
type Reading struct {
	Wall time.Time     // without a monotonic part, in UTC
	Mono time.Duration // since some fixed moment of the boot; not running while the machine sleeps
	Boot string        // the boot that Mono belongs to; readings of different boots do not compare
}

// Source gives readings.
type Source interface{ Read() Reading }

type contextKey struct{}

// With returns a context in which [Now] asks s.
func With(ctx context.Context, s Source) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

// Now reads the clocks of the system, or those that [With] has put in ctx.
func Now(ctx context.Context) Reading {
	if s, ok := ctx.Value(contextKey{}).(Source); ok {
		return s.Read()
	}
	return System()
}

var (
	initTime         = time.Now()
	initMono, bootID = boot()
)

// System reads the clocks of the system. Mono follows Go's own monotonic
// clock, so that it runs inside testing/synctest as well.
func System() Reading {
	now := time.Now()
	return Reading{
		Wall: now.Round(0).UTC(),
		Mono: initMono + now.Sub(initTime),
		Boot: bootID,
	}
}
