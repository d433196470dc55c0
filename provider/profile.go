package provider

import (
	"maps"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/samekey/samekey/keyring"
)

// Profile is what is known of a provider. It is made by [New] or [Draft], or
// comes with this package ([Lookup]). It never changes, is cheap to copy, and may be used from many goroutines.
//
// The zero Profile promises nothing and sends no key; it reads answers by the
// general table. Its Err reports that.
type Profile struct{ c *compiled }

var zeroProfile = broken(invalid("this profile is empty; use a profile of this package, provider.Draft or provider.New"))

func (p Profile) compiled() *compiled {
	if p.c == nil {
		return zeroProfile
	}
	return p.c
}

// Err reports keyring.ErrInvalid if the profile is not usable: a zero one, or
// what [Draft] or [Mastodon] made of arguments that make no sense. Nothing is to be sent
// with such a profile.
func (p Profile) Err() error { return p.compiled().err }

// Name returns the profile's name, which stands in keyring.Terms.Profile. It
// is empty if Err reports an error.
func (p Profile) Name() string { return p.compiled().spec.Name }

// Origins returns where the provider lives, in lower case and without the
// scheme's own port, in a slice of the caller's own. Empty: the caller names
// the origins.
func (p Profile) Origins() []string { return slices.Clone(p.compiled().spec.Origins) }

// MaxKey returns the largest number of characters a key may have.
func (p Profile) MaxKey() int { return p.compiled().spec.KeyMax }

// TermsFor returns what the provider promises for a request. For one that no
// endpoint lists, or whose endpoint promises nothing for what is in it, only
// Terms.Profile is set. It is the same before and after [Profile.Place].
func (p Profile) TermsFor(r keyring.Request) keyring.Terms {
	return p.compiled().terms(r.Method, r.URL, &r)
}

// Terms returns what the provider promises for all requests of this method and
// URL, whatever is in them. That is less than [Profile.TermsFor] returns where
// an endpoint has a TermsIf, and the same elsewhere.
func (p Profile) Terms(method, rawURL string) keyring.Terms {
	return p.compiled().terms(method, rawURL, nil)
}

// KeyHeader returns the canonical name of the header that carries the key of
// such a request, or "" if no key goes along. Requests that no endpoint lists
// take it if they are a POST or PATCH: it may protect and does no harm. Whether
// the terms hold for what is in the request does not matter here.
func (p Profile) KeyHeader(method, rawURL string) string {
	c := p.compiled()
	if c.err != nil {
		return ""
	}
	e := c.endpoint(method, rawURL)
	switch {
	case e.NoKey:
		return ""
	case e.KeyHeader != "":
		return e.KeyHeader
	case e.Terms.Dedup == keyring.DedupKey, method == "POST", method == "PATCH":
		return c.spec.KeyHeader
	}
	return ""
}

// Place returns what puts a key into such a request, or nil if no key goes
// along. It is pure, and leaves the request that it is given as it is.
//
// The returned function reports keyring.ErrInvalid for no key, for one that is
// longer than the provider takes, and for a request that carries another key
// already.
func (p Profile) Place(method, rawURL string) func(keyring.Request, keyring.Key) (keyring.Request, error) {
	name := p.KeyHeader(method, rawURL)
	if name == "" {
		return nil
	}
	spec := &p.compiled().spec
	return func(r keyring.Request, key keyring.Key) (keyring.Request, error) {
		bare := key.String()
		switch {
		case key.IsZero():
			return keyring.Request{}, invalid("there is no key to place")
		case len(bare) > spec.KeyMax:
			return keyring.Request{}, invalid("the key has %d characters, %s takes at most %d", len(bare), spec.Name, spec.KeyMax)
		}
		quoted := `"` + bare + `"` // a Key has neither quotes nor backslashes in it
		for other, values := range r.Header {
			if textproto.CanonicalMIMEHeaderKey(other) != name {
				continue
			}
			for _, v := range values {
				if v != bare && v != quoted {
					return keyring.Request{}, invalid("the request has a %s header of its own; leave it out, or make the key from it with keyring.ParseKey", name)
				}
			}
		}
		header := make(map[string][]string, len(r.Header)+1)
		for other, values := range maps.All(r.Header) {
			if textproto.CanonicalMIMEHeaderKey(other) != name {
				header[other] = values
			}
		}
		if header[name] = []string{bare}; spec.QuotedKey {
			header[name] = []string{quoted}
		}
		r.Header = header
		return r, nil
	}
}

func (c *compiled) terms(method, rawURL string, r *keyring.Request) keyring.Terms {
	t := c.endpoint(method, rawURL).termsFor(r)
	t.Profile = c.spec.Name
	return t
}

// termsFor returns what is promised for a request that fits the endpoint. Nil:
// the request is not at hand.
func (e *endpoint) termsFor(r *keyring.Request) keyring.Terms {
	if e.TermsIf != nil && (r == nil || !e.TermsIf(*r)) {
		return keyring.Terms{}
	}
	return e.Terms
}

// endpoint returns the first endpoint that fits, or an empty one.
func (c *compiled) endpoint(method, rawURL string) *endpoint {
	u, err := url.Parse(rawURL)
	if err != nil || u.Opaque != "" {
		return &endpoint{}
	}
	path := u.EscapedPath()
	if path == "" {
		path = "/"
	}
	parts, ok := split(path)
	if !ok || !strings.HasPrefix(path, "/") {
		return &endpoint{}
	}
	for i := range c.endpoints {
		if c.endpoints[i].pattern.fits(method, parts) {
			return &c.endpoints[i]
		}
	}
	return &endpoint{}
}
