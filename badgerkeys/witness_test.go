package badgerkeys

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
)

// killedRing is a keyring as its process left it when it was killed, with all
// changes of its last session in a log: creations and, last, updates that
// leave the counts as they are.
type killedRing struct {
	dir     string
	records map[keyring.Ref]keyring.Record
}

// newKilledRing makes one that was closed before, or one of a first session.
func newKilledRing(t *testing.T, closedBefore bool) killedRing {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	k := killedRing{records: make(map[keyring.Ref]keyring.Record)}
	for i := range 10 {
		rec := record(fmt.Sprint("order ", i), 300)
		mustCreate(t, s, rec)
		k.records[rec.Ref] = rec
		if i == 4 && closedBefore {
			mustClose(t, s)
			s = mustOpen(t, dir)
		}
	}
	for i := range 5 {
		rec := record(fmt.Sprint("order ", i), 300)
		rec.Revision = 2
		if err := s.Update(t.Context(), rec); err != nil {
			t.Fatal(err)
		}
		k.records[rec.Ref] = rec
	}
	k.dir = copyTree(t, dir)
	mustClose(t, s)
	return k
}

// used returns how many bytes of a file come before its zeros.
func used(t *testing.T, path string) int {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return len(bytes.TrimRight(b, "\x00"))
}

// TestP11KilledLogDamaged damages the log of a killed keyring. Badger opens
// what it finds before the damage, without an error.
func TestP11KilledLogDamaged(t *testing.T) {
	const header = 20 // of which Badger reads nothing where nothing is encrypted
	for _, closedBefore := range []bool{false, true} {
		k := newKilledRing(t, closedBefore)
		log := filepath.Join("badger", "00001.mem")
		n := used(t, filepath.Join(k.dir, log))
		damages := map[string]func(t *testing.T, path string){
			"deleted": remove,
			"emptied": func(t *testing.T, path string) { edit(t, path, func([]byte) []byte { return nil }) },
			"zeroed":  func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { clear(b); return b }) },
			"halved":  func(t *testing.T, path string) { edit(t, path, func(b []byte) []byte { return b[:n/2] }) },
			"short of a byte": func(t *testing.T, path string) {
				edit(t, path, func(b []byte) []byte { return b[:n-1] })
			},
			"without its last page": func(t *testing.T, path string) {
				edit(t, path, func(b []byte) []byte { clear(b[n-n%4096:]); return b })
			},
		}
		for i := range 7 {
			at := header + (n-header)*i/7
			damages[fmt.Sprint("flipped at ", at)] = func(t *testing.T, path string) {
				edit(t, path, func(b []byte) []byte { b[at] ^= 1; return b })
			}
		}
		for how, do := range damages {
			t.Run(fmt.Sprint("closed before ", closedBefore, "/", how), func(t *testing.T) {
				dir := copyTree(t, k.dir)
				do(t, filepath.Join(dir, log))
				refused(t, dir, keyring.ErrLost, "changes missing: ")
			})
		}
		s := mustOpen(t, k.dir)
		mustHave(t, s, k.records)
		mustClose(t, s)
	}
}

// TestP11LostUpdates names how much is gone, where nothing but a revision is.
func TestP11LostUpdates(t *testing.T) {
	k := newKilledRing(t, true)
	log := filepath.Join(k.dir, "badger", "00001.mem")
	edit(t, log, func(b []byte) []byte { b[used(t, log)-20] ^= 1; return b })
	refused(t, k.dir, keyring.ErrLost, "ends with change 15, and change 16 was acknowledged; changes missing: 1;")
}

