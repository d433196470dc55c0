package samekey_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

// pay is the body that most stories send.
const pay = `{"amount":1250,"currency":"EUR","ref":"inv-7"}`

// boxTerms are what the provider in a box promises below /v1/.
var boxTerms = keyring.Terms{Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour}

// box is the profile of the provider in a box: POSTs below /v1/ are
// de-duplicated by key, nothing is promised of the rest.
func box(terms keyring.Terms) provider.Profile {
	p, err := provider.New(provider.Spec{
		Name:         "box",
		ReplayHeader: "Idempotent-Replayed",
		Endpoints:    []provider.Endpoint{{Pattern: "POST /v1/{rest...}", Terms: terms}},
	})
	if err != nil {
		panic(err)
	}
	return p
}

// quick keeps the waits between attempts short.
func quick(attempts int) retry.Policy {
	return retry.Exponential{MinWait: time.Microsecond, MaxWait: 5 * time.Millisecond, MaxAttempts: attempts}
}

func named(name string) keyring.Ref { return keyring.Ref{Name: name} }

// unavailable is an answer that leaves doubt.
func unavailable() clienttest.Fault { return clienttest.Answer(503, clienttest.JSON(), []byte(`{}`)) }

// story is a program with a keyring on disk before a provider on a socket.
type story struct {
	t       *testing.T
	dir     string
	url     string
	srv     *clienttest.Server
	opts    client.Options
	profile provider.Profile
	store   *badgerkeys.Store
	client  *client.Client
}

// tell begins a story. Without a policy of its own it makes one attempt per
// call.
func tell(t *testing.T, so *clienttest.Options, co client.Options) *story {
	t.Helper()
	s := &story{t: t, dir: filepath.Join(t.TempDir(), "ring"), srv: clienttest.NewServer(so), opts: co, profile: box(boxTerms)}
	t.Cleanup(func() { s.srv.Close() })
	if s.opts.Retry == nil {
		s.opts.Retry = quick(1)
	}
	url, err := s.srv.Listen()
	if err != nil {
		t.Fatal(err)
	}
	s.url = url
	if s.opts.Authorize != nil { // credentials go to named places alone
		s.opts.Origins = append(s.opts.Origins, url)
	}
	if s.store, err = badgerkeys.OpenOrCreate(s.dir, nil); err != nil {
		t.Fatal(err)
	}
	s.client = s.another(nil)
	t.Cleanup(s.close)
	return s
}

// another is one more client on the same open keyring.
func (s *story) another(change func(*client.Options)) *client.Client {
	o := s.opts
	if change != nil {
		change(&o)
	}
	c := client.New(s.store, s.profile, &o)
	s.t.Cleanup(func() { c.Close(context.Background()) })
	return c
}

// close ends the program in an orderly way. It may be called twice.
func (s *story) close() {
	if err := s.client.Close(context.Background()); err != nil {
		s.t.Errorf("closing the client: %v", err)
	}
	if err := s.store.Close(); err != nil && !errors.Is(err, keyring.ErrClosed) {
		s.t.Errorf("closing the keyring: %v", err)
	}
}

// restart gives a program that knows only what is on the disk.
func (s *story) restart() {
	s.t.Helper()
	s.close()
	store, err := badgerkeys.Open(s.dir, nil)
	if err != nil {
		s.t.Fatalf("opening the keyring again: %v", err)
	}
	s.store = store
	s.client = s.another(nil)
}

func (s *story) post(path, body string) *http.Request {
	s.t.Helper()
	return post(s.t, s.url+path, body)
}

func post(t testing.TB, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

func (s *story) do(name string, req *http.Request) (*client.Result, error) {
	return s.client.Do(s.t.Context(), named(name), req)
}

func (s *story) send(name string) (*client.Result, error) {
	return s.client.Send(s.t.Context(), named(name))
}

func (s *story) get(ref keyring.Ref) keyring.Intent {
	s.t.Helper()
	in, err := s.client.Ring().Get(s.t.Context(), ref)
	if err != nil {
		s.t.Fatal(err)
	}
	return in
}

// must demands an outcome: of the result, and of the error alike.
func (s *story) must(want keyring.State, res *client.Result, err error) *client.Result {
	s.t.Helper()
	if res == nil {
		s.t.Fatalf("no result, want state %q: %v", want, err)
	}
	if res.Outcome.State != want || err != nil && client.OutcomeOf(err).State != want {
		s.t.Fatalf("state %q (%v), want %q", res.Outcome.State, err, want)
	}
	if (err == nil) != (want == keyring.StateDone) {
		s.t.Fatalf("state %q with the error %v: there is none if and only if the effect exists", want, err)
	}
	return res
}

// seen are the provider's counts.
type seen struct{ hits, effects, keys, bodies int }

// saw demands them, on some paths or on all.
func (s *story) saw(want seen, paths ...string) {
	s.t.Helper()
	got := seen{s.srv.Hits(paths...), s.srv.Effects(paths...), len(s.srv.Keys(paths...)), len(s.srv.Bodies(paths...))}
	if got != want {
		s.t.Errorf("the provider saw %+v on %v, want %+v: %s", got, paths, want, s.srv)
	}
}

func digestOf(b string) string {
	sum := sha256.Sum256([]byte(b))
	return hex.EncodeToString(sum[:])
}

// files reads each file below dir, by its path, but for those that are locked:
// not every system lets others read them.
func files(t testing.TB, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || strings.EqualFold(e.Name(), "lock") {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = string(b)
		if errors.Is(err, fs.ErrNotExist) { // Badger removes a log that it has written to a table
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// copyRing copies the directory of an open keyring at rest: what a process
// would leave if it were killed now.
func copyRing(t testing.TB, dir string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "ring")
	for path, content := range files(t, dir) {
		rel, err := filepath.Rel(dir, path)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(filepath.Join(to, rel)), 0o700)
		}
		if err == nil {
			err = os.WriteFile(filepath.Join(to, rel), []byte(content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(to, "blobs"), 0o700); err != nil {
		t.Fatal(err)
	}
	return to
}

// roundTripper is a transport made of a function.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
