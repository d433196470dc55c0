package keyringtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"iter"
	"sync"

	"github.com/samekey/samekey/keyring"
)

// Store is a [keyring.Store] in memory; [NewStore] makes one. It is a
// [keyring.Waiter] and a [keyring.Sessions] as well.
//
// It may be used inside a testing/synctest bubble if it was made there:
// whoever waits in it waits durably on a channel, never on a mutex.
type Store struct {
	session string
	data    *data
}

// data is what [Store.Reopen] hands on.
type data struct {
	mu      sync.Mutex // held for moments, never while waiting
	session string     // of the Store that may use it; empty: closed
	records map[keyring.Ref]keyring.Record
	open    int
	waiting map[keyring.Ref]*waiting
}

// waiting is what the callers of Wait for one ref share.
type waiting struct {
	changed chan struct{} // closed with the ref's next change
	callers int
}

var (
	_ keyring.Store    = (*Store)(nil)
	_ keyring.Waiter   = (*Store)(nil)
	_ keyring.Sessions = (*Store)(nil)
)

// NewStore returns an empty store.
func NewStore() *Store {
	d := &data{
		session: rand.Text(),
		records: make(map[keyring.Ref]keyring.Record),
		waiting: make(map[keyring.Ref]*waiting),
	}
	return &Store{session: d.session, data: d}
}

// Reopen ends this opening of the store, as a crash of its process would, and
// returns another one with the same records and a session of its own. The
// old one reports [keyring.ErrClosed] from then on.
func (s *Store) Reopen() *Store {
	d := s.data
	d.mu.Lock()
	defer d.mu.Unlock()
	d.session = rand.Text()
	d.wakeAll()
	return &Store{session: d.session, data: d}
}

// Close ends this opening. It always returns nil, and may be called again.
func (s *Store) Close() error {
	d := s.data
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.session == s.session {
		d.session = ""
		d.wakeAll()
	}
	return nil
}

// lock takes the records for one call, unless the call is too late. The
// caller unlocks s.data.mu if and only if the error is nil.
func (s *Store) lock(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.data.mu.Lock()
	if s.data.session != s.session {
		s.data.mu.Unlock()
		return keyring.ErrClosed
	}
	return nil
}

// Create implements [keyring.Store].
func (s *Store) Create(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
	if err := checkRef(rec.Ref); err != nil {
		return err
	}
	if rec.Revision != 1 {
		return fmt.Errorf("%w: a new record has revision 1, not %d", keyring.ErrInvalid, rec.Revision)
	}
	if err := s.lock(ctx); err != nil {
		return err
	}
	d := s.data
	defer d.mu.Unlock()
	if _, taken := d.records[rec.Ref]; taken {
		return keyring.ErrExists
	}
	if lim.MaxIntents > 0 && len(d.records) >= lim.MaxIntents {
		return fmt.Errorf("%w: %d intents, the limit is %d", keyring.ErrFull, len(d.records), lim.MaxIntents)
	}
	if rec.Open && lim.MaxOpen > 0 && d.open >= lim.MaxOpen {
		return fmt.Errorf("%w: %d open intents, the limit is %d", keyring.ErrFull, d.open, lim.MaxOpen)
	}
	d.put(clone(rec))
	return nil
}

// Load implements [keyring.Store].
func (s *Store) Load(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
	if err := s.lock(ctx); err != nil {
		return keyring.Record{}, err
	}
	defer s.data.mu.Unlock()
	rec, ok := s.data.records[ref]
	if !ok {
		return keyring.Record{}, keyring.ErrNotFound
	}
	return clone(rec), nil
}

// Update implements [keyring.Store].
func (s *Store) Update(ctx context.Context, rec keyring.Record) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	d := s.data
	defer d.mu.Unlock()
	old, ok := d.records[rec.Ref]
	switch {
	case !ok:
		return keyring.ErrNotFound
	case old.Revision != rec.Revision-1:
		return keyring.ErrStale
	}
	keep := rec.Request == nil
	rec = clone(rec)
	if keep {
		rec.Request = old.Request // never changed once it is stored
	}
	d.put(rec)
	return nil
}

