package badgerkeys

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/samekey/samekey/keyring"
)

const (
	// reserve is what stays free whatever the keyring's size: memtables, their
	// logs and the files that a merge writes, several times over.
	reserve = 64 << 20
	// reserveMore is added to the size of all tables, since Badger may write
	// each anew before the old one goes.
	reserveMore = 16 << 20
	// roomAge and roomBytes are when the disk is looked at again.
	roomAge   = time.Second
	roomBytes = 4 << 20
)

// room refuses writes while the disk may be too full for them. Badger writes
// through memory maps, also in the background: where there is no room, the
// process dies and no error is returned. This narrows the window; it cannot
// close it, since others write to the disk as well.
type room struct {
	dir string // with badger/ in it

	mu     sync.Mutex
	looked time.Time
	left   uint64 // above the reserve
}

// check reports ErrNoSpace unless n bytes can be written.
func (r *room) check(n uint64) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.looked) > roomAge || r.left < n+roomBytes {
		if err := r.look(); err != nil {
			return err
		}
	}
	if r.left < n {
		r.looked = time.Time{}
		return fmt.Errorf("%w: make room on the disk of %s", keyring.ErrNoSpace, r.dir)
	}
	r.left -= n
	return nil
}

func (r *room) look() error {
	free, err := diskFree(r.dir)
	if err != nil {
		return fmt.Errorf("looking for free space: %w", err)
	}
	tables, err := tableBytes(filepath.Join(r.dir, "badger"))
	if err != nil {
		return fmt.Errorf("looking for free space: %w", err)
	}
	need := max(reserve, tables+reserveMore)
	r.left = free - min(free, need)
	r.looked = time.Now()
	return nil
}

// tableBytes returns the size of all tables; a directory that is not there yet
// has none.
func tableBytes(dir string) (uint64, error) {
	entries, err := os.ReadDir(dir)
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	var sum uint64
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), ".sst") {
			continue
		}
		// One that has just been merged away counts for nothing.
		if info, err := e.Info(); err == nil {
			sum += uint64(info.Size())
		}
	}
	return sum, nil
}
