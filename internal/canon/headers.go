package canon

import (
	"net/textproto"
	"strings"
)

// The lists in this file are the only place that says which headers and query
// parameters are credentials, which belong to the transport, and which trace
// a single exchange. Everything else is content.

// credentialHeaders are never stored, compared, logged or resent from a
// record.
var credentialHeaders = set(
	"Authorization", "Proxy-Authorization", "Cookie", "Cookie2", "Set-Cookie", "Set-Cookie2",
	"Www-Authenticate", "Proxy-Authenticate", "Authentication-Info",
	"Signature", "Signature-Input", "Dpop", "X-Amz-Date", "X-Amz-Content-Sha256",
	"Ocp-Apim-Subscription-Key", "X-Functions-Key", "X-Shopify-Storefront-Access-Token",
)

// credentialParts mark a header as a credential wherever they stand in its
// lower-case name; credentialEnds mark it at its end.
var (
	credentialParts = []string{"api-key", "apikey", "api_key", "secret", "password", "passwd", "credential", "x-auth-", "authorization", "access-key", "session"}
	credentialEnds  = []string{"-token", "-signature", "-jwt", "-auth"}
)

// hopHeaders are decided by the transport for each connection. They are
// dropped: storing them would carry one connection's needs into another.
var hopHeaders = set(
	"Connection", "Proxy-Connection", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
	"Content-Length", "Expect", "Host", "Http2-Settings",
)

// traceHeaders name one exchange. They are not stored; each call brings its
// own.
var traceHeaders = set(
	"Traceparent", "Tracestate", "Baggage", "B3", "X-Request-Id", "Request-Id", "X-Correlation-Id",
	"Correlation-Context", "Uber-Trace-Id", "X-Cloud-Trace-Context", "X-Amzn-Trace-Id", "Sentry-Trace", "Date",
)

var tracePrefixes = []string{"x-b3-", "x-datadog-", "x-ot-span-"}

// looseHeaders are stored and sent as they are, but do not change what is
// asked for, so they are not compared.
var looseHeaders = set(
	"User-Agent", "Accept-Encoding", "Cache-Control", "Pragma", "Dnt", "Via", "Forwarded",
	"X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip",
)

// credentialParams are query parameters that are credentials, in lower case.
// "key" is not among them: too many APIs mean something else by it, and a
// parameter that is left out of the comparison by mistake lets another
// request pass for the same.
var credentialParams = set(
	"api_key", "apikey", "api-key", "access_token", "auth_token", "id_token", "refresh_token", "token", "auth",
	"authorization", "client_secret", "secret", "password", "passwd", "pwd", "sig", "signature",
	"x-amz-signature", "x-amz-credential", "x-amz-security-token", "x-goog-signature", "x-goog-credential",
	"awsaccesskeyid", "session_token", "sessionid", "jwt",
)

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// Credential says whether the header may carry a credential. A header that
// carries an idempotency key is none, whatever else its name holds.
func Credential(header string) bool {
	if credentialHeaders[textproto.CanonicalMIMEHeaderKey(header)] {
		return true
	}
	lower := strings.ToLower(header)
	if strings.Contains(lower, "idempot") {
		return false
	}
	for _, p := range credentialParts {
		if strings.Contains(lower, p) {
			return true
		}
	}
	for _, e := range credentialEnds {
		if strings.HasSuffix(lower, e) {
			return true
		}
	}
	return false
}

// CredentialParam says whether the query parameter is a credential.
func CredentialParam(name string) bool { return credentialParams[strings.ToLower(name)] }

// Hop says whether the header belongs to one connection.
func Hop(header string) bool { return hopHeaders[textproto.CanonicalMIMEHeaderKey(header)] }

// Trace says whether the header names one exchange.
func Trace(header string) bool {
	if traceHeaders[textproto.CanonicalMIMEHeaderKey(header)] {
		return true
	}
	lower := strings.ToLower(header)
	for _, p := range tracePrefixes {
		if strings.HasPrefix(lower, p) {
			return true
		}
	}
	return false
}

// Compared says whether the header is part of what is asked for.
func Compared(header string) bool {
	return !Credential(header) && !Hop(header) && !Trace(header) && !looseHeaders[textproto.CanonicalMIMEHeaderKey(header)]
}
