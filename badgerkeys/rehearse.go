package badgerkeys

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

const (
	asidePrefix = "aside-"
	noRing      = "no keyring at %s; use OpenOrCreate to start one"
)

// rehearse opens a copy of the database and checks what comes up. It is done
// whenever the last end was not a clean one, or the files are not those that
// a clean end has left: Badger's open cuts and deletes what it does not
// understand, and after that nobody could tell a crash from a loss.
//
// Tables never change, so links to them will do; the copy runs without
// merging, which would empty a table before it removes it.
func rehearse(dir string, found *files, id identity, reached *progress, log *slog.Logger) (err error) {
	aside, err := os.MkdirTemp(dir, asidePrefix) // with mode 0700
	if err != nil {
		return accessError("write to", dir, err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(aside)) }()
	from := filepath.Join(dir, "badger")
	for _, name := range found.known {
		if os.Link(filepath.Join(from, name), filepath.Join(aside, name)) == nil {
			continue
		}
		// Not all file systems have links.
		if err := copyFile(filepath.Join(from, name), filepath.Join(aside, name)); err != nil {
			return accessError("copy", filepath.Join(from, name), err)
		}
	}
	for _, name := range found.others {
		if name == "LOCK" {
			continue
		}
		if err := copyFile(filepath.Join(from, name), filepath.Join(aside, name)); err != nil {
			return accessError("copy", filepath.Join(from, name), err)
		}
	}
	o := badgerOptions(aside, log)
	o.NumCompactors = 0
	// Nobody merges, so nothing may wait for it: each killed process leaves a
	// log, which becomes a table here, and Badger would stall for ever at 40.
	o.NumLevelZeroTables, o.NumLevelZeroTablesStall = 1<<20, 1<<21
	// What Badger says names the copy, which is gone when it is read.
	unreadable := func(err error) error {
		text := strings.ReplaceAll(err.Error(), aside, from)
		return fmt.Errorf("%w: %s: %s; "+whatNow, keyring.ErrUnreadable, from, text)
	}
	db, err := openBadger(o)
	if err != nil {
		return unreadable(err)
	}
	defer func() {
		if closeErr := db.Close(); err == nil && closeErr != nil {
			err = unreadable(closeErr)
		}
	}()
	h, fresh, err := verify(db, id, reached, from)
	if err != nil || fresh {
		return err
	}
	if err := checkLogs(db, found.version, from); err != nil {
		return err
	}
	for _, name := range found.unknown {
		whole, err := contains(db, filepath.Join(from, name))
		if err != nil {
			return fmt.Errorf("%w: table %s: %w", keyring.ErrUnreadable, filepath.Join(from, name), err)
		}
		if !whole {
			return lost("table %s has records, and the MANIFEST does not name it", filepath.Join(from, name))
		}
	}
	for _, c := range []struct {
		what   string
		prefix byte
		want   uint64
	}{{"intents", prefRecord, h.intents}, {"open intents", prefOpen, h.open}} {
		n, err := count(db, c.prefix)
		if err != nil {
			return err
		}
		if n != c.want {
			return lost("%s has %d %s where %d were counted", from, n, c.what, c.want)
		}
	}
	return nil
}

// progress is how far the database must have got.
type progress struct {
	closed       *closing // nil: the last end was not a clean one
	acknowledged *head    // nil: of a creation that was cut short
}

// check compares the head of the database with it.
func (p *progress) check(h head, path string) error {
	if p.acknowledged != nil {
		if err := compare(h, *p.acknowledged, path, "change %d was acknowledged"); err != nil {
			return err
		}
	}
	if p.closed != nil {
		return compare(h, p.closed.head(), path, "it was closed with change %d")
	}
	return nil
}

// compare reports ErrLost for a database that ends before a mark, or is
// another one at the same change. A later change is one of after that.
func compare(h, mark head, path, what string) error {
	if h.sequence < mark.sequence {
		return lost("%s ends with change %d, and "+what+"; changes missing: %d", path, h.sequence, mark.sequence, mark.sequence-h.sequence)
	}
	if h.sequence == mark.sequence && h != mark {
		return lost("%s has %d intents (%d open), and "+what+" when there were %d (%d)", path, h.intents, h.open, mark.sequence, mark.intents, mark.open)
	}
	return nil
}

