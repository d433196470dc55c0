package samekey_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dgraph-io/badger/v4"
	"github.com/dgraph-io/badger/v4/options"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/retry"
)

// TestC09, part 1: two runs that start in the same instant and make the same
// keys. Part 2 is in package client.
func TestC09TwoProcessesOfTheSameInstantShareNoKey(t *testing.T) {
	t.Parallel()
	const each = 500
	srv := clienttest.NewServer(nil)
	defer srv.Close()
	url, err := srv.Listen()
	if err != nil {
		t.Fatal(err)
	}
	var children []*child
	for i := range 2 {
		e := errand{Dir: t.TempDir(), URL: url + "/v1/instances", Prefix: fmt.Sprint("p", i+1), To: each, Workers: 16, Wait: true}
		store, err := badgerkeys.OpenOrCreate(e.Dir, nil)
		if err == nil {
			err = store.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		children = append(children, e.start(t))
	}
	for _, c := range children {
		c.goOn()
	}
	var wg sync.WaitGroup
	for i, c := range children {
		wg.Go(func() {
			if err := c.end(); err != nil { // a conflict is one of the things that end it
				t.Errorf("process %d: %v", i+1, err)
			}
		})
	}
	wg.Wait()
	keys := map[string]bool{}
	for i, c := range children {
		if len(c.done) != each {
			t.Errorf("process %d has done %d of %d", i+1, len(c.done), each)
		}
		for _, key := range c.done {
			keys[key] = true
		}
	}
	if len(keys) != 2*each || srv.Effects() != 2*each || len(srv.Keys()) != 2*each || len(srv.Bodies()) != 2*each || srv.Hits() != 2*each {
		t.Errorf("%d keys told, %d on the wire, %d bodies, %d effects, %d hits; want %d of each",
			len(keys), len(srv.Keys()), len(srv.Bodies()), srv.Effects(), srv.Hits(), 2*each)
	}
}

// TestC27: retries around retries. The default policy's three attempts are
// three, and the count and the wait survive a restart.
func TestC27AttemptsAndWaitSurviveARestart(t *testing.T) {
	t.Parallel()
	s := tell(t, &clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault { return unavailable() }}, client.Options{Retry: retry.Exponential{MaxAttempts: 3}})
	if _, err := s.client.Begin(t.Context(), named("inv-7"), s.post("/v1/payments", pay)); err != nil {
		t.Fatal(err)
	}
	res, err := s.send("inv-7")
	first := s.must(keyring.StateUnknown, res, err)
	s.saw(seen{3, 0, 1, 1})
	if first.Outcome.NotBefore.IsZero() {
		t.Fatal("after the last attempt there is no moment to come back")
	}
	for range 2 {
		for _, ask := range []func() (*client.Result, error){
			func() (*client.Result, error) { return s.send("inv-7") },
			func() (*client.Result, error) { return s.do("inv-7", s.post("/v1/payments", pay)) },
		} {
			res, err = ask()
			s.must(keyring.StateUnknown, res, err)
			if !errors.Is(err, keyring.ErrTooSoon) {
				t.Errorf("%v; want ErrTooSoon", err)
			}
			if d := res.Outcome.NotBefore.Sub(first.Outcome.NotBefore).Abs(); d > time.Second {
				t.Errorf("the moment to come back has moved by %s", d)
			}
			if n := len(res.Intent.Attempts); n != 3 || res.Intent.Attempts[2].Number != 3 {
				t.Errorf("%d attempts on record, want 3", n)
			}
		}
		s.restart()
	}
	s.saw(seen{3, 0, 1, 1})
}

