package badgerkeys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

// pageSize is how many refs a scan looks up at a time. Between pages it holds
// nothing of Badger, so that the loop over it may take its time, change
// records, or close the store.
const pageSize = 256

// Scan implements [keyring.Store].
func (s *Store) Scan(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
	return func(yield func(keyring.Record, error) bool) {
		for key, err := range s.refs(ctx, q) {
			var rec keyring.Record
			if err == nil {
				rec, err = s.scanned(ctx, q, key)
			}
			switch {
			case errors.Is(err, keyring.ErrNotFound):
				continue // deleted meanwhile, or does not fit any more
			case err != nil:
				yield(keyring.Record{}, named(err))
				return
			}
			if !yield(rec, nil) {
				return
			}
		}
	}
}

// scanned loads one record of a scan. It reports ErrNotFound for one that does
// not fit q. A damaged one fits if its ref does, since nothing else is known.
func (s *Store) scanned(ctx context.Context, q keyring.Query, key string) (keyring.Record, error) {
	if err := s.enter(ctx); err != nil {
		return keyring.Record{}, err
	}
	defer s.leave()
	ref, err := refOf(key)
	if err != nil {
		return keyring.Record{}, fmt.Errorf("%w: an index names no ref", keyring.ErrUnreadable)
	}
	rec, err := s.load(ref, key)
	if err != nil {
		return keyring.Record{}, err
	}
	damaged := rec.Revision == 0
	if q.OpenOnly && !rec.Open || !q.Fingerprint.IsZero() && rec.Fingerprint != q.Fingerprint && !damaged {
		return keyring.Record{}, keyring.ErrNotFound
	}
	return rec, nil
}

// refs yields the refs that may fit q, each once, from the index that has the
// fewest.
func (s *Store) refs(ctx context.Context, q keyring.Query) iter.Seq2[string, error] {
	scope := ""
	if !q.AllScopes {
		if len(q.Scope) > keyring.MaxRef {
			return func(func(string, error) bool) {}
		}
		scope = scopeKey(q.Scope)
	}
	switch {
	case !q.Fingerprint.IsZero():
		return s.indexed(ctx, printKey(q.Fingerprint, ""), scope)
	case q.OpenOnly:
		return s.opened(ctx, scope)
	}
	return s.indexed(ctx, []byte{prefRecord}, scope)
}

// indexed yields the rest of all keys with the prefix, those of scope alone.
func (s *Store) indexed(ctx context.Context, prefix []byte, scope string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		within := append(bytes.Clone(prefix), scope...)
		from := within
		for {
			page, err := s.page(ctx, within, from)
			if err != nil {
				yield("", err)
				return
			}
			for _, key := range page {
				if !yield(string(key[len(prefix):]), nil) {
					return
				}
			}
			if len(page) < pageSize {
				return
			}
			from = append(page[len(page)-1], 0) // the next key there can be
		}
	}
}

// page returns up to pageSize keys with the prefix, from a key on.
func (s *Store) page(ctx context.Context, prefix, from []byte) ([][]byte, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	return keys(s.db, prefix, from, pageSize)
}

// keys returns up to n keys with the prefix, from a key on.
func keys(db *badger.DB, prefix, from []byte, n int) ([][]byte, error) {
	var found [][]byte
	err := db.View(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = false
		o.Prefix = prefix
		it := txn.NewIterator(o)
		defer it.Close()
		for it.Seek(from); it.Valid() && len(found) < n; it.Next() {
			found = append(found, it.Item().KeyCopy(nil))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("listing: %w", safe(err))
	}
	return found, nil
}

// openRefs has the refs of all open records, from the first time they are
// asked for. They are kept in memory because in Badger each intent that was
// ever open leaves a deleted key behind, for as long as no merge drops it: ten
// open ones among a million would cost what the million does.
type openRefs struct{ refs map[string]struct{} }

// apply takes in what a transaction has changed.
func (o *openRefs) apply(changed []touched) {
	if o.refs == nil {
		return
	}
	for _, t := range changed {
		if t.open {
			o.refs[t.ref] = struct{}{}
		} else {
			delete(o.refs, t.ref)
		}
	}
}

// opened yields the refs of open records.
func (s *Store) opened(ctx context.Context, scope string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		refs, err := s.openNow(ctx)
		if err != nil {
			yield("", err)
			return
		}
		for _, ref := range refs {
			if strings.HasPrefix(ref, scope) && !yield(ref, nil) {
				return
			}
		}
	}
}

// openNow returns all open refs.
func (s *Store) openNow(ctx context.Context) ([]string, error) {
	if err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.leave()
	// Nothing is committed while the list is made or copied.
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	if s.openRefs.refs == nil {
		refs := make(map[string]struct{})
		prefix := []byte{prefOpen}
		err := s.db.View(func(txn *badger.Txn) error {
			o := badger.DefaultIteratorOptions
			o.PrefetchValues = false
			o.Prefix = prefix
			it := txn.NewIterator(o)
			defer it.Close()
			for it.Rewind(); it.Valid(); it.Next() {
				refs[string(it.Item().Key()[1:])] = struct{}{}
			}
			return nil
		})
		if err != nil {
			return nil, fmt.Errorf("listing open intents: %w", safe(err))
		}
		s.openRefs.refs = refs
	}
	return slices.Collect(maps.Keys(s.openRefs.refs)), nil
}
