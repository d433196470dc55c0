package keyringtest

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/samekey/samekey/keyring"
)

const (
	// reopenDir tells a child of TestReopen which directory to write to.
	reopenDir = "KEYRINGTEST_REOPEN_DIR"
	// reopenTest tells it which test it is the child of.
	reopenTest = "KEYRINGTEST_REOPEN_TEST"
	// reopenRounds is how often children are killed.
	reopenRounds = "KEYRINGTEST_ROUNDS"

	// A directory serves so many rounds: damage may need several to show.
	roundsPerDir = 10
	childWriters = 16
)

// TestReopen checks that what a store has acknowledged outlives the process.
// Children of the test write to the store that open makes for a directory, as
// fast as they can from 16 goroutines, and are killed at a random moment. The
// store must open again without help; each record must be there as it was
// acknowledged, or as the change made it that had begun and was not
// acknowledged any more. The limits must count right.
//
// There are 20 rounds; the environment variable KEYRINGTEST_ROUNDS sets
// another number. The child is this test binary, run for the calling test
// alone: nothing that precedes TestReopen in a test may depend on being run
// once. Stores with a method Close() error are closed by TestReopen.
func TestReopen(t *testing.T, open func(dir string) (keyring.Store, error)) {
	if dir := os.Getenv(reopenDir); dir != "" && os.Getenv(reopenTest) == t.Name() {
		child(dir, open) // ends the process
	}
	rounds := 20
	if s := os.Getenv(reopenRounds); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("%s is %q, want a number from 1 on", reopenRounds, s)
		}
		rounds = n
	}
	if err := reopen(t.Context(), t.Name(), t.TempDir(), rounds, open); err != nil {
		t.Error(err)
	}
}

// reopen runs the rounds for TestReopen.
func reopen(ctx context.Context, test, base string, rounds int, open func(dir string) (keyring.Store, error)) error {
	var ledger ledger
	var dir string
	for round := range rounds {
		if round%roundsPerDir == 0 {
			dir = filepath.Join(base, fmt.Sprint("ring", round/roundsPerDir))
			ledger = newLedger()
		}
		// Every other time, a child opens what a killed one left behind.
		for range 1 + round%2 {
			if err := killChild(ctx, test, dir, ledger); err != nil {
				return fmt.Errorf("round %d: %w", round, err)
			}
		}
		if err := examine(ctx, dir, round, ledger, open); err != nil {
			return fmt.Errorf("round %d, after the writing process was killed: %w", round, err)
		}
	}
	return nil
}

// version is a record as a ledger knows it; the zero version is no record.
type version struct {
	revision uint64
	digest   string
}

func versionOf(rec keyring.Record) version {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%d %d %t %s %d ", rec.Generation, rec.Revision, rec.Open, rec.Fingerprint, len(rec.Data))
	h.Write(rec.Data)
	h.Write(rec.Request)
	return version{rec.Revision, fmt.Sprintf("%x", h.Sum(nil)[:12])}
}

// ledger is what children have told about their writes.
type ledger struct {
	acknowledged map[keyring.Ref]version
	begun        map[keyring.Ref]version // not acknowledged
}

func newLedger() ledger {
	return ledger{make(map[keyring.Ref]version), make(map[keyring.Ref]version)}
}

// read takes one line of a child. A line without an end was cut by the kill.
func (l ledger) read(line string) (acknowledged bool, err error) {
	line, whole := strings.CutSuffix(line, "\n")
	if !whole {
		return false, nil
	}
	what, rest, _ := strings.Cut(line, "\t")
	switch what {
	case "failed":
		return false, fmt.Errorf("the child failed: %s", rest)
	case "begun", "done":
	default:
		return false, nil // of the testing package
	}
	var ref keyring.Ref
	var v version
	if _, err := fmt.Sscanf(rest, "%q %q %d %q", &ref.Scope, &ref.Name, &v.revision, &v.digest); err != nil {
		return false, fmt.Errorf("line %q of the child: %w", line, err)
	}
	if what == "begun" {
		l.begun[ref] = v
		return false, nil
	}
	l.acknowledged[ref] = v
	delete(l.begun, ref)
	return true, nil
}

// killChild runs a child and kills it after some writes.
func killChild(ctx context.Context, test, dir string, ledger ledger) error {
	var parts []string
	for part := range strings.SplitSeq(test, "/") {
		parts = append(parts, "^"+regexp.QuoteMeta(part)+"$")
	}
	cmd := exec.CommandContext(ctx, os.Args[0], "-test.run="+strings.Join(parts, "/"))
	cmd.Env = append(os.Environ(), reopenDir+"="+dir, reopenTest+"="+test)
	// The child ends when its standard input does, so with this process.
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	left := rand.IntN(300)
	killed := false
	var failed error
	for r := bufio.NewReader(stdout); ; {
		line, err := r.ReadString('\n')
		acknowledged, lineErr := ledger.read(line)
		if failed == nil {
			failed = lineErr
		}
		if acknowledged {
			left--
		}
		if left <= 0 && !killed || failed != nil {
			killed = true
			_ = cmd.Process.Kill() // it may have ended by itself, which Wait tells
		}
		if err != nil {
			break // end of file, or the pipe's end of a killed child
		}
	}
	err = cmd.Wait()
	switch {
	case failed != nil:
		return failed
	case !killed:
		return fmt.Errorf("the child ended by itself: %w", err)
	}
	return ctx.Err()
}

