package badgerkeys

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"go.uber.org/goleak"

	"github.com/samekey/samekey/keyring"
)

// onCommit replaces the commit for one test.
func onCommit(t testing.TB, f func(txn *badger.Txn) error) {
	t.Helper()
	was := commitTxn
	commitTxn = f
	t.Cleanup(func() { commitTxn = was })
}

// queued waits until n changes wait to be committed.
func queued(s *Store, n int) {
	for {
		s.queueMu.Lock()
		there := len(s.queue)
		s.queueMu.Unlock()
		if there >= n {
			return
		}
		yield()
	}
}

func yield() { time.Sleep(100 * time.Microsecond) }

// blocked is a store whose committing goroutine is in the middle of a commit
// until release is called.
func blocked(t *testing.T) (s *Store, commits *atomic.Int32, release func()) {
	t.Helper()
	gate, entered := make(chan struct{}), make(chan struct{})
	commits = new(atomic.Int32)
	onCommit(t, func(txn *badger.Txn) error {
		if commits.Add(1) == 1 {
			close(entered)
			<-gate
		}
		return txn.Commit()
	})
	s = mustOpen(t, t.TempDir())
	first := make(chan error, 1)
	go func() { first <- s.Create(background, record("the first", 10), keyring.Limits{}) }()
	<-entered
	return s, commits, func() {
		close(gate)
		if err := <-first; err != nil {
			t.Error(err)
		}
	}
}

// TestOneFlushForAll has 100 callers wait during a commit: the next one serves
// them all, those with a refusal included.
func TestOneFlushForAll(t *testing.T) {
	s, commits, release := blocked(t)
	var wg sync.WaitGroup
	const n = 100 // of a group's 300 changes and 240 KiB
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() {
			rec := record(fmt.Sprint(i), 400)
			if i%10 == 0 {
				rec.Revision = 5
				errs[i] = s.Update(background, rec)
			} else {
				errs[i] = s.Create(background, rec, keyring.Limits{})
			}
		})
	}
	queued(s, n)
	release()
	wg.Wait()
	for i, err := range errs {
		if i%10 == 0 {
			wantErr(t, err, keyring.ErrNotFound)
		} else if err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	if got := commits.Load(); got != 2 {
		t.Errorf("%d callers that waited at once were served by %d commits, want 1", n, got-1)
	}
}

// TestTwoCommits counts what the happy path of a call costs: one durable
// change before the request leaves, one after the answer.
func TestTwoCommits(t *testing.T) {
	var commits atomic.Int32
	onCommit(t, func(txn *badger.Txn) error { commits.Add(1); return txn.Commit() })
	s := mustOpen(t, t.TempDir())
	rec := record("order", 500)
	mustCreate(t, s, rec)
	rec.Revision, rec.Request = 2, nil
	if err := s.Update(t.Context(), rec); err != nil {
		t.Fatal(err)
	}
	wantErr(t, s.Update(t.Context(), rec), keyring.ErrStale)
	wantErr(t, s.Create(t.Context(), rec, keyring.Limits{}), keyring.ErrInvalid)
	if got := commits.Load(); got != 2 {
		t.Errorf("a creation, an update and two refusals made %d commits, want 2", got)
	}
}

// TestOversizedNeighbour has a change that Badger does not take: those that
// came with it are made.
func TestOversizedNeighbour(t *testing.T) {
	s, _, release := blocked(t)
	results := make(chan error, 2)
	go func() { results <- s.Create(background, record("neighbour", 100), keyring.Limits{}) }()
	queued(s, 1)
	oversized := &write{ctx: background, change: change{kind: changeCreate, ref: mustKey(t, keyring.Ref{Name: "oversized"})}}
	oversized.change.after.data.inline = make([]byte, 1<<20) // as no caller can
	if err := s.enter(background); err != nil {
		t.Fatal(err)
	}
	bad := make(chan error, 1)
	go func() { bad <- s.submit(oversized) }()
	queued(s, 2)
	s.queueMu.Lock()
	s.queue[1].size = 0 // so that both come into one group
	s.queueMu.Unlock()
	go func() { results <- s.Create(background, record("another", 100), keyring.Limits{}) }()
	queued(s, 3)
	release()
	if err := <-bad; err == nil {
		t.Error("a change of 1 MiB was made")
	}
	for range 2 {
		if err := <-results; err != nil {
			t.Errorf("a neighbour of the oversized change: %v", err)
		}
	}
	mustCreate(t, s, record("later", 100))
}

