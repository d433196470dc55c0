package keyring

import (
	"crypto/rand"
	"fmt"

	"github.com/google/uuid"
)

// MaxKey is the largest number of characters a [Key] may have: the longest
// that any provider we know of takes is 256 (PayPal Payouts, Resend; read
// 2026-11). A profile may set a lower limit.
const MaxKey = 256

// Key is the value by which the provider recognises a request it has seen.
// The zero Key is no key.
//
// A key is not a secret, and is logged: it is what one searches for at the
// provider. It cannot be made from a string by mistake; see [ParseKey].
type Key struct{ s string }

// ParseKey takes a caller's own key. It reports [ErrInvalid] unless s has 1
// to [MaxKey] characters, all of them visible ASCII (0x21 to 0x7e) other than
// the double quote and the backslash, which header forms use for themselves.
func ParseKey(s string) (Key, error) {
	switch {
	case s == "":
		return Key{}, fmt.Errorf("%w: the key is empty", ErrInvalid)
	case len(s) > MaxKey:
		return Key{}, fmt.Errorf("%w: the key has %d characters, at most %d are allowed", ErrInvalid, len(s), MaxKey)
	}
	for i := range len(s) {
		if c := s[i]; c < 0x21 || c > 0x7e || c == '"' || c == '\\' {
			return Key{}, fmt.Errorf("%w: the key's character %d is not visible ASCII, or is a quote or backslash", ErrInvalid, i+1)
		}
	}
	return Key{s}, nil
}

// String returns the key as the provider sees it, without quotes.
func (k Key) String() string { return k.s }

// IsZero says whether k is no key.
func (k Key) IsZero() bool { return k.s == "" }

// mint makes a key: a lower-case UUID v4, 36 characters, which fits the limits
// of all providers known to package provider. Its 122 random bits come from
// the system's secure source; there is no other source to fall back on.
//
// It is called in one place, by the code that is about to store the key.
var mint = func() (Key, error) {
	u, err := uuid.NewRandomFromReader(rand.Reader)
	if err != nil {
		return Key{}, fmt.Errorf("no key can be made: the system's random source failed: %w", err)
	}
	return Key{u.String()}, nil
}
