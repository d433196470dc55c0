package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

// TestP8: nothing that is exported takes a request without the ref that it
// belongs to; a method that mints once more will have to show an inspection.
func TestP8NoMethodMintsWithoutARefOrAnInspection(t *testing.T) {
	t.Parallel()
	minters := 0
	for _, typ := range []reflect.Type{reflect.TypeFor[*client.Client](), reflect.TypeFor[*keyring.Ring](), reflect.TypeFor[*keyring.Hold]()} {
		for i := range typ.NumMethod() {
			m := typ.Method(i)
			var request, ref, inspection bool
			for j := range m.Type.NumIn() {
				switch in := m.Type.In(j); {
				case in == reflect.TypeFor[*http.Request](), in == reflect.TypeFor[keyring.Draft](), in == reflect.TypeFor[keyring.Request]():
					request = true
				case in == reflect.TypeFor[keyring.Ref]():
					ref = true
				case in.Name() == "Inspection":
					inspection = true
				case in == reflect.TypeFor[keyring.Key]():
					t.Errorf("%s.%s takes a key", typ, m.Name)
				}
			}
			if request {
				minters++
			}
			if request && ref == inspection {
				t.Errorf("%s.%s takes a request with ref: %v, with inspection: %v; want one of them", typ, m.Name, ref, inspection)
			}
		}
	}
	if minters < 4 {
		t.Errorf("only %d methods take a request: this has looked at nothing", minters)
	}
}

// TestP8: whatever an intent came to, no call about it makes a second key.
func TestP8NoCallMintsASecondKey(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{Retry: quick(2)})
	for i, c := range []struct {
		faults []clienttest.Fault
		path   string
		want   keyring.State
	}{
		{[]clienttest.Fault{clienttest.Decide(402, clienttest.JSON(), []byte(`{}`))}, "/v1/", keyring.StateRefused},
		{[]clienttest.Fault{clienttest.Conflict()}, "/v1/", keyring.StateConflict},
		{[]clienttest.Fault{clienttest.LoseAnswer()}, "/plain/", keyring.StateUnknown},
		{[]clienttest.Fault{clienttest.Redirect(303, "/x")}, "/v1/", keyring.StateUnknown},
		{[]clienttest.Fault{clienttest.Pending(202)}, "/v1/", keyring.StatePending},
		{nil, "/v1/", keyring.StateDone},
	} {
		path := fmt.Sprint(c.path, i)
		s.srv.On(path, c.faults...)
		res, err := s.do(path, s.post(path, pay))
		key := s.must(c.want, res, err).Intent.Key
		hits := s.srv.Hits(path)
		for range 2 {
			s.restart()
			_, _ = s.do(path, s.post(path, pay))
			_, _ = s.send(path)
			if in, err := s.client.Begin(t.Context(), named(path), s.post(path, pay)); err != nil || in.Key != key {
				t.Errorf("%s: Begin gives key %s, %v", c.want, in.Key, err)
			}
			own := s.post(path, pay)
			own.Header.Set("Idempotency-Key", "a-key-of-my-own")
			var differs *keyring.Error
			if _, err := s.do(path, own); !errors.Is(err, keyring.ErrDiffers) || !errors.As(err, &differs) || !slices.Equal(differs.Fields, []string{"key"}) {
				t.Errorf("%s: a key of the caller's own: %v", c.want, err)
			}
			if in := s.get(named(path)); in.Key != key || in.Generation != 1 || in.State != c.want {
				t.Errorf("%s with key %s has become %s with key %s in generation %d", c.want, key, in.State, in.Key, in.Generation)
			}
		}
		if got := s.srv.Keys(path); s.srv.Hits(path) != hits || len(got) != 1 || got[0] != key.String() {
			t.Errorf("%s: %d hits, then %d, under the keys %v", c.want, hits, s.srv.Hits(path), got)
		}
	}
}

