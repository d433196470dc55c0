package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// The stored form. Two byte strings belong to an intent:
//
//	Record.Data     "SKR" format | length of meta (4 bytes) | meta (JSON) | answer | SHA-256
//	Record.Request  "SKQ" format | method, URL, headers, body, each after its length (uvarint)
//
// The checksum at the end of Data covers the ref and everything before it;
// meta holds a checksum of the request, which covers the ref as well, so that
// neither part can be swapped with another intent's. Numbers are big-endian.
const (
	dataMagic    = "SKR"
	requestMagic = "SKQ"
	format       = 1 // of both; a reader refuses formats it does not know
)

var (
	errChecksum = errors.New("its checksum does not fit")
	errShort    = errors.New("it is cut short")
)

// encodeData gives Record.Data for r.
func encodeData(r *record) ([]byte, error) {
	meta, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("the record cannot be encoded: %w", err)
	}
	b := make([]byte, 0, 8+len(meta)+len(r.Answer)+sha256.Size)
	b = append(b, dataMagic...)
	b = append(b, format)
	b = binary.BigEndian.AppendUint32(b, uint32(len(meta)))
	b = append(b, meta...)
	b = append(b, r.Answer...)
	sum := sumOf(r.Ref, "record", b)
	return append(b, sum[:]...), nil
}

// decodeData reads Record.Data. Every error means that the record is damaged
// or of a format that this version does not know; neither may be sent.
func decodeData(ref Ref, b []byte) (*record, error) {
	meta, answer, err := splitData(ref, b)
	if err != nil {
		return nil, err
	}
	var r record
	dec := json.NewDecoder(bytes.NewReader(meta))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&r); err != nil {
		return nil, errors.New("its details cannot be read") // err may quote them
	}
	if r.Ref != ref || len(r.Generations) == 0 {
		return nil, errors.New("it belongs to another intent")
	}
	for _, g := range r.Generations {
		if len(g.RequestSum) != sha256.Size && len(g.Fixed) != 33 {
			return nil, errShort
		}
		for _, p := range g.Parts {
			if len(p.Sum) != 16 {
				return nil, errShort
			}
		}
	}
	if len(answer) > 0 {
		r.Answer = bytes.Clone(answer)
	}
	return &r, nil
}

func splitData(ref Ref, b []byte) (meta, answer []byte, err error) {
	if len(b) < 8+sha256.Size {
		return nil, nil, errShort
	}
	if string(b[:3]) != dataMagic {
		return nil, nil, errors.New("it does not begin like a record")
	}
	body, sum := b[:len(b)-sha256.Size], b[len(b)-sha256.Size:]
	if want := sumOf(ref, "record", body); !bytes.Equal(sum, want[:]) {
		return nil, nil, errChecksum
	}
	if b[3] != format {
		return nil, nil, fmt.Errorf("it has format %d, this version of samekey reads %d; update it", b[3], format)
	}
	n := int(binary.BigEndian.Uint32(body[4:8]))
	if n > len(body)-8 {
		return nil, nil, errShort
	}
	return body[8 : 8+n], body[8+n:], nil
}

// sumOf is SHA-256 over the ref and b, told apart by what b is.
func sumOf(ref Ref, what string, b []byte) [sha256.Size]byte {
	h := sha256.New()
	var n [8]byte
	for _, s := range []string{"samekey " + what, ref.Scope, ref.Name} {
		binary.BigEndian.PutUint64(n[:], uint64(len(s)))
		h.Write(n[:])
		h.Write([]byte(s))
	}
	h.Write(b)
	return [sha256.Size]byte(h.Sum(nil))
}

// encodeRequest gives Record.Request for r. Equal requests give equal bytes.
func encodeRequest(r Request) []byte {
	b := make([]byte, 0, 512+len(r.Body))
	b = append(b, requestMagic...)
	b = append(b, format)
	put := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	put(r.Method)
	put(r.URL)
	b = binary.AppendUvarint(b, uint64(len(r.Header)))
	for _, name := range slices.Sorted(maps.Keys(r.Header)) {
		put(name)
		b = binary.AppendUvarint(b, uint64(len(r.Header[name])))
		for _, v := range r.Header[name] {
			put(v)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(r.Body)))
	return append(b, r.Body...)
}

// decodeRequest reads Record.Request and checks it against the sum in the
// record.
func decodeRequest(ref Ref, b, sum []byte) (Request, error) {
	if want := sumOf(ref, "request", b); !bytes.Equal(sum, want[:]) {
		return Request{}, errChecksum
	}
	if len(b) < 4 || string(b[:3]) != requestMagic || b[3] != format {
		return Request{}, errors.New("it does not begin like a request of this format")
	}
	rd := reader{b: b[4:]}
	r := Request{Method: string(rd.bytes()), URL: string(rd.bytes())}
	names := rd.count()
	if names > 0 {
		r.Header = make(map[string][]string, names)
	}
	for range names {
		name := string(rd.bytes())
		values := make([]string, rd.count())
		for i := range values {
			values[i] = string(rd.bytes())
		}
		r.Header[name] = values
	}
	r.Body = bytes.Clone(rd.bytes())
	if rd.err != nil || len(rd.b) > 0 {
		return Request{}, errShort
	}
	return r, nil
}

// reader takes lengths and bytes off the front of b. After an error it gives
// nothing more.
type reader struct {
	b   []byte
	err error
}

func (r *reader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.err, r.b = errShort, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.err, r.b = errShort, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

// count reads the number of things that follow, each of at least one byte, so
// that a damaged number cannot ask for more memory than there is input.
func (r *reader) count() int {
	n := r.uvarint()
	if n > uint64(len(r.b)) {
		r.err, r.b = errShort, nil
		return 0
	}
	return int(n)
}
