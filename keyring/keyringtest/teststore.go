package keyringtest

import (
	"context"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
)

// clause is one sentence of the Store contract. Clauses report errors instead
// of failing a test, so that the suite itself can be tried on broken stores.
type clause struct {
	name  string
	why   string // what the contract says, or what comes of breaking it
	check func(ctx context.Context, open func() keyring.Store) error
}

// patience bounds the calls that would otherwise never return in a store that
// is wrong. No store that works comes near it.
const patience = 30 * time.Second

// TestStore checks that the stores which open returns keep the contract of
// [keyring.Store], and that of [keyring.Waiter] and [keyring.Sessions] where
// they are implemented. Each clause is a subtest that calls open at least
// once, for a store that is empty; open registers with t.Cleanup what is to
// be done at the end. A store with a method Close() error is closed by the
// clause that is about closing, and once more by such a cleanup.
func TestStore(t *testing.T, open func(t *testing.T) keyring.Store) {
	for _, c := range clauses() {
		t.Run(c.name, func(t *testing.T) {
			err := c.check(t.Context(), func() keyring.Store { return open(t) })
			if err != nil {
				t.Errorf("%v\n%s", err, c.why)
			}
		})
	}
}

func clauses() []clause {
	var all []clause
	all = append(all, createClauses...)
	all = append(all, changeClauses...)
	all = append(all, scanClauses...)
	all = append(all, byteClauses...)
	all = append(all, endClauses...)
	all = append(all, optionalClauses...)
	return all
}
