// The example worker shows a long-running program: it goes on with what was
// left open, takes new work, comes back to what could not be sent, and ends
// gracefully when it is told to. It needs no arguments and no network:
//
//	go run ./examples/worker
//
// This file is the program, charge.go one call of it; days.go plays the payment server and two days of
// work. The exit status is 0 only if each order was charged once and nothing was
// left open.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

// grace is how long calls under way may take once the program is to end. What
// is cut short by it is recorded, and is the first thing to do at the next start.
const grace = 300 * time.Millisecond

func main() {
	// A program of your own has signal.NotifyContext here.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := playTwoDays(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
}

// work charges orders until ctx ends.
func work(ctx context.Context, dir, api string, orders <-chan string) error {
	store, err := badgerkeys.OpenOrCreate(dir, nil)
	if err != nil {
		return err
	}
	c := client.New(store, provider.Draft(24*time.Hour, "POST /orders/{order}/charge"), &client.Options{
		Origins: []string{api},
		Retry:   retry.Exponential{MinWait: 50 * time.Millisecond}, // the server is next door
		Hooks: &client.Hooks{
			Final:           func(_ context.Context, e client.Event) { fmt.Printf("  %s: %s\n", e.Ref, e.Outcome.State) },
			NeedsInspection: func(_ context.Context, e client.Event) { fmt.Printf("  %s: %s\n", e.Ref, e.Outcome.Next) },
		},
	})

	// The end of ctx is the end of new work, and not of the calls under way:
	// those end with Close.
	calls := context.WithoutCancel(ctx)
	var busy sync.WaitGroup
	again := time.NewTimer(time.Until(resume(ctx, calls, c)))
	defer again.Stop()
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
		case <-again.C:
			busy.Go(func() { again.Reset(time.Until(resume(ctx, calls, c))) })
		case order := <-orders:
			busy.Go(func() { charge(calls, c, api, order) })
		}
	}

	cctx, cancel := context.WithTimeout(calls, grace)
	defer cancel()
	err = c.Close(cctx) // waits for the calls, until cctx ends
	busy.Wait()
	if errors.Is(err, context.DeadlineExceeded) {
		err = nil // some were cut short, which is on record
	}
	return errors.Join(err, store.Close())
}

// resume sends what is open and may be sent, and returns when to come back: when
// the first of the others is due, and in a minute at the latest.
func resume(ctx, calls context.Context, c *client.Client) time.Time {
	next := time.Now().Add(time.Minute)
	for _, err := range c.Resume(calls) {
		if at := client.OutcomeOf(err).NotBefore; !at.IsZero() && at.Before(next) {
			next = at
		}
		if ctx.Err() != nil {
			break // starts nothing more, and waits for what is under way
		}
	}
	return next
}
