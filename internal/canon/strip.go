package canon

import (
	"errors"
	"maps"
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

	doubtful []Part // digests of what may be content
}

// Parts gives the digests of those places that may hold a credential or
// content, to be compared with the rest: what is not stored must not be
// something else unnoticed.
func (t Taken) Parts() []Part { return t.doubtful }

// Names says which places held a credential, such as "header Authorization",
// sorted. Names are no secrets and are stored, so that a later process knows
// that the request cannot go out without them.
func (t Taken) Names() []string {
	var names []string
	for name := range t.Header {
		if !Trace(name) {
			names = append(names, "header "+name)
		}
	}
	if t.Userinfo != nil {
		names = append(names, "userinfo")
	}
	for _, q := range t.Query {
		name, _, _ := strings.Cut(q, "=")
		names = append(names, "query "+shown(unescaped(name)))
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
// given is not changed. declared are credentials beside those known here.
func Strip(r Request, declared Names) (Request, Taken, error) {
	var t Taken
	header := make(map[string][]string, len(r.Header))
	doubts := map[string][]string{}
	// In a fixed order: several spellings of one name are joined.
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		values, canonical := r.Header[name], textproto.CanonicalMIMEHeaderKey(name)
		k := declared.header(name)
		switch {
		case Hop(name):
		case k == content && !Trace(name):
			header[canonical] = append(header[canonical], values...)
		default:
			if t.Header == nil {
				t.Header = make(map[string][]string)
			}
			t.Header[canonical] = append(t.Header[canonical], values...)
			if k == doubtful {
				doubts["header "+canonical] = append(doubts["header "+canonical], values...)
			}
		}
	}
	r.Header = header

	u, err := url.Parse(r.URL)
	if err != nil {
		return r, t, errURL
	}
	changed := u.User != nil || u.Fragment != "" || strings.HasSuffix(r.URL, "#")
	t.Userinfo, u.User, u.Fragment, u.RawFragment = u.User, nil, "", ""
	var kept strings.Builder
	for sep, q := range pieces(u.RawQuery) {
		name, value, _ := strings.Cut(q, "=")
		name = unescaped(name)
		k := declared.param(name)
		if k == content {
			if kept.Len() > 0 {
				kept.WriteString(sep)
			}
			kept.WriteString(q)
			continue
		}
		t.Query, changed = append(t.Query, q), true
		if k == doubtful {
			place := "query " + shown(name)
			doubts[place] = append(doubts[place], unescaped(value))
		}
	}
	if changed {
		u.RawQuery = kept.String()
		r.URL = u.String()
	}
	for place, values := range doubts {
		t.doubtful = append(t.doubtful, part(place, values...))
	}
	return r, t, nil
}

// pieces yields the parts of a raw query with the separator before each. A
// semicolon separates too: net/url refuses it, but servers may not.
func pieces(raw string) func(yield func(sep, piece string) bool) {
	return func(yield func(string, string) bool) {
		sep := ""
		for raw != "" {
			i := strings.IndexAny(raw, "&;")
			if i < 0 {
				yield(sep, raw)
				return
			}
			if !yield(sep, raw[:i]) {
				return
			}
			sep, raw = raw[i:i+1], raw[i+1:]
		}
	}
}

// Clean takes userinfo and credential parameters out of a URL, such as one that
// a provider redirects to. It returns "" for what cannot be parsed.
func Clean(rawURL string) string {
	r, _, err := Strip(Request{URL: rawURL}, nil)
	if err != nil {
		return ""
	}
	return r.URL
}

func unescaped(s string) string {
	if u, err := url.QueryUnescape(s); err == nil {
		return u
	}
	return s
}
