package badgerkeys

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

// Options configure [Open] and [OpenOrCreate]. Nil and the zero value mean the
// defaults.
type Options struct {
	// RingID is the keyring's id as the program remembers it, see
	// [Store.RingID]. If it is set, another keyring, an emptied directory or
	// none at all is [keyring.ErrLost], and none is created. Empty takes any.
	RingID string

	// LockWait is how long to wait for another process to let go of the
	// keyring. Zero means 5 seconds, a negative one means not to wait.
	LockWait time.Duration

	// Logger receives what is worth knowing when something is wrong; never a
	// stored value. Nil discards.
	Logger *slog.Logger
}

// Open opens the keyring in dir, which must exist. It takes some 10 ms. After an
// unclean end, and once a day, all tables are read, which takes half a
// millisecond more for each MB.
//
// It reports, and then has changed nothing in dir:
//
//   - [keyring.ErrLost] if there is no keyring, if a part of it is missing, if
//     it is another one than Options.RingID says, or if its database lacks a
//     change that was acknowledged; the text says how many are missing
//   - [keyring.ErrUnreadable] if it is damaged, of another format, or may not
//     be read by this user
//   - [keyring.ErrBusy] if another process has it open, or this one
//   - [keyring.ErrNoSpace] if the disk is too full to open it safely
//   - [keyring.ErrInvalid] if dir is a file, or if others than its owner may
//     enter it
//
// A keyring whose creation was cut short is completed.
func Open(dir string, o *Options) (*Store, error) {
	s, err := open(dir, o, false)
	return s, named(err)
}

// OpenOrCreate is as [Open], and creates a keyring if dir is missing or empty.
// An empty directory gets mode 0700. A directory with files in it that are not
// a keyring's is [keyring.ErrInvalid]; one with only part of a keyring is
// [keyring.ErrLost].
func OpenOrCreate(dir string, o *Options) (*Store, error) {
	s, err := open(dir, o, true)
	return s, named(err)
}

// checkAge is how old the last check of all tables may be for an open to do
// without one. It is made earlier after an unclean end, and when anybody has
// written to a table since the last close. What is left is what changes on the
// disk by itself, which disks have checksums against.
const checkAge = 24 * time.Hour

// step is called after each step of a creation; tests end the process there.
var step = func(name string) {}

func open(dir string, o *Options, create bool) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	wait, log := o.LockWait, o.Logger
	if wait == 0 {
		wait = 5 * time.Second
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: directory %s: %w", keyring.ErrInvalid, dir, err)
	}
	if err := prepare(dir, create && o.RingID == ""); err != nil {
		return nil, err
	}
	step("prepared")
	lock, err := lockDir(dir, wait)
	if err != nil {
		return nil, err
	}
	step("locked")
	s, err := openLocked(dir, o.RingID, create && o.RingID == "", log)
	if err != nil {
		return nil, errors.Join(err, lock.release())
	}
	s.lock = lock
	go s.run()
	return s, nil
}

// prepare sees to it that there is a directory which may hold a keyring.
func prepare(dir string, create bool) error {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if !create {
			return fmt.Errorf("%w: "+noRing, keyring.ErrLost, dir)
		}
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return accessError("create", dir, err)
		}
		return syncDir(filepath.Dir(dir))
	case err != nil:
		return accessError("read", dir, err)
	case !info.IsDir():
		return fmt.Errorf("%w: %s is a file; name a directory for the keyring", keyring.ErrInvalid, dir)
	}
	there, err := present(dir, create)
	if err != nil || !loose(info) {
		return err
	}
	if there {
		return fmt.Errorf("%w: others may enter the keyring's directory; run: chmod 700 %s", keyring.ErrInvalid, dir)
	}
	if err := os.Chmod(dir, 0o700); err != nil {
		return accessError("restrict", dir, err)
	}
	return nil
}

// present says whether there is a keyring in dir. If there is none, it reports
// an error unless one may be created there.
func present(dir string, create bool) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, identityFile))
	if err == nil {
		return true, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false, accessError("read", dir, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, accessError("read", dir, err)
	}
	foreign := ""
	for _, e := range entries {
		switch name := e.Name(); name {
		case lockFile, holderFile, holderFile + newSuffix, identityFile + newSuffix: // of a creation that has just begun
		case "badger", "blobs", closedFile, witnessFile:
			return false, lost("%s is missing, and %s is there", filepath.Join(dir, identityFile), name)
		default:
			foreign = name
		}
	}
	switch {
	case !create:
		return false, fmt.Errorf("%w: "+noRing, keyring.ErrLost, dir)
	case foreign != "":
		return false, fmt.Errorf("%w: %s holds other files, such as %s; name an empty or a new directory for the keyring", keyring.ErrInvalid, dir, foreign)
	}
	return false, nil
}

