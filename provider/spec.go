package provider

import (
	"github.com/samekey/samekey/keyring"
)

// Spec describes a provider for [New]. Only Name is required; each other
// field's zero value is the common or the cautious case.
type Spec struct {
	// Name names the profile, such as "stripe". It is stored with each intent,
	// and a client sends only intents of its own profile, so that it must not
	// change later. Required; up to 64 visible ASCII characters.
	Name string
	// Origins are where the provider lives, such as "https://api.example.com".
	// Credentials go nowhere else. Empty: the caller names them.
	Origins []string
	// KeyHeader is the header that carries the key. Empty means
	// "Idempotency-Key".
	KeyHeader string
	// QuotedKey sends the key in double quotes, as the string of RFC 8941 that
	// the IETF draft asks for. Most providers want it bare.
	QuotedKey bool
	// KeyMax is the largest number of characters a key may have here. Zero means
	// keyring.MaxKey. It is at least 36, the length of the keys that are made.
	KeyMax int
	// Endpoints are the requests that something is known of. The first whose
	// pattern fits counts. A request that fits none is promised nothing.
	Endpoints []Endpoint
	// Rules say what codes mean beyond the general table; see [Profile.Read]
	// for the order in which they are tried.
	Rules []Rule
	// CodeAt are the JSON pointers at which the provider's code may stand, the
	// most specific first. Of a URI the last segment or the fragment counts, and
	// of "namespace#Code" what follows the "#". Empty means the places that
	// most APIs use:
	//
	//	/error/code   /error/type   /code   /type   /__type   /error
	//	/errors/0/code   /error_code   /errorCode
	CodeAt []string
	// EffectIDAt are the JSON pointers at which a 2xx answer may name the effect.
	// Empty means "/id".
	EffectIDAt []string
	// ReplayHeader marks a stored answer that is repeated, such as
	// "Idempotent-Replayed". Empty: the provider has no mark.
	ReplayHeader string
	// ReplayValue is the mark's value. Empty means "true".
	ReplayValue string
	// AdviceHeader says "true" or "false" about sending again, such as
	// "Stripe-Should-Retry". Empty: the provider gives no such advice.
	AdviceHeader string
	// RequestIDHeaders carry the provider's id of the exchange; the first one
	// that is there counts. Empty means "Request-Id" and "X-Request-Id".
	RequestIDHeaders []string
	// MediaTypes are the types of genuine answers: "application/json"; "+json"
	// for all types that end so; "*/*" for any, or none. An answer of another
	// type is taken for a stranger's. Empty means "application/json" and "+json".
	MediaTypes []string
}

// Endpoint is what is known of one kind of request.
type Endpoint struct {
	// Pattern is a method and a path: "POST /v1/charges", "DELETE /posts/{id}",
	// "POST /{rest...}". {id} stands for one segment, {rest...} for all that
	// follow; a slash at the end counts. Segments are compared in their escaped
	// form, the method exactly; host and query are not looked at.
	Pattern string
	// Terms are what the provider promises here. Terms.Profile is filled in.
	Terms keyring.Terms
	// TermsIf says whether Terms hold for a request that fits the pattern, where
	// that depends on its header, query or body: a member that makes the provider
	// overlook the key, say. It must be pure, must not change the request, and
	// must say no where it cannot tell. Where it says no, or where the request is
	// not at hand ([Profile.Terms]), nothing is promised. Nil: they hold for all.
	TermsIf func(keyring.Request) bool
	// KeyHeader replaces the profile's header here. Naming it also sends the key
	// with a request that would go without.
	KeyHeader string
	// NoKey sends no key, not even with a POST or PATCH.
	NoKey bool
	// Accepted means that a 202 is the effect. Otherwise it is read as pending,
	// since what was accepted may fail later.
	Accepted bool
	// MediaTypes are the types of genuine 2xx answers here, in place of the
	// profile's. Refusals are taken in either. Empty: the profile's.
	MediaTypes []string
	// SuccessAt is a JSON pointer to a member without which a 2xx is not a
	// success, such as "/data/refund/id". A member that is null, false or ""
	// counts as missing, and so does one that is repeated. Empty: none is needed.
	SuccessAt string
	// Success says whether a 2xx is a success, after all else agreed. It must be
	// pure, and is not called for an answer that could not be read whole. Nil:
	// it is.
	Success func(Exchange) bool
	// Rules are tried before the profile's.
	Rules []Rule
}

// Rule says how an answer is read. It applies only to answers of the expected
// type (or without body and type) that were read whole.
type Rule struct {
	// Status is the HTTP status, from 200 to 599. Zero means any from 400 to
	// 499; such a rule needs a code.
	Status int
	// Code is the provider's code, compared exactly. Empty: any or none.
	Code string
	// Kind is the verdict. Zero is doubt. A status other than a 4xx reads as not
	// processed, already or refused only with a code; one other than a 2xx reads
	// as done only with both a status and a code.
	Kind keyring.VerdictKind
	// NoResend means that sending again would tell nothing new, or is unsafe.
	NoResend bool
	// ByOperation, of a refusal, means that the operation itself refused, behind
	// the look-up of the key, so that the refusal may settle earlier doubt.
	// Otherwise, and for an answer without a body, the verdict has Front set,
	// unless the answer has the replay mark.
	ByOperation bool
	// SignIn means that working credentials are missing.
	SignIn bool
	// Vouched, of keyring.VerdictNotProcessed, means that it holds even where
	// nothing is de-duplicated: no proxy in between resends a request.
	Vouched bool
	// EffectIDAt are JSON pointers at which such an answer names the effect: an
	// error that links to what exists already, say.
	EffectIDAt []string
}
