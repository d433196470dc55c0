package provider

import (
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/samekey/samekey/keyring"
)

const (
	defaultKeyHeader = "Idempotency-Key"
	mintedKey        = 36 // characters of the keys that package keyring makes
)

var (
	defaultCodeAt = []string{
		"/error/code", "/error/type", "/code", "/type", "/__type", "/error",
		"/errors/0/code", "/error_code", "/errorCode",
	}
	defaultEffectIDAt = []string{"/id"}
	defaultRequestIDs = []string{"Request-Id", "X-Request-Id"}
	defaultMediaTypes = []string{"application/json", "+json"}
)

// compiled is a checked Spec, with its defaults filled in. Nothing changes it.
type compiled struct {
	err        error // what is wrong with the profile; then it has no endpoints
	spec       Spec
	codeAt     []pointer
	effectIDAt []pointer
	rules      []rule
	endpoints  []endpoint
}

// endpoint is a checked Endpoint.
type endpoint struct {
	Endpoint
	pattern   pattern
	successAt pointer
	rules     []rule
}

// rule is a checked Rule.
type rule struct {
	Rule
	effectIDAt []pointer
}

// New makes a profile. It reports keyring.ErrInvalid, and what to change, for
// a spec that contradicts itself or could not have been meant.
func New(s Spec) (Profile, error) {
	c, err := compile(s)
	if err != nil {
		return Profile{}, err
	}
	return Profile{c}, nil
}

// invalid makes an error about a profile.
func invalid(format string, args ...any) error {
	return fmt.Errorf("provider: %w: "+format, append([]any{keyring.ErrInvalid}, args...)...)
}

// broken is a profile that promises nothing and sends no key.
func broken(err error) *compiled {
	c, _ := compile(Spec{Name: "broken"}) // the defaults alone are fine, a test says so
	c.spec.Name, c.err = "", err
	return c
}

func compile(s Spec) (*compiled, error) {
	c := &compiled{spec: s}
	if err := checkName(s.Name); err != nil {
		return nil, err
	}
	var err error
	if c.spec.Origins, err = origins(s.Origins); err != nil {
		return nil, err
	}
	c.spec.KeyHeader = orString(s.KeyHeader, defaultKeyHeader)
	if c.spec.KeyHeader, err = keyHeader(c.spec.KeyHeader); err != nil {
		return nil, err
	}
	switch {
	case s.KeyMax == 0:
		c.spec.KeyMax = keyring.MaxKey
	case s.KeyMax < mintedKey || s.KeyMax > keyring.MaxKey:
		return nil, invalid("KeyMax is %d; it must be from %d, the length of the keys that are made, to %d", s.KeyMax, mintedKey, keyring.MaxKey)
	}
	for _, h := range []struct {
		field string
		value *string
	}{{"ReplayHeader", &c.spec.ReplayHeader}, {"AdviceHeader", &c.spec.AdviceHeader}} {
		if *h.value != "" {
			if *h.value, err = headerName(h.field, *h.value); err != nil {
				return nil, err
			}
		}
	}
	c.spec.ReplayValue = orString(s.ReplayValue, "true")
	c.spec.RequestIDHeaders = slices.Clone(orStrings(s.RequestIDHeaders, defaultRequestIDs))
	for i, h := range c.spec.RequestIDHeaders {
		if c.spec.RequestIDHeaders[i], err = headerName("RequestIDHeaders", h); err != nil {
			return nil, err
		}
	}
	if c.spec.MediaTypes, err = mediaTypes(orStrings(s.MediaTypes, defaultMediaTypes)); err != nil {
		return nil, err
	}
	if c.codeAt, err = pointers("CodeAt", orStrings(s.CodeAt, defaultCodeAt)); err != nil {
		return nil, err
	}
	if c.effectIDAt, err = pointers("EffectIDAt", orStrings(s.EffectIDAt, defaultEffectIDAt)); err != nil {
		return nil, err
	}
	if c.rules, err = rules(s.Rules); err != nil {
		return nil, err
	}
	for _, e := range s.Endpoints {
		if err := c.addEndpoint(e); err != nil {
			return nil, err
		}
	}
	// The originals belong to the caller, who may change them.
	c.spec.Endpoints, c.spec.Rules, c.spec.CodeAt, c.spec.EffectIDAt = nil, nil, nil, nil
	return c, nil
}

