package canon

import (
	"errors"
	"net/textproto"
	"net/url"
	"slices"
	"strings"
)

// Taken is what [Strip] took out of a request: what each call has to bring
// again. Its values are secrets; it is kept in memory for one call only.
type Taken struct {
	Header   map[string][]string // credentials and tracing headers
	Userinfo *url.Userinfo       // the URL's user and password
	Query    []string            // credential parameters as they stood, "name=value"
}

// Names says which places held a credential, such as "header Authorization",
// sorted. Names are no secrets and are stored, so that a later process knows
// that the request cannot go out without them.
func (t Taken) Names() []string {
	var names []string
	for name := range t.Header {
		if Credential(name) {
			names = append(names, "header "+name)
		}
	}
	if t.Userinfo != nil {
		names = append(names, "userinfo")
	}
	for _, q := range t.Query {
		name, _, _ := strings.Cut(q, "=")
		names = append(names, "query "+unescaped(name))
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Put adds what was taken to a request: headers, userinfo, parameters. It
// never replaces a header that the request has.
func (t Taken) Put(r Request) (Request, error) {
	if len(t.Header) > 0 {
		header := make(map[string][]string, len(r.Header)+len(t.Header))
		for name, values := range t.Header {
			header[name] = values
		}
		for name, values := range r.Header {
			header[name] = values
		}
		r.Header = header
	}
	if t.Userinfo == nil && len(t.Query) == 0 {
		return r, nil
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return r, errURL
	}
	u.User = t.Userinfo
	for _, q := range t.Query {
		if u.RawQuery != "" {
			u.RawQuery += "&"
		}
		u.RawQuery += q
	}
	r.URL = u.String()
	return r, nil
}

// errURL stands for net/url's errors, which quote the URL.
var errURL = errors.New("the URL cannot be parsed")

// Strip takes credentials, tracing and hop-by-hop headers, userinfo,
// credential parameters and the fragment out of a request. What it returns is
// what may be stored; every other byte of it stays as it was. The request
// given is not changed.
func Strip(r Request) (Request, Taken, error) {
	var t Taken
	header := make(map[string][]string, len(r.Header))
	for name, values := range r.Header {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		switch {
		case Hop(name):
		case Credential(name), Trace(name):
			if t.Header == nil {
				t.Header = make(map[string][]string)
			}
			t.Header[canonical] = append(t.Header[canonical], values...)
		default:
			header[canonical] = append(header[canonical], values...)
		}
	}
	r.Header = header

	u, err := url.Parse(r.URL)
	if err != nil {
		return r, t, errURL
	}
	changed := u.User != nil || u.Fragment != "" || strings.HasSuffix(r.URL, "#")
	t.Userinfo, u.User, u.Fragment, u.RawFragment = u.User, nil, "", ""
	if u.RawQuery != "" {
		var kept []string
		for _, q := range strings.Split(u.RawQuery, "&") {
			name, _, _ := strings.Cut(q, "=")
			if CredentialParam(unescaped(name)) {
				t.Query = append(t.Query, q)
				changed = true
			} else {
				kept = append(kept, q)
			}
		}
		u.RawQuery = strings.Join(kept, "&")
	}
	if changed {
		r.URL = u.String()
	}
	return r, t, nil
}

func unescaped(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}
