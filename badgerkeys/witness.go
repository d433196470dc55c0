package badgerkeys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/samekey/samekey/keyring"
)

// witness is a file outside Badger that says which change was acknowledged
// last. Badger cuts a log where it does not understand it, and goes on without
// the rest: after a kill, nothing in its files tells a change that was never
// finished from one that was acknowledged and is damaged now.
//
// It is written after a commit and before anybody is told of it, and not
// flushed. It outlives the process all the same, and after a power cut it can
// only be behind Badger, which is flushed before it, and then says less than
// it could and nothing wrong. (Where Badger's own flush does not reach the
// disk, it can be ahead, and is right: something acknowledged is gone.)
//
// Of its two slots the newer one is valid. They are written in turn, so that a
// power cut in the middle of one leaves the other.
type witness struct {
	f    *os.File
	ring string
}

const (
	slotMagic = "SKW1"
	slotSize  = len(slotMagic) + 3*8 + crc32.Size
	// slotGap keeps the slots in different blocks of the disk.
	slotGap     = 4096
	witnessSize = slotGap + slotSize
)

// makeWitness starts the witness of a keyring that is being created, whose
// database has got as far as h. The creation may have been cut short before.
func makeWitness(dir, ring string, h head) (_ *witness, err error) {
	f, err := os.OpenFile(filepath.Join(dir, witnessFile), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	if err := f.Truncate(int64(witnessSize)); err != nil {
		return nil, err
	}
	w := &witness{f, ring}
	for _, h := range []head{{}, {sequence: 1}, h} { // so that both slots are valid
		if err := w.note(h); err != nil {
			return nil, err
		}
	}
	if err := f.Sync(); err != nil {
		return nil, err
	}
	return w, syncDir(dir)
}

// openWitness opens the witness of a keyring that is ready, and returns what
// was acknowledged last. A witness that is missing or damaged is an error, and
// never taken for one of nothing.
func openWitness(dir, ring string) (_ *witness, last head, err error) {
	path := filepath.Join(dir, witnessFile)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, head{}, lost("%s is missing, which says how many changes there were", path)
	}
	if err != nil {
		return nil, head{}, accessError("write to", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.Close())
		}
	}()
	b, err := io.ReadAll(io.LimitReader(f, int64(witnessSize)+1))
	if err != nil {
		return nil, head{}, accessError("read", path, err)
	}
	valid := false
	if len(b) == witnessSize {
		for _, at := range []int{0, slotGap} {
			h, ok := decodeSlot(ring, b[at:at+slotSize])
			if ok && (!valid || h.sequence > last.sequence) {
				last, valid = h, true
			}
		}
	}
	if !valid {
		return nil, head{}, fmt.Errorf("%w: %s, which says how many changes there were, is damaged or that of another keyring; %s", keyring.ErrUnreadable, path, whatNow)
	}
	return &witness{f, ring}, last, nil
}

// note says that the changes up to h are acknowledged from now on.
func (w *witness) note(h head) error {
	_, err := w.f.WriteAt(encodeSlot(w.ring, h), int64(h.sequence%2)*slotGap)
	return err
}

// close flushes the witness after a clean end, and lets go of it.
func (w *witness) close(flush bool) error {
	var err error
	if flush {
		err = w.f.Sync()
	}
	return errors.Join(err, w.f.Close())
}

func encodeSlot(ring string, h head) []byte {
	b := append(make([]byte, 0, slotSize), slotMagic...)
	b = append(b, h.encode()[1:]...)
	return binary.BigEndian.AppendUint32(b, slotSum(ring, b))
}

func decodeSlot(ring string, b []byte) (head, bool) {
	content := b[:slotSize-crc32.Size]
	if !bytes.HasPrefix(b, []byte(slotMagic)) || binary.BigEndian.Uint32(b[len(content):]) != slotSum(ring, content) {
		return head{}, false
	}
	h, err := decodeHead(append([]byte{formatHead}, content[len(slotMagic):]...))
	return h, err == nil
}

// slotSum covers the ring as well: no other keyring's witness is valid here.
func slotSum(ring string, content []byte) uint32 {
	return crc32.Update(crc32.Checksum([]byte(ring), castagnoli), castagnoli, content)
}