// TestP9: what is final is answered from the record, long after the provider
// has forgotten it, refusals like successes.
func TestP9FinalIsAnsweredFromTheRecord(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{Retry: quick(3)})
	declined := []byte(`{"code":"card_declined","request_id":"r-1"}`)
	intents := map[string]struct {
		fault  clienttest.Fault
		want   keyring.State
		status int
	}{
		"/v1/paid":     {clienttest.Normal(), keyring.StateDone, 201},
		"/v1/lost":     {clienttest.LoseAnswer(), keyring.StateDone, 201},
		"/v1/declined": {clienttest.Decide(402, clienttest.JSON(), declined), keyring.StateRefused, 402},
		"/v1/wrong":    {clienttest.Answer(400, clienttest.JSON(), declined), keyring.StateRefused, 400},
	}
	bodies := map[string]string{}
	for path, c := range intents {
		s.srv.On(path, c.fault)
		res, err := s.do(path, s.post(path, pay))
		bodies[path] = string(s.must(c.want, res, err).Answer.Body)
	}
	hits := s.srv.Hits()
	s.srv.ForgetAll()
	for range 2 {
		s.restart()
		for path, c := range intents {
			for _, ask := range []func() (*client.Result, error){
				func() (*client.Result, error) { return s.do(path, s.post(path, pay)) },
				func() (*client.Result, error) { return s.send(path) },
			} {
				res, err := ask()
				s.must(c.want, res, err)
				if res.Outcome.Source != keyring.SourceRecord || res.Answer.Status != c.status || string(res.Answer.Body) != bodies[path] {
					t.Errorf("%s: status %d by the %s, body changed: %v", path, res.Answer.Status, res.Outcome.Source, string(res.Answer.Body) != bodies[path])
				}
				if c.want == keyring.StateRefused && !errors.Is(err, client.ErrRefused) {
					t.Errorf("%s: %v", path, err)
				}
			}
		}
	}
	if got := s.srv.Hits(); got != hits {
		t.Errorf("%d requests were sent about what was final", got-hits)
	}
}

// TestP10: a full keyring takes nothing new, forgets nothing, and goes on with
// what it has.
func TestP10AFullKeyringRefusesNewIntents(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{Keyring: keyring.Options{MaxOpen: 3}})
	keys := map[string]keyring.Key{}
	path := func(i int) string { return fmt.Sprint("/v1/", i) }
	for i := range 3 {
		s.srv.On(path(i), clienttest.LoseAnswer())
		res, err := s.do(path(i), s.post(path(i), pay))
		keys[path(i)] = s.must(keyring.StateUnknown, res, err).Intent.Key
	}
	full := func() {
		t.Helper()
		_, derr := s.do("new", s.post("/v1/new", pay))
		_, berr := s.client.Begin(t.Context(), named("new"), s.post("/v1/new", pay))
		if !errors.Is(derr, keyring.ErrFull) || !errors.Is(berr, keyring.ErrFull) {
			t.Errorf("a new intent: Do %v, Begin %v", derr, berr)
		}
		if client.OutcomeOf(derr).State != keyring.StateNeverSent {
			t.Errorf("its outcome is %s", client.OutcomeOf(derr).State)
		}
	}
	full()
	s.restart()
	full()
	s.saw(seen{}, "/v1/new")
	for path, key := range keys {
		if in := s.get(named(path)); in.Key != key || in.State != keyring.StateUnknown {
			t.Errorf("%s has become %s with key %s", path, in.State, in.Key)
		}
	}
	res, err := s.do(path(1), s.post(path(1), pay))
	s.must(keyring.StateDone, res, err)
	s.saw(seen{2, 1, 1, 1}, path(1))
	res, err = s.do("new", s.post("/v1/new", pay)) // there is room again
	s.must(keyring.StateDone, res, err)
	open := 0
	for in, err := range s.client.Ring().List(t.Context(), keyring.Query{OpenOnly: true}) {
		if err != nil || keys[in.Ref.Name] != in.Key {
			t.Errorf("%s is open: %v", in.Ref, err)
		}
		open++
	}
	if open != 2 {
		t.Errorf("%d intents are open, want 2", open)
	}
}

