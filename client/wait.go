package client

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/samekey/samekey/keyring"
)

// sleep waits for d, or reports why ctx ended first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// errStillHeld makes the wait go on.
var errStillHeld = errors.New("still held")

// wait returns the intent once nobody holds it any more, or it is final. When
// ctx ends first, it returns what was known last, and the context's error.
// Where the store can tell that a record has moved, it is asked; the growing
// interval bounds what a store that cannot, or a holder that died, costs.
func (c *Client) wait(ctx context.Context, in keyring.Intent) (keyring.Intent, error) {
	b := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(5*time.Millisecond),
		backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0), // the context bounds it
	)
	waiter, _ := c.store.(keyring.Waiter)
	last := in
	err := backoff.Retry(func() error {
		now, err := c.get(ctx, last.Ref)
		if err != nil {
			return backoff.Permanent(err)
		}
		last = now
		if now.HeldBy == "" || now.Final() {
			return nil
		}
		if waiter != nil {
			b.Reset()
			wctx, cancel := context.WithTimeout(ctx, time.Second) // a hold also ends without a change
			defer cancel()
			if err := waiter.Wait(wctx, last.Ref, last.Revision); err != nil && wctx.Err() == nil {
				return backoff.Permanent(err)
			}
		}
		return errStillHeld
	}, backoff.WithContext(b, ctx))
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return last, err
}
