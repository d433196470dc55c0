package keyring

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxRef is the largest number of bytes that the scope or the name of a [Ref]
// may have, after normalisation. It leaves room below the 65,000 bytes that
// the smallest known store allows for a key.
const MaxRef = 1024

// Ref is the caller's own name for an intent: "order-8123/charge". It is what
// makes the second call about the same thing recognisable as the second call.
//
// Scope is the account whose key space is used, such as "acct_1". Two scopes
// never see each other's intents. Empty is a scope like any other.
//
// Name tells intents of one scope apart. It is compared in Unicode NFC, so
// that "é" typed on two systems is one name. An empty name asks
// [Ring.Begin] for a new intent under a name of its own, each time.
//
// Neither may hold control characters or have more than [MaxRef] bytes. Refs
// are written to logs, errors and the disk as they are: nothing secret
// belongs in them.
type Ref struct{ Scope, Name string }

// String returns a form for people, on one line: the name, with the scope
// before it in brackets where there is one. What cannot be shown as it is, is
// quoted; what is longer than 200 bytes is cut.
func (r Ref) String() string {
	name := shown(r.Name)
	if name == "" {
		name = "(no name)"
	}
	if r.Scope == "" {
		return name
	}
	return "[" + shown(r.Scope) + "] " + name
}

func shown(s string) string {
	const most = 200
	cut := len(s) > most
	if cut {
		s = strings.ToValidUTF8(s[:most], "")
	}
	if !utf8.ValidString(s) || strings.ContainsFunc(s, func(c rune) bool { return !unicode.IsPrint(c) }) {
		s = strconv.Quote(s)
	}
	if cut {
		s += "…"
	}
	return s
}

// Normal returns the ref in the form in which refs are stored and compared,
// Unicode NFC. It reports [ErrInvalid] for a ref that cannot be one.
func (r Ref) Normal() (Ref, error) {
	scope, err := normal("scope", r.Scope)
	if err != nil {
		return Ref{}, err
	}
	name, err := normal("name", r.Name)
	if err != nil {
		return Ref{}, err
	}
	return Ref{Scope: scope, Name: name}, nil
}

func normal(what, s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", fmt.Errorf("%w: the ref's %s is not valid UTF-8", ErrInvalid, what)
	}
	s = norm.NFC.String(s)
	if len(s) > MaxRef {
		return "", fmt.Errorf("%w: the ref's %s has %d bytes, at most %d are allowed", ErrInvalid, what, len(s), MaxRef)
	}
	if i := strings.IndexFunc(s, unicode.IsControl); i >= 0 {
		return "", fmt.Errorf("%w: the ref's %s has a control character at byte %d", ErrInvalid, what, i)
	}
	return s, nil
}
