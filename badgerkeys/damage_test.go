package badgerkeys

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

// template is a keyring with several tables and a blob, as it is after a clean
// close and as it is when its process was killed.
type template struct {
	closed, killed string
	records        map[keyring.Ref]keyring.Record
}

func newTemplate(t *testing.T) template {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	tm := template{records: make(map[keyring.Ref]keyring.Record)}
	add := func(from, to int) {
		for i := from; i < to; i++ {
			rec := record(fmt.Sprint("order ", i), 30<<10)
			if i == 3 {
				rec = record("large", 200<<10)
			}
			mustCreate(t, s, rec)
			tm.records[rec.Ref] = rec
		}
	}
	add(0, 60)
	mustClose(t, s)
	s = mustOpen(t, dir)
	add(60, 160)
	for len(s.db.Tables()) < 4 {
		add(len(tm.records), len(tm.records)+20)
	}
	settle(t, s)
	tm.killed = copyTree(t, dir)
	mustClose(t, s)
	tm.closed = copyTree(t, dir)
	return tm
}

// settle waits until no memtable is being written to a table, so that the
// files are at rest.
func settle(t *testing.T, s *Store) {
	t.Helper()
	for len(files1(t, s.dir, "*.mem")) > 1 {
		time.Sleep(time.Millisecond)
	}
}

func files1(t *testing.T, dir, pattern string) []string {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "badger", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no files %s: %v", pattern, err)
	}
	slices.Sort(names)
	return names
}

// edit changes the content of a file.
func edit(t *testing.T, path string, f func(b []byte) []byte) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, f(b), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	if err := os.RemoveAll(path); err != nil {
		t.Fatal(err)
	}
}

// manifestEnds returns where the records of a MANIFEST end.
func manifestEnds(t *testing.T, dir string) []int {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, "badger", "MANIFEST"))
	if err != nil {
		t.Fatal(err)
	}
	ends := []int{8}
	for at := 8; at+8 <= len(b); {
		at += 8 + int(binary.BigEndian.Uint32(b[at:]))
		ends = append(ends, at)
	}
	return ends
}

