package samekey_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

// A program charges a customer. Somebody presses the button again.
func Example() {
	box := clienttest.NewServer(nil) // stands for the provider
	defer box.Close()
	url, err := box.Listen()
	if err != nil {
		panic(err)
	}
	dir, err := os.MkdirTemp("", "samekey")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) // a leftover in the temporary directory harms nobody
	ctx := context.Background()

	store, err := badgerkeys.OpenOrCreate(filepath.Join(dir, "keyring"), nil)
	if err != nil {
		panic(err)
	}
	defer store.Close()
	c := client.New(store, provider.Draft(24*time.Hour, "POST /v1/charges"), nil)
	defer c.Close(ctx)

	for range 2 {
		body := strings.NewReader(`{"amount":1250,"currency":"EUR"}`)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/charges", body)
		if err != nil {
			panic(err)
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := c.Do(ctx, keyring.Ref{Name: "order-8123/charge"}, req)
		switch {
		case err == nil:
			fmt.Printf("charged: %s, says the %s\n", res.Outcome.Verdict.EffectID, res.Outcome.Source)
		case errors.Is(err, client.ErrRefused):
			fmt.Println("not charged:", err)
		default: // it may have been charged; the same call finds out
			fmt.Println(client.OutcomeOf(err).Next)
		}
	}
	fmt.Println("requests:", box.Hits(), "charges:", box.Effects())
	// Output:
	// charged: eff_1, says the provider
	// charged: eff_1, says the record
	// requests: 1 charges: 1
}

// TestP1: whatever goes wrong with the first attempt, the key stays, through
// other clients and the next start of the program.
func TestP1OneKeyWhateverGoesWrong(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{})
	faults := []struct {
		fault clienttest.Fault
		ends  keyring.State // after the next start
	}{
		{clienttest.LoseAnswer(), keyring.StateDone},
		{clienttest.LoseRequest(), keyring.StateDone},
		{clienttest.CutAnswer(3), keyring.StateDone},
		{clienttest.Pending(409), keyring.StateDone},
		{clienttest.Answer(500, clienttest.JSON(), []byte(`{}`)), keyring.StateDone},
		{clienttest.ActThenAnswer(504, nil, []byte(`<html>`)), keyring.StateDone},
		{clienttest.Answer(429, clienttest.JSON(), []byte(`{}`)), keyring.StateDone},
		{clienttest.Answer(401, clienttest.JSON(), []byte(`{}`)), keyring.StateDone},
		{clienttest.Answer(200, nil, []byte("<html>")), keyring.StateDone},
		{clienttest.Answer(400, nil, []byte("<html>")), keyring.StateDone},
		{clienttest.Pending(202), keyring.StatePending},
		{clienttest.Conflict(), keyring.StateConflict},
		{clienttest.Redirect(303, "/elsewhere"), keyring.StateUnknown},
		{clienttest.Decide(402, clienttest.JSON(), []byte(`{"code":"card_declined"}`)), keyring.StateRefused},
	}
	keys := map[string]keyring.Key{}
	path := func(i int) string { return fmt.Sprint("/v1/payments/", i) }
	for i, f := range faults {
		s.srv.On(path(i), f.fault)
		_, _ = s.do(path(i), s.post(path(i), pay)) // whatever it says
		keys[path(i)] = s.get(named(path(i))).Key
	}
	again := func(c *client.Client) {
		for i, f := range faults {
			res, err := c.Do(t.Context(), named(path(i)), s.post(path(i), pay))
			if errors.Is(err, keyring.ErrTooSoon) {
				time.Sleep(time.Until(res.Outcome.NotBefore))
				res, err = c.Do(t.Context(), named(path(i)), s.post(path(i), pay))
			}
			s.must(f.ends, res, err)
			if got := s.srv.Keys(path(i)); len(got) != 1 || got[0] != keys[path(i)].String() || res.Intent.Key != keys[path(i)] {
				t.Errorf("%s: begun with key %s, sent with %v, now %s", f.fault, keys[path(i)], got, res.Intent.Key)
			}
			if n := s.srv.Effects(path(i)); n > 1 || f.ends == keyring.StateDone && n != 1 {
				t.Errorf("%s: %d effects", f.fault, n)
			}
		}
	}
	s.restart()
	again(s.client)
	again(s.another(nil))
}

// TestP1 where nothing leaves the machine at first.
func TestP1AConnectionThatIsNeverMadeKeepsTheKey(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{})
	s.srv.Script(clienttest.RefuseConnection())
	c := s.another(func(o *client.Options) { o.Transport = s.srv.RoundTripper() })
	res, err := c.Do(t.Context(), named("inv-7"), s.post("/v1/payments", pay))
	key := s.must(keyring.StateNeverSent, res, err).Intent.Key
	s.saw(seen{})
	s.restart()
	time.Sleep(time.Until(res.Outcome.NotBefore))
	res, err = s.do("inv-7", s.post("/v1/payments", pay))
	s.must(keyring.StateDone, res, err)
	if got := s.srv.Keys(); len(got) != 1 || got[0] != key.String() {
		t.Errorf("begun with key %s, sent with %v", key, got)
	}
}

