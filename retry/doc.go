// Package retry decides when another attempt is due.
//
// The promise: a decision is a pure function of what is on record, so that a
// schedule which a restart cut short goes on where it stopped; no wait is
// shorter than what the rules of doubt demand, none is negative, and none that
// is slept through is longer than the policy's MaxWait or than the caller's
// context can hold.
//
// Start at [Exponential], whose zero value is the default policy, and at
// [Never] for a single attempt. [Policy] is what to implement to decide
// otherwise.
//
// Whether another attempt is permitted at all is not decided here: that
// follows from the intent's state, its terms and the age of its key. A policy
// never sees an attempt that must not be made, and cannot permit one.
package retry