// TestP11: a keyring that cannot be used is an error, and stays as it is.
func TestP11ABrokenKeyringIsAnError(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{})
	s.srv.Script(clienttest.LoseAnswer())
	res, err := s.do("inv-7", s.post("/v1/payments", pay))
	s.must(keyring.StateUnknown, res, err)
	id := s.store.RingID()
	damage := func(do func(dir string) error) func(string) error {
		return func(dir string) error { return do(filepath.Join(dir, "badger")) }
	}
	foreign := t.TempDir()
	if err := os.WriteFile(filepath.Join(foreign, "letter.txt"), []byte("dear"), 0o600); err != nil {
		t.Fatal(err)
	}
	busy := s.dir
	for _, c := range []struct {
		how  string
		dir  string // empty: a copy of the keyring
		do   func(dir string) error
		opts badgerkeys.Options
		want error
	}{
		{how: "without its MANIFEST", do: damage(func(d string) error { return os.Remove(filepath.Join(d, "MANIFEST")) }), want: keyring.ErrLost},
		{how: "with another MANIFEST", do: damage(func(d string) error {
			return os.WriteFile(filepath.Join(d, "MANIFEST"), []byte("sixteen bytes..."), 0o600)
		}), want: keyring.ErrUnreadable},
		{how: "without its database", do: damage(os.RemoveAll), want: keyring.ErrLost},
		{how: "without its identity", do: func(d string) error { return os.Remove(filepath.Join(d, "ring.json")) }, want: keyring.ErrLost},
		{how: "of another format", do: func(d string) error {
			return os.WriteFile(filepath.Join(d, "ring.json"), []byte(`{"format":99}`), 0o600)
		}, want: keyring.ErrUnreadable},
		{how: "emptied", do: func(d string) error {
			return errors.Join(os.RemoveAll(d), os.Mkdir(d, 0o700))
		}, opts: badgerkeys.Options{RingID: id}, want: keyring.ErrLost},
		{how: "another than the one remembered", opts: badgerkeys.Options{RingID: "another"}, want: keyring.ErrLost},
		{how: "a directory of another kind", dir: foreign, want: keyring.ErrInvalid},
		{how: "a file", dir: filepath.Join(foreign, "letter.txt"), want: keyring.ErrInvalid},
		{how: "in use", dir: busy, opts: badgerkeys.Options{LockWait: -1}, want: keyring.ErrBusy},
	} {
		dir := c.dir
		if dir == "" {
			dir = copyRing(t, s.dir)
		}
		if c.do != nil {
			if err := c.do(dir); err != nil {
				t.Fatal(err)
			}
		}
		before := files(t, dir)
		store, err := badgerkeys.OpenOrCreate(dir, &c.opts)
		if !errors.Is(err, c.want) || store != nil {
			t.Errorf("%s: %v; want %v", c.how, err, c.want)
		}
		if after := files(t, dir); !maps.Equal(before, after) {
			t.Errorf("%s: the directory has changed: %v, then %v", c.how, slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
		}
	}
	if runtime.GOOS != "windows" { // which has no such modes
		loose := copyRing(t, s.dir)
		if err := os.Chmod(loose, 0o755); err != nil { //nolint:gosec // too much is the point
			t.Fatal(err)
		}
		if _, err := badgerkeys.Open(loose, nil); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("a directory that others may enter: %v", err)
		}
	}

	// A keyring that is gone while the program runs sends nothing either.
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"inv-7", "new"} {
		if _, err := s.do(name, s.post("/v1/payments", pay)); !errors.Is(err, keyring.ErrClosed) {
			t.Errorf("%s with a closed keyring: %v", name, err)
		}
	}
	if _, err := client.New(nil, s.profile, nil).Do(t.Context(), named("new"), s.post("/v1/payments", pay)); !errors.Is(err, keyring.ErrInvalid) {
		t.Errorf("without a keyring: %v", err)
	}
	s.saw(seen{1, 1, 1, 1})
}

