package client

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/keyring"
)

// atOnce is how many intents Resume sends at a time to one origin: enough that
// a slow one does not hold up the rest, few enough not to be a stampede on a
// provider that has just come back.
const atOnce = 4

// Resume goes on with what a restart left open: the intents of this client's
// profile and of Options.Scope, oldest first, a few at a time for each origin,
// so that none holds up the others. For each it yields what [Client.Send] would
// return, as it comes to an outcome; those that cannot be sent now (too soon,
// credentials missing, in need of a look, damaged) are yielded like the others.
// Those that Options.Access refuses are left out. Call it at start-up, before
// new work.
//
// An error of the listing itself is yielded with a nil Result. Ending the loop
// early starts nothing more and waits for what is under way to be recorded; so
// does [Client.Close], which must therefore not be called inside the loop.
func (c *Client) Resume(ctx context.Context) iter.Seq2[*Result, error] {
	return func(yield func(*Result, error) bool) {
		ctx, leave, err := c.enter(ctx)
		if err != nil {
			yield(nil, c.fail(context.Background(), "resume", keyring.Ref{}, err))
			return
		}
		defer leave()
		queues, err := c.open(ctx)
		if err != nil {
			yield(nil, c.fail(ctx, "resume", keyring.Ref{}, err))
			return
		}
		type outcome struct {
			res   *Result
			err   error
			panic any // of the application's code, to go on where it can be recovered from
		}
		out := make(chan outcome)
		ended := make(chan struct{})
		var workers sync.WaitGroup
		for _, queue := range queues {
			next := make(chan keyring.Intent, len(queue))
			for _, in := range queue {
				next <- in
			}
			close(next)
			for range min(atOnce, len(queue)) {
				workers.Go(func() {
					for in := range next {
						select {
						case <-ended:
							return
						default:
						}
						var o outcome
						func() {
							defer func() { o.panic = recover() }()
							o.res, o.err = c.settle(ctx, "resume", in, nil, canon.Taken{}, false)
						}()
						select {
						case out <- o:
						case <-ended:
							return
						}
					}
				})
			}
		}
		go func() { workers.Wait(); close(out) }()
		defer workers.Wait()
		defer close(ended)
		for o := range out {
			if o.panic != nil {
				panic(o.panic)
			}
			if denied := (accessError{}); errors.As(o.err, &denied) {
				continue // it was allowed when it was listed, and is not any more
			}
			if !yield(o.res, o.err) {
				return
			}
		}
	}
}

// open lists the open intents that are this client's to send, by origin,
// oldest first. Damaged ones are listed too: whose they were cannot be told.
func (c *Client) open(ctx context.Context) (map[string][]keyring.Intent, error) {
	queues := map[string][]keyring.Intent{}
	for in, err := range c.ring.List(ctx, keyring.Query{Scope: c.opts.Scope, OpenOnly: true}) {
		if err != nil {
			return nil, err
		}
		if c.allowed(ctx, in) != nil {
			continue // not even its ref is told
		}
		if in.State == keyring.StateDamaged || in.Terms.Profile == c.profile.Name() {
			origin := canon.Origin(in.Request.URL)
			queues[origin] = append(queues[origin], in)
		}
	}
	for _, queue := range queues {
		slices.SortFunc(queue, func(a, b keyring.Intent) int { return a.Begun.Compare(b.Begun) })
	}
	return queues, nil
}
