package retry_test

import (
	"errors"
	"math"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/samekey/samekey/retry"
)

const day = 24 * time.Hour

func TestExponentialDecisions(t *testing.T) {
	e := retry.Exponential{MinWait: time.Second, MaxWait: 30 * time.Second, MaxAttempts: 3}
	for _, tc := range []struct {
		claim    string
		policy   retry.Exponential
		p        retry.Progress
		action   retry.Action
		min, max time.Duration
	}{
		{"C61: a wish of an hour is deferred by an hour", e, retry.Progress{Attempts: 1, RetryAfter: time.Hour}, retry.Defer, time.Hour, time.Hour},
		{"C61: a wish of centuries is deferred by a day", e, retry.Progress{Attempts: 1, RetryAfter: math.MaxInt64}, retry.Defer, day, day},
		{"C61: a wish of a day and more is a day", e, retry.Progress{Attempts: 1, RetryAfter: day + 1}, retry.Defer, day, day},
		{"C61: a negative wish is none", e, retry.Progress{Attempts: 1, RetryAfter: math.MinInt64}, retry.Sleep, time.Second, 2 * time.Second},
		{"C61: no wish is the policy's own wait", e, retry.Progress{Attempts: 1}, retry.Sleep, time.Second, 2 * time.Second},
		{"C61: the own wait doubles", e, retry.Progress{Attempts: 2}, retry.Sleep, 2 * time.Second, 4 * time.Second},
		{"C61: a wish of five seconds is five seconds", e, retry.Progress{Attempts: 1, RetryAfter: 5 * time.Second}, retry.Sleep, 5 * time.Second, 5 * time.Second},
		{"C61: a wish of five seconds is five seconds the second time", e, retry.Progress{Attempts: 2, RetryAfter: 5 * time.Second}, retry.Sleep, 5 * time.Second, 5 * time.Second},
		{"C61: a wish below MinWait is MinWait at least", e, retry.Progress{Attempts: 1, RetryAfter: time.Nanosecond}, retry.Sleep, time.Second, 2 * time.Second},
		{"a wish of exactly MaxWait is slept", e, retry.Progress{Attempts: 1, RetryAfter: 30 * time.Second}, retry.Sleep, 30 * time.Second, 30 * time.Second},
		{"a wish just over MaxWait is deferred", e, retry.Progress{Attempts: 1, RetryAfter: 30*time.Second + 1}, retry.Defer, 30*time.Second + 1, 30*time.Second + 1},

		{"C27: after the last attempt it still says when to come back", e, retry.Progress{Attempts: 3}, retry.Stop, 4 * time.Second, 8 * time.Second},
		{"C27: a limit of one says it too", retry.Exponential{MaxAttempts: 1}, retry.Progress{Attempts: 1}, retry.Stop, time.Second, 2 * time.Second},
		{"C27: after the last attempt the provider's wish holds", e, retry.Progress{Attempts: 3, RetryAfter: time.Hour}, retry.Stop, time.Hour, time.Hour},
		{"after the last attempt doubt holds", e, retry.Progress{Attempts: 3, NotSooner: time.Minute}, retry.Stop, time.Minute, time.Minute},
		{"more attempts than the limit stop as well", e, retry.Progress{Attempts: math.MaxInt}, retry.Stop, 15 * time.Second, 30 * time.Second},
		{"the limit counts the round, not the total", e, retry.Progress{Attempts: 1, Total: 40}, retry.Sleep, time.Second, 2 * time.Second},

		{"doubt lengthens a wait", e, retry.Progress{Attempts: 1, NotSooner: 20 * time.Second}, retry.Sleep, 20 * time.Second, 20 * time.Second},
		{"doubt beyond MaxWait is deferred", e, retry.Progress{Attempts: 1, NotSooner: 40 * time.Second}, retry.Defer, 40 * time.Second, 40 * time.Second},
		{"doubt is never cut to a day", e, retry.Progress{Attempts: 1, NotSooner: 3 * day}, retry.Defer, 3 * day, 3 * day},
		{"the longer of wish and doubt holds", e, retry.Progress{Attempts: 1, NotSooner: 6 * time.Second, RetryAfter: 9 * time.Second}, retry.Sleep, 9 * time.Second, 9 * time.Second},

		{"a wait that the deadline cannot hold is deferred", e, retry.Progress{Attempts: 1, Left: 500 * time.Millisecond}, retry.Defer, time.Second, 2 * time.Second},
		{"a wait as long as the time left is deferred", e, retry.Progress{Attempts: 1, RetryAfter: 5 * time.Second, Left: 5 * time.Second}, retry.Defer, 5 * time.Second, 5 * time.Second},
		{"a wait that fits is slept", e, retry.Progress{Attempts: 1, RetryAfter: 5 * time.Second, Left: 5*time.Second + 1}, retry.Sleep, 5 * time.Second, 5 * time.Second},
		{"a deadline that has passed defers", e, retry.Progress{Attempts: 1, Left: -1}, retry.Defer, time.Second, 2 * time.Second},

		{"a wait past the budget stops", e, retry.Progress{Attempts: 1, Elapsed: 2*time.Minute - time.Second + 1}, retry.Stop, time.Second, 2 * time.Second},
		{"a wait within the budget is slept", e, retry.Progress{Attempts: 1, Elapsed: 2*time.Minute - 2*time.Second}, retry.Sleep, time.Second, 2 * time.Second},
		{"an absurd elapsed time stops", e, retry.Progress{Attempts: 1, Elapsed: math.MaxInt64}, retry.Stop, time.Second, 2 * time.Second},
		{"a negative elapsed time is none", e, retry.Progress{Attempts: 1, Elapsed: math.MinInt64}, retry.Sleep, time.Second, 2 * time.Second},

		{"the first attempt is due at once", e, retry.Progress{}, retry.Sleep, 0, 0},
		{"the first attempt waits for doubt", e, retry.Progress{NotSooner: 3 * time.Second}, retry.Sleep, 3 * time.Second, 3 * time.Second},
		{"the first attempt is deferred for much doubt", e, retry.Progress{NotSooner: time.Minute}, retry.Defer, time.Minute, time.Minute},
		{"the first attempt is not made without time", e, retry.Progress{Left: -1}, retry.Defer, 0, 0},
		{"the first attempt is deferred if the wait does not fit", e, retry.Progress{NotSooner: 3 * time.Second, Left: time.Second}, retry.Defer, 3 * time.Second, 3 * time.Second},

		{"the zero policy permits a fifth attempt", retry.Exponential{}, retry.Progress{Attempts: 4}, retry.Sleep, 8 * time.Second, 16 * time.Second},
		{"the zero policy permits no sixth", retry.Exponential{}, retry.Progress{Attempts: 5}, retry.Stop, 15 * time.Second, 30 * time.Second},
		{"negative fields are defaults", retry.Exponential{MinWait: -1, MaxWait: -1, Base: -1, MaxAttempts: -1, Budget: -1}, retry.Progress{Attempts: 4}, retry.Sleep, 8 * time.Second, 16 * time.Second},
		{"MinWait above MaxWait is the longer of them", retry.Exponential{MinWait: time.Minute, MaxWait: time.Second, Budget: time.Hour}, retry.Progress{Attempts: 1}, retry.Sleep, time.Minute, time.Minute},
		{"a huge policy does not overflow", retry.Exponential{MinWait: math.MaxInt64, MaxWait: math.MaxInt64, Base: math.MaxInt64, Budget: math.MaxInt64}, retry.Progress{Attempts: 2}, retry.Sleep, day, day},
		{"Base sets the first interval", retry.Exponential{Base: 20 * time.Second}, retry.Progress{Attempts: 1}, retry.Sleep, 10 * time.Second, 20 * time.Second},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			for i := range 50 {
				tc.p.Key = strconv.Itoa(i)
				d := tc.policy.Next(tc.p)
				if d.Action != tc.action || d.Wait < tc.min || d.Wait > tc.max {
					t.Fatalf("key %d: got %v after %v (%s), want %v after %v to %v", i, d.Action, d.Wait, d.Reason, tc.action, tc.min, tc.max)
				}
				if d.Reason == "" {
					t.Fatal("a decision without a reason")
				}
			}
		})
	}
}

