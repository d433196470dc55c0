package badgerkeys

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/samekey/samekey/keyring"
)

// TestLooseKeyring has a keyring that others may enter.
func TestLooseKeyring(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	mustClose(t, mustOpen(t, dir))
	if err := os.Chmod(dir, 0o750); err != nil {
		t.Fatal(err)
	}
	refused(t, dir, keyring.ErrInvalid, "chmod 700 "+dir)
}

// TestNoPermission opens and creates where this user may not. Root may
// everywhere, so as root the calls are made with the file system rights of
// nobody, which on Linux one thread can have alone.
func TestNoPermission(t *testing.T) {
	base := t.TempDir()
	dir := filepath.Join(base, "ring")
	mustClose(t, mustOpen(t, dir))
	before := snapshot(t, base)
	if err := os.Chmod(dir, 0); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o555); err != nil {
		t.Fatal(err)
	}
	restore := func() error { return errors.Join(os.Chmod(base, 0o755), os.Chmod(dir, 0o700)) }
	for _, path := range []string{dir, filepath.Join(base, "new")} {
		err := asNobody(func() error {
			s, err := OpenOrCreate(path, nil)
			if err == nil {
				_ = s.Close()
			}
			return err
		})
		wantErr(t, err, keyring.ErrUnreadable)
		wantErr(t, err, fs.ErrPermission)
		if err == nil || !strings.Contains(err.Error(), "no permission to") {
			t.Errorf("the error %v does not say what to do", err)
		}
	}
	if err := restore(); err != nil {
		t.Fatal(err)
	}
	unchanged(t, base, before)
}

func asNobody(f func() error) error {
	if os.Geteuid() != 0 {
		return f()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if _, err := unix.SetfsuidRetUid(65534); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}