func (c *compiled) addEndpoint(e Endpoint) error {
	p, err := parsePattern(e.Pattern)
	if err != nil {
		return err
	}
	for _, earlier := range c.endpoints {
		if earlier.pattern.covers(p) {
			return invalid("pattern %q is never reached, since %q before it fits the same requests; put it first", e.Pattern, earlier.Pattern)
		}
	}
	if err := checkTerms(e, c.spec.Name); err != nil {
		return err
	}
	e.Terms.Profile = c.spec.Name
	if e.KeyHeader != "" {
		if e.KeyHeader, err = keyHeader(e.KeyHeader); err != nil {
			return err
		}
	}
	out := endpoint{Endpoint: e, pattern: p}
	if e.MediaTypes != nil {
		if out.MediaTypes, err = mediaTypes(e.MediaTypes); err != nil {
			return err
		}
	}
	if e.SuccessAt != "" {
		if out.successAt, err = parsePointer("SuccessAt", e.SuccessAt); err != nil {
			return err
		}
	}
	if out.rules, err = rules(e.Rules); err != nil {
		return err
	}
	out.Rules = nil
	c.endpoints = append(c.endpoints, out)
	return nil
}

// checkTerms refuses promises that do not go together, of which one is then
// likely a mistake.
func checkTerms(e Endpoint, name string) error {
	t := e.Terms
	for _, d := range []struct {
		field string
		d     time.Duration
	}{{"Retention", t.Retention}, {"Margin", t.Margin}, {"Spacing", t.Spacing}, {"Settle", t.Settle}} {
		if d.d < 0 {
			return invalid("%q: Terms.%s is negative", e.Pattern, d.field)
		}
	}
	switch {
	case t.Profile != "" && t.Profile != name:
		return invalid("%q: Terms.Profile is %q in the profile %q; leave it empty", e.Pattern, t.Profile, name)
	case t.Dedup > keyring.DedupNatural:
		return invalid("%q: Terms.Dedup has no known value", e.Pattern)
	case t.Dedup != keyring.DedupKey && (t.KeepsRefusals || t.MarksRunning):
		return invalid("%q: KeepsRefusals and MarksRunning are about keys; they need keyring.DedupKey", e.Pattern)
	case e.TermsIf != nil && t == keyring.Terms{Profile: t.Profile}:
		return invalid("%q: TermsIf is about Terms, and they promise nothing", e.Pattern)
	case e.NoKey && t.Dedup == keyring.DedupKey:
		return invalid("%q: de-duplication by key needs the key to be sent; NoKey forbids it", e.Pattern)
	case e.NoKey && e.KeyHeader != "":
		return invalid("%q: NoKey and KeyHeader contradict each other", e.Pattern)
	}
	return nil
}

