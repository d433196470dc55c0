package badgerkeys

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
)

const (
	childEnv = "BADGERKEYS_TEST_CHILD" // what the child is to do
	dirEnv   = "BADGERKEYS_TEST_DIR"
)

// TestMain runs the children of the tests below.
func TestMain(m *testing.M) {
	what := os.Getenv(childEnv)
	if what == "" {
		os.Exit(m.Run())
	}
	if at, ok := strings.CutPrefix(what, "die at "); ok {
		step = func(name string) {
			if name == at {
				os.Exit(7) // as a crash: nothing deferred runs
			}
		}
	}
	s, err := OpenOrCreate(os.Getenv(dirEnv), nil)
	if err != nil {
		_, _ = os.Stderr.WriteString(err.Error())
		os.Exit(1)
	}
	if what == "hold" {
		_, _ = os.Stdout.WriteString("open\n")
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	if name, ok := strings.CutPrefix(what, "create "); ok {
		if err := s.Create(background, record(name, 200), keyring.Limits{}); err != nil {
			_, _ = os.Stderr.WriteString(err.Error())
			os.Exit(1)
		}
		os.Exit(7)
	}
	_ = s.Close()
	os.Exit(0)
}

func childCommand(t *testing.T, what, dir string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+what, dirEnv+"="+dir)
	return cmd
}

// runKilled runs a child that ends as a killed process does: nothing is
// closed, and nothing deferred runs.
func runKilled(t *testing.T, what, dir string) {
	t.Helper()
	out, err := childCommand(t, what, dir).CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 7 {
		t.Fatalf("the child that was to %q ended with %v: %s", what, err, out)
	}
}

// TestCreationCutShort ends the process after each step of a creation. Neither
// way of opening may take that for a loss.
func TestCreationCutShort(t *testing.T) {
	for _, at := range []string{
		"prepared", "locked", "identity written", "directories made", "holder written", "database opened", "id written", "witness made", "ready",
	} {
		t.Run(at, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ring")
			runKilled(t, "die at "+at, dir)
			for name, open := range map[string]func(string, *Options) (*Store, error){"Open": Open, "OpenOrCreate": OpenOrCreate} {
				again := copyTree(t, dir)
				s, err := open(again, nil)
				if name == "Open" && (at == "prepared" || at == "locked") {
					// There is no keyring yet; Open starts none.
					wantErr(t, err, keyring.ErrLost)
					continue
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					continue
				}
				rec := record("first", 100)
				mustCreate(t, s, rec)
				mustClose(t, s)
				s = mustOpen(t, again)
				mustHave(t, s, map[keyring.Ref]keyring.Record{rec.Ref: rec})
				mustClose(t, s)
			}
		})
	}
}

// TestCreationLeftovers has what Badger itself leaves when its first open is
// cut short.
func TestCreationLeftovers(t *testing.T) {
	for how, leave := range map[string]map[string]string{
		"MANIFEST under another name": {"badger/MANIFEST-REWRITE": "Bd"},
		"LOCK alone":                  {"badger/LOCK": "1\n"},
		"identity under another name": {"ring.json.new": `{"form`},
	} {
		t.Run(how, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "ring")
			if err := os.MkdirAll(filepath.Join(dir, "badger"), 0o700); err != nil {
				t.Fatal(err)
			}
			if _, identity := leave["ring.json.new"]; identity {
				remove(t, filepath.Join(dir, "badger"))
			} else if err := newIdentity().write(dir); err != nil {
				t.Fatal(err)
			}
			for name, content := range leave {
				if err := os.WriteFile(filepath.Join(dir, filepath.FromSlash(name)), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := mustOpen(t, dir)
			mustCreate(t, s, record("first", 100))
			mustClose(t, s)
		})
	}
}

// TestCreatingWithLostManifest has an identity that says "creating" beside
// tables without a MANIFEST, which no creation can leave behind.
func TestCreatingWithLostManifest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	s := mustOpen(t, dir)
	mustCreate(t, s, record("first", 100))
	mustClose(t, s)
	edit(t, filepath.Join(dir, identityFile), func(b []byte) []byte {
		return []byte(strings.Replace(string(b), ready, creating, 1))
	})
	remove(t, filepath.Join(dir, "badger", "MANIFEST"))
	refused(t, dir, keyring.ErrLost, "MANIFEST")
}