// TestP11OlderLogDamaged has two logs, as a process leaves them that is killed
// while the older one is made into a table. The newer one has the latest head.
func TestP11OlderLogDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	want := make(map[keyring.Ref]keyring.Record)
	add := func(name string) {
		rec := record(name, 30<<10)
		mustCreate(t, s, rec)
		want[rec.Ref] = rec
	}
	add("in a table")
	mustClose(t, s)
	s = mustOpen(t, dir)
	first := s.memFile
	logOf := func(dir string, n int) string { return filepath.Join(dir, "badger", fmt.Sprintf("%05d.mem", n)) }
	var before string
	for i := 0; s.memFile == first; i++ {
		before = copyTree(t, dir)
		add(fmt.Sprint("in a log ", i))
	}
	add("in the newer log")
	after := copyTree(t, dir)
	mustClose(t, s)
	// What was before the change that began the newer log, and that log.
	for _, name := range []string{logOf("", first+1), witnessFile} {
		if err := os.WriteFile(filepath.Join(before, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		edit(t, filepath.Join(before, name), func([]byte) []byte {
			b, err := os.ReadFile(filepath.Join(after, name))
			if err != nil {
				t.Fatal(err)
			}
			return b
		})
	}
	older := logOf(before, first)
	n := used(t, older)
	for how, do := range map[string]func(b []byte) []byte{
		"emptied":                func([]byte) []byte { return nil },
		"halved":                 func(b []byte) []byte { return b[:n/2] },
		"flipped in the middle":  func(b []byte) []byte { b[n/2] ^= 1; return b },
		"flipped near the end":   func(b []byte) []byte { b[n-30] ^= 1; return b },
		"flipped near the start": func(b []byte) []byte { b[100] ^= 1; return b },
	} {
		t.Run(how, func(t *testing.T) {
			dir := copyTree(t, before)
			edit(t, logOf(dir, first), do)
			refused(t, dir, keyring.ErrLost, "after it; changes missing: ")
		})
	}
	s = mustOpen(t, before)
	mustHave(t, s, want)
	mustClose(t, s)
}

// TestWitnessBehind has a witness that is older than the database, as after a
// power cut, or of which the newer half was torn by one. Nothing is missing.
func TestWitnessBehind(t *testing.T) {
	k := newKilledRing(t, true)
	for how, do := range map[string]func(b []byte) []byte{
		"whole":                     func(b []byte) []byte { return b },
		"slot of even changes torn": func(b []byte) []byte { clear(b[10:slotSize]); return b },
		"slot of odd changes torn":  func(b []byte) []byte { clear(b[slotGap+10:]); return b },
		"five changes behind": func([]byte) []byte {
			ring, err := readIdentity(k.dir)
			if err != nil {
				t.Fatal(err)
			}
			b := make([]byte, witnessSize)
			copy(b[slotGap:], encodeSlot(ring.Ring, head{sequence: 11, intents: 10, open: 10}))
			return b
		},
	} {
		t.Run(how, func(t *testing.T) {
			dir := copyTree(t, k.dir)
			edit(t, filepath.Join(dir, witnessFile), do)
			s := mustOpen(t, dir)
			mustHave(t, s, k.records)
			mustCreate(t, s, record("another", 10))
			w, last, err := openWitness(dir, s.RingID())
			if err != nil {
				t.Fatal(err)
			}
			if want := (head{sequence: 17, intents: 11, open: 11}); last != want || s.head != want {
				t.Errorf("the witness says %+v after a change, the store %+v, want %+v", last, s.head, want)
			}
			if err := w.close(false); err != nil {
				t.Fatal(err)
			}
			mustClose(t, s)
		})
	}
}

// TestWitnessOfOtherCounts has the right number of changes, and others.
func TestWitnessOfOtherCounts(t *testing.T) {
	k := newKilledRing(t, true)
	ring, err := readIdentity(k.dir)
	if err != nil {
		t.Fatal(err)
	}
	edit(t, filepath.Join(k.dir, witnessFile), func(b []byte) []byte {
		copy(b, encodeSlot(ring.Ring, head{sequence: 16, intents: 11, open: 10}))
		return b
	})
	refused(t, k.dir, keyring.ErrLost, "has 10 intents (10 open), and change 16 was acknowledged when there were 11 (10)")
}

// TestWitnessFails has no way to say that a change was acknowledged: so it is
// not, and nothing more is written.
func TestWitnessFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	first, second := record("first", 100), record("second", 100)
	mustCreate(t, s, first)
	if err := s.witness.f.Close(); err != nil {
		t.Fatal(err)
	}
	for _, rec := range []keyring.Record{second, record("third", 100)} {
		err := s.Create(t.Context(), rec, keyring.Limits{})
		wantErr(t, err, os.ErrClosed)
		if err == nil || !strings.Contains(err.Error(), "until the keyring is opened again") {
			t.Errorf("the error %v does not say what to do", err)
		}
	}
	if err := s.Close(); err == nil {
		t.Error("Close has lost its witness and reports nothing")
	}
	s = mustOpen(t, dir)
	// The second is there: nobody was told that it is not.
	mustHave(t, s, map[keyring.Ref]keyring.Record{first.Ref: first, second.Ref: second})
}

