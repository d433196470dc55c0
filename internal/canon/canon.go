// Package canon decides whether two requests ask for the same.
//
// What is compared is a list of parts, each with a name that is safe to show
// ("method", "query dry_run", "header Stripe-Account", "body") and a digest.
// Equal lists are equal requests; where they differ, the names say where.
// The list's form has a version, which is stored with it: a later version of
// samekey compares an old record by the form it was stored under.
package canon

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Request is what is compared.
type Request struct {
	Method, URL string
	Header      map[string][]string
	Body        []byte
}

// Form 1 compares method, origin, path, query sorted by name, the headers
// that are content (see [Compared]), and the body by its bytes.
const Form1 uint8 = 1

// Latest is the form that new intents are stored under.
const Latest = Form1

// Part is one place of a request with the digest of what stands there.
type Part struct {
	Name string
	Sum  [16]byte // first half of SHA-256: parts are told apart, not authenticated
}

// Parts lists the places of r, which has been through [Strip], together with
// more, sorted by name. It is an error if form is not known to this version, or
// the URL cannot be parsed.
func Parts(form uint8, r Request, more ...Part) ([]Part, error) {
	if form != Form1 {
		return nil, fmt.Errorf("comparison form %d is not known to this version of samekey; update it", form)
	}
	u, err := url.Parse(r.URL)
	if err != nil {
		return nil, errURL
	}
	parts := []Part{
		part("method", r.Method),
		part("origin", origin(u)),
		part("path", path(u)),
		{Name: "body", Sum: half(sha256.Sum256(r.Body))},
	}
	parts = append(parts, query(u.RawQuery)...)
	for name, values := range r.Header {
		if name = textproto.CanonicalMIMEHeaderKey(name); Compared(name) && len(values) > 0 {
			parts = append(parts, part("header "+name, values...))
		}
	}
	parts = append(parts, more...)
	slices.SortFunc(parts, func(a, b Part) int { return strings.Compare(a.Name, b.Name) })
	return parts, nil
}

// Sum is the digest over the parts: equal for equal lists only.
func Sum(form uint8, parts []Part) [32]byte {
	h := sha256.New()
	h.Write([]byte{form})
	for _, p := range parts {
		writeString(h.Write, p.Name)
		h.Write(p.Sum[:])
	}
	return [32]byte(h.Sum(nil))
}

// Differences names the places in which two sorted lists differ, sorted.
func Differences(a, b []Part) []string {
	var names []string
	for len(a) > 0 || len(b) > 0 {
		switch {
		case len(b) == 0 || len(a) > 0 && a[0].Name < b[0].Name:
			names, a = append(names, a[0].Name), a[1:]
		case len(a) == 0 || b[0].Name < a[0].Name:
			names, b = append(names, b[0].Name), b[1:]
		default:
			if a[0].Sum != b[0].Sum {
				names = append(names, a[0].Name)
			}
			a, b = a[1:], b[1:]
		}
	}
	return names
}

// Origin returns scheme, host and port of a URL in lower case, without a
// default port: "https://api.example.com". Empty if rawURL has none.
func Origin(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return ""
	}
	return origin(u)
}

func origin(u *url.URL) string {
	scheme, host, port := strings.ToLower(u.Scheme), strings.ToLower(u.Hostname()), u.Port()
	if scheme == "https" && port == "443" || scheme == "http" && port == "80" {
		port = ""
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if port != "" {
		host += ":" + port
	}
	return scheme + "://" + host
}

func path(u *url.URL) string {
	if p := u.EscapedPath(); p != "" {
		return p
	}
	return "/"
}

// query makes one part per parameter name. The order of a name's values
// counts, the order of names does not. A query that does not parse is one
// part, by its bytes.
func query(raw string) []Part {
	if raw == "" {
		return nil
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return []Part{part("query", raw)}
	}
	parts := make([]Part, 0, len(values))
	for name, v := range values {
		parts = append(parts, part("query "+shown(name), v...))
	}
	return parts
}

// shown makes a name safe to print: a name with odd characters, or a long
// one, could be data. It stays unique, since the parts are told apart by it.
func shown(name string) string {
	for _, c := range name {
		if c < '!' || c > '~' {
			return strconv.QuoteToASCII(name)
		}
	}
	return name
}

func part(name string, values ...string) Part {
	h := sha256.New()
	for _, v := range values {
		writeString(h.Write, v)
	}
	return Part{Name: name, Sum: half([32]byte(h.Sum(nil)))}
}

// writeString writes s after its length, so that "ab","c" and "a","bc" differ.
func writeString(write func([]byte) (int, error), s string) {
	var n [8]byte
	binary.BigEndian.PutUint64(n[:], uint64(len(s)))
	_, _ = write(n[:]) // a hash never fails
	_, _ = write([]byte(s))
}

func half(sum [32]byte) [16]byte { return [16]byte(sum[:16]) }