// TestFailedCommit has the disk fail: nothing more is written until the
// keyring is opened again, and then all that was acknowledged is there.
func TestFailedCommit(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	rec := record("order", 100)
	mustCreate(t, s, rec)
	was := commitTxn
	commitTxn = func(*badger.Txn) error { return syscall.EIO }
	err := s.Create(t.Context(), record("second", 300<<10), keyring.Limits{})
	commitTxn = was
	wantErr(t, err, syscall.EIO)
	wantErr(t, s.Create(t.Context(), record("third", 100), keyring.Limits{}), syscall.EIO)
	wantErr(t, s.Delete(t.Context(), rec.Ref, 1), syscall.EIO)
	if _, err := s.Load(t.Context(), rec.Ref); err != nil {
		t.Errorf("Load after a failed commit: %v", err)
	}
	mustClose(t, s)
	s = mustOpen(t, dir)
	mustHave(t, s, map[keyring.Ref]keyring.Record{rec.Ref: rec})
	if left, _ := filepath.Glob(filepath.Join(dir, "blobs", "*")); len(left) > 0 {
		t.Errorf("blobs that nothing names are there after opening again: %v", left)
	}
}

func TestNoSpace(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	rec := record("order", 100)
	mustCreate(t, s, rec)
	was := diskFree
	t.Cleanup(func() { diskFree = was })
	diskFree = func(string) (uint64, error) { return 64 << 20, nil }
	s.room.left = 0 // as after much was written: the disk is looked at again
	wantErr(t, s.Create(t.Context(), record("small", 100), keyring.Limits{}), keyring.ErrNoSpace)
	wantErr(t, s.Create(t.Context(), record("large", 300<<10), keyring.Limits{}), keyring.ErrNoSpace)
	if left, _ := filepath.Glob(filepath.Join(dir, "blobs", "*")); len(left) > 0 {
		t.Errorf("blobs were written all the same: %v", left)
	}
	diskFree = was
	mustCreate(t, s, record("small", 100))
	mustClose(t, s)

	diskFree = func(string) (uint64, error) { return 10 << 20, nil }
	refused(t, dir, keyring.ErrNoSpace, "make room")
	diskFree = func(string) (uint64, error) { return 0, errors.New("no such call") }
	if _, err := Open(dir, nil); err == nil {
		t.Error("a keyring was opened on a disk whose room is not known")
	}
}

