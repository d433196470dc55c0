package badgerkeys

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// manyTables is when Close merges, and Open after an unclean end: each opening
// leaves a table behind. Badger's own merging starts from eight tables on, but
// up to a second after the open, which is more than many programs live.
const manyTables = 24

func (s *Store) flatten() error {
	n := len(s.db.Tables())
	if n <= manyTables {
		return nil
	}
	if err := s.db.Flatten(1); err != nil {
		return fmt.Errorf("merging %d tables: %w", n, safe(err))
	}
	return nil
}

// Close waits for the writes that are under way, flushes what there is, and
// lets go of the keyring. Calls that come later report [keyring.ErrClosed].
// To close again is harmless and reports the same.
func (s *Store) Close() error {
	if err := s.usable(); err != nil {
		return named(err)
	}
	s.closeOnce.Do(func() { s.closeErr = named(s.close()) })
	return s.closeErr
}

func (s *Store) close() error {
	s.life.Lock() // waits for calls that read, or prepare a write
	s.closed = true
	s.life.Unlock()
	s.watch.wakeAll()
	s.queueMu.Lock()
	s.draining = true
	s.queueMu.Unlock()
	s.queued.Broadcast()
	<-s.ended

	var errs []error
	if s.failed == nil {
		if err := s.flatten(); err != nil {
			errs = append(errs, err)
		}
	}
	if err := s.db.Close(); err != nil {
		errs = append(errs, fmt.Errorf("closing the database: %w", safe(err)))
	}
	// After a failure the holder file stays, so that the next open checks.
	clean := len(errs) == 0 && s.failed == nil
	if err := s.witness.close(clean); err != nil {
		errs = append(errs, fmt.Errorf("closing the witness: %w", err))
		clean = false
	}
	if clean {
		if err := s.sealClosing(); err != nil {
			errs = append(errs, fmt.Errorf("noting the clean end: %w", err))
		}
	}
	return errors.Join(append(errs, s.lock.release())...)
}

// sealClosing notes how the keyring was left, and that it was left cleanly.
func (s *Store) sealClosing() error {
	if err := restrictFiles(s.badgerDir()); err != nil {
		return err
	}
	if err := syncDir(s.badgerDir()); err != nil {
		return err
	}
	found, err := lookAt(s.badgerDir())
	if err != nil {
		return err
	}
	marks, err := found.marks(s.badgerDir())
	if err != nil {
		return err
	}
	content, err := closing{
		Ring:     s.ringID,
		Sequence: s.head.sequence,
		Intents:  s.head.intents,
		Open:     s.head.open,
		Files:    marks,
		Checked:  s.checked.Unix(),
	}.encode()
	if err == nil {
		err = replaceFile(filepath.Join(s.dir, closedFile), content)
	}
	if err != nil {
		return err
	}
	err = os.Remove(filepath.Join(s.dir, holderFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
