package samekey_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
	"github.com/samekey/samekey/retry"
)

// TestP4: with a memory of 10 minutes, a margin of one (a tenth, and twice the
// attempt timeout) and attempts of up to 30 seconds, the last one may begin
// after 8 minutes and 30 seconds.
func TestP4NothingIsSentPastTheProvidersMemory(t *testing.T) {
	t.Parallel()
	const last = 10*time.Minute - time.Minute - 30*time.Second
	remembers := func(d time.Duration) keyring.Terms {
		terms := boxTerms
		terms.Retention = d
		return terms
	}
	no := func() bool { return false }
	for _, c := range []struct {
		claim   string
		begun   keyring.Terms
		now     keyring.Terms // as the next release of the program has them
		after   time.Duration
		trusted func() bool
		want    keyring.State
	}{
		{"at once", remembers(10 * time.Minute), remembers(10 * time.Minute), 0, nil, keyring.StateDone},
		{"at the last moment", remembers(10 * time.Minute), remembers(10 * time.Minute), last, nil, keyring.StateDone},
		{"just after it", remembers(10 * time.Minute), remembers(10 * time.Minute), last + 1, nil, keyring.StateExpired},
		{"a year later", remembers(10 * time.Minute), remembers(10 * time.Minute), 365 * 24 * time.Hour, nil, keyring.StateExpired},
		{"with a clock that is not to be trusted", remembers(10 * time.Minute), remembers(10 * time.Minute), time.Second, no, keyring.StateExpired},
		{"a memory too short for any resend", remembers(time.Minute), remembers(time.Minute), 0, nil, keyring.StateExpired},
		{"a memory that is not published counts as an hour", remembers(0), remembers(0), 2 * time.Hour, nil, keyring.StateExpired},
		{"a memory without end", remembers(keyring.Forever), remembers(keyring.Forever), 365 * 24 * time.Hour, nil, keyring.StateDone},
		{"the stored terms are the stricter", remembers(10 * time.Minute), remembers(24 * time.Hour), last + 1, nil, keyring.StateExpired},
		{"the present terms are the stricter", remembers(24 * time.Hour), remembers(10 * time.Minute), last + 1, nil, keyring.StateExpired},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := clienttest.NewServer(nil)
				defer srv.Close()
				srv.Script(clienttest.LoseAnswer())
				store := keyringtest.NewStore()
				do := func(terms keyring.Terms, trusted func() bool) (*client.Result, error) {
					c := client.New(store, box(terms), &client.Options{Transport: srv.RoundTripper(), Retry: retry.Never{}, ClockTrusted: trusted})
					return c.Do(t.Context(), named("inv-7"), post(t, "http://box.test/v1/payments", pay))
				}
				first, err := do(c.begun, nil)
				if c.want == keyring.StateDone && !errors.Is(err, client.ErrUnknown) || err == nil {
					t.Fatalf("the first call says %v", err)
				}
				time.Sleep(c.after)
				store = store.Reopen()
				res, err := do(c.now, c.trusted)
				if res == nil || (err == nil) != (c.want == keyring.StateDone) {
					t.Fatalf("%v; want %s", err, c.want)
				}
				// Which word the outcome has for it follows from the stored terms.
				if got := res.Outcome.State; got != c.want && c.now.Retention >= c.begun.Retention {
					t.Errorf("state %s (%v), want %s", got, err, c.want)
				}
				hits := 1
				if c.want == keyring.StateDone {
					hits = 2
				} else if !errors.Is(err, keyring.ErrNeedsInspection) {
					t.Errorf("%v; want a look to be asked for", err)
				}
				if got := srv.Hits(); got != hits || len(srv.Keys()) != 1 || res.Intent.Key != first.Intent.Key {
					t.Errorf("%s; want %d hits under one key", srv, hits)
				}
			})
		})
	}
}

// TestP4 within one call, for the first attempt, and for a clock that comes to
// be trusted.
func TestP4TheLimitHoldsWithinACallAndSparesTheFirstAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := clienttest.NewServer(&clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault { return unavailable() }})
		defer srv.Close()
		terms := boxTerms
		terms.Retention = 10 * time.Minute
		trusted := true
		c := client.New(keyringtest.NewStore(), box(terms), &client.Options{
			Transport: srv.RoundTripper(), ClockTrusted: func() bool { return trusted },
			Retry: retry.Exponential{MinWait: time.Second, MaxWait: time.Minute, MaxAttempts: 1000, Budget: 1000 * time.Hour},
		})
		ctx := t.Context()
		began := time.Now()
		_, err := c.Do(ctx, named("long"), post(t, "http://box.test/v1/long", pay))
		if !errors.Is(err, client.ErrExpired) {
			t.Errorf("a call that goes on for ever ends with %v", err)
		}
		requests := srv.Requests()
		if age := requests[len(requests)-1].At.Sub(began); len(requests) < 5 || age > 8*time.Minute+30*time.Second {
			t.Errorf("%d requests, the last one at an age of %s", len(requests), age)
		}

		srv.Script(clienttest.LoseAnswer(), clienttest.Normal())
		if _, err := c.Begin(ctx, named("late"), post(t, "http://box.test/v1/late", pay)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(365 * 24 * time.Hour) // the provider has never seen the key
		trusted = false
		if _, err := c.Send(ctx, named("late")); !errors.Is(err, client.ErrExpired) || srv.Hits("/v1/late") != 1 {
			t.Errorf("the first attempt, whose answer is lost, with a clock not to be trusted: %v, %s", err, srv)
		}
		trusted = true
		if _, err := c.Send(ctx, named("late")); err != nil || srv.Hits("/v1/late") != 2 || srv.Effects("/v1/late") != 1 {
			t.Errorf("with the clock trusted again: %v, %s", err, srv)
		}
	})
}
