package provider

import (
	"strings"

	"github.com/samekey/samekey/keyring"
)

// maxID limits codes, request ids and effect ids: the longest that we know of
// have some 60 characters. A longer one is dropped, as it is no id.
const maxID = 128

// knownCodes are the codes whose meaning is plain from the code itself,
// whichever provider says them, in the folded spelling of foldCode. A code
// that may also mean something else belongs into a profile: Xendit's
// DUPLICATE_ERROR and GoCardless' idempotent_creation_conflict, say, which may
// be about our own success.
//
// All read 2026-11 in the providers' references.
var knownCodes = map[string]keyring.VerdictKind{
	"idempotencyconflict":                  keyring.VerdictConflict, // Auriko, 409
	"idempotencykeyreused":                 keyring.VerdictConflict, // Square, 400 IDEMPOTENCY_KEY_REUSED; problem types of others, 422
	"keyreused":                            keyring.VerdictConflict, // the same, in short
	"idempotentparametermismatch":          keyring.VerdictConflict, // AWS EC2, 400
	"idempotentparametermismatchexception": keyring.VerdictConflict, // AWS DynamoDB, 400
	"idempotencykeyparametermismatch":      keyring.VerdictConflict, // Shopify, there with 200
	"idempotencykeyalreadyusederror":       keyring.VerdictConflict, // Increase, 409
	"invalididempotentrequest":             keyring.VerdictConflict, // Resend, 409

	"idempotencykeyinuse":          keyring.VerdictPending, // Stripe v1, 409
	"concurrentidempotentrequests": keyring.VerdictPending, // Resend, 409
	"previousrequestinprogress":    keyring.VerdictPending, // PayPal, 409
	"idempotentrequestprocessing":  keyring.VerdictPending, // Toss Payments, 409
	"idempotencyconcurrentrequest": keyring.VerdictPending, // Shopify, there with 200
	"requestinprogress":            keyring.VerdictPending, // servers that follow the IETF draft, 409
	"inprogress":                   keyring.VerdictPending, // the same
}

// known reads a code that needs no rule. Only statuses that are in use for
// such answers count: elsewhere the same word may be about something else.
func known(status int, code string) (keyring.VerdictKind, bool) {
	switch status {
	case 400:
		// Stripe v1's error type for other parameters. With its 409 it comes
		// beside a code that says what the matter is.
		if code == "idempotency_error" {
			return keyring.VerdictConflict, true
		}
	case 409, 422, 423, 425:
	default:
		return keyring.VerdictUnclear, false
	}
	kind, ok := knownCodes[foldCode(code)]
	return kind, ok
}

// foldCode takes the spelling out of a code: IDEMPOTENCY_KEY_REUSED,
// idempotency-key-reused and IdempotencyKeyReused are one.
func foldCode(code string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(code))
}

// cleanCode takes what stands at a pointer of Spec.CodeAt to a code: the
// fragment or last segment of a URI (RFC 9457's type), what follows a "#"
// (AWS). What is then no code, but prose or a value, is dropped: "".
func cleanCode(s string) string {
	if before, fragment, ok := strings.Cut(s, "#"); ok {
		if s = fragment; fragment == "" {
			s = before
		}
	}
	s, _, _ = strings.Cut(s, "?")
	s = strings.TrimRight(s, "/")
	s = s[strings.LastIndexByte(s, '/')+1:]
	if strings.HasPrefix(s, "urn:") {
		s = s[strings.LastIndexByte(s, ':')+1:]
	}
	if s == "about:blank" || len(s) > maxID || strings.ContainsFunc(s, func(c rune) bool { return !alnum(c) && !strings.ContainsRune("_-.:", c) }) {
		return ""
	}
	return s
}

// visible returns s if it is an id: 1 to maxID visible ASCII characters.
func visible(s string) string {
	if len(s) > maxID || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return ""
	}
	return s
}
