package badgerkeys

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"
)

// magic is in each MANIFEST, so that Badger refuses to open anything else.
const magic = 0x4B52

// badgerOptions returns the options in use. Measured with Badger 4.9.6.
func badgerOptions(dir string, log *slog.Logger) badger.Options {
	o := badger.DefaultOptions(dir)
	o.SyncWrites = true // off by default
	// Opening costs with the memtable's size (8 ms with 2 MiB, 12 with 8), and a
	// transaction may have 15 % of it.
	o.MemTableSize = 2 << 20
	o.NumMemtables = 1
	// No value of ours is as large, so none is in the value log, where a lost
	// file reads as empty values without an error. The log's file is made at
	// each open all the same, with twice this size.
	o.ValueThreshold = 256 << 10
	o.ValueLogFileSize = 1 << 20
	// Caches serve compression and encryption, and cost memory and goroutines.
	o.Compression = options.None
	o.BlockCacheSize = 0
	o.IndexCacheSize = 0
	o.NumCompactors = 2
	o.NumLevelZeroTables, o.NumLevelZeroTablesStall = 8, 40
	// Fewer and larger tables: Close flushes each of them.
	o.BaseTableSize, o.BaseLevelSize, o.MaxLevels = 8<<20, 32<<20, 4
	o.CompactL0OnClose = false
	o.MetricsEnabled = false
	o.NumGoroutines = 1
	o.ExternalMagicVersion = magic
	o.Logger = logAdapter{log}
	return o
}

// openBadger opens the database. A killed process can leave empty files that
// make it fail once; they are empty, so nothing is lost with them.
func openBadger(o badger.Options) (*badger.DB, error) {
	if err := removeEmptyFiles(o.Dir); err != nil {
		return nil, err
	}
	db, err := badger.Open(o)
	if err != nil && strings.Contains(err.Error(), "Create a new file") { // Badger has no error value for it (issue 2207)
		db, err = badger.Open(o)
	}
	return db, err
}

func removeEmptyFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ext := filepath.Ext(e.Name()); ext != ".mem" && ext != ".vlog" {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if info.Size() == 0 {
			if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}

// restrictFiles takes the files that Badger has made from everybody else.
func restrictFiles(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && loose(info) {
			err = os.Chmod(filepath.Join(dir, e.Name()), 0o600)
		}
		// A merge may have removed it meanwhile.
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// newestMem returns the number of the newest memtable log.
func newestMem(dir string) (int, error) {
	names, err := filepath.Glob(filepath.Join(dir, "*.mem"))
	if err != nil {
		return 0, err
	}
	newest := 0
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(filepath.Base(name), "%d.mem", &n); err == nil {
			newest = max(newest, n)
		}
	}
	return newest, nil
}

// logAdapter passes on what Badger logs. Its messages carry keys and paths,
// and no values.
type logAdapter struct{ log *slog.Logger }

func (l logAdapter) Errorf(f string, args ...any) { l.log.Error(l.text(f, args), "from", "badger") }

func (l logAdapter) Warningf(f string, args ...any) { l.log.Warn(l.text(f, args), "from", "badger") }

// Infof logs several lines for each open and close, which is nobody's concern
// unless something is wrong.
func (l logAdapter) Infof(f string, args ...any) { l.log.Debug(l.text(f, args), "from", "badger") }

// Debugf drops what it is given: four lines for each write.
func (l logAdapter) Debugf(string, ...any) {}

func (l logAdapter) text(f string, args []any) string {
	return strings.TrimRight(fmt.Sprintf(f, args...), "\n")
}