func TestNeverMakesOneAttempt(t *testing.T) {
	for _, tc := range []struct {
		claim  string
		p      retry.Progress
		action retry.Action
		wait   time.Duration
	}{
		{"the first is due", retry.Progress{}, retry.Sleep, 0},
		{"the first waits for nothing here", retry.Progress{NotSooner: time.Second}, retry.Defer, time.Second},
		{"there is no second", retry.Progress{Attempts: 1, Total: 1}, retry.Stop, 0},
		{"it passes on the provider's wish", retry.Progress{Attempts: 1, RetryAfter: time.Minute}, retry.Stop, time.Minute},
		{"it limits the provider's wish", retry.Progress{Attempts: 1, RetryAfter: math.MaxInt64}, retry.Stop, day},
		{"it passes on doubt", retry.Progress{Attempts: 1, NotSooner: 5 * time.Second}, retry.Stop, 5 * time.Second},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			if d := (retry.Never{}).Next(tc.p); d.Action != tc.action || d.Wait != tc.wait {
				t.Errorf("got %v after %v, want %v after %v", d.Action, d.Wait, tc.action, tc.wait)
			}
		})
	}
}

func TestEachDecisionIsPureAndWithinBounds(t *testing.T) {
	rng := rand.New(rand.NewPCG(61, 0))
	duration := func() time.Duration {
		switch rng.IntN(4) {
		case 0:
			return 0
		case 1:
			return time.Duration(rng.Uint64()) // any sign, any size
		default:
			return time.Duration(rng.Int64N(int64(3 * time.Minute)))
		}
	}
	seen := map[retry.Action]int{}
	for range 20000 {
		e := retry.Exponential{
			MinWait: duration(), MaxWait: duration(), Base: duration(), Budget: duration(),
			MaxAttempts: rng.IntN(12) - 2,
		}
		p := retry.Progress{
			Attempts: rng.IntN(14) - 2, Total: rng.IntN(100) - 2, Elapsed: duration(), RetryAfter: duration(),
			NotSooner: duration(), Left: duration(), Key: strconv.Itoa(rng.Int()),
		}
		d := e.Next(p)
		if again := e.Next(p); again != d {
			t.Fatalf("%+v with %+v: %+v, and then %+v", e, p, d, again)
		}
		seen[d.Action]++

		minWait, maxWait, limit := time.Second, 30*time.Second, 5
		if e.MinWait > 0 {
			minWait = min(e.MinWait, day)
		}
		if e.MaxWait > 0 {
			maxWait = e.MaxWait
		}
		maxWait = min(max(maxWait, minWait), day)
		if e.MaxAttempts > 0 {
			limit = e.MaxAttempts
		}
		switch {
		case d.Wait < 0:
			t.Fatalf("%+v with %+v: a negative wait %v", e, p, d.Wait)
		case d.Wait < p.NotSooner:
			t.Fatalf("%+v with %+v: %v is sooner than doubt allows", e, p, d.Wait)
		case p.Attempts > 0 && d.Wait < minWait:
			t.Fatalf("%+v with %+v: %v is below MinWait", e, p, d.Wait)
		case d.Wait > max(day, p.NotSooner):
			t.Fatalf("%+v with %+v: %v is more than a day ahead", e, p, d.Wait)
		case d.Action == retry.Sleep && d.Wait > maxWait:
			t.Fatalf("%+v with %+v: sleeps %v, longer than MaxWait", e, p, d.Wait)
		case d.Action == retry.Sleep && p.Left != 0 && d.Wait >= p.Left && d.Wait > 0:
			t.Fatalf("%+v with %+v: sleeps %v, beyond the deadline", e, p, d.Wait)
		case d.Action != retry.Stop && p.Attempts >= limit:
			t.Fatalf("%+v with %+v: %v beyond the limit", e, p, d.Action)
		case d.Action == retry.Stop && p.Attempts <= 0:
			t.Fatalf("%+v with %+v: stops before the first attempt", e, p)
		}
	}
	for _, a := range []retry.Action{retry.Stop, retry.Sleep, retry.Defer} {
		if seen[a] < 100 {
			t.Errorf("only %d decisions were %v: the inputs do not exercise it", seen[a], a)
		}
	}
}

