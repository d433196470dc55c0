package badgerkeys

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"

	"github.com/samekey/samekey/keyring"
)

// lockPoll is how often a lock that is taken is tried again.
const lockPoll = 10 * time.Millisecond

// holder says who has the keyring open.
type holder struct {
	PID     int       `json:"pid"`
	Program string    `json:"program"`
	Host    string    `json:"host"`
	Since   time.Time `json:"since"`
	Session string    `json:"session"`
}

func (h holder) String() string {
	return fmt.Sprintf("process %d (%s) on %s since %s", h.PID, h.Program, h.Host, h.Since.Format(time.RFC3339))
}

// dirLock is the right to use a keyring directory. The operating system takes
// it back when the process ends, however it ends.
type dirLock struct {
	dir string
	f   *flock.Flock
}

// lockDir waits for the lock for as long as wait says, and reports ErrBusy
// with the holder after that.
func lockDir(dir string, wait time.Duration) (*dirLock, error) {
	l := &dirLock{dir: dir, f: flock.New(filepath.Join(dir, lockFile), flock.SetPermissions(0o600))}
	got, err := l.f.TryLock()
	if err == nil && !got && wait > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), wait)
		defer cancel()
		got, err = l.f.TryLockContext(ctx, lockPoll)
		if errors.Is(err, context.DeadlineExceeded) {
			err = nil
		}
	}
	if err != nil {
		_ = l.f.Close()
		return nil, accessError("lock", dir, err)
	}
	if !got {
		_ = l.f.Close()
		h, ok := readHolder(dir)
		if !ok {
			return nil, fmt.Errorf("%w: %s is locked, by a process that has not said who it is", keyring.ErrBusy, dir)
		}
		return nil, fmt.Errorf("%w: %s has been held by %s", keyring.ErrBusy, dir, h)
	}
	return l, nil
}

func (l *dirLock) release() error { return l.f.Close() }

// readHolder returns who holds the keyring, or who held it last and was not
// able to close it.
func readHolder(dir string) (holder, bool) {
	var h holder
	b, err := os.ReadFile(filepath.Join(dir, holderFile))
	if err != nil || json.Unmarshal(b, &h) != nil {
		return holder{}, false
	}
	return h, true
}

// unclean says whether the keyring's last holder has not closed it.
func unclean(dir string) (bool, error) {
	_, err := os.Lstat(filepath.Join(dir, holderFile))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// writeHolder says that this process has the keyring open. It is not flushed:
// after a power cut, Badger's files show as well that there was no clean end.
func writeHolder(dir, session string) error {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	b, err := json.Marshal(holder{
		PID:     os.Getpid(),
		Program: filepath.Base(os.Args[0]),
		Host:    host,
		Since:   time.Now().UTC().Truncate(time.Second),
		Session: session,
	})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, holderFile)
	if err := os.WriteFile(path+newSuffix, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(path+newSuffix, path)
}

// accessError says what to do about a directory that cannot be used.
func accessError(what, path string, err error) error {
	if errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("%w: no permission to %s %s; run as its owner, or choose another directory: %w", keyring.ErrUnreadable, what, path, err)
	}
	return fmt.Errorf("%w: cannot %s %s: %w", keyring.ErrUnreadable, what, path, err)
}
