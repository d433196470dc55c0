package keyring

import (
	"encoding/hex"
	"fmt"
)

// Fingerprint is a digest of what is asked for: the request without
// credentials, tracing headers and the key. Two requests with one fingerprint
// ask for the same. The zero Fingerprint belongs to no request.
type Fingerprint struct {
	form uint8 // version of the comparison form
	sum  [32]byte
}

// String returns the form's version and the digest, such as "1:9f86d0…" with
// 64 hexadecimal digits. It is safe to log.
func (f Fingerprint) String() string {
	return fmt.Sprintf("%d:%s", f.form, hex.EncodeToString(f.sum[:]))
}

// IsZero says whether f belongs to no request.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// Bytes returns the fingerprint in 33 bytes, for stores: the form's version,
// then the digest.
func (f Fingerprint) Bytes() []byte { return append([]byte{f.form}, f.sum[:]...) }

// FingerprintOf is the inverse of [Fingerprint.Bytes]. It reports
// [ErrInvalid] unless b has 33 bytes.
func FingerprintOf(b []byte) (Fingerprint, error) {
	if len(b) != 33 {
		return Fingerprint{}, fmt.Errorf("%w: a fingerprint has 33 bytes, not %d", ErrInvalid, len(b))
	}
	return Fingerprint{form: b[0], sum: [32]byte(b[1:])}, nil
}
