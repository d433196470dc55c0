package provider

import (
	"errors"
	"mime"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxWish is the longest wait that a provider's wish is read as: a day.
const maxWish = 24 * time.Hour

// get returns the header's first value, without surrounding white space.
func get(header map[string][]string, name string) string {
	if v := header[name]; len(v) > 0 {
		return strings.TrimSpace(v[0])
	}
	return ""
}

// mediaType returns the answer's type in lower case, without parameters; ""
// where there is none; "?" where it cannot be read or is said in two ways.
func mediaType(header map[string][]string) string {
	values := header["Content-Type"]
	if len(values) == 0 {
		return ""
	}
	for _, v := range values[1:] {
		if v != values[0] {
			return "?"
		}
	}
	if strings.TrimSpace(values[0]) == "" {
		return ""
	}
	t, _, err := mime.ParseMediaType(values[0])
	if err != nil && !errors.Is(err, mime.ErrInvalidMediaParameter) {
		return "?"
	}
	return t
}

// expected says whether the list has the type.
func expected(list []string, mediaType string) bool {
	return slices.ContainsFunc(list, func(want string) bool {
		switch {
		case want == "*/*":
			return true
		case strings.HasPrefix(want, "+"):
			return strings.Contains(mediaType, "/") && strings.HasSuffix(mediaType, want)
		}
		return mediaType == want
	})
}

// isJSON says whether bodies of the type are JSON.
func isJSON(mediaType string) bool {
	return mediaType == "application/json" || strings.HasSuffix(mediaType, "+json") ||
		strings.HasPrefix(mediaType, "application/x-amz-json-") // AWS, with a version behind it
}

// retryAfter returns the longest of the waits that the answer asks for, from 0
// to maxWish. What is not a whole number of seconds or an HTTP date asks for
// none.
func retryAfter(header map[string][]string, now time.Time) time.Duration {
	var longest time.Duration
	for _, v := range header["Retry-After"] {
		longest = max(longest, wish(strings.TrimSpace(v), now))
	}
	return longest
}

// wish reads one Retry-After. now is the clock that dates refer to, the
// provider's own where it told it; zero: it is not known, and dates ask for
// nothing.
func wish(s string, now time.Time) time.Duration {
	if digits := strings.TrimLeft(s, "0123456789"); digits == "" && s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n > uint64(maxWish/time.Second) { // compared as a number of seconds, so that nothing overflows
			return maxWish
		}
		return time.Duration(n) * time.Second
	}
	at, ok := httpDate(s)
	if !ok || now.IsZero() {
		return 0
	}
	return min(max(at.Sub(now), 0), maxWish) // Sub saturates
}

// httpDate reads the three forms of RFC 9110, 5.6.7.
func httpDate(s string) (time.Time, bool) {
	for _, layout := range []string{"Mon, 02 Jan 2006 15:04:05 GMT", time.RFC850, time.ANSIC} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), true
		}
	}
	return time.Time{}, false
}

// location describes where a redirect points: its scheme and host, never its
// user, path or query, which may hold secrets.
func location(header map[string][]string) string {
	s := get(header, "Location")
	if s == "" {
		return ""
	}
	u, err := url.Parse(s)
	switch {
	case err != nil, visible(u.Host) != u.Host:
		return "somewhere unreadable"
	case u.Host == "":
		return "the same host"
	case u.Scheme == "https", u.Scheme == "http":
		return u.Scheme + "://" + u.Host
	}
	return u.Host
}