// TestP12: scopes do not see each other.
func TestP12AnotherScopeSeesNothing(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{})
	mine, theirs := keyring.Ref{Scope: "acct_1", Name: "inv-7"}, keyring.Ref{Scope: "acct_2", Name: "inv-7"}
	res, err := s.client.Do(t.Context(), mine, s.post("/v1/payments", pay))
	first := s.must(keyring.StateDone, res, err)
	for _, ref := range []keyring.Ref{theirs, named("inv-7"), {Scope: "acct", Name: "_1inv-7"}} {
		if res, err := s.client.Send(t.Context(), ref); !errors.Is(err, keyring.ErrNotFound) || res != nil {
			t.Errorf("%s finds %+v, %v", ref, res, err)
		}
	}
	res, err = s.client.Do(t.Context(), theirs, s.post("/v1/payments", pay))
	second := s.must(keyring.StateDone, res, err)
	if first.Intent.Key == second.Intent.Key || first.Outcome.Verdict.EffectID == second.Outcome.Verdict.EffectID {
		t.Errorf("two scopes share key %s or effect %s", first.Intent.Key, first.Outcome.Verdict.EffectID)
	}
	s.saw(seen{2, 2, 2, 1})
	for _, scope := range []string{"acct_1", "acct_2", "", "acct"} {
		for in, err := range s.client.Ring().List(t.Context(), keyring.Query{Scope: scope}) {
			if err != nil || in.Ref.Scope != scope {
				t.Errorf("the list of %q has %s, %v", scope, in.Ref, err)
			}
		}
	}
}

// TestP12: the access check comes before each sending and each answer, and a
// refusal tells nothing.
func TestP12AccessIsAskedFirst(t *testing.T) {
	t.Parallel()
	type user struct{}
	denied := errors.New("not yours")
	var mu sync.Mutex
	var events []string
	note := func(event string) {
		mu.Lock()
		defer mu.Unlock()
		events = append(events, event)
	}
	s := tell(t, &clienttest.Options{Fault: func(clienttest.Seen) clienttest.Fault {
		note("hit")
		return clienttest.Normal()
	}}, client.Options{Access: func(ctx context.Context, in keyring.Intent) error {
		note("asked")
		if ctx.Value(user{}) != "owner" {
			return denied
		}
		return nil
	}})
	owner := context.WithValue(t.Context(), user{}, "owner")
	shut := func(when string) {
		t.Helper()
		hits := s.srv.Hits()
		_, derr := s.do("inv-7", s.post("/v1/payments", pay))
		_, serr := s.send("inv-7")
		in, berr := s.client.Begin(t.Context(), named("inv-7"), s.post("/v1/payments", pay))
		for _, err := range []error{derr, serr, berr} {
			var e *client.Error
			if !errors.Is(err, denied) || !errors.As(err, &e) || !e.Key.IsZero() || e.Outcome != (keyring.Outcome{}) {
				t.Errorf("%s, a stranger is told %v, %+v", when, err, client.OutcomeOf(err))
			}
		}
		if res, err := s.do("inv-7", s.post("/v1/payments", pay)); res != nil || !in.Key.IsZero() || err == nil {
			t.Errorf("%s, a stranger is given %+v and %+v", when, res, in)
		}
		if s.srv.Hits() != hits {
			t.Errorf("%s, a stranger has something sent", when)
		}
	}
	shut("before there is anything")
	s.srv.Script(clienttest.LoseAnswer())
	if _, err := s.client.Do(owner, named("inv-7"), s.post("/v1/payments", pay)); !errors.Is(err, client.ErrUnknown) {
		t.Fatal(err)
	}
	shut("in doubt")
	res, err := s.client.Do(owner, named("inv-7"), s.post("/v1/payments", pay))
	s.must(keyring.StateDone, res, err)
	events = nil
	shut("when it is done")
	if len(events) == 0 || slices.Contains(events, "hit") {
		t.Errorf("for an answer from the record there was %v", events)
	}
	events = nil
	res, err = s.client.Do(owner, named("inv-8"), s.post("/v1/payments", strings.ReplaceAll(pay, "7", "8")))
	s.must(keyring.StateDone, res, err)
	if len(events) < 2 || events[0] != "asked" || slices.Index(events, "hit") < 1 {
		t.Errorf("for a sending there was %v; want the question first", events)
	}
}
