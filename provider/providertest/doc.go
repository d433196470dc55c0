// Package providertest holds a profile to exchanges with its provider.
//
// The promise: what an exchange says about the verdict, the terms and the
// place of the key is the whole of it. A flag, a code or a promise that the
// profile comes up with and that the exchange does not name is a failure, as is
// one that it names in vain.
//
// Start at [Run]. An exchange is a text file:
//
//	A declined card is the operation's own no.
//	Source: docs.example.com/errors, read 2026-11. The body is made up.
//
//	-- request --
//	POST https://api.example.com/v1/charges
//	Content-Type: application/json
//
//	{"amount":2000}
//	-- answer --
//	402
//	Content-Type: application/json
//
//	{"error":{"code":"card_declined"}}
//	-- want --
//	verdict: refused
//	code: card_declined
//	terms: key, keeps refusals, retention 24h0m0s
//	key: Idempotency-Key
//
// The heading says what the exchange shows, and names its source. Headers and
// body may be missing; a body ends before the line of the next part. In place of
// a status the answer may be "none", or "not sent" where the request provably
// never left; "402 cut" is an answer whose body was not read whole.
//
// What is wanted: verdict, terms and key always, the others where they are not
// empty or zero.
//
//	verdict      keyring.VerdictKind in words
//	flags        of: no resend, front, sign in, replayed, unreadable
//	code  effect id  request id
//	retry after  such as 5s; dates count from 12:00 on 2026-11-30, UTC
//	terms        none, or of: key or natural, keeps refusals, marks running,
//	             retention, margin, spacing, settle, each with its duration;
//	             retention forever
//	key          the header that the key goes into; in quotes if the key travels
//	             so; or none
//
// Lists are in the order given here, with commas between.
package providertest
