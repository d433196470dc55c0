package badgerkeys

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

// A group stays below what one Badger transaction takes with a memtable of
// 2 MiB: 314,572 bytes and 3,276 entries. One change makes at most nine
// entries, and at most some 140 KiB.
const (
	groupBytes   = 240 << 10
	groupChanges = 300
)

// write is a change that waits to be committed.
type write struct {
	ctx    context.Context
	change change
	blobs  []*blobRef // written for this change
	size   int
	done   chan error // with room for the one answer
}

// submit hands the change to the committing goroutine and waits for what
// becomes of it. The caller has entered the store and leaves it here, so that
// Close does not wait for the commit while it keeps others out.
func (s *Store) submit(w *write) error {
	w.done = make(chan error, 1)
	w.size = 6*len(w.change.ref) + len(w.change.after.data.inline) + len(w.change.request) + 512
	s.queueMu.Lock()
	s.queue = append(s.queue, w)
	s.queueMu.Unlock()
	s.queued.Signal()
	s.leave()
	select {
	case err := <-w.done:
		return err
	case <-w.ctx.Done():
	}
	// An answer that is there already is worth more than the context's.
	select {
	case err := <-w.done:
		return err
	default:
		return w.ctx.Err()
	}
}

// run commits what is queued until the store is closed and the queue is empty.
// It is the only goroutine that writes to Badger, so transactions never
// conflict, and one flush serves all who wait at that moment: Badger itself
// flushes once for each transaction.
func (s *Store) run() {
	defer close(s.ended)
	for {
		group := s.take()
		if group == nil {
			return
		}
		s.commit(group)
	}
}

// take waits for changes and returns as many as fit into one transaction.
func (s *Store) take() []*write {
	s.queueMu.Lock()
	defer s.queueMu.Unlock()
	for len(s.queue) == 0 {
		if s.draining {
			return nil
		}
		s.queued.Wait()
	}
	n, size := 0, 0
	for n < len(s.queue) && n < groupChanges && (n == 0 || size+s.queue[n].size <= groupBytes) {
		size += s.queue[n].size
		n++
	}
	group := s.queue[:n:n]
	s.queue = s.queue[n:]
	if len(s.queue) == 0 {
		s.queue = nil // lets go of the array
	}
	return group
}

// commit makes the changes of the group and answers each.
func (s *Store) commit(group []*write) {
	live := group[:0:0]
	for _, w := range group {
		if err := w.ctx.Err(); err != nil {
			s.answer(w, err)
			continue
		}
		live = append(live, w)
	}
	if len(live) == 0 {
		return
	}
	err := s.failed
	if err == nil {
		err = s.room.check(groupBytes)
	}
	if err != nil {
		for _, w := range live {
			s.answer(w, err)
		}
		return
	}
	if s.try(live) {
		return
	}
	// Something kept the group from being written together. Nothing of it was
	// written; each is tried alone, so that only the one to blame fails.
	for _, w := range live {
		if s.failed != nil {
			s.answer(w, s.failed)
		} else if !s.try([]*write{w}) {
			s.answer(w, errors.New("the change cannot be written"))
		}
	}
}

// try makes the changes in one transaction and answers them. It answers none
// and returns false if one could not be written.
func (s *Store) try(group []*write) bool {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
	b := &batch{txn: s.db.NewTransaction(true), head: s.head}
	defer b.txn.Discard()
	results := make([]error, len(group))
	for i, w := range group {
		img, err := b.decide(&w.change)
		if err != nil {
			results[i] = refusal(err)
			continue
		}
		if err := b.put(img); err != nil {
			s.log.Warn("a change could not be written", "error", safeText(err), "group", len(group))
			return false
		}
	}
	if len(b.touched) > 0 {
		err := b.finish()
		if err != nil {
			return false
		}
		if err = commitTxn(b.txn); err == nil {
			// Not acknowledged before the name of the file it went to is durable.
			err = s.syncNewTables()
		}
		if err == nil {
			err = s.witness.note(b.head)
		}
		if err != nil {
			// What is on the disk is not known any more, and later changes would
			// build on it.
			s.failed = fmt.Errorf("a write failed, so nothing more is written until the keyring is opened again: %w", safe(err))
			s.log.Error("a commit failed", "error", safeText(err))
			for i, w := range group {
				if results[i] == nil {
					results[i] = s.failed
				}
				w.done <- results[i] // the blobs stay: a record may name them
			}
			return true
		}
		s.head = b.head
		s.openRefs.apply(b.touched)
	}
	for i, w := range group {
		s.answer(w, results[i])
	}
	for _, t := range b.touched {
		s.watch.wake(t.ref)
	}
	if err := s.blobs.remove(b.obsolete); err != nil {
		s.log.Warn("blobs could not be removed", "error", err)
	}
	return true
}

// refusal returns an error of the Store contract as it is, and another one as
// what can be said of it.
func refusal(err error) error {
	for _, known := range []error{keyring.ErrExists, keyring.ErrNotFound, keyring.ErrStale, keyring.ErrFull, keyring.ErrInvalid} {
		if errors.Is(err, known) {
			return err
		}
	}
	return fmt.Errorf("reading the record: %w", safe(err))
}

// answer tells the caller of w what became of it. The blobs of a change that
// was not made are nobody's.
func (s *Store) answer(w *write, err error) {
	if err != nil {
		if err := s.blobs.remove(w.blobs); err != nil {
			s.log.Warn("blobs could not be removed", "error", err)
		}
	}
	w.done <- err
}

// commitTxn is replaced in tests.
var commitTxn = func(txn *badger.Txn) error { return txn.Commit() }

// syncNewTables flushes Badger's directory when a memtable's log has appeared
// in it, which Badger itself does not. Without that, on file systems other
// than ext4 and XFS, a flushed log can be gone after a power cut.
func (s *Store) syncNewTables() error {
	found := false
	for {
		path := filepath.Join(s.badgerDir(), fmt.Sprintf("%05d.mem", s.memFile+1))
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
			break
		} else if err != nil {
			return err
		}
		s.memFile++
		found = true
	}
	if !found {
		return nil
	}
	if err := restrictFiles(s.badgerDir()); err != nil {
		return err
	}
	return syncDir(s.badgerDir())
}

// safe returns err if its text is known to quote no stored value, and a text
// of our own otherwise: Badger's size errors print keys and values.
func safe(err error) error {
	var errno syscall.Errno
	var path *fs.PathError
	switch {
	case errors.As(err, &path):
		return path
	case errors.As(err, &errno):
		return errno
	case errors.Is(err, badger.ErrTxnTooBig), errors.Is(err, badger.ErrConflict), errors.Is(err, badger.ErrBlockedWrites), errors.Is(err, badger.ErrDBClosed), errors.Is(err, badger.ErrKeyNotFound):
		return err
	case errors.Is(err, errLarge), errors.Is(err, errDamaged), errors.Is(err, keyring.ErrUnreadable):
		return err
	}
	return errors.New("the database reported an error that is not repeated here")
}

func safeText(err error) string { return safe(err).Error() }
