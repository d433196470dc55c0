package badgerkeys

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/samekey/samekey/keyring"
)

// TestNilStore has a program that does not look at the error of Open.
func TestNilStore(t *testing.T) {
	none, err := Open(filepath.Join(t.TempDir(), "none"), nil)
	if none != nil || err == nil {
		t.Fatalf("Open of nothing: %v, %v", none, err)
	}
	for _, s := range []*Store{none, {}} {
		rec := record("order", 10)
		_, loadErr := s.Load(t.Context(), rec.Ref)
		_, goneErr := s.Gone(t.Context(), "another")
		errs := map[string]error{
			"Create": s.Create(t.Context(), rec, keyring.Limits{}),
			"Update": s.Update(t.Context(), rec),
			"Delete": s.Delete(t.Context(), rec.Ref, 1),
			"Wait":   s.Wait(t.Context(), rec.Ref, 1),
			"Close":  s.Close(),
			"Load":   loadErr,
			"Gone":   goneErr,
		}
		for i, q := range []keyring.Query{{AllScopes: true}, {OpenOnly: true}, {Fingerprint: rec.Fingerprint}} {
			name := fmt.Sprint("Scan ", i)
			errs[name] = nil
			for _, err := range s.Scan(t.Context(), q) {
				errs[name] = err
			}
		}
		for method, err := range errs {
			wantErr(t, err, keyring.ErrInvalid)
			if err == nil || !strings.Contains(err.Error(), "the store is nil; look at the error of Open") {
				t.Errorf("%s reports %v", method, err)
			}
		}
		if s.RingID() != "" || s.Session() != "" {
			t.Errorf("no store has ring %q and session %q", s.RingID(), s.Session())
		}
	}
}

// TestErrorsNameThePackageOnce looks at what the exported functions report.
func TestErrorsNameThePackageOnce(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	rec := record("order", 100)
	mustCreate(t, s, rec)
	bad := rec
	bad.Revision = 0
	_, busy := Open(dir, &Options{LockWait: -1})
	_, missing := s.Load(t.Context(), keyring.Ref{Name: "none"})
	_, none := Open(filepath.Join(dir, "none"), nil)
	errs := []error{
		busy, missing, none,
		s.Create(t.Context(), rec, keyring.Limits{}),
		s.Create(t.Context(), bad, keyring.Limits{}),
		s.Create(t.Context(), record("second", 100), keyring.Limits{MaxIntents: 1}),
		s.Update(t.Context(), rec),
		s.Delete(t.Context(), rec.Ref, 7),
	}
	was := diskFree
	t.Cleanup(func() { diskFree = was })
	diskFree = func(string) (uint64, error) { return 0, errors.New("no such call") }
	s.room.left = 0
	errs = append(errs, s.Create(t.Context(), record("second", 100), keyring.Limits{}))
	diskFree = was
	if err := s.witness.f.Close(); err != nil {
		t.Fatal(err)
	}
	errs = append(errs, s.Create(t.Context(), record("second", 100), keyring.Limits{}), s.Close(), s.Close(), s.Wait(t.Context(), rec.Ref, 1))
	for _, err := range s.Scan(t.Context(), keyring.Query{}) {
		errs = append(errs, err)
	}
	if err := os.Remove(filepath.Join(dir, "badger", "MANIFEST")); err != nil {
		t.Fatal(err)
	}
	_, err := Open(dir, nil)
	wantErr(t, err, keyring.ErrLost)
	for _, what := range []string{"look at the provider's side", "docs/operations.md", "no older copy"} {
		if err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("the error %v does not say %q", err, what)
		}
	}
	for i, err := range append(errs, err) {
		if err == nil {
			t.Errorf("call %d reports no error", i)
		} else if text := err.Error(); !strings.HasPrefix(text, "badgerkeys: ") || strings.Count(text, "badgerkeys: ") != 1 {
			t.Errorf("call %d reports %q", i, text)
		}
	}
}
