package keyringtest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/samekey/samekey/keyring"
)

// logged is a store in memory that also writes each change to a file, which
// is enough to outlive a killed process. With a buffer before the file it
// loses what it has acknowledged; without its last line's end it is half
// there.
type logged struct {
	*Store
	mu    sync.Mutex
	file  *os.File
	buf   *bufio.Writer // nil: none
	wrong string
}

type change struct {
	Rec     keyring.Record
	Print   []byte
	Deleted bool
}

func openLogged(dir, wrong string) (keyring.Store, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "log")
	l := &logged{Store: NewStore(), wrong: wrong}
	content, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return nil, err
	}
	lines := strings.SplitAfter(string(content), "\n")
	for _, line := range lines {
		if !strings.HasSuffix(line, "\n") {
			continue // cut by the kill
		}
		var c change
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			return nil, err
		}
		if c.Rec.Fingerprint, err = keyring.FingerprintOf(c.Print); err != nil {
			return nil, err
		}
		poke(l.Store, func(d *data) {
			if c.Deleted {
				if d.records[c.Rec.Ref].Open {
					d.open--
				}
				delete(d.records, c.Rec.Ref)
			} else {
				d.put(c.Rec)
			}
		})
	}
	// A torn line at the end would make the next one unreadable.
	whole := strings.LastIndexByte(string(content), '\n') + 1
	if err := os.WriteFile(path, content[:whole], 0o600); err != nil {
		return nil, err
	}
	l.file, err = os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0o600)
	if wrong == "buffers" {
		l.buf = bufio.NewWriterSize(l.file, 1<<20)
	}
	return l, err
}

func (l *logged) log(c change) error {
	if l.wrong == "cuts" {
		c.Rec.Data = c.Rec.Data[:len(c.Rec.Data)/2]
	}
	c.Print = c.Rec.Fingerprint.Bytes()
	b, err := json.Marshal(c)
	if err != nil {
		return err
	}
	if l.buf != nil {
		_, err = l.buf.Write(append(b, '\n'))
	} else {
		_, err = l.file.Write(append(b, '\n'))
	}
	return err
}

func (l *logged) Create(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Store.Create(ctx, rec, lim); err != nil {
		return err
	}
	return l.log(change{Rec: rec})
}

func (l *logged) Update(ctx context.Context, rec keyring.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Store.Update(ctx, rec); err != nil {
		return err
	}
	rec, _ = peek(l.Store, rec.Ref)
	return l.log(change{Rec: rec})
}

func (l *logged) Delete(ctx context.Context, ref keyring.Ref, revision uint64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	rec, _ := peek(l.Store, ref)
	if err := l.Store.Delete(ctx, ref, revision); err != nil {
		return err
	}
	return l.log(change{Rec: rec, Deleted: true})
}

func (l *logged) Close() error {
	_ = l.Store.Close()
	if l.buf != nil {
		_ = l.buf.Flush()
	}
	return l.file.Close()
}

func TestReopenLogged(t *testing.T) {
	t.Setenv(reopenRounds, "3")
	TestReopen(t, func(dir string) (keyring.Store, error) { return openLogged(dir, "") })
}

// TestReopenWrong demands that stores which lose or halve what they have
// acknowledged are found out.
func TestReopenWrong(t *testing.T) {
	for _, wrong := range []string{"buffers", "cuts", "memory"} {
		t.Run(wrong, func(t *testing.T) {
			open := func(dir string) (keyring.Store, error) {
				if wrong == "memory" {
					return NewStore(), nil
				}
				return openLogged(dir, wrong)
			}
			if dir := os.Getenv(reopenDir); dir != "" && os.Getenv(reopenTest) == t.Name() {
				child(dir, open)
			}
			err := reopen(t.Context(), t.Name(), t.TempDir(), 8, open)
			if err == nil {
				t.Errorf("a store that is wrong (%s) passed", wrong)
			}
		})
	}
}

func TestReopenChildFails(t *testing.T) {
	open := func(dir string) (keyring.Store, error) { return nil, fmt.Errorf("no way in") }
	if dir := os.Getenv(reopenDir); dir != "" && os.Getenv(reopenTest) == t.Name() {
		child(dir, open)
	}
	err := reopen(t.Context(), t.Name(), t.TempDir(), 1, open)
	if err == nil || !strings.Contains(err.Error(), "no way in") {
		t.Errorf("the child's failure was reported as %v", err)
	}
}