// rules checks rules. What an incautious rule could do is give up the doubt
// about a status that does not settle it: that takes a code.
func rules(in []Rule) ([]rule, error) {
	var out []rule
	for _, r := range in {
		where := fmt.Sprintf("rule for status %d code %q", r.Status, r.Code)
		is2xx, is4xx := r.Status/100 == 2, r.Status/100 == 4
		certain := r.Kind == keyring.VerdictNotProcessed || r.Kind == keyring.VerdictRefused || r.Kind == keyring.VerdictAlready
		switch {
		case r.Status != 0 && (r.Status < 200 || r.Status > 599):
			return nil, invalid("%s: the status must be from 200 to 599", where)
		case r.Status == 0 && r.Code == "":
			return nil, invalid("%s: a rule needs a status or a code", where)
		case r.Kind > keyring.VerdictDone:
			return nil, invalid("%s: the kind has no known value", where)
		case r.Kind == keyring.VerdictDone && !is2xx && (r.Status == 0 || r.Code == ""):
			return nil, invalid("%s: a failure reads as done only with both a status and a code", where)
		case certain && !is4xx && r.Code == "":
			return nil, invalid("%s: this status reads as %v only with a code", where, r.Kind)
		case r.Vouched && r.Kind != keyring.VerdictNotProcessed:
			return nil, invalid("%s: Vouched is about keyring.VerdictNotProcessed", where)
		case r.ByOperation && r.Kind != keyring.VerdictRefused:
			return nil, invalid("%s: ByOperation is about keyring.VerdictRefused", where)
		case r.Code != "" && cleanCode(r.Code) != r.Code:
			return nil, invalid("%s: codes are compared without white space, URI or namespace; that one never fits", where)
		}
		at, err := pointers("Rule.EffectIDAt", r.EffectIDAt)
		if err != nil {
			return nil, err
		}
		r.EffectIDAt = nil
		out = append(out, rule{Rule: r, effectIDAt: at})
	}
	return out, nil
}

func checkName(name string) error {
	switch {
	case name == "":
		return invalid("a profile needs a name")
	case len(name) > 64 || visible(name) != name:
		return invalid("the profile's name must be up to 64 visible ASCII characters")
	}
	return nil
}

// origins returns the origins in the form in which they compare: lower case,
// without the scheme's own port.
func origins(in []string) ([]string, error) {
	var out []string
	for _, s := range in {
		u, err := url.Parse(s)
		switch {
		case err != nil || u.Hostname() == "" || u.Scheme != "https" && u.Scheme != "http":
			return nil, invalid("each origin must be like https://api.example.com")
		case u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Opaque != "" || u.Path != "" && u.Path != "/":
			return nil, invalid("origin %s://%s must have no path, query or user", u.Scheme, u.Host)
		}
		host := strings.ToLower(u.Host)
		host = strings.TrimSuffix(host, map[string]string{"https": ":443", "http": ":80"}[u.Scheme])
		out = append(out, u.Scheme+"://"+host)
	}
	return out, nil
}

// takenHeaders are never the key's: they have a meaning of their own on every
// request, or are made anew per attempt.
var takenHeaders = []string{
	"Authorization", "Connection", "Content-Length", "Content-Type", "Cookie",
	"Host", "Proxy-Authorization", "Te", "Trailer", "Transfer-Encoding", "Upgrade",
}

func keyHeader(name string) (string, error) {
	name, err := headerName("KeyHeader", name)
	if err == nil && slices.Contains(takenHeaders, name) {
		return "", invalid("KeyHeader: %s has another meaning", name)
	}
	return name, err
}

// headerName returns the canonical form of a header's name.
func headerName(field, name string) (string, error) {
	if !token(name) {
		return "", invalid("%s: %q is not a header's name", field, name)
	}
	return textproto.CanonicalMIMEHeaderKey(name), nil
}

// mediaTypes returns the types in lower case.
func mediaTypes(in []string) ([]string, error) {
	var out []string
	for _, s := range in {
		main, sub, ok := strings.Cut(s, "/")
		switch {
		case s == "*/*":
		case strings.HasPrefix(s, "+") && token(s[1:]):
		case ok && token(main) && token(sub) && !strings.Contains(s, "*"):
		default:
			return nil, invalid(`media type %q is neither like "application/json" nor "+json" nor "*/*"`, s)
		}
		out = append(out, strings.ToLower(s))
	}
	return out, nil
}

// token says whether s is an HTTP token (RFC 9110, 5.6.2).
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return !alnum(c) && !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}

// alnum says whether c is an ASCII letter or digit.
func alnum(c rune) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

func orString(s, def string) string {
	if s == "" {
		return def
	}
	return s
}

func orStrings(s, def []string) []string {
	if len(s) == 0 {
		return def
	}
	return s
}