// TestBlobsGo counts blobs after changes, refused ones included.
func TestBlobsGo(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	blobs := func(want int, when string) {
		t.Helper()
		names, err := os.ReadDir(filepath.Join(dir, "blobs"))
		if err != nil || len(names) != want {
			t.Errorf("%s there are %d blobs, want %d (%v)", when, len(names), want, err)
		}
	}
	rec := record("order", 100<<10)
	twin := record("twin", 100<<10)
	twin.Data, twin.Request = rec.Data, rec.Request
	mustCreate(t, s, rec, twin)
	blobs(4, "after two records with the same bytes")
	wantErr(t, s.Create(t.Context(), rec, keyring.Limits{}), keyring.ErrExists)
	wantErr(t, s.Create(t.Context(), record("third", 100<<10), keyring.Limits{MaxIntents: 2}), keyring.ErrFull)
	stale := rec
	stale.Revision = 7
	wantErr(t, s.Update(t.Context(), stale), keyring.ErrStale)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	wantErr(t, s.Create(over, record("third", 100<<10), keyring.Limits{}), context.Canceled)
	blobs(4, "after refusals")
	same := rec
	same.Revision = 2
	if err := s.Update(t.Context(), same); err != nil {
		t.Fatal(err)
	}
	same.Revision = 3
	same.Request = nil
	if err := s.Update(t.Context(), same); err != nil {
		t.Fatal(err)
	}
	same.Request = rec.Request
	settleBlobs(s)
	blobs(4, "after updates with the same bytes")
	mustHave(t, s, map[keyring.Ref]keyring.Record{rec.Ref: same, twin.Ref: twin})
	if err := s.Delete(t.Context(), twin.Ref, 1); err != nil {
		t.Fatal(err)
	}
	settleBlobs(s)
	blobs(2, "after a deletion")
	small := rec
	small.Revision, small.Data, small.Request = 4, []byte("small"), []byte{}
	if err := s.Update(t.Context(), small); err != nil {
		t.Fatal(err)
	}
	settleBlobs(s)
	blobs(0, "after all is small")

	// What a killed process leaves is swept; what is named stays, and so does
	// what is not ours.
	mustCreate(t, s, twin)
	killed := copyTree(t, dir)
	foreign := filepath.Join(killed, "blobs", "README")
	for _, name := range []string{foreign, filepath.Join(killed, "blobs", blobTemp+"x")} {
		if err := os.WriteFile(name, []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	orphan := &blobRef{size: 1}
	if err := os.WriteFile(filepath.Join(killed, "blobs", orphan.name()), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	again := mustOpen(t, killed)
	mustHave(t, again, map[keyring.Ref]keyring.Record{rec.Ref: small, twin.Ref: twin})
	mustClose(t, again)
	names, err := os.ReadDir(filepath.Join(killed, "blobs"))
	if err != nil || len(names) != 3 {
		t.Errorf("after opening, blobs has %v, want two blobs and README (%v)", names, err)
	}
}

// settleBlobs returns when the goroutine that removes blobs, after it has
// answered, is done with what it did so far.
func settleBlobs(s *Store) {
	s.commitMu.Lock()
	defer s.commitMu.Unlock()
}

// TestCancelledInQueue has a context end while its change waits: nothing is
// changed.
func TestCancelledInQueue(t *testing.T) {
	s, _, release := blocked(t)
	ctx, cancel := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() { result <- s.Create(ctx, record("late", 10), keyring.Limits{}) }()
	queued(s, 1)
	cancel()
	wantErr(t, <-result, context.Canceled)
	release()
	mustCreate(t, s, record("next", 10))
	_, err := s.Load(t.Context(), record("late", 10).Ref)
	wantErr(t, err, keyring.ErrNotFound)
}

// TestCloseWaits closes while changes wait: each is made or refused, and what
// was acknowledged is there afterwards. It is the store's part of field case
// C59.
func TestCloseWaits(t *testing.T) {
	s, _, release := blocked(t)
	var wg sync.WaitGroup
	const n = 20
	errs := make([]error, n)
	for i := range n {
		wg.Go(func() { errs[i] = s.Create(background, record(fmt.Sprint(i), 100), keyring.Limits{}) })
	}
	queued(s, n)
	closed := make(chan error, 2)
	for range 2 {
		go func() { closed <- s.Close() }()
	}
	release()
	wg.Wait()
	for range 2 {
		if err := <-closed; err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	wantErr(t, s.Create(t.Context(), record("late", 100), keyring.Limits{}), keyring.ErrClosed)
	first := record("the first", 10)
	want := map[keyring.Ref]keyring.Record{first.Ref: first}
	for i, err := range errs {
		if err != nil {
			t.Errorf("a change that waited when the store was closed: %v", err)
		}
		rec := record(fmt.Sprint(i), 100)
		want[rec.Ref] = rec
	}
	s = mustOpen(t, s.dir)
	mustHave(t, s, want)
}

func TestNoGoroutineLeft(t *testing.T) {
	leak := goleak.IgnoreCurrent()
	dir := filepath.Join(t.TempDir(), "ring")
	for range 3 {
		s := mustOpen(t, dir)
		_ = s.Create(t.Context(), record("order", 100), keyring.Limits{})
		over, cancel := context.WithCancel(t.Context())
		waited := make(chan error, 1)
		go func() { waited <- s.Wait(over, record("order", 100).Ref, 1) }()
		if _, err := Open(dir, &Options{LockWait: -1}); !errors.Is(err, keyring.ErrBusy) {
			t.Error(err)
		}
		mustClose(t, s)
		if err := <-waited; !errors.Is(err, keyring.ErrClosed) {
			t.Errorf("Wait reported %v when the store was closed", err)
		}
		cancel()
	}
	edit(t, filepath.Join(dir, "badger", "MANIFEST"), func([]byte) []byte { return nil })
	if _, err := Open(dir, nil); err == nil {
		t.Error("a keyring without a MANIFEST was opened")
	}
	goleak.VerifyNone(t, leak)
}

// TestManyOpenings opens, writes and closes: tables must not pile up.
func TestManyOpenings(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	most := 0
	want := make(map[keyring.Ref]keyring.Record)
	for i := range 60 {
		s := mustOpen(t, dir)
		rec := record(fmt.Sprint(i), 200)
		mustCreate(t, s, rec)
		want[rec.Ref] = rec
		mustClose(t, s)
		most = max(most, len(files1(t, dir, "*.sst")))
	}
	if most > manyTables+2 {
		t.Errorf("up to %d tables were there, each open leaves one behind", most)
	}
	s := mustOpen(t, dir)
	mustHave(t, s, want)
}

func BenchmarkCreate(b *testing.B) {
	for _, writers := range []int{1, 64, 256} {
		b.Run(fmt.Sprint(writers), func(b *testing.B) {
			s := mustOpen(b, b.TempDir())
			var next atomic.Int64
			var wg sync.WaitGroup
			b.ResetTimer()
			for range writers {
				wg.Go(func() {
					for {
						i := next.Add(1)
						if i > int64(b.N) {
							return
						}
						if err := s.Create(background, record(fmt.Sprint(i), 500), keyring.Limits{}); err != nil {
							b.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			b.StopTimer()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "changes/s")
		})
	}
}
