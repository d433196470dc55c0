package badgerkeys

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"github.com/samekey/samekey/keyring"
)

// Keys in Badger begin with a letter for what they lead to. Those of one ref
// have the scope's length before it, so that no two refs share a key and the
// refs of one scope are neighbours. Nothing secret is in a key: Badger logs
// them.
const (
	keyRing    = "i"      // the ring's id
	prefRecord = 'c'      // + ref: the changing record
	prefReq    = 'r'      // + ref: the request, where it is small
	prefOpen   = 'o'      // + ref: the record is open
	prefPrint  = 'f'      // + fingerprint + ref
	prefBlob   = 'b'      // + file name: a record names this blob
	keyHead    = "\xff"   // sequence and counts; above all others, see batch.finish
	formatHead = 1        // first byte of the head's value
	formatRec  = 1        // first byte of a record's value
	inlineMax  = 60 << 10 // longer parts are blobs: Badger's values stay below 64 KiB
)

// valueMax bounds Badger's values. Badger takes larger ones and puts them into
// its value log, where a lost file reads as empty values.
const valueMax = 64 << 10

var errLarge = errors.New("a value is too large for the database")

// errDamaged stands for a value that fails its checksum. It never leaves the
// package.
var errDamaged = errors.New("damaged value")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// seal returns the value with its checksum, which covers the key as well: a
// value that has come under another key is damaged.
func seal(key, value []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, value)
	return binary.BigEndian.AppendUint32(value, sum)
}

// unseal is the inverse of seal. An empty value, which Badger returns without
// an error for a lost one, is damaged.
func unseal(key, sealed []byte) ([]byte, error) {
	n := len(sealed) - 4
	if n < 0 {
		return nil, errDamaged
	}
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, sealed[:n])
	if binary.BigEndian.Uint32(sealed[n:]) != sum {
		return nil, errDamaged
	}
	return sealed[:n], nil
}

// refKey returns the part of a key that stands for ref, or false for a ref
// that is too long to have been stored.
func refKey(ref keyring.Ref) (string, bool) {
	if len(ref.Scope) > keyring.MaxRef || len(ref.Name) > keyring.MaxRef {
		return "", false
	}
	return scopeKey(ref.Scope) + ref.Name, true
}

func scopeKey(scope string) string {
	return string(binary.BigEndian.AppendUint16(nil, uint16(len(scope)))) + scope
}

// refOf is the inverse of refKey.
func refOf(key string) (keyring.Ref, error) {
	if len(key) < 2 {
		return keyring.Ref{}, errDamaged
	}
	n := int(binary.BigEndian.Uint16([]byte(key)))
	key = key[2:]
	if n > len(key) {
		return keyring.Ref{}, errDamaged
	}
	return keyring.Ref{Scope: key[:n], Name: key[n:]}, nil
}

func at(prefix byte, ref string) []byte {
	return append([]byte{prefix}, ref...)
}

func printKey(f keyring.Fingerprint, ref string) []byte {
	return append(append([]byte{prefPrint}, f.Bytes()...), ref...)
}

// part is Data or Request as a record has it: nothing, bytes that are in
// Badger, or a blob.
type part struct {
	inline []byte
	sum    uint32   // of a request that is inline, under a key of its own
	size   uint64   // of a request that is inline
	blob   *blobRef // nil: none
}

// stored is a record as it is in Badger. Its ref is in the key.
type stored struct {
	damaged     bool // the value fails its checksum; nothing else is known
	revision    uint64
	generation  int
	open        bool
	fingerprint keyring.Fingerprint
	data        part
	request     part
}

const (
	flagOpen = 1 << iota
	flagDataBlob
	flagRequest
	flagRequestBlob
)

// encode returns the value of the record, without a checksum. The bytes of an
// inline request are not in it.
func (s *stored) encode() []byte {
	var flags byte
	if s.open {
		flags |= flagOpen
	}
	if s.data.blob != nil {
		flags |= flagDataBlob
	}
	switch {
	case s.request.blob != nil:
		flags |= flagRequestBlob
	case s.request.size > 0:
		flags |= flagRequest
	}
	b := make([]byte, 0, 128+len(s.data.inline))
	b = append(b, formatRec, flags)
	b = binary.AppendUvarint(b, s.revision)
	b = binary.AppendVarint(b, int64(s.generation))
	b = append(b, s.fingerprint.Bytes()...)
	switch {
	case s.request.blob != nil:
		b = s.request.blob.append(b)
	case s.request.size > 0:
		b = binary.AppendUvarint(b, s.request.size)
		b = binary.BigEndian.AppendUint32(b, s.request.sum)
	}
	if s.data.blob != nil {
		return s.data.blob.append(b)
	}
	return append(b, s.data.inline...)
}

// decodeStored is the inverse of encode. The result has bytes of its own.
func decodeStored(b []byte) (*stored, error) {
	r := reader{b: b}
	if r.byte() != formatRec {
		return nil, errDamaged
	}
	flags := r.byte()
	s := &stored{open: flags&flagOpen != 0, revision: r.uvarint(), generation: int(r.varint())}
	f, err := keyring.FingerprintOf(r.take(33))
	if err != nil {
		return nil, errDamaged
	}
	s.fingerprint = f
	switch {
	case flags&flagRequestBlob != 0:
		s.request.blob = r.blobRef()
	case flags&flagRequest != 0:
		s.request.size = r.uvarint()
		if b := r.take(4); b != nil {
			s.request.sum = binary.BigEndian.Uint32(b)
		}
	}
	if flags&flagDataBlob != 0 {
		s.data.blob = r.blobRef()
	} else if !r.bad {
		s.data.inline = append([]byte(nil), r.b...)
	}
	if r.bad {
		return nil, errDamaged
	}
	return s, nil
}

// head is what each transaction leaves behind: how many there were, and what
// there is.
type head struct {
	sequence uint64
	intents  uint64
	open     uint64
}

func (h head) encode() []byte {
	b := []byte{formatHead}
	b = binary.BigEndian.AppendUint64(b, h.sequence)
	b = binary.BigEndian.AppendUint64(b, h.intents)
	return binary.BigEndian.AppendUint64(b, h.open)
}

func decodeHead(b []byte) (head, error) {
	if len(b) != 25 || b[0] != formatHead {
		return head{}, errDamaged
	}
	return head{
		sequence: binary.BigEndian.Uint64(b[1:]),
		intents:  binary.BigEndian.Uint64(b[9:]),
		open:     binary.BigEndian.Uint64(b[17:]),
	}, nil
}

// reader takes a value apart; bad is set once it has turned out too short.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || n > len(r.b) {
		r.bad = true
		return nil
	}
	b := r.b[:n]
	r.b = r.b[n:]
	return b
}

func (r *reader) byte() byte {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.take(n)
	return v
}

func (r *reader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad = true
		return 0
	}
	r.take(n)
	return v
}
