package badgerkeys

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/samekey/samekey/keyring"
)

// TestManyKills has 100 processes in a row write to one keyring and die. Each
// of them leaves a log behind, which becomes a table; these must neither keep
// the keyring from opening nor pile up.
func TestManyKills(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	want := make(map[keyring.Ref]keyring.Record)
	most := 0
	for i := range 100 {
		name := fmt.Sprint("order ", i)
		runKilled(t, "create "+name, dir)
		rec := record(name, 200)
		want[rec.Ref] = rec
		tables, err := filepath.Glob(filepath.Join(dir, "badger", "*.sst"))
		if err != nil {
			t.Fatal(err)
		}
		most = max(most, len(tables))
	}
	// Badger stalls at 40. The table of the log before comes after the merge.
	if most > manyTables+2 {
		t.Errorf("up to %d tables were there, each killed process leaves one behind", most)
	}
	s := mustOpen(t, dir)
	mustHave(t, s, want)
	mustClose(t, s)
}
