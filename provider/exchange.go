package provider

import (
	"strings"
	"time"

	"github.com/samekey/samekey/keyring"
)

// Exchange is one attempt as it looks from here: what was sent, and what came
// back.
type Exchange struct {
	Method, URL string
	// Sent is the request, with the method and URL above. Without it, terms that
	// depend on what is in a request (Endpoint.TermsIf) are taken not to hold.
	Sent keyring.Request
	// Status is the HTTP status. Zero: there was no answer.
	Status int
	// Header is the answer's header, with canonical names as in http.Header.
	Header map[string][]string
	// Body is what could be read of the answer's body.
	Body []byte
	// Cut means that the body was not read whole: it ended early, is longer than
	// what is read, or could not be decoded.
	Cut bool
	// NotSent means that there is no answer because provably nothing was acted
	// upon: no connection, a refused stream, a deadline before the first byte.
	// It counts only with status zero.
	NotSent bool
	// Attempt is the number of the attempt, from 1. The general table does not
	// go by it; it is there for Endpoint.Success.
	Attempt int
	// Now is when the answer came, by the wall clock. Dates in Retry-After refer
	// to it where the provider tells no time of its own. Zero: such dates are
	// ignored.
	Now time.Time
}

// answer is an Exchange with what is read off it.
type answer struct {
	Exchange
	endpoint *endpoint
	dedup    keyring.Dedup // what is promised for this request
	genuine  bool          // of an expected type, or without a body and type
	empty    bool
	whole    bool // read whole and, if its type says JSON, valid
	replayed bool
	doc      *document
	codes    []string // at CodeAt, in that order
}

// hasSuccessRule says whether a 2xx alone is not enough.
func (e *endpoint) hasSuccessRule() bool { return e.SuccessAt != "" || e.Success != nil }

// open reads off an exchange what the table goes by.
func (c *compiled) open(x Exchange) answer {
	a := answer{Exchange: x, endpoint: c.endpoint(x.Method, x.URL), whole: !x.Cut}
	sent := &x.Sent
	if sent.Method != x.Method || sent.URL != x.URL {
		sent = nil
	}
	a.dedup = a.endpoint.termsFor(sent).Dedup
	a.empty = len(x.Body) == 0 && !x.Cut
	kind := mediaType(x.Header)
	a.genuine = c.genuine(a, kind)

	mark := c.spec.ReplayHeader
	a.replayed = mark != "" && strings.EqualFold(get(x.Header, mark), c.spec.ReplayValue)

	if a.empty || !a.whole || kind != "" && !isJSON(kind) {
		return a
	}
	at := [][]pointer{c.codeAt, c.effectIDAt}
	if a.endpoint.successAt != nil {
		at = append(at, []pointer{a.endpoint.successAt})
	}
	for _, list := range [][]rule{a.endpoint.rules, c.rules} {
		for _, r := range list {
			at = append(at, r.effectIDAt)
		}
	}
	a.doc = look(x.Body, at...)
	a.whole = a.doc != nil || !isJSON(kind)
	for _, p := range c.codeAt {
		if code := cleanCode(a.doc.text(p)); code != "" {
			a.codes = append(a.codes, code)
		}
	}
	return a
}

// genuine says whether the answer can be the provider's. Many APIs refuse
// without a body, hence also without a type; a page that a proxy or a sign-in
// portal wrote has both.
func (c *compiled) genuine(a answer, kind string) bool {
	switch {
	case a.Status == 204, a.Status == 205: // never with a body, so that the type is meaningless
		return true
	case kind == "" && a.empty:
		return true
	case a.Status/100 == 2 && len(a.endpoint.MediaTypes) > 0:
		return expected(a.endpoint.MediaTypes, kind)
	}
	return expected(c.spec.MediaTypes, kind) || expected(a.endpoint.MediaTypes, kind)
}
