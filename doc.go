// Package samekey keeps one idempotency key per intent, whatever happens to
// the connection, the process or the machine in between.
//
// Use it for calls that must take effect once, such as a payment, a refund, a
// post or a release. The key and the request are durable before a byte leaves,
// the identical request goes out under the identical key until it is known
// what happened, and a second key exists only after somebody looked at the
// provider's side. It makes no provider idempotent: where one offers no
// protection, the caller is told so instead of being retried into a second
// effect.
//
// This package holds no code. Open the others in this order:
//
//   - [github.com/samekey/samekey/client] sends requests. Most programs need
//     its Client.Do and what it returns, and nothing else.
//   - [github.com/samekey/samekey/badgerkeys] keeps the keyring in a
//     directory of this machine.
//   - [github.com/samekey/samekey/provider] has profiles: what a provider
//     promises, and how long it remembers. Stripe and Mastodon are there, and
//     what describes yours. Look it up before you rely on a retry.
//   - [github.com/samekey/samekey/keyring] has the rules, the states and the
//     Store interface, for tools that list intents and for other stores.
//   - [github.com/samekey/samekey/retry] says when another attempt is due.
//
// For tests, [github.com/samekey/samekey/client/clienttest] is a provider
// that goes wrong in every way that providers do,
// [github.com/samekey/samekey/keyring/keyringtest] has the contract of a
// Store as tests, and [github.com/samekey/samekey/provider/providertest] holds
// a profile to exchanges.
//
// The directory docs has the words, the states, the promises with their
// limits, the facts about providers, and what to do about each error.
package samekey