func TestWaitsOfDifferentKeysAreSpread(t *testing.T) {
	waits := map[time.Duration]bool{}
	early, late := 0, 0
	for i := range 1000 {
		d := retry.Exponential{}.Next(retry.Progress{Attempts: 1, Total: 1, Key: strconv.Itoa(i)})
		waits[d.Wait] = true
		switch {
		case d.Wait < 1250*time.Millisecond:
			early++
		case d.Wait > 1750*time.Millisecond:
			late++
		}
	}
	if len(waits) < 990 || early < 150 || late < 150 {
		t.Errorf("%d different waits of 1000, %d in the first quarter, %d in the last", len(waits), early, late)
	}
}

func TestWaitsOfOneKeyDifferByAttempt(t *testing.T) {
	a := retry.Exponential{}.Next(retry.Progress{Attempts: 1, Total: 1, Key: "k"})
	b := retry.Exponential{}.Next(retry.Progress{Attempts: 1, Total: 6, Key: "k"})
	if a.Wait == b.Wait {
		t.Errorf("attempts 1 and 6 both wait %v", a.Wait)
	}
}

func TestErrSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		claim string
		e     retry.Exponential
		bad   bool
	}{
		{"the zero policy is fine", retry.Exponential{}, false},
		{"a long MinWait alone is fine", retry.Exponential{MinWait: time.Minute}, false},
		{"negative MinWait", retry.Exponential{MinWait: -1}, true},
		{"negative MaxWait", retry.Exponential{MaxWait: -1}, true},
		{"negative Base", retry.Exponential{Base: -1}, true},
		{"negative MaxAttempts", retry.Exponential{MaxAttempts: -1}, true},
		{"negative Budget", retry.Exponential{Budget: -1}, true},
		{"MinWait above MaxWait", retry.Exponential{MinWait: 2, MaxWait: 1}, true},
		{"MaxWait below the default MinWait", retry.Exponential{MaxWait: time.Millisecond}, true},
		{"MaxWait above a day", retry.Exponential{MaxWait: day + 1}, true},
		{"MinWait above the default Budget", retry.Exponential{MinWait: time.Hour}, true},
		{"MinWait within a Budget of its own", retry.Exponential{MinWait: time.Hour, Budget: day}, false},
		{"Base above MaxWait", retry.Exponential{Base: time.Minute}, true},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			if err := tc.e.Err(); errors.Is(err, retry.ErrInvalid) != tc.bad || (err != nil) != tc.bad {
				t.Errorf("got %v, want an error: %v", err, tc.bad)
			}
		})
	}
}

func TestActionsHaveNames(t *testing.T) {
	for a, want := range map[retry.Action]string{retry.Stop: "stop", retry.Sleep: "sleep", retry.Defer: "defer", 99: "stop"} {
		if got := a.String(); got != want {
			t.Errorf("action %d: got %q, want %q", a, got, want)
		}
	}
}

var _ = []retry.Policy{retry.Exponential{}, retry.Never{}}
