package retry_test

import (
	"fmt"
	"time"

	"github.com/samekey/samekey/retry"
)

func ExampleExponential() {
	e := retry.Exponential{MaxAttempts: 3, MaxWait: 10 * time.Second}
	for _, p := range []retry.Progress{
		{Attempts: 1, RetryAfter: 5 * time.Second},
		{Attempts: 2, RetryAfter: time.Hour},
		{Attempts: 3, NotSooner: 20 * time.Second},
	} {
		d := e.Next(p)
		fmt.Printf("%v, %v: %s\n", d.Action, d.Wait, d.Reason)
	}
	// Output:
	// sleep, 5s: backing off
	// defer, 1h0m0s: the provider asks for a longer wait than is worth sleeping
	// stop, 20s: 3 attempts made, the limit of a round
}
