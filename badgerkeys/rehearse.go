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
	"github.com/dgraph-io/badger/v4/options"

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
func rehearse(dir string, found *files, id identity, was *closing, log *slog.Logger) (err error) {
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
	// Reads each table, and says which is damaged. (The modes that check while
	// reading drop a damaged table's keys in silence, or panic.)
	o.ChecksumVerificationMode = options.OnTableRead
	db, err := openBadger(o)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", keyring.ErrUnreadable, from, err)
	}
	defer func() {
		if closeErr := db.Close(); err == nil && closeErr != nil {
			err = fmt.Errorf("%w: %s: %w", keyring.ErrUnreadable, from, closeErr)
		}
	}()
	h, fresh, err := verify(db, id, was, from)
	if err != nil || fresh {
		return err
	}
	for _, name := range found.unknown {
		whole, err := contains(db, filepath.Join(from, name))
		if err != nil {
			return fmt.Errorf("%w: table %s: %w", keyring.ErrUnreadable, filepath.Join(from, name), err)
		}
		if !whole {
			return fmt.Errorf("%w: table %s has records, and the MANIFEST does not name it", keyring.ErrLost, filepath.Join(from, name))
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
			return fmt.Errorf("%w: %s has %d %s where %d were counted", keyring.ErrLost, from, n, c.what, c.want)
		}
	}
	return nil
}

// verify compares what the database says of itself with the identity and the
// last clean end. fresh means that a creation was cut short before the
// database said anything.
func verify(db *badger.DB, id identity, was *closing, path string) (h head, fresh bool, err error) {
	ring, err := value(db, []byte(keyRing))
	switch {
	case errors.Is(err, badger.ErrKeyNotFound):
		found, err := keys(db, nil, nil, 1)
		if err != nil {
			return head{}, false, err
		}
		if id.State == creating && len(found) == 0 {
			return head{}, true, nil
		}
		return head{}, false, fmt.Errorf("%w: the database in %s is not that of keyring %s", keyring.ErrLost, path, id.Ring)
	case err != nil:
		return head{}, false, fmt.Errorf("%w: the keyring's id in %s: %w", keyring.ErrUnreadable, path, safe(err))
	case string(ring) != id.Ring:
		return head{}, false, fmt.Errorf("%w: the database in %s is that of keyring %q, not %s", keyring.ErrLost, path, ring, id.Ring)
	}
	b, err := value(db, []byte(keyHead))
	if errors.Is(err, badger.ErrKeyNotFound) {
		return head{}, false, fmt.Errorf("%w: the counts in %s are gone", keyring.ErrLost, path)
	}
	if err == nil {
		h, err = decodeHead(b)
	}
	if err != nil {
		return head{}, false, fmt.Errorf("%w: the counts in %s: %w", keyring.ErrUnreadable, path, safe(err))
	}
	if was == nil {
		return h, false, nil
	}
	// A later sequence is one of after that close.
	if h.sequence < was.Sequence || h.sequence == was.Sequence && (h.intents != was.Intents || h.open != was.Open) {
		return head{}, false, fmt.Errorf("%w: %s ends with change %d (%d intents), it was closed with change %d (%d intents)",
			keyring.ErrLost, path, h.sequence, h.intents, was.Sequence, was.Intents)
	}
	return h, false, nil
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
