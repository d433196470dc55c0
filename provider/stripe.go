package provider

import (
	"time"

	"github.com/samekey/samekey/keyring"
)

// Stripe is the profile of Stripe's API v1, at https://api.stripe.com.
//
// Each POST below /v1 acts once per key, which is remembered for at least 24
// hours and then forgotten without a word: the same key then acts again. A
// declined card, other refusals by the operation and even a 500 are kept under
// the key and repeated with the mark Idempotent-Replayed. So a failure that is
// repeated will not get better; after a 500 only a look tells what happened.
// What Stripe says in Stripe-Should-Retry is followed.
//
// A DELETE takes no key: Stripe ignores it there. It gets one send. The same
// holds for API v2, whose rules are others; its POSTs carry the key, and nothing
// is promised for them.
//
// The headers that choose the account, Stripe-Account and Stripe-Context, are
// part of what is asked for: another account is another request. That connected
// accounts have key spaces of their own is not stated for v1.
//
// To look without sending: put the ref into the object's metadata and list
// objects, or look through events, which carry the key as
// request.idempotency_key. Stripe's search runs about a minute behind.
func Stripe() Profile {
	return made(Spec{
		Name:    "stripe",
		Origins: []string{"https://api.stripe.com"},
		// docs.stripe.com/api/idempotent_requests, read 2026-11.
		KeyMax: 255,
		// docs.stripe.com/error-low-level and stripe/stripe-go, read 2026-11.
		ReplayHeader: "Idempotent-Replayed",
		AdviceHeader: "Stripe-Should-Retry",
		// docs.stripe.com/error-codes, read 2026-11. The code goes before the type: a
		// 409 for a running key has both.
		CodeAt: []string{"/error/code", "/error/type"},
		Endpoints: []Endpoint{{
			// docs.stripe.com/api/idempotent_requests, read 2026-11: POST takes a key;
			// on GET and DELETE it is ignored.
			Pattern: "POST /v1/{rest...}",
			// docs.stripe.com/api, read 2026-11: every object says in "object" what it
			// is. A 200 without it is somebody else's, or not whole.
			SuccessAt: "/object",
			Terms: keyring.Terms{
				Dedup: keyring.DedupKey,
				// The same page and docs.stripe.com/error-low-level, read 2026-11:
				// whatever the endpoint answered once it began is kept.
				KeepsRefusals: true,
				// docs.stripe.com/error-codes, read 2026-11: 409 idempotency_key_in_use.
				MarksRunning: true,
				// docs.stripe.com/api/idempotent_requests, read 2026-11: keys may be
				// removed once they are at least 24 hours old. The lower bound.
				Retention: 24 * time.Hour,
			},
			// Here and not for the whole profile: none of this is stated for v2. What
			// is not listed falls to the general table, which has it right: a 400 without the replay mark may be a
			// validation, which is made before the key is looked up and not kept; a
			// 401 and the rate limiter's 429 come from in front of the keys.
			Rules: []Rule{
				// A type without a code: docs.stripe.com/error-codes; its status:
				// stripe/stripe-ruby#503; both read 2026-11.
				{Status: 400, Code: "idempotency_error", Kind: keyring.VerdictConflict},
				// docs.stripe.com/error-codes, read 2026-11. It is not kept itself.
				{Status: 409, Code: "idempotency_key_in_use", Kind: keyring.VerdictPending},
				// docs.stripe.com/rate-limits and stripe/stripe-go, read 2026-11: of
				// the rate limiter it is known that it sits in front of the keys. Of this
				// 429 nobody says that it did nothing; that it may be sent again is clear.
				{Status: 429, Code: "lock_timeout", Kind: keyring.VerdictUnclear},
				// docs.stripe.com/api/errors, read 2026-11: 402 is "request failed", the
				// operation's own no to good parameters; such are kept under the key.
				// Only with Stripe's own type: a gateway on the way answers 402 as well.
				{Status: 402, Code: "card_error", Kind: keyring.VerdictRefused, ByOperation: true},
			},
		}},
	})
}
