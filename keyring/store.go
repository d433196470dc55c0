package keyring

import (
	"context"
	"iter"
	"time"
)

// Record is what a [Store] keeps for one ref. Data and Request are opaque to
// it; the rules live in [Ring].
type Record struct {
	Ref         Ref         // normal form, see Ref.Normal; the name is never empty
	Generation  int         // 1 for a ref's first key
	Revision    uint64      // 1 when created, then one more with each update
	Open        bool        // not final; Store.Scan can list these alone
	Fingerprint Fingerprint // of the current generation's request
	Data        []byte      // the changing part: attempts, hold, answer; up to some 11 MiB
	Request     []byte      // the part that is written once; up to some 5 MiB
}

// Limits bound what a [Store] takes in. Zero means no limit.
type Limits struct {
	MaxOpen    int // open intents in the store, all scopes together
	MaxIntents int // intents in the store, all scopes together
}

// Query selects what [Ring.List] and [Store.Scan] yield. The zero Query is all
// of the empty scope.
type Query struct {
	Scope       string      // those of this scope alone,
	AllScopes   bool        // unless AllScopes is set
	OpenOnly    bool        // open ones only
	Fingerprint Fingerprint // only those with this fingerprint; zero: any
}

// Store keeps records durably and changes them by compare-and-swap. It is
// what to implement to keep intents elsewhere; package keyringtest has its
// contract as tests. All methods may be called at once from many goroutines.
// A call whose context is over before it begins changes nothing and reports
// the context's error.
//
// Bytes given to a store are not kept or changed by it after the call, and
// bytes that it returns belong to the caller. Empty and nil Data or Request
// read back the same.
//
// When Create, Update or Delete return nil, their change survives a crash of
// the process and of the machine. When they return an error other than
// ErrExists, ErrNotFound, ErrStale, ErrFull or ErrInvalid, the change may or
// may not have been made; the caller reads the record again to see.
//
// A store never changes, replaces or drops a record by itself, and never
// returns an error that quotes Data or Request.
//
// A record whose bytes the store cannot read whole is not hidden and is not
// an error: Load and Scan return it with the bytes that are there, or none.
// The ring's own checksums tell that it is damaged. Where even its revision
// cannot be read, that is 0: Update and Delete report ErrStale, and Create
// ErrExists. After Close, each method reports ErrClosed.
type Store interface {
	// Create adds a record. rec.Revision is 1. If the ref is taken, it changes
	// nothing and reports ErrExists, also when the store is full. If the store
	// has lim.MaxIntents intents, or rec is open and it has lim.MaxOpen open
	// ones, it changes nothing and reports ErrFull. The checks and the change are
	// one transaction.
	Create(ctx context.Context, rec Record, lim Limits) error

	// Load returns the record of ref, or ErrNotFound.
	Load(ctx context.Context, ref Ref) (Record, error)

	// Update replaces the record whose stored revision is rec.Revision-1. If
	// the stored revision differs it changes nothing and reports ErrStale; if
	// there is no such record, ErrNotFound. A nil rec.Request keeps the stored
	// bytes, other bytes replace them, empty but not nil removes them.
	Update(ctx context.Context, rec Record) error

	// Scan yields each record that fits q once, with its bytes, in no promised
	// order. A record that is there during the whole scan is yielded; one that
	// is created, changed or deleted meanwhile may be yielded as it was or as
	// it is. The loop over it may call the store. An error is yielded with a zero
	// Record and ends the scan; without one it never ends early.
	Scan(ctx context.Context, q Query) iter.Seq2[Record, error]

	// Delete removes the record if its stored revision is revision. Otherwise
	// it changes nothing and reports ErrStale, or ErrNotFound.
	Delete(ctx context.Context, ref Ref, revision uint64) error
}

// Waiter is what a [Store] may implement to spare waiters from asking again
// and again.
type Waiter interface {
	// Wait returns nil once the record of ref has another revision than
	// revision, or is gone; at once, if that is so already. It returns the
	// context's error when that ends first. It may return nil early.
	Wait(ctx context.Context, ref Ref, revision uint64) error
}

// Timer is what a [Store] shared by several machines may implement: its clock
// judges leases.
type Timer interface {
	Now(ctx context.Context) (time.Time, error)
}

// Sessions is what a [Store] may implement to let a dead sender's hold be
// taken over at once, rather than when its lease has run out.
type Sessions interface {
	// Session names this opening of the store. No other opening, in this
	// process or another, at this time or another, has the same name.
	Session() string

	// Gone says whether session is known to have ended, so that nothing of it
	// can be sending any more. When in doubt, and for an empty name, it says
	// false.
	Gone(ctx context.Context, session string) (bool, error)
}
