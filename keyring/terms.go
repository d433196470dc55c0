package keyring

import (
	"math"
	"time"
)

// Dedup says what the provider does with a request it has seen before. The
// zero value promises nothing.
type Dedup uint8

const (
	// DedupNone means that each request that arrives may have an effect of its
	// own. It gets one send; after an unclear attempt only an inspection helps.
	DedupNone Dedup = iota
	// DedupKey means that the endpoint is known to act once per key.
	DedupKey
	// DedupNatural means that repeating the request cannot make a second effect
	// (a DELETE or PUT of a name of our own). It may be sent again, but what
	// later attempts are told ("exists", "gone") may be about our own success.
	DedupNatural
)

// String returns "none", "key" or "natural".
func (d Dedup) String() string {
	switch d {
	case DedupNone:
		return "none"
	case DedupKey:
		return "key"
	case DedupNatural:
		return "natural"
	}
	return "unknown"
}

// Forever is the retention of a provider that says it never forgets a key. It
// must be said explicitly: zero means that the retention is unknown.
const Forever = time.Duration(math.MaxInt64)

// Terms are what a provider promises for an endpoint. They are stored with the
// intent; of the stored and the current ones the stricter hold. The zero value
// promises nothing: one send, then an inspection.
type Terms struct {
	// Profile names the provider's profile, such as "stripe". A client sends
	// only intents of its own profile.
	Profile string
	// Dedup says what a repeated request does.
	Dedup Dedup
	// KeepsRefusals means that the provider keeps refusals under the key like
	// successes, so that a refusal settles earlier doubt.
	KeepsRefusals bool
	// MarksRunning means that the provider recognises the key of a request that
	// it is still working on, so that a repeat need not be spaced.
	MarksRunning bool
	// Retention is how long the provider remembers a key. Zero is unknown (the
	// ring's UnknownRetention applies); see [Forever].
	Retention time.Duration
	// Margin is kept before the end of the retention. Zero, or less than
	// twice the attempt timeout, means the larger of a tenth of the retention
	// (at most one hour) and twice the attempt timeout.
	Margin time.Duration
	// Spacing is how long after doubt the next attempt waits, where
	// MarksRunning is false. Zero means 5 seconds. From the second unclear
	// attempt on it is four times as much, then doubled each time.
	Spacing time.Duration
	// Settle is how long after the last attempt could have left a look that
	// finds nothing begins to count. Zero means 15 minutes.
	Settle time.Duration
}