// TestRefusedChangesNothing damages each small file of a keyring that was
// closed, and a table, at many places: it opens whole, or is refused and stays
// as it is to the byte.
func TestRefusedChangesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	want := make(map[keyring.Ref]keyring.Record)
	for i := range 40 {
		rec := record(fmt.Sprint("order ", i), 300)
		mustCreate(t, s, rec)
		want[rec.Ref] = rec
	}
	mustClose(t, s)
	refusals := make(map[string]int)
	for _, name := range []string{"badger/000001.vlog", "badger/MANIFEST", "badger/KEYREGISTRY", "badger/000001.sst", identityFile, witnessFile} {
		n := used(t, filepath.Join(dir, name))
		for _, at := range []int{0, 3, n / 4, n / 2, n * 3 / 4, n - 2500, n - 1000, n - 200, n - 1} {
			if at < 0 || at >= n {
				continue
			}
			damaged := copyTree(t, dir)
			edit(t, filepath.Join(damaged, name), func(b []byte) []byte { b[at] ^= 0x40; return b })
			before := snapshot(t, damaged)
			s, err := Open(damaged, nil)
			if err == nil {
				if n := seen(t, s); n != len(want) {
					t.Errorf("%s flipped at %d: %d of %d records are there", name, at, n, len(want))
				}
				mustClose(t, s)
				continue
			}
			refusals[name]++
			unchanged(t, damaged, before)
			if t.Failed() {
				t.Fatalf("%s flipped at %d: %v", name, at, err)
			}
		}
	}
	for _, name := range []string{"badger/000001.vlog", "badger/000001.sst", "badger/MANIFEST"} {
		if refusals[name] == 0 {
			t.Errorf("no damage of %s was refused, so nothing was tried", name)
		}
	}
}

// seen returns how many records a scan finds, damaged ones included.
func seen(t *testing.T, s *Store) (n int) {
	t.Helper()
	for _, err := range s.Scan(t.Context(), keyring.Query{AllScopes: true}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// TestTablesCheckedDaily damages a table in a way that leaves no trace in its
// time of modification, so that an open within a day of the last check does
// not look. A later one does.
func TestTablesCheckedDaily(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	for i := range 40 {
		mustCreate(t, s, record(fmt.Sprint("order ", i), 300))
	}
	checked := s.checked
	mustClose(t, s)
	closed, err := readClosing(dir, s.RingID())
	if err != nil {
		t.Fatal(err)
	}
	note := func(at time.Time) {
		closed.Checked = at.Unix()
		b, err := closed.encode()
		if err != nil {
			t.Fatal(err)
		}
		edit(t, filepath.Join(dir, closedFile), func([]byte) []byte { return b })
	}
	// An open without a check takes over when the last one was.
	for _, age := range []time.Duration{time.Hour, checkAge + time.Hour} {
		note(checked.Add(-age))
		s = mustOpen(t, dir)
		if early := s.checked.Before(checked); early != (age < checkAge) {
			t.Errorf("%v after a check, the time of the last one is %v, the start of the test was %v", age, s.checked, checked)
		}
		mustClose(t, s)
		if closed, err = readClosing(dir, s.RingID()); err != nil || closed.Checked != s.checked.Unix() {
			t.Fatalf("the tables were checked at %v, and %+v is noted, %v", s.checked.Unix(), closed, err)
		}
	}
	path := files1(t, dir, "*.sst")[0]
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	edit(t, path, func(b []byte) []byte { b[0] ^= 0x40; return b })
	refused(t, dir, keyring.ErrUnreadable, "a block of it fails the checksum")
	if err := os.Chtimes(path, time.Time{}, info.ModTime()); err != nil {
		t.Fatal(err)
	}
	for _, at := range []time.Time{checked.Add(-checkAge - time.Minute), checked.Add(time.Hour)} {
		note(at)
		refused(t, dir, keyring.ErrUnreadable, "a block of it fails the checksum")
	}
}

// TestClosedFileDamaged flips each byte of closed.json in turn: none may read
// as another end of the keyring than the one there was.
func TestClosedFileDamaged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	mustClose(t, mustOpen(t, dir))
	path := filepath.Join(dir, closedFile)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for at := range bytes.TrimSpace(whole) {
		edit(t, path, func([]byte) []byte {
			b := bytes.Clone(whole)
			b[at] ^= 1
			return b
		})
		before := snapshot(t, dir)
		_, err := Open(dir, nil)
		wantErr(t, err, keyring.ErrUnreadable)
		if err == nil || !strings.Contains(err.Error(), path+" is damaged") {
			t.Fatalf("with byte %d flipped, the error is %v", at, err)
		}
		unchanged(t, dir, before)
	}
	// What its text advises.
	remove(t, path)
	mustClose(t, mustOpen(t, dir))
}