// openLocked opens the keyring in dir, whose lock the caller has. Up to the
// marked line it changes nothing in a keyring that is ready.
func openLocked(dir, ring string, create bool, log *slog.Logger) (_ *Store, err error) {
	there, err := present(dir, create) // again, since another process may have been faster
	if err != nil {
		return nil, err
	}
	identityPath := filepath.Join(dir, identityFile)
	if !there {
		if err := newIdentity().write(dir); err != nil {
			return nil, accessError("write to", dir, err)
		}
		step("identity written")
	}
	id, err := readIdentity(dir)
	if err != nil {
		if errors.Is(err, keyring.ErrUnreadable) {
			return nil, err
		}
		return nil, accessError("read", identityPath, err)
	}
	if ring != "" && id.Ring != ring {
		return nil, fmt.Errorf("%w: %s holds keyring %s, not %s", keyring.ErrLost, dir, id.Ring, ring)
	}
	s := &Store{
		dir:     dir,
		ringID:  id.Ring,
		session: rand.Text(),
		checked: time.Now(),
		log:     log,
		blobs:   blobs{filepath.Join(dir, "blobs")},
		room:    room{dir: dir},
		ended:   make(chan struct{}),
	}
	s.queued = sync.NewCond(&s.queueMu)
	if err := s.room.check(reserveMore); err != nil {
		return nil, err
	}
	wasUnclean, err := unclean(dir)
	if err != nil {
		return nil, accessError("read", dir, err)
	}
	reached := &progress{}
	if reached.closed, err = readClosing(dir, id.Ring); err != nil {
		return nil, err
	}
	if id.State == ready {
		var h head
		if s.witness, h, err = openWitness(dir, id.Ring); err != nil {
			return nil, err
		}
		reached.acknowledged = &h
	}
	defer func() {
		if err != nil && s.witness != nil {
			err = errors.Join(err, s.witness.close(false))
		}
	}()
	if err := s.inspect(id, reached, wasUnclean); err != nil {
		return nil, err
	}

	// From here on the directory changes.
	if id.State == creating {
		if err := s.makeDirs(); err != nil {
			return nil, err
		}
	}
	if err := removeAsides(dir); err != nil {
		return nil, accessError("write to", dir, err)
	}
	if err := writeHolder(dir, s.session); err != nil {
		return nil, accessError("write to", dir, err)
	}
	step("holder written")
	defer func() {
		if err != nil && !wasUnclean {
			err = errors.Join(err, os.Remove(filepath.Join(dir, holderFile)))
		}
	}()
	if s.db, err = openBadger(badgerOptions(s.badgerDir(), log)); err != nil {
		return nil, fmt.Errorf("%w: %s: %w", keyring.ErrUnreadable, s.badgerDir(), errors.Join(err, restrictFiles(s.badgerDir())))
	}
	step("database opened")
	if err := s.ready(id, reached, wasUnclean); err != nil {
		return nil, errors.Join(err, s.db.Close(), restrictFiles(s.badgerDir()))
	}
	return s, nil
}

func (s *Store) badgerDir() string { return filepath.Join(s.dir, "badger") }

// inspect checks Badger's files before Badger sees them.
func (s *Store) inspect(id identity, reached *progress, wasUnclean bool) error {
	if id.State == creating {
		if isYoung, err := young(s.badgerDir()); err != nil || isYoung {
			return err
		}
	} else if _, err := os.Stat(s.blobs.dir); errors.Is(err, fs.ErrNotExist) {
		return lost("%s is missing", s.blobs.dir)
	}
	found, err := lookAt(s.badgerDir())
	if err != nil {
		return err
	}
	clean, checked := false, false
	if was, last := reached.closed, reached.acknowledged; !wasUnclean && was != nil && last != nil && *last == was.head() {
		if clean, err = found.agree(s.badgerDir(), was); err != nil {
			return err
		}
		if age := s.checked.Sub(time.Unix(was.Checked, 0)); clean && age >= 0 && age < checkAge {
			if checked, err = found.untouched(s.badgerDir(), was); err != nil {
				return err
			}
		}
		if checked {
			s.checked = time.Unix(was.Checked, 0)
		}
	}
	if err := found.checkTables(s.badgerDir(), !checked); err != nil || clean {
		return err
	}
	s.log.Info("the keyring was not closed cleanly; checking it", "dir", s.dir)
	return rehearse(s.dir, found, id, reached, s.log)
}

// makeDirs makes the directories of a new keyring, where they are not there.
func (s *Store) makeDirs() error {
	for _, dir := range []string{s.badgerDir(), s.blobs.dir} {
		if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
			return accessError("create", dir, err)
		}
	}
	step("directories made")
	return syncDir(s.dir)
}

// ready takes the opened database into use, and completes a creation.
func (s *Store) ready(id identity, reached *progress, wasUnclean bool) error {
	h, fresh, err := verify(s.db, id, reached, s.badgerDir())
	if err != nil {
		return err
	}
	s.head = h
	if fresh {
		if err := s.writeRing(id); err != nil {
			return fmt.Errorf("writing the keyring's id: %w", safe(err))
		}
		step("id written")
	}
	if s.memFile, err = newestMem(s.badgerDir()); err == nil {
		err = restrictFiles(s.badgerDir())
	}
	if err == nil {
		err = syncDir(s.badgerDir())
	}
	if err != nil {
		return accessError("prepare", s.badgerDir(), err)
	}
	if id.State == creating {
		if s.witness, err = makeWitness(s.dir, s.ringID, s.head); err != nil {
			return accessError("write to", s.dir, err)
		}
		step("witness made")
		id.State = ready
		if err := id.write(s.dir); err != nil {
			return accessError("write to", s.dir, err)
		}
		step("ready")
	}
	if !wasUnclean {
		return nil
	}
	// Programs that are killed each time never come to merge in Close.
	if err := s.flatten(); err != nil {
		return err
	}
	err = s.blobs.sweep(func(name string) (named bool, err error) {
		err = s.db.View(func(txn *badger.Txn) error {
			named, err = has(txn, at(prefBlob, name))
			return err
		})
		return named, err
	})
	if err != nil {
		return fmt.Errorf("looking for blobs that nothing names: %w", safe(err))
	}
	return nil
}

// writeRing writes the first transaction: the ring's id, and the head.
func (s *Store) writeRing(id identity) error {
	b := &batch{txn: s.db.NewTransaction(true)}
	defer b.txn.Discard()
	w := writer{txn: b.txn}
	w.set([]byte(keyRing), []byte(id.Ring))
	if w.err != nil {
		return w.err
	}
	if err := b.finish(); err != nil {
		return err
	}
	if err := b.txn.Commit(); err != nil {
		return err
	}
	s.head = b.head
	return nil
}
