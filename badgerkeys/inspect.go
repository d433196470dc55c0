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
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"
	"sync/atomic"

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
// open.
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
	marks, err := found.marks(dir)
	if err != nil {
		return false, err
	}
	return maps.EqualFunc(marks, c.Files, func(now, was fileMark) bool {
		return now.Size == was.Size && now.Sum == was.Sum
	}), nil
}

// marks returns what the files that an open reads are known by. After a clean
// end, those that are no tables are small.
func (found *files) marks(dir string) (map[string]fileMark, error) {
	marks := make(map[string]fileMark)
	for name, size := range found.sizes {
		mark := fileMark{Size: size}
		path := filepath.Join(dir, name)
		if _, isTable := table.ParseFileID(name); isTable {
			info, err := os.Stat(path)
			if err != nil {
				return nil, accessError("read", path, err)
			}
			mark.Modified = info.ModTime().UnixNano()
		} else {
			b, err := os.ReadFile(path)
			if err != nil {
				return nil, accessError("read", path, err)
			}
			mark.Sum = crc32.Checksum(b, castagnoli)
		}
		marks[name] = mark
	}
	return marks, nil
}

// untouched says whether nobody has written to the tables since that Close.
func (found *files) untouched(dir string, c *closing) (bool, error) {
	marks, err := found.marks(dir)
	return err == nil && maps.Equal(marks, c.Files), err
}

// checkTables checks the known tables, some at a time, and reports
// ErrUnreadable for one that is damaged. If whole is set it reads all of them,
// else what Badger's open and ours read.
//
// Badger itself takes a table as it is: a record whose key is damaged is gone,
// and a length that is damaged ends the process. Its mode that checks what it
// reads hides all of a damaged table. But to read everything takes half a
// millisecond for each MB, which is too much for each open: see checkAge.
func (found *files) checkTables(dir string, whole bool) error {
	versions, errs := make([]uint64, len(found.known)), make([]error, len(found.known))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), 4, len(found.known)) {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(errs)); i = next.Add(1) - 1 {
				versions[i], errs[i] = checkTable(filepath.Join(dir, found.known[i]), whole)
			}
		})
	}
	wg.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("%w: table %s: %w; "+whatNow, keyring.ErrUnreadable, filepath.Join(dir, found.known[i]), err)
		}
		found.version = max(found.version, versions[i])
	}
	return nil
}

// checkTable checks a table and returns the highest version in it. It begins
// at the end, where the lengths lead to the rest: checksum length in the last
// four bytes, the checksum before it, before that the length of the index, and
// the index.
func checkTable(path string, whole bool) (version uint64, err error) {
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
	blocks := blocksOfOpen(index)
	ahead := 0
	if whole {
		blocks = blocks[:0]
		for i := range index.OffsetsLength() {
			blocks = append(blocks, i)
		}
		ahead = 256 << 10
	}
	return index.MaxVersion(), checkBlocks(io.NewSectionReader(f, 0, end), index, blocks, ahead)
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

// checkBlocks checks blocks of a table, in ascending order. Each ends with its
// checksum and that one's length. ahead is how much to read at a time.
func checkBlocks(r *io.SectionReader, index *fb.TableIndex, blocks []int, ahead int) error {
	buf := make([]byte, ahead)
	from, have := int64(0), int64(0) // what of the table is in buf
	for _, i := range blocks {
		var block fb.BlockOffset
		if !index.Offsets(&block, i) {
			return errCut
		}
		at, n := int64(block.Offset()), int64(block.Len())
		if n < 4 || at+n > r.Size() {
			return errCut
		}
		if at < from || at+n > from+have {
			if n > int64(len(buf)) {
				buf = make([]byte, n)
			}
			read, err := r.ReadAt(buf, at)
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			from, have = at, int64(read)
			if n > have {
				return io.ErrUnexpectedEOF
			}
		}
		b := buf[at-from : at-from+n-4]
		length := int64(binary.BigEndian.Uint32(buf[at-from+n-4:]))
		if length > n-4 || !matches(b[:n-4-length], b[n-4-length:]) {
			return errors.New("a block of it fails the checksum")
		}
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
	if _, err := checkTable(path, true); err != nil {
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
