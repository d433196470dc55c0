package samekey_test

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

// killRounds is how often a process is killed while it charges.
const killRounds = 200

// TestP1NothingTakesEffectTwiceThroughKills kills a charging process at a
// random moment, 200 times, lets the next one go on where it was, and counts at
// the provider. It includes C57 from end to end: each keyring that a killed
// process left opens without help, and what it acknowledged is there.
func TestP1NothingTakesEffectTwiceThroughKills(t *testing.T) {
	t.Parallel()
	const seed = 20261130
	t.Logf("seed %d", seed)
	srv := clienttest.NewServer(&clienttest.Options{Fault: func(s clienttest.Seen) clienttest.Fault {
		rng := rand.New(rand.NewPCG(seed, uint64(s.N))) //nolint:gosec // weak on purpose: it repeats
		f := clienttest.Normal()
		if s.KeyHit == 1 && rng.IntN(10) == 0 {
			f = clienttest.LoseAnswer()
		}
		late := time.Duration(rng.IntN(3000)) * time.Microsecond
		if rng.IntN(2) == 0 {
			return f.Work(late)
		}
		return f.Wait(late)
	}})
	defer srv.Close()
	url, err := srv.Listen()
	if err != nil {
		t.Fatal(err)
	}
	e := errand{Dir: t.TempDir(), URL: url + "/v1/charges", Prefix: "order", Workers: 4}
	store, err := badgerkeys.OpenOrCreate(e.Dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}

	rng := rand.New(rand.NewPCG(seed, 0)) //nolint:gosec // weak on purpose: it repeats
	open := map[int]bool{}                // begun, and not known to be done
	keys := map[int]string{}              // of those that are
	interrupted := 0
	for round := range killRounds {
		e.Todo = slices.Sorted(maps.Keys(open))
		c := e.start(t)
		timer := time.AfterFunc(time.Duration(rng.IntN(60_001))*time.Microsecond, c.kill)
		err := c.end()
		timer.Stop()
		if err == nil || t.Failed() {
			t.Fatalf("round %d: the child ended by itself: %v", round, err)
		}
		for _, n := range c.begun {
			open[n] = true
			e.From = max(e.From, n+1)
		}
		e.Check = nil
		for n, key := range c.done {
			delete(open, n)
			keys[n] = key
			e.Check = append(e.Check, n)
		}
		if len(open) > 0 {
			interrupted++
		}
	}

	// The last one to go on is not killed.
	if store, err = badgerkeys.Open(e.Dir, nil); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c := client.New(store, box(boxTerms), &client.Options{Retry: quick(20)})
	defer c.Close(t.Context())
	for in, err := range c.Ring().List(t.Context(), keyring.Query{AllScopes: true, OpenOnly: true}) {
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(slices.Collect(maps.Keys(open)), func(n int) bool { return e.name(n) == in.Ref.Name }) {
			t.Errorf("%s is open, and nobody said so", in.Ref)
		}
	}
	for n := range open {
		key, err := e.charge(c, n)
		if err != nil {
			t.Fatal(err)
		}
		keys[n] = key.String()
	}

	if interrupted < killRounds/10 || srv.Hits() == srv.Effects() || len(keys) < killRounds {
		t.Errorf("%d of %d kills interrupted anything, %d intents, %s: this has tried nothing", interrupted, killRounds, len(keys), srv)
	}
	keyOf, bodyOf := map[string]string{}, map[string]string{} // by body, by key
	for _, s := range srv.Requests() {
		if k, ok := keyOf[s.BodyDigest]; ok && k != s.Key {
			t.Fatalf("one intent went out under the keys %s and %s", k, s.Key)
		}
		if b, ok := bodyOf[s.Key]; ok && b != s.BodyDigest {
			t.Fatalf("key %s went out with two bodies", s.Key)
		}
		keyOf[s.BodyDigest], bodyOf[s.Key] = s.Key, s.BodyDigest
	}
	if got := srv.Effects(); got != len(keys) || len(keyOf) != len(keys) || len(bodyOf) != len(keys) {
		t.Errorf("%d intents: %d effects, %d bodies, %d keys", len(keys), got, len(keyOf), len(bodyOf))
	}
	for n := range keys { // a child that was killed between two steps can leave a number out
		in, err := c.Ring().Get(t.Context(), named(e.name(n)))
		if err != nil {
			t.Fatal(err)
		}
		if wire := keyOf[digestOf(e.body(n))]; in.State != keyring.StateDone || in.Key.String() != keys[n] || keys[n] != wire || string(in.Request.Body) != e.body(n) {
			t.Fatalf("%s is %s under key %s; told was %s, on the wire was %s", in.Ref, in.State, in.Key, keys[n], wire)
		}
	}
	t.Logf("%d intents, %d of %d kills left some open, %d requests", len(keys), interrupted, killRounds, srv.Hits())
}
