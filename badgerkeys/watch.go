package badgerkeys

import (
	"context"
	"fmt"
	"sync"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

// watch tells the callers of Wait that a record has changed.
type watch struct {
	mu      sync.Mutex
	waiting map[string]*waiting
}

// waiting is what the callers of Wait for one ref share.
type waiting struct {
	changed chan struct{} // closed with the ref's next change, and by Close
	callers int
}

func (w *watch) join(ref string) *waiting {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting == nil {
		w.waiting = make(map[string]*waiting)
	}
	one := w.waiting[ref]
	if one == nil {
		one = &waiting{changed: make(chan struct{})}
		w.waiting[ref] = one
	}
	one.callers++
	return one
}

// leave forgets a caller, so that waits which were given up do not pile up.
func (w *watch) leave(ref string, one *waiting) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one.callers--; one.callers == 0 && w.waiting[ref] == one {
		delete(w.waiting, ref)
	}
}

func (w *watch) wake(ref string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if one := w.waiting[ref]; one != nil {
		close(one.changed)
		delete(w.waiting, ref)
	}
}

func (w *watch) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for ref, one := range w.waiting {
		close(one.changed)
		delete(w.waiting, ref)
	}
}

// Wait implements [keyring.Waiter]. It reports [keyring.ErrClosed] when the
// store is closed meanwhile.
func (s *Store) Wait(ctx context.Context, ref keyring.Ref, revision uint64) error {
	return named(s.wait(ctx, ref, revision))
}

func (s *Store) wait(ctx context.Context, ref keyring.Ref, revision uint64) error {
	key, ok := refKey(ref)
	for {
		if err := s.enter(ctx); err != nil {
			return err
		}
		if !ok {
			s.leave()
			return nil // never stored, so gone
		}
		// Joined first: a change between the look and the wait is not missed.
		one := s.watch.join(key)
		same, err := s.unchanged(key, revision)
		s.leave()
		if err != nil || !same {
			s.watch.leave(key, one)
			return err
		}
		select {
		case <-one.changed:
		case <-ctx.Done():
		}
		s.watch.leave(key, one)
	}
}

// unchanged says whether the record of the ref has the revision.
func (s *Store) unchanged(key string, revision uint64) (bool, error) {
	var now *stored
	err := s.db.View(func(txn *badger.Txn) (err error) {
		now, err = get(txn, key)
		return err
	})
	if err != nil {
		return false, fmt.Errorf("reading a revision: %w", safe(err))
	}
	return now != nil && !now.damaged && now.revision == revision, nil
}
