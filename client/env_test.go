package client_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

// pay is the body that the field cases speak of.
const pay = `{"amount":1250,"currency":"EUR","ref":"inv-7"}`

// quick keeps the waits between attempts short.
func quick(attempts int) retry.Policy {
	return retry.Exponential{MinWait: time.Millisecond, MaxWait: 10 * time.Millisecond, MaxAttempts: attempts}
}

// env is a client before a provider in a box.
type env struct {
	t       *testing.T
	ctx     context.Context
	url     string
	srv     *clienttest.Server
	store   *keyringtest.Store
	client  *client.Client
	profile provider.Profile
	opts    client.Options
}

// dedup is a profile for the provider in a box with its de-duplication on.
func dedup(t *testing.T) provider.Profile {
	t.Helper()
	p, err := provider.New(provider.Spec{
		Name:         "box",
		ReplayHeader: "Idempotent-Replayed",
		ReplayValue:  "true",
		Endpoints: []provider.Endpoint{{Pattern: "POST /{rest...}", Terms: keyring.Terms{
			Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// nodedup is a profile for one that promises nothing.
func nodedup(t *testing.T) provider.Profile {
	t.Helper()
	p, err := provider.New(provider.Spec{Name: "box"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// start makes a provider without sockets and a client before it.
func start(t *testing.T, p provider.Profile, so *clienttest.Options, co client.Options) *env {
	t.Helper()
	e := &env{t: t, ctx: t.Context(), url: "http://box.test", srv: clienttest.NewServer(so), store: keyringtest.NewStore(), profile: p, opts: co}
	if e.opts.Transport == nil {
		e.opts.Transport = e.srv.RoundTripper()
	}
	if e.opts.Retry == nil {
		e.opts.Retry = quick(3)
	}
	e.client = client.New(e.store, p, &e.opts)
	t.Cleanup(func() { e.srv.Close() })
	return e
}

// sockets makes the same over real ones.
func sockets(t *testing.T, p provider.Profile, so *clienttest.Options, co client.Options, h2 bool) *env {
	t.Helper()
	e := start(t, p, so, co)
	var err error
	if h2 {
		var tr *http.Transport
		if e.url, tr, err = e.srv.ListenTLS(); err == nil {
			e.opts.Transport = tr
		}
	} else {
		e.url, err = e.srv.Listen()
		e.opts.Transport = nil
	}
	if err != nil {
		t.Fatal(err)
	}
	e.client = client.New(e.store, p, &e.opts)
	t.Cleanup(func() { e.client.Close(context.Background()) })
	return e
}

// restart gives a client that knows only what is in the store.
func (e *env) restart(change func(*client.Options)) {
	o := e.opts
	if change != nil {
		change(&o)
	}
	e.client = client.New(e.store, e.profile, &o)
}

func (e *env) post(path, body string) *http.Request {
	return e.request("POST", path, strings.NewReader(body))
}

func (e *env) request(method, path string, body io.Reader) *http.Request {
	e.t.Helper()
	req, err := http.NewRequestWithContext(e.ctx, method, e.url+path, body)
	if err != nil {
		e.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	return req
}

func (e *env) do(name string, req *http.Request) (*client.Result, error) {
	return e.client.Do(e.ctx, keyring.Ref{Name: name}, req)
}

// counts are what the provider saw.
type counts struct{ hits, effects, keys, bodies int }

func (e *env) counts(paths ...string) counts {
	return counts{e.srv.Hits(paths...), e.srv.Effects(paths...), len(e.srv.Keys(paths...)), len(e.srv.Bodies(paths...))}
}

func (e *env) want(want counts) {
	e.t.Helper()
	if got := e.counts(); got != want {
		e.t.Errorf("the provider saw %+v, want %+v: %s", got, want, e.srv)
	}
}

// state checks what a call said.
func (e *env) state(res *client.Result, err error, want keyring.State) *client.Result {
	e.t.Helper()
	if res == nil {
		e.t.Fatalf("no result: %v", err)
	}
	if res.Outcome.State != want || client.OutcomeOf(err).State != want && err != nil {
		e.t.Fatalf("state %s (error %v), want %s", res.Outcome.State, err, want)
	}
	if (err == nil) != (want == keyring.StateDone) {
		e.t.Fatalf("state %s, error %v: there is no error if and only if the effect exists", want, err)
	}
	if want != keyring.StateDone && res.Outcome.Next == "" {
		e.t.Error("the outcome does not say what to do next")
	}
	return res
}

func (e *env) get(name string) keyring.Intent {
	e.t.Helper()
	in, err := e.client.Ring().Get(e.ctx, keyring.Ref{Name: name})
	if err != nil {
		e.t.Fatal(err)
	}
	return in
}

// once is a reader that can be read once, and counts.
type once struct {
	io.Reader
	reads int
}

func newOnce(b []byte) *once { return &once{Reader: bytes.NewReader(b)} }

func (o *once) Read(p []byte) (int, error) {
	n, err := o.Reader.Read(p)
	o.reads += n
	return n, err
}
