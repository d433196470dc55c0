package badgerkeys

import (
	"bytes"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

// poke changes what is in Badger, behind the store's back.
func poke(t *testing.T, s *Store, f func(txn *badger.Txn) error) {
	t.Helper()
	if err := s.db.Update(f); err != nil {
		t.Fatal(err)
	}
}

// TestDamagedRequest is field case C55 as far as a store goes: the stored
// request of one record is cut in half, that of another one is gone.
func TestDamagedRequest(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	if !s.db.Opts().SyncWrites {
		t.Error("SyncWrites is off: commits are not flushed")
	}
	whole, half, gone := record("whole", 100), record("half", 2<<10), record("gone", 100)
	gone.Request = record("gone", 2<<20).Request
	mustCreate(t, s, whole, half, gone)
	key := at(prefReq, mustKey(t, half.Ref))
	poke(t, s, func(txn *badger.Txn) error {
		item, err := txn.Get(key)
		if err != nil {
			return err
		}
		b, err := item.ValueCopy(nil)
		if err != nil {
			return err
		}
		return txn.Set(key, b[:len(b)/2])
	})
	names, err := filepath.Glob(filepath.Join(dir, "blobs", "*"))
	if err != nil || len(names) != 1 {
		t.Fatalf("blobs: %v, %v", names, err)
	}
	remove(t, names[0])
	mustClose(t, s)
	s = mustOpen(t, dir)

	half.Request, gone.Request = nil, nil
	want := map[keyring.Ref]keyring.Record{whole.Ref: whole, half.Ref: half, gone.Ref: gone}
	mustHave(t, s, want)
	for ref, rec := range want {
		got, err := s.Load(t.Context(), ref)
		if err != nil || !bytes.Equal(got.Data, rec.Data) || !bytes.Equal(got.Request, rec.Request) {
			t.Errorf("Load of %s: %d bytes of data, %d of request, %v", ref, len(got.Data), len(got.Request), err)
		}
	}
	// An update that keeps the request keeps the damage.
	half.Revision = 2
	half.Request = nil
	if err := s.Update(t.Context(), half); err != nil {
		t.Error(err)
	}
	if got, err := s.Load(t.Context(), half.Ref); err != nil || got.Request != nil {
		t.Errorf("after an update the half request has %d bytes, %v", len(got.Request), err)
	}
}

func TestDamagedBlob(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	rec := record("large", 300<<10)
	mustCreate(t, s, rec)
	names, err := filepath.Glob(filepath.Join(dir, "blobs", "*"))
	if err != nil || len(names) != 2 {
		t.Fatalf("blobs: %v, %v", names, err)
	}
	for _, how := range []func(b []byte) []byte{
		func(b []byte) []byte { b[100] ^= 1; return b },
		func(b []byte) []byte { return b[:1000] },
		func(b []byte) []byte { return nil },
	} {
		for _, name := range names {
			kept, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			edit(t, name, how)
			got, err := s.Load(t.Context(), rec.Ref)
			if err != nil {
				t.Fatal(err)
			}
			if (got.Data == nil) == (got.Request == nil) || got.Revision != 1 {
				t.Errorf("with one damaged blob: %d bytes of data, %d of request, revision %d", len(got.Data), len(got.Request), got.Revision)
			}
			edit(t, name, func([]byte) []byte { return kept })
		}
	}
	mustHave(t, s, map[keyring.Ref]keyring.Record{rec.Ref: rec})
}

// TestDamagedRecord damages the small changing value, in each way, and demands
// that the record is neither hidden nor replaced.
func TestDamagedRecord(t *testing.T) {
	for how, do := range map[string]func(txn *badger.Txn, key []byte) error{
		"empty":   func(txn *badger.Txn, key []byte) error { return txn.Set(key, nil) },
		"short":   func(txn *badger.Txn, key []byte) error { return txn.Set(key, []byte("ab")) },
		"garbage": func(txn *badger.Txn, key []byte) error { return txn.Set(key, bytes.Repeat([]byte("g"), 200)) },
		"gone":    func(txn *badger.Txn, key []byte) error { return txn.Delete(key) },
		"that of another ref": func(txn *badger.Txn, key []byte) error {
			item, err := txn.Get(append(bytes.Clone(key), '2'))
			if err != nil {
				return err
			}
			b, err := item.ValueCopy(nil)
			if err != nil {
				return err
			}
			return txn.Set(key, b)
		},
		"checksum right, format unknown": func(txn *badger.Txn, key []byte) error { return txn.Set(key, seal(key, []byte{99, 1, 2})) },
	} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			s := mustOpen(t, dir)
			rec, other := record("order", 100), record("order2", 100)
			mustCreate(t, s, rec, other)
			poke(t, s, func(txn *badger.Txn) error { return do(txn, at(prefRecord, mustKey(t, rec.Ref))) })
			mustClose(t, s)
			s = mustOpen(t, dir)

			got, err := s.Load(t.Context(), rec.Ref)
			if err != nil || got.Ref != rec.Ref || got.Data != nil || got.Request != nil || !got.Open {
				t.Errorf("Load: %+v, %v", got, err)
			}
			queries := []keyring.Query{{Scope: "acct", OpenOnly: true}, {AllScopes: true, Fingerprint: rec.Fingerprint}}
			if how != "gone" { // whose key is not among the records any more
				queries = append(queries, keyring.Query{Scope: "acct"})
			}
			for _, q := range queries {
				seen := false
				for got, err := range s.Scan(t.Context(), q) {
					if err != nil {
						t.Fatal(err)
					}
					seen = seen || got.Ref == rec.Ref
				}
				if !seen {
					t.Errorf("Scan with %+v hides the record", q)
				}
			}
			wantErr(t, s.Create(t.Context(), rec, keyring.Limits{}), keyring.ErrExists)
			for _, revision := range []uint64{1, 2} {
				changed := rec
				changed.Revision = revision
				wantErr(t, s.Update(t.Context(), changed), keyring.ErrStale)
				wantErr(t, s.Delete(t.Context(), rec.Ref, revision-1), keyring.ErrStale)
			}
			if err := s.Wait(t.Context(), rec.Ref, 1); err != nil {
				t.Errorf("Wait: %v", err)
			}
			if got, err := s.Load(t.Context(), other.Ref); err != nil || !bytes.Equal(got.Data, other.Data) {
				t.Errorf("the other record: %+v, %v", got, err)
			}
		})
	}
}

