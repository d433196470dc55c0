package badgerkeys

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/samekey/samekey/keyring"
)

// record returns a new, open record with size bytes in Data and in Request.
func record(name string, size int) keyring.Record {
	fill := func(seed string) []byte {
		sum := sha256.Sum256([]byte(seed + name))
		return bytes.Repeat(sum[:], size/len(sum)+1)[:size]
	}
	sum := sha256.Sum256([]byte(name))
	f, err := keyring.FingerprintOf(append([]byte{1}, sum[:]...))
	if err != nil {
		panic(err)
	}
	return keyring.Record{
		Ref: keyring.Ref{Scope: "acct", Name: name}, Generation: 1, Revision: 1, Open: true,
		Fingerprint: f, Data: fill("data"), Request: fill("request"),
	}
}

func mustOpen(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := OpenOrCreate(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func mustClose(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustCreate(t testing.TB, s *Store, recs ...keyring.Record) {
	t.Helper()
	for _, rec := range recs {
		if err := s.Create(t.Context(), rec, keyring.Limits{}); err != nil {
			t.Fatalf("Create of %s: %v", rec.Ref, err)
		}
	}
}

// mustHave demands that the store has exactly these records, whole.
func mustHave(t testing.TB, s *Store, want map[keyring.Ref]keyring.Record) {
	t.Helper()
	n := 0
	for rec, err := range s.Scan(t.Context(), keyring.Query{AllScopes: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
		w, ok := want[rec.Ref]
		if !ok {
			t.Errorf("record %s was never written", rec.Ref)
		} else if !bytes.Equal(rec.Data, w.Data) || !bytes.Equal(rec.Request, w.Request) || rec.Revision != w.Revision {
			t.Errorf("record %s is not as it was written", rec.Ref)
		}
	}
	if n != len(want) {
		t.Errorf("%d records are there, %d were written", n, len(want))
	}
}

// snapshot returns a digest of each file and the mode of each directory below
// dir.
func snapshot(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if e.IsDir() {
			all[rel] = info.Mode().String()
			return nil
		}
		b, err := os.ReadFile(path)
		all[rel] = fmt.Sprintf("%s %x", info.Mode(), sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// unchanged demands that nothing below dir has changed since the snapshot.
func unchanged(t testing.TB, dir string, before map[string]string) {
	t.Helper()
	after := snapshot(t, dir)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			t.Errorf("%s was %q and is %q", name, before[name], after[name])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if _, ok := before[name]; !ok {
			t.Errorf("%s has appeared", name)
		}
	}
}

// copyTree copies a keyring directory. Of an open one at rest, the copy is
// what a killed process would have left.
func copyTree(t testing.TB, from string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "ring")
	walk := func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if e.IsDir() {
			return os.Mkdir(filepath.Join(to, rel), 0o700)
		}
		if info, err := e.Info(); err != nil || !info.Mode().IsRegular() {
			return err
		}
		return copyFile(path, filepath.Join(to, rel))
	}
	err := filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		// An open database removes a log once it has become a table; a copy that
		// needed it fails where it is looked at.
		if err = walk(path, e, err); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// wantErr demands an error that is one of the package's kinds of failure.
func wantErr(t testing.TB, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("the error is %v, want one that is %q", err, want)
	}
}

// background is for calls that outlive the test's own context.
var background = context.Background()
