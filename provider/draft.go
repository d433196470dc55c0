package provider

import (
	"time"

	"github.com/samekey/samekey/keyring"
)

// Draft is the profile of a server that follows the IETF draft on the
// Idempotency-Key header (draft-ietf-httpapi-idempotency-key-header-07 of
// 2025-10-15, read 2026-11; lapsed, not an RFC) for the requests that fit the
// patterns: it acts once per key, keeps completed errors like successes, and
// recognises the key of a request that it is still working on. The key travels
// in double quotes, in the header Idempotency-Key.
//
// The draft leaves the codes to the server: of a 409 or 422 only those that
// [Profile.Read] lists are understood, and the type that the draft's own
// examples have (".../idempotency"). Other 409s are doubt.
//
// The profile's name is "draft", which is stored with each intent. A client with
// a profile of another name does not send what was begun under this one: settle
// what is open before moving to a [Spec], or give the Spec the Name "draft".
// All that Draft describes has this name: Client.Resume of one server takes up
// what is open at another, unless each has a scope or a keyring of its own.
//
// The retention is what the server publishes; zero means that it is unknown,
// and keyring.Forever that keys are never forgotten. A negative retention, no
// pattern or a bad one make a profile whose Err reports keyring.ErrInvalid. For
// the patterns see [Endpoint].
func Draft(retention time.Duration, patterns ...string) Profile {
	if retention < 0 {
		return Profile{broken(invalid("the retention is negative; zero means unknown, keyring.Forever without end"))}
	}
	if len(patterns) == 0 {
		return Profile{broken(invalid(`name the requests that the server de-duplicates, such as "POST /v1/orders"`))}
	}
	s := Spec{
		Name:      "draft",
		QuotedKey: true,
		Rules: []Rule{
			// The examples of section 2.7 share one type and differ in status.
			{Status: 400, Code: "idempotency", Kind: keyring.VerdictRefused},
			{Status: 409, Code: "idempotency", Kind: keyring.VerdictPending},
			{Status: 422, Code: "idempotency", Kind: keyring.VerdictConflict},
		},
	}
	for _, p := range patterns {
		s.Endpoints = append(s.Endpoints, Endpoint{
			Pattern: p,
			Terms: keyring.Terms{
				Dedup:         keyring.DedupKey,
				KeepsRefusals: true,
				MarksRunning:  true,
				Retention:     retention,
			},
		})
	}
	return made(s)
}