func mustKey(t *testing.T, ref keyring.Ref) string {
	t.Helper()
	key, ok := refKey(ref)
	if !ok {
		t.Fatalf("ref %s is too long", ref)
	}
	return key
}

func TestInvalidRecords(t *testing.T) {
	s := mustOpen(t, t.TempDir())
	long := strings.Repeat("x", keyring.MaxRef+1)
	for _, ref := range []keyring.Ref{{}, {Scope: "a"}, {Name: "e\u0301"}, {Name: "a\x00"}, {Name: long}, {Name: "a", Scope: long}, {Name: "\xff"}} {
		rec := record("x", 10)
		rec.Ref = ref
		wantErr(t, s.Create(t.Context(), rec, keyring.Limits{}), keyring.ErrInvalid)
	}
	for _, revision := range []uint64{0, 2} {
		rec := record("x", 10)
		rec.Revision = revision
		wantErr(t, s.Create(t.Context(), rec, keyring.Limits{}), keyring.ErrInvalid)
	}
	rec := record("x", 10)
	rec.Data = make([]byte, partMax+1)
	wantErr(t, s.Create(t.Context(), rec, keyring.Limits{}), keyring.ErrInvalid)
	_, err := s.Load(t.Context(), keyring.Ref{Name: long})
	wantErr(t, err, keyring.ErrNotFound)
	wantErr(t, s.Delete(t.Context(), keyring.Ref{Name: long}, 1), keyring.ErrNotFound)
	mustHave(t, s, nil)
}

// TestLogsNoValue has everything logged, damage included.
func TestLogsNoValue(t *testing.T) {
	const marker = "card-4242-do-not-print"
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	dir := filepath.Join(t.TempDir(), "ring")
	s, err := OpenOrCreate(dir, &Options{Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	rec := record("order", 10)
	rec.Data = []byte(marker)
	rec.Request = bytes.Repeat([]byte(marker), 10<<10)
	mustCreate(t, s, rec)
	killed := copyTree(t, dir)
	if err := s.db.Update(func(txn *badger.Txn) error { return txn.Set([]byte("x"), make([]byte, 1<<20+1)) }); err == nil {
		t.Error("Badger took a value of 1 MiB")
	} else if text := safeText(err); text == err.Error() {
		t.Errorf("Badger's text for a large value is passed on: %.80s", text)
	}
	mustClose(t, s)
	if s, err = Open(killed, &Options{Logger: log}); err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	if logged.Len() == 0 {
		t.Error("nothing was logged")
	}
	if strings.Contains(logged.String(), marker) {
		t.Error("the log holds a stored value")
	}
	if safeText(errors.New(marker)) == marker {
		t.Error("an unknown error's text is passed on")
	}
}
