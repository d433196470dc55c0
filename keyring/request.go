package keyring

import (
	"bytes"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Request is what is sent, byte for byte. Header names are canonical
// ("Content-Type"). Credentials are no part of it: those found in Header or
// URL are taken out before anything is stored, see package client for how
// they are put in again for each attempt.
type Request struct {
	Method string // "POST"; required
	URL    string // absolute, http or https; required
	Header map[string][]string
	Body   []byte
}

// clone copies r, so that nothing the caller changes later matters.
func (r Request) clone() Request {
	c := Request{Method: r.Method, URL: r.URL, Body: bytes.Clone(r.Body)}
	if r.Header != nil {
		c.Header = make(map[string][]string, len(r.Header))
		for name, values := range maps.All(r.Header) {
			c.Header[name] = slices.Clone(values)
		}
	}
	return c
}

// check reports ErrInvalid for a request that cannot be sent as it stands.
// It never quotes the URL's query or userinfo, which may hold secrets.
func (r Request) check() error {
	if r.Method == "" || strings.ContainsFunc(r.Method, func(c rune) bool { return !tokenChar(c) }) {
		return fmt.Errorf("%w: the method is empty or not an HTTP token", ErrInvalid)
	}
	u, err := url.Parse(r.URL)
	if err != nil { // err quotes the URL
		return fmt.Errorf("%w: the URL cannot be parsed", ErrInvalid)
	}
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return fmt.Errorf("%w: the URL must begin with http:// or https://", ErrInvalid)
	case u.Hostname() == "":
		return fmt.Errorf("%w: the URL names no host", ErrInvalid)
	case u.Opaque != "":
		return fmt.Errorf("%w: the URL has no path of its own (opaque form)", ErrInvalid)
	}
	for name, values := range r.Header {
		if name == "" || strings.ContainsFunc(name, func(c rune) bool { return !tokenChar(c) }) {
			return fmt.Errorf("%w: header name %q is not an HTTP token", ErrInvalid, name)
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
				return fmt.Errorf("%w: header %s has a control character in its value", ErrInvalid, name)
			}
		}
	}
	return nil
}

// tokenChar says whether c may stand in an HTTP token (RFC 9110, 5.6.2).
func tokenChar(c rune) bool {
	switch {
	case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		return true
	}
	return strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// String says where the request goes and how long its body is, and no more: a
// request in a log must not be a body in a log.
func (r Request) String() string {
	where := "an unreadable URL"
	if u, err := url.Parse(r.URL); err == nil {
		where = u.Scheme + "://" + u.Host + u.EscapedPath()
	}
	return fmt.Sprintf("%s %s (%d bytes)", r.Method, where, len(r.Body))
}