// TestP1 across processes: the first one is killed while the provider works.
func TestP1AnotherProcessGoesOnWithTheKey(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{})
	s.close()
	s.srv.Script(clienttest.StallAfter())
	e := errand{Dir: s.dir, URL: s.url + "/v1/payments", Prefix: "inv", Todo: []int{7}, From: 7, To: 7, Workers: 1}
	first := e.start(t)
	if err := s.srv.WaitHits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	first.kill()
	if err := first.end(); err == nil {
		t.Fatal("the first process was not killed")
	}
	s.srv.Release()
	var told []string
	for range 2 {
		next := e.start(t)
		if err := next.end(); err != nil {
			t.Fatal(err)
		}
		told = append(told, next.done[7])
	}
	if wire := s.srv.Keys(); len(wire) != 1 || told[0] != wire[0] || told[1] != wire[0] || s.srv.Effects() != 1 {
		t.Errorf("the processes had keys %q, the wire had %q: %s", told, wire, s.srv)
	}
	if n := s.srv.Hits(); n < 2 {
		t.Errorf("%d hits: the first process had no part in it", n)
	}
}

// TestP2: the same bytes on every attempt, whatever the caller does to the
// request meanwhile, and after the next start.
func TestP2EveryAttemptSendsTheSameBytes(t *testing.T) {
	t.Parallel()
	large := strings.Repeat("0123456789abcdef", 12<<10) // beyond what the database itself holds
	for _, body := range []string{pay, "", large, "\x00\xff not text"} {
		s := tell(t, nil, client.Options{Retry: quick(2), Authorize: func(_ context.Context, req *http.Request) error {
			req.Header.Set("Authorization", fmt.Sprintf("Bearer t-%d", time.Now().UnixNano()))
			if req.Body != nil {
				req.Body = http.NoBody // a copy
			}
			return nil
		}})
		s.srv.Script(unavailable(), clienttest.LoseAnswer(), clienttest.LoseRequest())
		raw := []byte(body)
		req := s.post("/v1/pay%20ments/%C3%A9?b=2&a=1&a=3&empty=", "")
		req.Body, req.ContentLength = noCloser{bytes.NewReader(raw)}, int64(len(raw))
		req.Header["X-Account"] = []string{"acct_9", "acct_10"}
		req.Header.Set("Content-Type", "application/x-unheard-of; q=1")
		_, _ = s.do("inv-7", req) // two attempts, both in doubt

		clear(raw)
		req.Header["X-Account"][0] = "acct_1"
		req.Header.Set("X-More", "1")
		req.URL.Path = "/v1/elsewhere"
		s.restart()
		for range 20 {
			res, err := s.send("inv-7")
			if err == nil {
				break
			}
			if res == nil {
				t.Fatal(err)
			}
			time.Sleep(time.Until(res.Outcome.NotBefore))
		}
		if got := s.get(named("inv-7")); got.State != keyring.StateDone {
			t.Fatalf("it ended as %s: %s", got.State, s.srv)
		}
		requests, auth := s.srv.Requests(), map[string]bool{}
		if len(requests) != 4 {
			t.Errorf("%d attempts, want 4", len(requests))
		}
		for _, r := range requests {
			auth[r.Header.Get("Authorization")] = true
			r.Header.Del("Authorization")
			first := requests[0]
			if r.BodyDigest != digestOf(body) || r.Length != int64(len(body)) || r.Chunked {
				t.Errorf("attempt %d sent %d bytes with digest %s", r.N, r.Length, r.BodyDigest)
			}
			if r.Method != "POST" || r.Path != "/v1/pay ments/é" || r.Query != "b=2&a=1&a=3&empty=" {
				t.Errorf("attempt %d went to %s %s?%s", r.N, r.Method, r.Path, r.Query)
			}
			if !reflect.DeepEqual(r.Header, first.Header) || r.Header.Get("X-More") != "" || r.Header.Get("X-Account") != "acct_9" {
				t.Errorf("attempt %d sent the headers %v, the first one %v", r.N, r.Header, first.Header)
			}
		}
		if len(auth) != len(requests) {
			t.Errorf("%d credentials in %d attempts: each one asks for its own", len(auth), len(requests))
		}
	}
}

type noCloser struct{ *bytes.Reader }

func (noCloser) Close() error { return nil }

// TestP2: Authorize adds, and a request that it changes otherwise stays here.
func TestP2AuthorizeOnlyAdds(t *testing.T) {
	t.Parallel()
	var change func(*http.Request)
	s := tell(t, nil, client.Options{Authorize: func(_ context.Context, req *http.Request) error {
		change(req)
		return nil
	}})
	for name, f := range map[string]func(*http.Request){
		"method":        func(r *http.Request) { r.Method = http.MethodPut },
		"path":          func(r *http.Request) { r.URL.Path += "/x" },
		"host":          func(r *http.Request) { r.URL.Host = "127.0.0.2:1" },
		"parameter":     func(r *http.Request) { r.URL.RawQuery = strings.Replace(r.URL.RawQuery, "1", "2", 1) },
		"header":        func(r *http.Request) { r.Header.Set("Content-Type", "text/plain") },
		"header's loss": func(r *http.Request) { r.Header.Del("Content-Type") },
		"key":           func(r *http.Request) { r.Header.Set("Idempotency-Key", "another") },
	} {
		change = f
		res, err := s.do(name, s.post("/v1/payments?a=1", pay))
		if !errors.Is(err, keyring.ErrInvalid) || res == nil || res.Outcome.State != keyring.StateNeverSent {
			t.Errorf("changing the %s: %v", name, err)
		}
	}
	s.saw(seen{})
	change = func(r *http.Request) { r.URL.RawQuery += "&api_key=x"; r.Header.Set("X-Api-Key", "y") }
	res, err := s.do("header", s.post("/v1/payments?a=1", pay))
	s.must(keyring.StateDone, res, err)
	if r := s.srv.Requests()[0]; r.Query != "a=1&api_key=x" || r.Header.Get("X-Api-Key") != "y" {
		t.Errorf("what was added did not go out: %s, %v", r.Query, r.Header)
	}
}
