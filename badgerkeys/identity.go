package badgerkeys

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/samekey/samekey/keyring"
)

const (
	identityFile = "ring.json"
	closedFile   = "closed.json"
	holderFile   = "holder"
	witnessFile  = "sequence"
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
	Ring     string              `json:"ring"`
	Sequence uint64              `json:"sequence"`
	Intents  uint64              `json:"intents"`
	Open     uint64              `json:"open"`
	Files    map[string]fileMark `json:"files"`   // of Badger, see files.marks
	Checked  int64               `json:"checked"` // when all tables were read last, in Unix seconds
	Sum      uint32              `json:"sum"`     // of this file, with zero in its place
}

// fileMark is what a file is known by.
type fileMark struct {
	Size     int64  `json:"size"`
	Sum      uint32 `json:"sum,omitempty"`      // of all but tables, which have checksums of their own
	Modified int64  `json:"modified,omitempty"` // of tables, in Unix nanoseconds
}

func (c *closing) head() head {
	return head{sequence: c.Sequence, intents: c.Intents, open: c.Open}
}

// encode returns the content of the file. It does not depend on c.Sum.
func (c closing) encode() ([]byte, error) {
	c.Sum = 0
	b, err := json.Marshal(c)
	if err != nil {
		return nil, err
	}
	c.Sum = crc32.Checksum(b, castagnoli)
	return json.Marshal(c)
}

func newIdentity() identity {
	return identity{Format: ringFormat, Ring: rand.Text(), State: creating}
}

func (id identity) write(dir string) error {
	b, err := json.Marshal(id)
	if err != nil {
		return err
	}
	return replaceFile(filepath.Join(dir, identityFile), b)
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

// readClosing returns nil where there is none: the open is then rehearsed.
func readClosing(dir, ring string) (*closing, error) {
	path := filepath.Join(dir, closedFile)
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, accessError("read", path, err)
	}
	var c closing
	var again []byte
	err = json.Unmarshal(b, &c)
	if err == nil {
		again, err = c.encode()
	}
	if err != nil || !bytes.Equal(bytes.TrimSpace(b), again) {
		return nil, fmt.Errorf("%w: %s is damaged; find out by what. It repeats what the other files say: once you know that they are sound, remove it, and only it, and the next open checks all of them", keyring.ErrUnreadable, path)
	}
	if c.Ring != ring {
		return nil, lost("%s is that of keyring %s, and the keyring here is %s", path, c.Ring, ring)
	}
	return &c, nil
}

// replaceFile writes the file, durably, and so that it is never half there.
func replaceFile(path string, content []byte) error {
	f, err := os.OpenFile(path+newSuffix, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(append(content, '\n'))
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