// verify compares what the database says of itself with the identity and the
// progress. fresh means that a creation was cut short before the database said
// anything.
func verify(db *badger.DB, id identity, reached *progress, path string) (h head, fresh bool, err error) {
	ring, err := value(db, []byte(keyRing))
	switch {
	case errors.Is(err, badger.ErrKeyNotFound):
		found, err := keys(db, nil, nil, 1)
		if err != nil {
			return head{}, false, err
		}
		if len(found) > 0 {
			return head{}, false, lost("the database in %s is not that of keyring %s", path, id.Ring)
		}
		if id.State != creating {
			err = reached.check(head{}, path)
			if err == nil {
				err = lost("the database in %s is empty", path)
			}
		}
		return head{}, err == nil, err
	case err != nil:
		return head{}, false, fmt.Errorf("%w: the keyring's id in %s: %w", keyring.ErrUnreadable, path, safe(err))
	case string(ring) != id.Ring:
		return head{}, false, lost("the database in %s is that of keyring %q, not %s", path, ring, id.Ring)
	}
	b, err := value(db, []byte(keyHead))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return head{}, false, lost("the counts in %s are gone", path)
	}
	if err == nil {
		h, err = decodeHead(b)
	}
	if err != nil {
		return head{}, false, fmt.Errorf("%w: the counts in %s: %w", keyring.ErrUnreadable, path, safe(err))
	}
	return h, false, reached.check(h, path)
}

// checkLogs reports ErrLost if changes are missing between two that are there.
// There can be two logs at a time, the older one being made into a table, and
// where the older one is damaged, the head comes from the newer one and shows
// nothing. Each change has left a head, and none of those from logs has been
// merged away: so they must follow one another, up to the tables that were
// there before, whose highest version is given.
func checkLogs(db *badger.DB, version uint64, path string) error {
	return db.View(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = false
		o.AllVersions = true
		o.Prefix = []byte(keyHead)
		heads := txn.NewIterator(o) // the latest first
		defer heads.Close()
		var later uint64
		for heads.Rewind(); heads.Valid(); heads.Next() {
			h, err := headOf(heads.Item())
			if err != nil {
				return fmt.Errorf("%w: the counts in %s: %w", keyring.ErrUnreadable, path, safe(err))
			}
			if later > h.sequence+1 {
				return lost("%s has change %d, and change %d after it; changes missing: %d", path, h.sequence, later, later-h.sequence-1)
			}
			if heads.Item().Version() <= version {
				return nil
			}
			later = h.sequence
		}
		if later > 1 {
			return lost("%s begins with change %d; changes missing: %d", path, later, later-1)
		}
		return nil
	})
}

func headOf(item *badger.Item) (head, error) {
	sealed, err := item.ValueCopy(nil)
	if err != nil {
		return head{}, err
	}
	b, err := unseal([]byte(keyHead), sealed)
	if err != nil {
		return head{}, err
	}
	return decodeHead(b)
}

// value returns a value without its checksum, or errDamaged.
func value(db *badger.DB, key []byte) (content []byte, err error) {
	err = db.View(func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		sealed, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		content, err = unseal(key, sealed)
		return err
	})
	return content, err
}

func count(db *badger.DB, prefix byte) (n uint64, err error) {
	err = db.View(func(txn *badger.Txn) error {
		o := badger.DefaultIteratorOptions
		o.PrefetchValues = false
		o.Prefix = []byte{prefix}
		it := txn.NewIterator(o)
		defer it.Close()
		for it.Rewind(); it.Valid(); it.Next() {
			n++
		}
		return nil
	})
	return n, err
}

func copyFile(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = src.Close() }()
	dst, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	if closeErr := dst.Close(); err == nil {
		err = closeErr
	}
	return err
}

// removeAsides removes the copies of rehearsals that were cut short.
func removeAsides(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), asidePrefix) {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// young says whether the database's directory holds nothing that could have
// been acknowledged: Badger makes its MANIFEST before any table or log.
func young(dir string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return true, nil
	}
	if err != nil {
		return false, accessError("read", dir, err)
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext == ".sst" || ext == ".mem" || e.Name() == badger.ManifestFilename {
			return false, nil
		}
	}
	return true, nil
}
