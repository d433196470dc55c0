package badgerkeys

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/samekey/samekey/keyring"
)

const (
	identityFile = "ring.json"
	closedFile   = "closed.json"
	holderFile   = "holder"
	lockFile     = "lock"
	newSuffix    = ".new" // of a file that is about to take another one's place

	ringFormat = 1
)

// identity is the keyring's id outside Badger. It is written before anything
// else, so that whatever happens to Badger's files, there was a keyring here.
type identity struct {
	Format int    `json:"format"`
	Ring   string `json:"ring"`
	// State is "creating" until Badger has the id as well, and "ready" from
	// then on. No record is taken in before that: a creation that was cut short
	// can be completed, an empty database in a ready keyring is a loss.
	State string `json:"state"`
}

const (
	creating = "creating"
	ready    = "ready"
)

// closing is what a clean Close leaves behind. Badger's files and the head
// must be at least as far at the next open.
type closing struct {
	Ring     string           `json:"ring"`
	Sequence uint64           `json:"sequence"`
	Intents  uint64           `json:"intents"`
	Open     uint64           `json:"open"`
	Files    map[string]int64 `json:"files"` // of Badger: its tables, MANIFEST and KEYREGISTRY, with their sizes
}

func newIdentity() identity {
	return identity{Format: ringFormat, Ring: rand.Text(), State: creating}
}

// readIdentity reports fs.ErrNotExist where there is none.
func readIdentity(dir string) (identity, error) {
	var id identity
	b, err := os.ReadFile(filepath.Join(dir, identityFile))
	if err != nil {
		return id, err
	}
	unreadable := func(why string) (identity, error) {
		return identity{}, fmt.Errorf("%w: %s %s", keyring.ErrUnreadable, filepath.Join(dir, identityFile), why)
	}
	switch err := json.Unmarshal(b, &id); {
	case err != nil:
		return unreadable("is damaged")
	case id.Format != ringFormat:
		return unreadable(fmt.Sprintf("has format %d, this version reads format %d", id.Format, ringFormat))
	case id.Ring == "" || id.State != creating && id.State != ready:
		return unreadable("is damaged")
	}
	return id, nil
}

// readClosing returns nil where there is none that can be used.
func readClosing(dir, ring string) (*closing, error) {
	b, err := os.ReadFile(filepath.Join(dir, closedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var c closing
	if json.Unmarshal(b, &c) != nil || c.Ring != ring {
		return nil, nil //nolint:nilerr // as good as none: the open is then rehearsed
	}
	return &c, nil
}

// replaceFile writes v to the file, durably, and so that the file is never
// half there.
func replaceFile(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(path+newSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(path+newSuffix, path)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}
