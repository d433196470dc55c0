package badgerkeys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/fb"
	"github.com/dgraph-io/badger/v4/pb"
	"github.com/dgraph-io/badger/v4/table"
	"github.com/dgraph-io/badger/v4/y"
	"google.golang.org/protobuf/proto"

	"github.com/samekey/samekey/keyring"
)

// files is what a look at Badger's directory has found. Looking changes
// nothing, while Badger's own open drops tables that its MANIFEST does not
// name, cuts what it cannot read, and starts anew where there is nothing.
type files struct {
	known   []string         // tables that the MANIFEST names
	unknown []string         // tables that it does not name
	others  []string         // all other files
	sizes   map[string]int64 // of tables, MANIFEST, KEYREGISTRY and the value log
	version uint64           // the highest in the known tables
	torn    bool             // the MANIFEST ends within an entry
	logs    bool             // there are memtable logs that are not empty
}

// lookAt reports ErrLost for a database of which a part is missing without
// which it would come up emptier, and ErrUnreadable for one that would not
// open or take the process down.
func lookAt(dir string) (*files, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, lost("%s is missing", dir)
	}
	if err != nil {
		return nil, accessError("read", dir, err)
	}
	found := &files{sizes: make(map[string]int64)}
	tables := make(map[uint64]string)
	hasManifest := false
	for _, e := range entries {
		info, err := e.Info()
		if err != nil {
			return nil, accessError("read", filepath.Join(dir, e.Name()), err)
		}
		name := e.Name()
		if strings.HasPrefix(name, "-") { // Badger would end the process over a negative table number
			return nil, fmt.Errorf("%w: %s does not belong there", keyring.ErrUnreadable, filepath.Join(dir, name))
		}
		if id, ok := table.ParseFileID(name); ok {
			tables[id] = name
			found.sizes[name] = info.Size()
			continue
		}
		found.others = append(found.others, name)
		switch {
		case name == badger.ManifestFilename:
			hasManifest = true
			found.sizes[name] = info.Size()
		case name == badger.KeyRegistryFileName, strings.HasSuffix(name, ".vlog"):
			found.sizes[name] = info.Size()
		case strings.HasSuffix(name, ".mem") && info.Size() > 0:
			found.logs = true
		}
	}
	if !hasManifest {
		return nil, lost("%s is missing", filepath.Join(dir, badger.ManifestFilename))
	}
	manifest, merged, err := found.readManifest(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", keyring.ErrUnreadable, filepath.Join(dir, badger.ManifestFilename), err)
	}
	for id := range manifest.Tables {
		name, ok := tables[id]
		if !ok {
			return nil, fmt.Errorf("%w: table %s is missing", keyring.ErrUnreadable, table.NewFilename(id, dir))
		}
		version, err := checkTable(filepath.Join(dir, name))
		if err != nil {
			return nil, fmt.Errorf("%w: table %s: %w", keyring.ErrUnreadable, filepath.Join(dir, name), err)
		}
		found.version = max(found.version, version)
		found.known = append(found.known, name)
		delete(tables, id)
	}
	for id, name := range tables {
		// One that was merged into others, and was to be removed when the
		// process was killed, is no loss.
		if !merged[id] {
			found.unknown = append(found.unknown, name)
		}
	}
	return found, nil
}

// readManifest returns the tables that the MANIFEST names, and which ones it
// says were merged into others.
func (found *files) readManifest(dir string) (badger.Manifest, map[uint64]bool, error) {
	f, err := os.Open(filepath.Join(dir, badger.ManifestFilename))
	if err != nil {
		return badger.Manifest{}, nil, err
	}
	defer func() { _ = f.Close() }()
	manifest, valid, err := badger.ReplayManifestFile(f, magic, badger.DefaultOptions(dir))
	if err != nil {
		return manifest, nil, err
	}
	found.torn = valid != found.sizes[badger.ManifestFilename]
	b := make([]byte, valid)
	if _, err := f.ReadAt(b, 0); err != nil {
		return manifest, nil, err
	}
	merged, err := mergedTables(b)
	return manifest, merged, err
}

// mergedTables reads what a MANIFEST has to say on tables that are not there
// any more, which Badger's own reader does not tell: after a header of eight
// bytes, entries of length, checksum and content. All of that has been checked.
//
// Badger rewrites a MANIFEST, without its past, after 10,000 of them. A process
// that is killed in the moment between that and the removal of the last ones
// leaves a table that reads as lost; it is refused, and nothing is lost.
func mergedTables(manifest []byte) (map[uint64]bool, error) {
	merged := make(map[uint64]bool)
	for rest := manifest[8:]; len(rest) >= 8; {
		n := int(binary.BigEndian.Uint32(rest))
		if n > len(rest)-8 {
			return nil, io.ErrUnexpectedEOF
		}
		var set pb.ManifestChangeSet
		if err := proto.Unmarshal(rest[8:8+n], &set); err != nil {
			return nil, err
		}
		for _, change := range set.Changes {
			merged[change.Id] = change.Op == pb.ManifestChange_DELETE
		}
		rest = rest[8+n:]
	}
	return merged, nil
}