// examine opens dir and compares it with what the children told.
func examine(ctx context.Context, dir string, round int, ledger ledger, open func(dir string) (keyring.Store, error)) (err error) {
	s, err := open(dir)
	if err != nil {
		return fmt.Errorf("the store does not open: %w", err)
	}
	if closer, ok := s.(io.Closer); ok {
		defer func() { err = errors.Join(err, closer.Close()) }()
	}
	all, err := scan(ctx, s, keyring.Query{AllScopes: true})
	if err != nil {
		return fmt.Errorf("Scan: %w", err)
	}
	openOnly, err := scan(ctx, s, keyring.Query{AllScopes: true, OpenOnly: true})
	if err != nil {
		return fmt.Errorf("Scan of open records: %w", err)
	}
	for ref, rec := range all {
		if _, listed := openOnly[ref]; listed != rec.Open {
			return fmt.Errorf("record %q has Open %v; that it is listed among the open ones is %v", ref, rec.Open, listed)
		}
		if loaded, err := s.Load(ctx, ref); err != nil {
			return fmt.Errorf("Load of %q, which Scan has yielded: %w", ref, err)
		} else if err := same(loaded, rec); err != nil {
			return fmt.Errorf("Load and Scan differ: %w", err)
		}
	}
	refs := make(map[keyring.Ref]bool)
	for _, m := range []map[keyring.Ref]version{ledger.acknowledged, ledger.begun} {
		for ref := range m {
			refs[ref] = true
		}
	}
	for ref := range all {
		if !refs[ref] {
			return fmt.Errorf("record %q was never written", ref)
		}
	}
	for ref := range refs {
		var got version
		if rec, ok := all[ref]; ok {
			got = versionOf(rec)
		}
		acknowledged := ledger.acknowledged[ref]
		begun, undecided := ledger.begun[ref]
		if got != acknowledged && (!undecided || got != begun) {
			return fmt.Errorf("record %q: found %+v, acknowledged was %+v, begun was %+v (%v)", ref, got, acknowledged, begun, undecided)
		}
		ledger.acknowledged[ref] = got
		delete(ledger.begun, ref)
	}

	// The limits count what is there. A limit of zero would be none.
	rec := sample("examined", fmt.Sprint(round))
	if len(all) > 0 {
		if err := wants("Create in a full store", s.Create(ctx, rec, keyring.Limits{MaxIntents: len(all)}), keyring.ErrFull); err != nil {
			return err
		}
	}
	if len(openOnly) > 0 {
		if err := wants("Create of an open record in a full store", s.Create(ctx, rec, keyring.Limits{MaxOpen: len(openOnly)}), keyring.ErrFull); err != nil {
			return err
		}
	}
	if len(all) > 0 && len(openOnly) > 0 {
		if err := s.Create(ctx, rec, keyring.Limits{MaxIntents: len(all) + 1, MaxOpen: len(openOnly) + 1}); err != nil {
			return fmt.Errorf("Create in a store with room for one: %w", err)
		}
		ledger.acknowledged[rec.Ref] = versionOf(rec)
	}
	return nil
}

// child writes to the store in dir until the process ends.
func child(dir string, open func(dir string) (keyring.Store, error)) {
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0) // the parent is gone
	}()
	failed := func(err error) {
		say("failed\t" + strconv.Quote(err.Error()))
		os.Exit(1)
	}
	s, err := open(dir)
	if err != nil {
		failed(err)
	}
	for i := range childWriters {
		go func() {
			for n := 0; ; n++ {
				if err := childWrite(s, i, n); err != nil {
					failed(err)
				}
			}
		}()
	}
	select {}
}

// childWrite takes one record of the child through its life.
func childWrite(s keyring.Store, writer, n int) error {
	ctx := context.Background()
	rec := sample(fmt.Sprint("writer ", writer), fmt.Sprint(os.Getpid(), "/", n))
	size := func() int {
		if rand.IntN(10) == 0 {
			return rand.IntN(150 << 10)
		}
		return rand.IntN(2 << 10)
	}
	rec.Data, rec.Request = filler(size(), fmt.Sprint("data ", writer, n)), filler(size(), fmt.Sprint("request ", writer, n))
	step := func(v version, change func() error) error {
		told := fmt.Sprintf("%q %q %d %q", rec.Ref.Scope, rec.Ref.Name, v.revision, v.digest)
		say("begun\t" + told)
		if err := change(); err != nil {
			return err
		}
		say("done\t" + told)
		return nil
	}
	if err := step(versionOf(rec), func() error { return s.Create(ctx, rec, keyring.Limits{}) }); err != nil {
		return err
	}
	for range rand.IntN(3) {
		rec.Revision++
		rec.Open = rand.IntN(2) == 0
		rec.Generation = rand.IntN(5)
		rec.Data = filler(size(), fmt.Sprint("data ", writer, n, rec.Revision))
		changed := rec
		if rand.IntN(2) == 0 {
			changed.Request = nil
		} else {
			rec.Request = filler(size(), fmt.Sprint("request ", writer, n, rec.Revision)) // empty but not nil at times
			changed.Request = rec.Request
		}
		if err := step(versionOf(rec), func() error { return s.Update(ctx, changed) }); err != nil {
			return err
		}
	}
	if rand.IntN(5) == 0 {
		return step(version{}, func() error { return s.Delete(ctx, rec.Ref, rec.Revision) })
	}
	return nil
}

// say writes a line in one system call, so that lines do not mix.
func say(line string) {
	if _, err := os.Stdout.WriteString(line + "\n"); err != nil {
		os.Exit(1) // nobody would know what is acknowledged from here on
	}
}
