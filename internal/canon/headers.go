package canon

import (
	"net/textproto"
	"strings"
)

// The lists in this file are the only place that says which headers and query
// parameters are credentials, which belong to the transport, and which trace
// a single exchange. Everything else is content.

// Names are compared without case, hyphens, underscores and dots, so that
// X-Api-Key, x_api_key and xApiKey are one.

// credentialHeaders are never stored, compared, logged or resent from a
// record: what they hold changes from attempt to attempt.
var credentialHeaders = set(
	"authorization", "proxyauthorization", "cookie", "cookie2", "setcookie", "setcookie2",
	"wwwauthenticate", "proxyauthenticate", "authentication", "authenticationinfo", "proxyauthenticationinfo",
	"xapikey", "apikey", "xauthkey", "xauthtoken", "authtoken", "xaccesstoken", "accesstoken", "xidtoken", "xrefreshtoken",
	"xcsrftoken", "xxsrftoken", "csrftoken", "xvaulttoken", "privatetoken", "jobtoken", "deploytoken", "bearer", "xbearer",
	"xgoogapikey", "xshopifyaccesstoken", "xshopifystorefrontaccesstoken", "ocpapimsubscriptionkey", "xfunctionskey",
	"signature", "signatureinput", "dpop", "xamzdate", "xamzcontentsha256", "xamzsecuritytoken", "xsignature", "xtimestampsignature",
	"xjwtassertion", "paypalauthassertion", "cbaccesskey", "cbaccesspassphrase", "cbaccesssign", "cbaccesstimestamp",
	"apikeysign", "apisign", "apinonce", "ddapikey", "ddapplicationkey", "xotp",
)

// doubtfulParts and doubtfulEnds mark a header as one that may hold a
// credential, and may as well hold what is asked for: an X-Card-Token names the
// card. It is not stored, as a credential, and it is compared by its digest, as
// content.
var (
	doubtfulParts = []string{
		"apikey", "accesskey", "applicationkey", "secret", "password", "passwd", "passphrase", "credential", "session", "bearer",
		"jwt", "assertion", "authorization", "authentication",
	}
	doubtfulEnds = []string{"-token", "-signature", "-sign", "-auth", "-otp", "-pin"}
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

// credentialParams are query parameters that are credentials, and
// doubtfulParams those that may be, or may be what is asked for; see above.
// "key" is in neither: too many APIs mean something else by it.
var (
	credentialParams = set(
		"apikey", "hapikey", "accesstoken", "authtoken", "idtoken", "refreshtoken", "oauthtoken", "oauthsignature", "oauthnonce",
		"oauthtimestamp", "oauthconsumerkey", "clientsecret", "privatetoken", "sessiontoken", "jwt", "bearer", "authorization",
		"sig", "signature", "xamzsignature", "xamzcredential", "xamzsecuritytoken", "xamzdate", "xgoogsignature", "xgoogcredential",
		"awsaccesskeyid", "subscriptionkey", "hmac", "googleaccessid",
	)
	doubtfulParams = set(
		"token", "secret", "auth", "password", "passwd", "pwd", "passphrase", "credential", "credentials", "session", "sessionid", "otp",
		"usertoken", "accesskey", "appkey", "authkey", "pin",
	)
)

// kind says what a name stands for.
type kind uint8

const (
	content    kind = iota
	doubtful        // not stored, compared by digest
	credential      // not stored, not compared
)

var folding = strings.NewReplacer("-", "", "_", "", ".", "", " ", "")

// fold gives the form in which names are looked up.
func fold(name string) string { return folding.Replace(strings.ToLower(name)) }

// Names is a set of names that a program declares to be credentials.
type Names map[string]bool

// NamesOf makes a set of names as they are written anywhere.
func NamesOf(names []string) Names {
	n := make(Names, len(names))
	for _, name := range names {
		n[fold(name)] = true
	}
	return n
}

// header says what a header stands for. One that carries an idempotency key
// is content, whatever else its name holds.
func (n Names) header(name string) kind {
	folded, lower := fold(name), strings.ToLower(name)
	switch {
	case n[folded], credentialHeaders[folded]:
		return credential
	case strings.Contains(lower, "idempot"):
		return content
	case strings.HasPrefix(lower, "x-auth-"):
		return doubtful
	}
	for _, p := range doubtfulParts {
		if strings.Contains(folded, p) {
			return doubtful
		}
	}
	for _, e := range doubtfulEnds {
		if strings.HasSuffix(lower, e) {
			return doubtful
		}
	}
	return content
}

// param says what a query parameter stands for. Of a name with brackets, such
// as auth[api_key], each part counts.
func (n Names) param(name string) kind {
	most := content
	for _, part := range strings.FieldsFunc(name, func(c rune) bool { return c == '[' || c == ']' }) {
		switch folded := fold(part); {
		case n[folded], credentialParams[folded]:
			return credential
		case doubtfulParams[folded]:
			most = doubtful
		}
	}
	return most
}

func set(names ...string) map[string]bool {
	m := make(map[string]bool, len(names))
	for _, n := range names {
		m[n] = true
	}
	return m
}

// Credential says whether the header is, or may be, a credential: one that is
// not stored.
func Credential(header string) bool { return Names(nil).Header(header) }

// Header says whether the header is, or may be, a credential.
func (n Names) Header(name string) bool { return n.header(name) != content }

// Param says whether the query parameter is, or may be, a credential.
func (n Names) Param(name string) bool { return n.param(name) != content }

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