// agree says whether the files are those that a clean Close has left, so that
// Badger's open will do with them what it did before.
func (found *files) agree(dir string, c *closing) (bool, error) {
	if found.torn || found.logs || len(found.unknown) > 0 || len(found.sizes) != len(c.Files) {
		return false, nil
	}
	for name, size := range found.sizes {
		if was, ok := c.Files[name]; !ok || was.Size != size {
			return false, nil
		}
	}
	marks, err := found.marks(dir)
	return err == nil && maps.Equal(marks, c.Files), err
}

// marks returns what the files that an open reads are known by. After a clean
// end, those that are no tables are small.
func (found *files) marks(dir string) (map[string]fileMark, error) {
	marks := make(map[string]fileMark)
	for name, size := range found.sizes {
		mark := fileMark{Size: size}
		if _, isTable := table.ParseFileID(name); !isTable {
			b, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return nil, accessError("read", filepath.Join(dir, name), err)
			}
			mark.Sum = crc32.Checksum(b, castagnoli)
		}
		marks[name] = mark
	}
	return marks, nil
}

// checkTable checks what an open reads of a table, and returns the highest
// version in it. It begins at the end as Badger does, which panics in a
// goroutine of its own where the lengths there lead out of the file: checksum
// length in the last four bytes, the checksum before it, before that the
// length of the index, and the index.
func checkTable(path string) (version uint64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	end := info.Size()
	take := func(n int64) ([]byte, error) {
		if n <= 0 || n > end {
			return nil, errCut
		}
		end -= n
		b := make([]byte, n)
		_, err := f.ReadAt(b, end)
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return b, err
	}
	takeLength := func() (int64, error) {
		b, err := take(4)
		if err != nil {
			return 0, err
		}
		return int64(binary.BigEndian.Uint32(b)), nil
	}
	n, err := takeLength()
	if err != nil {
		return 0, err
	}
	sum, err := take(n)
	if err != nil {
		return 0, err
	}
	if n, err = takeLength(); err != nil {
		return 0, err
	}
	content, err := take(n)
	if err != nil {
		return 0, err
	}
	if !matches(content, sum) {
		return 0, errors.New("its index fails the checksum")
	}
	index := fb.GetRootAsTableIndex(content, 0)
	for _, i := range blocksOfOpen(index) {
		var block fb.BlockOffset
		if !index.Offsets(&block, i) {
			return 0, errCut
		}
		if err := checkBlock(f, int64(block.Offset()), int64(block.Len()), end); err != nil {
			return 0, err
		}
	}
	return index.MaxVersion(), nil
}

var errCut = errors.New("it is cut short or damaged")

// blocksOfOpen returns the blocks of a table that an open reads: Badger reads
// the last one, and we ask for the ring and the head. A key is in the last
// block that begins before it, or at the beginning of the next one.
func blocksOfOpen(index *fb.TableIndex) []int {
	n := index.OffsetsLength()
	blocks := []int{n - 1}
	for _, key := range []string{keyRing, keyHead} {
		next := sort.Search(n, func(i int) bool {
			var block fb.BlockOffset
			return index.Offsets(&block, i) && string(y.ParseKey(block.KeyBytes())) >= key
		})
		blocks = append(blocks, max(next-1, 0), min(next, n-1))
	}
	slices.Sort(blocks)
	return slices.Compact(blocks)
}

// checkBlock checks a block of a table, which ends with its checksum and that
// one's length.
func checkBlock(f *os.File, at, n, end int64) error {
	if n < 8 || at+n > end {
		return errCut
	}
	b := make([]byte, n)
	if _, err := f.ReadAt(b, at); err != nil {
		return err
	}
	n -= 4
	length := int64(binary.BigEndian.Uint32(b[n:]))
	if length > n || !matches(b[:n-length], b[n-length:n]) {
		return errors.New("a block of it fails the checksum")
	}
	return nil
}

func matches(content, checksum []byte) bool {
	var want pb.Checksum
	if proto.Unmarshal(checksum, &want) != nil {
		return false
	}
	switch want.Algo {
	case pb.Checksum_CRC32C, pb.Checksum_XXHash64:
		return y.VerifyChecksum(content, &want) == nil
	default: // Badger panics
		return false
	}
}

// contains says whether the database has all that is in a table which its
// MANIFEST does not name: each key, in that version or a later one. A table
// that was being written when the process was killed is no loss, since what
// it was made from is still there; it may be cut short, which no table is that
// was ever named.
func contains(db *badger.DB, path string) (bool, error) {
	if _, err := checkTable(path); err != nil {
		return true, nil //nolint:nilerr // see above
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return false, err
	}
	o := table.Options{}
	t, err := table.OpenInMemoryTable(b, 1, &o)
	if err != nil {
		return false, err
	}
	rows := t.NewIterator(0)
	defer func() { _ = rows.Close() }()
	whole := true
	err = db.View(func(txn *badger.Txn) error {
		opt := badger.DefaultIteratorOptions
		opt.PrefetchValues = false
		opt.AllVersions = true // deleted ones as well
		opt.InternalAccess = true
		there := txn.NewIterator(opt)
		defer there.Close()
		for rows.Rewind(); rows.Valid() && whole; rows.Next() {
			key := y.ParseKey(rows.Key())
			there.Seek(key)
			whole = there.Valid() && string(there.Item().Key()) == string(key) && there.Item().Version() >= y.ParseTs(rows.Key())
		}
		return nil
	})
	return whole, err
}