// Scan implements [keyring.Store].
func (s *Store) Scan(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
	return func(yield func(keyring.Record, error) bool) {
		if err := s.lock(ctx); err != nil {
			yield(keyring.Record{}, err)
			return
		}
		var found []keyring.Record
		for _, rec := range s.data.records {
			if fits(rec, q) {
				found = append(found, rec)
			}
		}
		s.data.mu.Unlock()
		// The lock is not held while the caller looks at a record: it may call
		// this store from there.
		for _, rec := range found {
			if err := s.lock(ctx); err != nil {
				yield(keyring.Record{}, err)
				return
			}
			s.data.mu.Unlock()
			if !yield(clone(rec), nil) {
				return
			}
		}
	}
}

// Delete implements [keyring.Store].
func (s *Store) Delete(ctx context.Context, ref keyring.Ref, revision uint64) error {
	if err := s.lock(ctx); err != nil {
		return err
	}
	d := s.data
	defer d.mu.Unlock()
	old, ok := d.records[ref]
	switch {
	case !ok:
		return keyring.ErrNotFound
	case old.Revision != revision:
		return keyring.ErrStale
	}
	if old.Open {
		d.open--
	}
	delete(d.records, ref)
	d.wake(ref)
	return nil
}

// Wait implements [keyring.Waiter]. It reports [keyring.ErrClosed] when the
// store is closed meanwhile.
func (s *Store) Wait(ctx context.Context, ref keyring.Ref, revision uint64) error {
	for {
		if err := s.lock(ctx); err != nil {
			return err
		}
		d := s.data
		if rec, ok := d.records[ref]; !ok || rec.Revision != revision {
			d.mu.Unlock()
			return nil
		}
		w := d.waiting[ref]
		if w == nil {
			w = &waiting{changed: make(chan struct{})}
			d.waiting[ref] = w
		}
		w.callers++
		d.mu.Unlock()

		select {
		case <-w.changed:
		case <-ctx.Done():
			d.leave(ref, w)
			return ctx.Err()
		}
	}
}

// Session implements [keyring.Sessions].
func (s *Store) Session() string { return s.session }

// Gone implements [keyring.Sessions]. Nobody else can have these records open,
// so each session but this one has ended. An empty name is nobody's, and
// nothing is known about it.
func (s *Store) Gone(ctx context.Context, session string) (bool, error) {
	if err := s.lock(ctx); err != nil {
		return false, err
	}
	defer s.data.mu.Unlock()
	return session != s.session && session != "", nil
}

// put stores rec, whose bytes nobody else has. The caller holds d.mu.
func (d *data) put(rec keyring.Record) {
	if d.records[rec.Ref].Open {
		d.open--
	}
	if rec.Open {
		d.open++
	}
	d.records[rec.Ref] = rec
	d.wake(rec.Ref)
}

// wake ends each Wait for ref. The caller holds d.mu.
func (d *data) wake(ref keyring.Ref) {
	if w := d.waiting[ref]; w != nil {
		close(w.changed)
		delete(d.waiting, ref)
	}
}

func (d *data) wakeAll() {
	for ref := range d.waiting {
		d.wake(ref)
	}
}

// leave forgets one caller of Wait, and w with the last of them, so that
// waits which never end well do not pile up.
func (d *data) leave(ref keyring.Ref, w *waiting) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if w.callers--; w.callers == 0 && d.waiting[ref] == w {
		delete(d.waiting, ref)
	}
}

// fits says whether q asks for rec.
func fits(rec keyring.Record, q keyring.Query) bool {
	return (q.AllScopes || rec.Ref.Scope == q.Scope) &&
		(!q.OpenOnly || rec.Open) &&
		(q.Fingerprint.IsZero() || rec.Fingerprint == q.Fingerprint)
}

// clone copies the bytes of rec.
func clone(rec keyring.Record) keyring.Record {
	rec.Data = bytes.Clone(rec.Data)
	rec.Request = bytes.Clone(rec.Request)
	return rec
}

// checkRef reports ErrInvalid for a ref that the ring would not have passed on.
func checkRef(ref keyring.Ref) error {
	normal, err := ref.Normal()
	if err != nil {
		return err
	}
	if normal != ref || ref.Name == "" {
		return fmt.Errorf("%w: a stored ref is in normal form and has a name", keyring.ErrInvalid)
	}
	return nil
}
