// Package provider knows what each provider promises about idempotency keys,
// and reads its answers.
//
// The promise: an answer is read as certain only where its status, its type
// and its code leave no doubt. Whatever is not understood (a status, a code, a
// page that the provider did not write) reads as keyring.VerdictUnclear: the
// effect may exist.
//
// Start at [Stripe] and [Mastodon] for these two, at [Draft] for a server that
// follows the IETF draft on the Idempotency-Key header, and at [New] to describe
// another provider with a [Spec]; docs/providers.md has the facts with their
// sources. A [Profile] is data: which endpoints take a key and where it goes,
// for how long it is remembered, which codes mean what. The general table that
// holds for all profiles is [Profile.Read].
//
// De-duplication is claimed per endpoint, never per host: a request that a
// profile does not list has keyring.DedupNone, although its key goes along.
//
// This package sends nothing and reads no clock.
package provider
