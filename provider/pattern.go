package provider

import (
	"net/url"
	"slices"
	"strings"
)

// pattern is a parsed Endpoint.Pattern. net/http has patterns of this form,
// but compares unescaped paths, in which a "/" within a segment is lost, and
// would bring a server along.
type pattern struct {
	method   string
	segments []segment
	rest     bool // the last segment stands for all that follow
}

// segment is one part of a path between slashes. An empty text in one that is
// no wildcard is the slash at the end.
type segment struct {
	text string // escaped
	wild bool
}

func parsePattern(s string) (pattern, error) {
	method, path, ok := strings.Cut(s, " ")
	if !ok || !token(method) || !strings.HasPrefix(path, "/") {
		return pattern{}, invalid("pattern %q must be a method, one space, and a path that begins with /", s)
	}
	if i := strings.IndexFunc(path, func(c rune) bool { return c <= ' ' || c > '~' || c == '?' || c == '#' }); i >= 0 {
		return pattern{}, invalid("pattern %q: the path is compared in its escaped form, without query; character %d cannot stand in it", s, len(method)+2+i)
	}
	p := pattern{method: method}
	parts := strings.Split(path[1:], "/")
	var names []string
	for i, part := range parts {
		inner, wild := strings.CutPrefix(part, "{")
		if !wild {
			if strings.ContainsAny(part, "{}") {
				return pattern{}, invalid("pattern %q: braces must enclose a whole segment", s)
			}
			if _, err := url.PathUnescape(part); err != nil || dots(part) || part == "" && i < len(parts)-1 {
				return pattern{}, invalid("pattern %q: segment %q fits no path", s, part)
			}
			p.segments = append(p.segments, segment{text: part})
			continue
		}
		name, closed := strings.CutSuffix(inner, "}")
		name, rest := strings.CutSuffix(name, "...")
		if !closed || name == "" || strings.ContainsFunc(name, func(c rune) bool { return !alnum(c) && c != '_' }) {
			return pattern{}, invalid("pattern %q: a wildcard is like {id} or {rest...}", s)
		}
		if rest && i < len(parts)-1 {
			return pattern{}, invalid("pattern %q: {%s...} must come last", s, name)
		}
		if slices.Contains(names, name) {
			return pattern{}, invalid("pattern %q has {%s} twice", s, name)
		}
		names = append(names, name)
		p.segments = append(p.segments, segment{wild: true})
		p.rest = rest
	}
	return p, nil
}

// split cuts an escaped path into segments. It reports false for one with "."
// or ".." in it, which servers may take for another path than it seems.
func split(escaped string) ([]string, bool) {
	parts := strings.Split(strings.TrimPrefix(escaped, "/"), "/")
	return parts, !slices.ContainsFunc(parts, dots)
}

func dots(part string) bool {
	plain, err := url.PathUnescape(part)
	return err != nil || plain == "." || plain == ".."
}

// fits says whether a request's method and path are of this pattern.
func (p pattern) fits(method string, parts []string) bool {
	if method != p.method || len(parts) < len(p.segments) || len(parts) > len(p.segments) && !p.rest {
		return false
	}
	for i, s := range p.segments {
		switch {
		case p.rest && i == len(p.segments)-1:
			return true
		case s.wild && parts[i] == "", !s.wild && parts[i] != s.text:
			return false
		}
	}
	return true
}

// covers says whether p fits every request that q fits.
func (p pattern) covers(q pattern) bool {
	if p.method != q.method || len(q.segments) < len(p.segments) {
		return false
	}
	if !p.rest && (q.rest || len(q.segments) > len(p.segments)) {
		return false
	}
	for i, s := range p.segments {
		other := q.segments[i]
		switch {
		case p.rest && i == len(p.segments)-1:
			return true
		case q.rest && i == len(q.segments)-1:
			return false // it fits an empty segment here, and more of them
		case s.wild && !other.wild && other.text == "", !s.wild && s != other:
			return false
		}
	}
	return true
}