func TestNothingThere(t *testing.T) {
	base := t.TempDir()
	before := snapshot(t, base)
	_, err := Open(filepath.Join(base, "none"), nil)
	wantErr(t, err, keyring.ErrLost)
	if err == nil || !strings.Contains(err.Error(), "no keyring at") || !strings.Contains(err.Error(), "use OpenOrCreate") {
		t.Errorf("the error %v does not say what to do", err)
	}
	_, err = Open(base, nil)
	wantErr(t, err, keyring.ErrLost)
	_, err = OpenOrCreate(filepath.Join(base, "none"), &Options{RingID: "REMEMBERED"})
	wantErr(t, err, keyring.ErrLost)
	_, err = OpenOrCreate(base, &Options{RingID: "REMEMBERED"})
	wantErr(t, err, keyring.ErrLost)
	unchanged(t, base, before)
}

func TestForeignPlaces(t *testing.T) {
	base := t.TempDir()
	file := filepath.Join(base, "file")
	if err := os.WriteFile(file, []byte("mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	before := snapshot(t, base)
	for dir, text := range map[string]string{file: "is a file", base: "holds other files"} {
		_, err := OpenOrCreate(dir, nil)
		wantErr(t, err, keyring.ErrInvalid)
		if err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("the error %v does not say %q", err, text)
		}
	}
	_, err := OpenOrCreate(filepath.Join(file, "below"), nil)
	wantErr(t, err, keyring.ErrUnreadable)
	unchanged(t, base, before)
}

func TestRingID(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	id := s.RingID()
	mustClose(t, s)
	s, err := Open(dir, &Options{RingID: id})
	if err != nil {
		t.Fatal(err)
	}
	if s.RingID() != id {
		t.Errorf("the ring's id was %s and is %s", id, s.RingID())
	}
	mustClose(t, s)
	before := snapshot(t, dir)
	_, err = Open(dir, &Options{RingID: "ANOTHER"})
	wantErr(t, err, keyring.ErrLost)
	unchanged(t, dir, before)
}

func TestBusy(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	_, err := Open(dir, &Options{LockWait: -1})
	wantErr(t, err, keyring.ErrBusy)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d (%s)", os.Getpid(), filepath.Base(os.Args[0]))) {
		t.Errorf("the error %v does not name the holder", err)
	}
	// Who waits gets it when it is let go.
	opened := make(chan error)
	go func() {
		s, err := Open(dir, &Options{LockWait: time.Hour})
		if err == nil {
			err = s.Close()
		}
		opened <- err
	}()
	mustClose(t, s)
	if err := <-opened; err != nil {
		t.Error(err)
	}
}

func TestBusyAcrossProcesses(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	cmd := childCommand(t, "hold", dir)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stdin.Close() }()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(stdout).ReadString('\n'); line != "open\n" {
		t.Fatalf("the child said %q, %v", line, err)
	}
	before := snapshot(t, dir)
	_, err = OpenOrCreate(dir, &Options{LockWait: time.Millisecond})
	wantErr(t, err, keyring.ErrBusy)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %d (%s)", cmd.Process.Pid, filepath.Base(os.Args[0]))) || !strings.Contains(err.Error(), "since ") {
		t.Errorf("the error %v does not name the holder", err)
	}
	unchanged(t, dir, before)
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	mustClose(t, mustOpen(t, dir))
}

// TestModes looks at who may read a keyring that was made in an open-handed
// directory.
func TestModes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "ring")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir)
	for i := range 60 { // more than a memtable
		mustCreate(t, s, record(fmt.Sprint(i), 30<<10))
	}
	mustCreate(t, s, record("large", 200<<10))
	mustClose(t, s)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && loose(info) {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestNewLogsGetTheirMode(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	first := s.memFile
	for i := range 60 {
		mustCreate(t, s, record(fmt.Sprint(i), 30<<10))
		info, err := os.Stat(filepath.Join(dir, "badger", fmt.Sprintf("%05d.mem", s.memFile)))
		if err != nil {
			t.Fatal(err)
		}
		if loose(info) {
			t.Fatalf("%s has mode %s when a change in it is acknowledged", info.Name(), info.Mode())
		}
	}
	if s.memFile == first {
		t.Error("no further log was noticed in 3.6 MB of changes, with memtables of 2 MiB")
	}
}