// TestC55: after a power cut one value is missing while smaller ones of the
// same time are there.
func TestC55DamagedRequestsAreNeverSent(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{})
	names := []string{"first", "second", "third"}
	bodies := []string{strings.Repeat("a", 100), strings.Repeat("b", 2<<10), strings.Repeat("c", 2<<20)}
	request := func(i int) *http.Request { return s.post("/v1/"+names[i], bodies[i]) }
	keys := make([]keyring.Key, len(names))
	for i, name := range names {
		in, err := s.client.Begin(t.Context(), named(name), request(i))
		if err != nil || in.State != keyring.StateNeverSent {
			t.Fatalf("%s is %s: %v", name, in.State, err)
		}
		keys[i] = in.Key
	}
	s.close()
	halve(t, filepath.Join(s.dir, "badger"), bodies[1])
	blobs, err := filepath.Glob(filepath.Join(s.dir, "blobs", "*"))
	if err != nil || len(blobs) != 1 {
		t.Fatalf("the blobs are %v, %v; want the third one's body alone", blobs, err)
	}
	if err := os.Remove(blobs[0]); err != nil {
		t.Fatal(err)
	}

	s.restart()
	listed := map[string]keyring.State{}
	for in, err := range s.client.Ring().List(t.Context(), keyring.Query{OpenOnly: true}) {
		if err != nil {
			t.Fatal(err)
		}
		listed[in.Ref.Name] = in.State
	}
	want := map[string]keyring.State{"first": keyring.StateNeverSent, "second": keyring.StateDamaged, "third": keyring.StateDamaged}
	for name, state := range want {
		if got, ok := listed[name]; !ok || got != state {
			t.Errorf("%s is listed: %v, as %s, want %s", name, ok, got, state)
		}
	}
	for i, name := range names[1:] {
		for range 2 {
			for how, ask := range map[string]func() (*client.Result, error){
				"Send": func() (*client.Result, error) { return s.send(name) },
				"Do":   func() (*client.Result, error) { return s.do(name, request(i+1)) },
			} {
				_, err := ask()
				if !errors.Is(err, keyring.ErrDamaged) || client.OutcomeOf(err).State != keyring.StateDamaged {
					t.Errorf("%s of the %s: %v, outcome %s", how, name, err, client.OutcomeOf(err).State)
				}
			}
			if in := s.get(named(name)); in.State != keyring.StateDamaged || in.Generation > 1 || in.Key != keys[i+1] && !in.Key.IsZero() {
				t.Errorf("the %s has become %s under key %s in generation %d", name, in.State, in.Key, in.Generation)
			}
			s.restart()
		}
	}
	s.saw(seen{})
	res, err := s.send("first")
	if got := s.must(keyring.StateDone, res, err).Intent.Key; got != keys[0] || s.srv.Keys()[0] != got.String() {
		t.Errorf("the first went out under another key than %s", keys[0])
	}
	s.saw(seen{1, 1, 1, 1})
}

// halve replaces, through Badger itself, the one value that holds body by its
// first half.
func halve(t *testing.T, dir, body string) {
	t.Helper()
	o := badger.DefaultOptions(dir).WithLogger(nil).WithCompression(options.None).WithExternalMagic(0x4B52).
		WithMemTableSize(2 << 20).WithValueThreshold(256 << 10).WithValueLogFileSize(1 << 20)
	db, err := badger.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	err = db.Update(func(txn *badger.Txn) error {
		var key, value []byte
		it := txn.NewIterator(badger.DefaultIteratorOptions)
		for it.Rewind(); it.Valid(); it.Next() {
			v, err := it.Item().ValueCopy(nil)
			if err != nil {
				it.Close()
				return err
			}
			if strings.Contains(string(v), body) {
				found++
				key, value = it.Item().KeyCopy(nil), v
			}
		}
		it.Close()
		if found != 1 {
			return fmt.Errorf("%d values hold the body, want 1", found)
		}
		return txn.Set(key, value[:len(value)/2])
	})
	if err := errors.Join(err, db.Close()); err != nil {
		t.Fatal(err)
	}
}

// errorVariable makes the test below its own child: what it counts must not be
// mixed with what other tests have open.
const errorVariable = "SAMEKEY_TEST_ERRORS"