// TestC53DamageIsRefused damages keyrings in each way that was found to make Badger
// come up emptier, panic or fail, and demands an error of the right kind and
// that not a byte has changed. It includes field case C53 (a) and (b).
func TestC53DamageIsRefused(t *testing.T) {
	tm := newTemplate(t)
	manifest := func(f func(b []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) { edit(t, filepath.Join(dir, "badger", "MANIFEST"), f) }
	}
	firstTable := func(f func(b []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) { edit(t, files1(t, dir, "*.sst")[0], f) }
	}
	witness := func(f func(b []byte) []byte) func(*testing.T, string) {
		return func(t *testing.T, dir string) { edit(t, filepath.Join(dir, witnessFile), f) }
	}
	for _, damage := range []struct {
		how  string
		want error
		text string
		do   func(t *testing.T, dir string)
	}{
		{"MANIFEST is 16 bytes of text", keyring.ErrUnreadable, "magic", manifest(func([]byte) []byte { return []byte("sixteen bytes...") })},
		{"MANIFEST of another format version", keyring.ErrUnreadable, "version", manifest(func(b []byte) []byte { b[7]++; return b })},
		{"MANIFEST of another program", keyring.ErrUnreadable, "magic number", manifest(func(b []byte) []byte { b[5]++; return b })},
		{"MANIFEST flipped", keyring.ErrUnreadable, "checksum", manifest(func(b []byte) []byte { b[20] ^= 1; return b })},
		{"MANIFEST empty", keyring.ErrUnreadable, "magic", manifest(func([]byte) []byte { return nil })},
		{"MANIFEST without records", keyring.ErrLost, "", manifest(func(b []byte) []byte { return b[:8] })},
		{"MANIFEST missing", keyring.ErrLost, "MANIFEST", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "badger", "MANIFEST")) }},
		{"database missing", keyring.ErrLost, "badger", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "badger")) }},
		{"database emptied", keyring.ErrLost, "MANIFEST", func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, "badger"))
			if err := os.Mkdir(filepath.Join(dir, "badger"), 0o700); err != nil {
				t.Fatal(err)
			}
		}},
		{"database of another keyring", keyring.ErrLost, "that of keyring", func(t *testing.T, dir string) {
			other := filepath.Join(t.TempDir(), "other")
			s := mustOpen(t, other)
			mustCreate(t, s, record("foreign", 100))
			mustClose(t, s)
			remove(t, filepath.Join(dir, "badger"))
			if err := os.Rename(filepath.Join(other, "badger"), filepath.Join(dir, "badger")); err != nil {
				t.Fatal(err)
			}
		}},
		{"table missing", keyring.ErrUnreadable, "is missing", func(t *testing.T, dir string) { remove(t, files1(t, dir, "*.sst")[0]) }},
		{"table empty", keyring.ErrUnreadable, ".sst", firstTable(func([]byte) []byte { return nil })},
		{"table short of a byte", keyring.ErrUnreadable, ".sst", firstTable(func(b []byte) []byte { return b[:len(b)-1] })},
		{"table short of a page", keyring.ErrUnreadable, ".sst", firstTable(func(b []byte) []byte { return b[:len(b)-4096] })},
		{"table zeroed", keyring.ErrUnreadable, ".sst", firstTable(func(b []byte) []byte { clear(b); return b })},
		{"table's index flipped", keyring.ErrUnreadable, ".sst", firstTable(func(b []byte) []byte { b[len(b)-60] ^= 1; return b })},
		{"blobs missing", keyring.ErrLost, "blobs", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "blobs")) }},
		{"witness missing", keyring.ErrLost, "sequence is missing", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, witnessFile)) }},
		{"witness zeroed", keyring.ErrUnreadable, "sequence, which says how many changes there were, is damaged", witness(func(b []byte) []byte { clear(b); return b })},
		{"witness empty", keyring.ErrUnreadable, "damaged", witness(func(b []byte) []byte { return nil })},
		{"witness cut short", keyring.ErrUnreadable, "damaged", witness(func(b []byte) []byte { return b[:slotGap] })},
		{"witness longer", keyring.ErrUnreadable, "damaged", witness(func(b []byte) []byte { return append(b, 0) })},
		{"witness flipped in both slots", keyring.ErrUnreadable, "damaged", witness(func(b []byte) []byte { b[8] ^= 1; b[slotGap+8] ^= 1; return b })},
		{"witness of another keyring", keyring.ErrUnreadable, "that of another keyring", witness(func(b []byte) []byte {
			copy(b, encodeSlot("ANOTHER", head{sequence: 2000}))
			copy(b[slotGap:], encodeSlot("ANOTHER", head{sequence: 2001}))
			return b
		})},
		{"identity missing", keyring.ErrLost, "ring.json", func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "ring.json")) }},
		{"identity damaged", keyring.ErrUnreadable, "ring.json", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "ring.json"), func(b []byte) []byte { return b[:len(b)/2] })
		}},
		{"identity of another format", keyring.ErrUnreadable, "format 2", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "ring.json"), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"format":1`), []byte(`"format":2`), 1)
			})
		}},
		{"identity of another keyring", keyring.ErrLost, "that of keyring", func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "ring.json"), func(b []byte) []byte {
				return bytes.Replace(b, []byte(`"ring":"`), []byte(`"ring":"X`), 1)
			})
		}},
	} {
		t.Run(damage.how, func(t *testing.T) {
			for _, from := range []string{tm.closed, tm.killed} {
				dir := copyTree(t, from)
				damage.do(t, dir)
				refused(t, dir, damage.want, damage.text)
			}
		})
	}
}

// refused demands that both ways of opening fail and change nothing.
func refused(t *testing.T, dir string, want error, text string) {
	t.Helper()
	before := snapshot(t, dir)
	parent := snapshot(t, filepath.Dir(dir))
	for _, open := range []func(string, *Options) (*Store, error){Open, OpenOrCreate} {
		s, err := open(dir, nil)
		if err == nil {
			_ = s.Close()
			t.Fatalf("%s was opened", dir)
		}
		wantErr(t, err, want)
		if !strings.Contains(err.Error(), text) {
			t.Errorf("the error %q does not say %q", err, text)
		}
		unchanged(t, dir, before)
	}
	unchanged(t, filepath.Dir(dir), parent)
}

// TestManifestCut cuts the MANIFEST wherever a record ends and just before:
// Badger would open what is left and delete the tables of the rest.
func TestManifestCut(t *testing.T) {
	tm := newTemplate(t)
	for name, from := range map[string]string{"closed": tm.closed, "killed": tm.killed} {
		ends := manifestEnds(t, from)
		for i, end := range ends[:len(ends)-1] {
			t.Run(fmt.Sprint(name, "/", end), func(t *testing.T) {
				dir := copyTree(t, from)
				edit(t, filepath.Join(dir, "badger", "MANIFEST"), func(b []byte) []byte { return b[:end] })
				cutRefused(t, dir, tm)
				dir = copyTree(t, from)
				edit(t, filepath.Join(dir, "badger", "MANIFEST"), func(b []byte) []byte { return b[:ends[i+1]-1] })
				cutRefused(t, dir, tm)
			})
		}
	}
}

// cutRefused demands that the keyring opens whole or not at all: a record
// that names a table whose log is still there can be done without.
func cutRefused(t *testing.T, dir string, tm template) {
	t.Helper()
	before := snapshot(t, dir)
	s, err := Open(dir, nil)
	if err == nil {
		mustHave(t, s, tm.records)
		mustClose(t, s)
		return
	}
	t.Log(err)
	unchanged(t, dir, before)
}

// TestRolledBackDatabase puts an older database under a newer clean end.
func TestRolledBackDatabase(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	mustCreate(t, s, record("first", 100))
	mustClose(t, s)
	older := copyTree(t, dir)
	s = mustOpen(t, dir)
	rec := record("first", 100)
	rec.Revision = 2
	if err := s.Update(t.Context(), rec); err != nil { // the counts stay the same
		t.Fatal(err)
	}
	mustClose(t, s)
	for _, part := range []struct{ name, text string }{
		{"badger", "ends with change 2, and change 3 was acknowledged; changes missing: 1"},
		{witnessFile, "ends with change 2, and it was closed with change 3; changes missing: 1"},
	} {
		remove(t, filepath.Join(dir, part.name))
		if err := os.Rename(filepath.Join(older, part.name), filepath.Join(dir, part.name)); err != nil {
			t.Fatal(err)
		}
		refused(t, dir, keyring.ErrLost, part.text)
	}
}

// TestHarmless leaves behind what a killed process can, and what Badger can do
// without: all of it opens, whole.
func TestHarmless(t *testing.T) {
	tm := newTemplate(t)
	for how, do := range map[string]func(t *testing.T, dir string){
		"nothing": func(*testing.T, string) {},
		"table that was being merged": func(t *testing.T, dir string) {
			if err := copyFile(files1(t, dir, "*.sst")[0], filepath.Join(dir, "badger", "000900.sst")); err != nil {
				t.Fatal(err)
			}
		},
		"half a table": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "badger", "000900.sst"), bytes.Repeat([]byte("x"), 5000), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"empty logs": func(t *testing.T, dir string) {
			for _, name := range []string{"00900.mem", "000900.vlog"} {
				if err := os.WriteFile(filepath.Join(dir, "badger", name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
		},
		"half an entry in the MANIFEST": func(t *testing.T, dir string) {
			edit(t, filepath.Join(dir, "badger", "MANIFEST"), func(b []byte) []byte { return append(b, 0, 0, 0, 40, 1, 2) })
		},
		"holder of another process": func(t *testing.T, dir string) {
			if err := os.WriteFile(filepath.Join(dir, "holder"), []byte("{"), 0o600); err != nil {
				t.Fatal(err)
			}
		},
		"no note of the clean end": func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "closed.json")) },
		"copy of a rehearsal that was cut short": func(t *testing.T, dir string) {
			if err := os.MkdirAll(filepath.Join(dir, "aside-1", "x"), 0o700); err != nil {
				t.Fatal(err)
			}
		},
		"no key registry":       func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "badger", "KEYREGISTRY")) },
		"no discard statistics": func(t *testing.T, dir string) { remove(t, filepath.Join(dir, "badger", "DISCARD")) },
	} {
		t.Run(how, func(t *testing.T) {
			for _, from := range []string{tm.closed, tm.killed} {
				dir := copyTree(t, from)
				do(t, dir)
				s, err := Open(dir, nil)
				if err != nil {
					t.Fatal(err)
				}
				mustHave(t, s, tm.records)
				mustClose(t, s)
				if left, _ := filepath.Glob(filepath.Join(dir, "aside-*")); len(left) > 0 {
					t.Errorf("%v were left behind", left)
				}
				if _, err := os.Stat(filepath.Join(dir, "holder")); err == nil {
					t.Error("the holder file is there after Close")
				}
			}
		})
	}
}

// TestLostTableOfLog takes the newest entries out of a MANIFEST, together with
// the logs. What is left of the database is consistent, and older.
func TestLostTableOfLog(t *testing.T) {
	tm := newTemplate(t)
	dir := copyTree(t, tm.killed)
	ends := manifestEnds(t, dir)
	tables := len(files1(t, dir, "*.sst"))
	for cut := len(ends) - 2; cut > 0; cut-- {
		edit(t, filepath.Join(dir, "badger", "MANIFEST"), func(b []byte) []byte { return b[:ends[cut]] })
		for _, log := range files1(t, tm.killed, "*.mem") {
			_ = os.Remove(filepath.Join(dir, "badger", filepath.Base(log)))
		}
		s, err := Open(dir, nil)
		if err == nil {
			_ = s.Close()
			t.Fatalf("a database without the last %d of %d entries in its MANIFEST was opened", len(ends)-1-cut, tables)
		}
		wantErr(t, err, keyring.ErrLost)
		if !strings.Contains(err.Error(), "changes missing: ") {
			t.Errorf("the error %v does not say how many changes are missing", err)
		}
	}
}

// TestFewerThanCounted loses records without a trace but in the counts, as a
// damaged log does between two whole ones.
func TestFewerThanCounted(t *testing.T) {
	for _, prefix := range []byte{prefRecord, prefOpen} {
		dir := filepath.Join(t.TempDir(), "ring")
		s := mustOpen(t, dir)
		rec := record("order", 100)
		mustCreate(t, s, rec, record("another", 100))
		poke(t, s, func(txn *badger.Txn) error { return txn.Delete(at(prefix, mustKey(t, rec.Ref))) })
		refused(t, copyTree(t, dir), keyring.ErrLost, "were counted")
	}
}

// TestMergedTableLeft has the tables of before a merge beside those of after
// it, as a process leaves them that is killed before it has removed them. Of
// the records in them, none is there any more.
func TestMergedTableLeft(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	last := record("last", 100)
	// A table for each opening; Badger merges from eight on.
	for i := range 12 {
		s := mustOpen(t, dir)
		rec := record(fmt.Sprint(i/2), 100)
		if i%2 == 0 {
			mustCreate(t, s, rec)
		} else if err := s.Delete(t.Context(), rec.Ref, 1); err != nil {
			t.Fatal(err)
		}
		mustClose(t, s)
	}
	before := copyTree(t, dir)
	s := mustOpen(t, dir)
	mustCreate(t, s, last)
	if err := s.db.Flatten(1); err != nil {
		t.Fatal(err)
	}
	settle(t, s)
	killed := copyTree(t, dir)
	mustClose(t, s)
	left := 0
	for _, dir := range []string{killed, dir} {
		for _, table := range files1(t, before, "*.sst") {
			to := filepath.Join(dir, "badger", filepath.Base(table))
			if _, err := os.Stat(to); err == nil {
				continue
			}
			if err := copyFile(table, to); err != nil {
				t.Fatal(err)
			}
			left++
		}
		s, err := Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		mustHave(t, s, map[keyring.Ref]keyring.Record{last.Ref: last})
		mustClose(t, s)
	}
	if left == 0 {
		t.Error("the merge has removed no table, so nothing was tried")
	}
}
