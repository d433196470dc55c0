package badgerkeys

import (
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

type changeKind uint8

const (
	changeCreate changeKind = iota
	changeUpdate
	changeDelete
)

// change is what a caller asks for. Whether it may be made is decided by the
// committing goroutine, against the state that the changes before it leave.
type change struct {
	kind     changeKind
	ref      string // as refKey has it
	after    stored // of Create and Update, its request excepted if that is kept
	keep     bool   // of Update: the stored request stays
	request  []byte // the new request, where it is small
	limits   keyring.Limits
	revision uint64 // of Delete: the stored revision that is meant
}

// image says what a ref is after a change. To put it a second time changes
// nothing.
type image struct {
	ref     string
	gone    bool
	after   stored
	keep    bool // the inline request that is there stays
	request []byte
}

// batch is the changes of one transaction.
type batch struct {
	txn      *badger.Txn
	head     head
	touched  []touched
	obsolete []*blobRef // named before, and not any more
}

// touched is a ref that a batch changes, and whether it is open afterwards.
type touched struct {
	ref  string
	open bool
}

// get returns what is stored for ref: nil if there is nothing, and a damaged
// record if its value is missing or fails its checksum while other keys show
// that it was there.
func get(txn *badger.Txn, ref string) (*stored, error) {
	key := at(prefRecord, ref)
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		for _, prefix := range []byte{prefOpen, prefReq} {
			_, err := txn.Get(at(prefix, ref))
			if err == nil {
				return &stored{damaged: true}, nil
			}
			if !errors.Is(err, badger.ErrKeyNotFound) {
				return nil, err
			}
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var s *stored
	err = item.Value(func(sealed []byte) error {
		value, err := unseal(key, sealed)
		if err == nil {
			s, err = decodeStored(value)
		}
		if err != nil {
			s = &stored{damaged: true}
		}
		return nil
	})
	return s, err
}

// decide says what the change makes of its ref, or which error of the Store
// contract it meets. It writes nothing.
func (b *batch) decide(c *change) (image, error) {
	old, err := get(b.txn, c.ref)
	if err != nil {
		return image{}, err
	}
	switch c.kind {
	case changeCreate:
		// A damaged record has its ref as any other.
		if old != nil {
			return image{}, keyring.ErrExists
		}
		if lim := c.limits.MaxIntents; lim > 0 && b.head.intents >= uint64(lim) {
			return image{}, fmt.Errorf("%w: %d intents, the limit is %d", keyring.ErrFull, b.head.intents, lim)
		}
		if lim := c.limits.MaxOpen; lim > 0 && c.after.open && b.head.open >= uint64(lim) {
			return image{}, fmt.Errorf("%w: %d open intents, the limit is %d", keyring.ErrFull, b.head.open, lim)
		}
		return image{ref: c.ref, after: c.after, request: c.request}, nil
	case changeUpdate, changeDelete:
		if old == nil {
			return image{}, keyring.ErrNotFound
		}
		want := c.revision
		if c.kind == changeUpdate {
			want = c.after.revision - 1
		}
		// What is not known cannot be compared, so nothing replaces it.
		if old.damaged || old.revision != want {
			return image{}, keyring.ErrStale
		}
		if c.kind == changeDelete {
			return image{ref: c.ref, gone: true}, nil
		}
		img := image{ref: c.ref, after: c.after, keep: c.keep, request: c.request}
		if c.keep {
			img.after.request = old.request
		}
		return img, nil
	}
	return image{}, fmt.Errorf("%w: unknown kind of change %d", keyring.ErrInvalid, c.kind)
}

// put writes the image with all that goes with it: indexes, counts and the
// names of blobs.
func (b *batch) put(img image) error {
	old, err := get(b.txn, img.ref)
	if err != nil {
		return err
	}
	w := writer{txn: b.txn}
	oldOpen := false
	if old != nil {
		oldOpen = old.open
		if !old.fingerprint.IsZero() && (img.gone || old.fingerprint != img.after.fingerprint) {
			w.delete(printKey(old.fingerprint, img.ref))
		}
		for _, blob := range []*blobRef{old.data.blob, old.request.blob} {
			if blob != nil && !img.names(blob) {
				w.delete(at(prefBlob, blob.name()))
				b.obsolete = append(b.obsolete, blob)
			}
		}
		if old.request.size > 0 && (img.gone || !img.keep && img.after.request.size == 0) {
			w.delete(at(prefReq, img.ref))
		}
	}
	switch {
	case img.gone:
		w.delete(at(prefRecord, img.ref))
		if old != nil {
			b.head.intents--
		}
	default:
		if old == nil {
			b.head.intents++
		}
		w.set(at(prefRecord, img.ref), img.after.encode())
		if !img.keep && img.after.request.size > 0 {
			w.set(at(prefReq, img.ref), img.request)
		}
		if f := img.after.fingerprint; !f.IsZero() && (old == nil || old.fingerprint != f) {
			w.set(printKey(f, img.ref), nil)
		}
		for _, blob := range []*blobRef{img.after.data.blob, img.after.request.blob} {
			if blob != nil && (old == nil || !old.names(blob)) {
				w.set(at(prefBlob, blob.name()), nil)
			}
		}
	}
	open := !img.gone && img.after.open
	switch {
	case open && !oldOpen:
		w.set(at(prefOpen, img.ref), nil)
		b.head.open++
	case !open && oldOpen:
		w.delete(at(prefOpen, img.ref))
		b.head.open--
	}
	b.touched = append(b.touched, touched{img.ref, open})
	return w.err
}

func (img *image) names(blob *blobRef) bool { return !img.gone && img.after.names(blob) }

func (s *stored) names(blob *blobRef) bool {
	return s.data.blob != nil && *s.data.blob == *blob || s.request.blob != nil && *s.request.blob == *blob
}

// finish writes the head. Its key is the highest of all and in each
// transaction, so that any two tables overlap and Badger merges them; without
// that, each opening of the keyring would leave a table behind for ever.
func (b *batch) finish() error {
	b.head.sequence++
	w := writer{txn: b.txn}
	w.set([]byte(keyHead), b.head.encode())
	return w.err
}

// writer writes sealed values and keeps the first error.
type writer struct {
	txn *badger.Txn
	err error
}

func (w *writer) set(key, value []byte) {
	if len(value) > valueMax && w.err == nil {
		w.err = errLarge
	}
	if w.err == nil {
		w.err = w.txn.Set(key, seal(key, append([]byte(nil), value...)))
	}
}

func (w *writer) delete(key []byte) {
	if w.err == nil {
		w.err = w.txn.Delete(key)
	}
}

// newPart sets Data or Request apart: in Badger where it is small, and in a
// blob otherwise.
func (s *Store) newPart(content []byte) (part, error) {
	if len(content) <= inlineMax {
		return part{
			inline: append([]byte(nil), content...),
			sum:    crc32.Checksum(content, castagnoli),
			size:   uint64(len(content)),
		}, nil
	}
	blob, err := s.blobs.write(content)
	return part{blob: blob}, err
}