// TestC65: the last answer of a call that gives up is lost, or never closed.
func TestC65TheLastAnswerIsKeptAndNothingLeaks(t *testing.T) {
	t.Parallel()
	if os.Getenv(errorVariable) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v") //nolint:gosec // this test itself
		cmd.Env = append(os.Environ(), errorVariable+"=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	const intents, attempts = 1000, 3
	warm := tell(t, nil, client.Options{}) // whatever is made once, and stays
	if _, err := warm.do("warm", warm.post("/v1/warm", pay)); err != nil {
		t.Fatal(err)
	}
	warm.close()
	if err := warm.srv.Close(); err != nil {
		t.Fatal(err)
	}
	goroutines, handles := runtime.NumGoroutine(), openHandles(t)

	body := func(n int) string { return fmt.Sprintf(`{"code":"x","request_id":"r-%d"}`, n) }
	s := tell(t, &clienttest.Options{Fault: func(seen clienttest.Seen) clienttest.Fault {
		header := clienttest.JSON()
		header.Set("Request-Id", fmt.Sprint("r-", seen.N))
		return clienttest.Answer(500, header, []byte(body(seen.N)))
	}}, client.Options{Retry: quick(attempts), Budget: &retry.Budget{Burst: -1}})
	for i := range intents {
		res, err := s.do(fmt.Sprint("n-", i), s.post("/v1/payments", fmt.Sprintf(`{"n":%d}`, i)))
		s.must(keyring.StateUnknown, res, err)
		hit := attempts * (i + 1)
		id := fmt.Sprint("r-", hit)
		if v := res.Outcome.Verdict; v.Status != 500 || v.Code != "x" || v.RequestID != id || !strings.Contains(err.Error(), id) {
			t.Fatalf("intent %d: %+v, %v; want status 500 and request %s", i, v, err, id)
		}
		for range 2 {
			resp := res.Response()
			got, err := io.ReadAll(resp.Body)
			if err := errors.Join(err, resp.Body.Close()); err != nil || string(got) != body(hit) || resp.StatusCode != 500 || resp.Header.Get("Request-Id") != id {
				t.Fatalf("intent %d: the answer reads %d %q: %v", i, resp.StatusCode, got, err)
			}
		}
		var parsed struct {
			ID string `json:"request_id"`
		}
		if err := json.Unmarshal(res.Answer.Body, &parsed); err != nil || parsed.ID != id {
			t.Fatalf("intent %d: %q, %v", i, parsed.ID, err)
		}
	}
	if got := s.srv.Hits(); got != intents*attempts || len(s.srv.Keys()) != intents {
		t.Errorf("%d hits under %d keys, want %d and %d", got, len(s.srv.Keys()), intents*attempts, intents)
	}
	if _, most := s.srv.Connections(); most > 2 {
		t.Errorf("%d connections at once, want 2 at most", most)
	}
	s.close()
	if err := s.srv.Close(); err != nil {
		t.Fatal(err)
	}
	// What ends does so a little later than it was told to.
	var g, h int
	for range 500 {
		if g, h = runtime.NumGoroutine(), openHandles(t); g <= goroutines && h <= handles {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	buf := make([]byte, 1<<20)
	t.Errorf("%d goroutines and %d file handles have become %d and %d\n%s", goroutines, handles, g, h, buf[:runtime.Stack(buf, true)])
}

// openHandles counts the open files of this process, where the system lists
// them; elsewhere it counts none.
func openHandles(t *testing.T) int {
	t.Helper()
	i := slices.Index([]string{"linux", "darwin"}, runtime.GOOS)
	if i < 0 {
		return 0
	}
	entries, err := os.ReadDir([]string{"/proc/self/fd", "/dev/fd"}[i])
	if err != nil {
		t.Fatal(err)
	}
	return len(entries)
}
