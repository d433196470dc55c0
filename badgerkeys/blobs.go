package badgerkeys

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// blobs keeps what is too large for Badger, a file for each.
//
// A file is flushed, and its name is, before the record that names it is
// written. No two records share one, nor two revisions of one, even when the
// content is the same: so a file can go as soon as the record that named it
// has stopped to, with nobody to ask.
type blobs struct{ dir string }

const blobTemp = "new-"

// blobRef names a blob; its file says the same in hexadecimal digits.
type blobRef struct {
	unique [12]byte // random
	sum    [sha256.Size]byte
	size   uint64
}

func (r *blobRef) name() string {
	return hex.EncodeToString(r.unique[:]) + "-" + hex.EncodeToString(r.sum[:])
}

func (r *blobRef) append(b []byte) []byte {
	b = append(b, r.unique[:]...)
	b = append(b, r.sum[:]...)
	return binary.AppendUvarint(b, r.size)
}

func (r *reader) blobRef() *blobRef {
	var ref blobRef
	copy(ref.unique[:], r.take(len(ref.unique)))
	copy(ref.sum[:], r.take(len(ref.sum)))
	ref.size = r.uvarint()
	return &ref
}

// write makes a blob of content, durably.
func (b blobs) write(content []byte) (_ *blobRef, err error) {
	ref := &blobRef{sum: sha256.Sum256(content), size: uint64(len(content))}
	_, _ = rand.Read(ref.unique[:]) // never fails, see its documentation
	temp := filepath.Join(b.dir, blobTemp+ref.name())
	f, err := os.OpenFile(temp, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(temp) // else the next open removes it
		}
	}()
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(temp, filepath.Join(b.dir, ref.name()))
	}
	if err != nil {
		return nil, err
	}
	return ref, syncDir(b.dir)
}

// read returns the content, or errDamaged if it is missing or another one.
func (b blobs) read(ref *blobRef) ([]byte, error) {
	f, err := os.Open(filepath.Join(b.dir, ref.name()))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errDamaged
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Looked at before the memory is taken, since a damaged record may claim
	// any size.
	if uint64(info.Size()) != ref.size {
		return nil, errDamaged
	}
	content := make([]byte, ref.size)
	if _, err := io.ReadFull(f, content); err != nil {
		return nil, errDamaged
	}
	if sha256.Sum256(content) != ref.sum {
		return nil, errDamaged
	}
	return content, nil
}

// remove drops blobs that no record names. What cannot be removed is swept
// after the next unclean end; it takes room and does no other harm.
func (b blobs) remove(refs []*blobRef) error {
	var errs []error
	for _, ref := range refs {
		if err := os.Remove(filepath.Join(b.dir, ref.name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// sweep removes what a killed process left behind: half-written files and
// those that no record came to name. named says which ones are.
func (b blobs) sweep(named func(name string) (bool, error)) error {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := e.Name()
		if !strings.HasPrefix(name, blobTemp) {
			if keep, err := named(name); err != nil {
				return err
			} else if keep {
				continue
			}
			if !isBlobName(name) {
				continue // not ours
			}
		}
		if err := os.Remove(filepath.Join(b.dir, name)); err != nil {
			return fmt.Errorf("removing a blob that nothing names: %w", err)
		}
	}
	return nil
}

func isBlobName(name string) bool {
	unique, sum, _ := strings.Cut(name, "-")
	_, err1 := hex.DecodeString(unique)
	_, err2 := hex.DecodeString(sum)
	return err1 == nil && err2 == nil && len(unique) == 24 && len(sum) == 2*sha256.Size
}
