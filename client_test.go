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
	"sync"
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
	defer os.RemoveAll(dir)
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

// watched is a store that tells when a write begins and when it is durable.
type watched struct {
	*badgerkeys.Store
	mu     sync.Mutex
	events []string
	full   bool // the disk takes no more than
	room   int  // so many writes
}

func (w *watched) note(event string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, event)
}

// write notes the beginning of a write, and says whether it can be made.
func (w *watched) write(event string) error {
	w.note(event)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.full && w.room == 0 {
		return keyring.ErrNoSpace
	}
	w.room--
	return nil
}

func (w *watched) Create(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
	if err := w.write("create"); err != nil {
		return err
	}
	defer w.note("created")
	return w.Store.Create(ctx, rec, lim)
}

func (w *watched) Update(ctx context.Context, rec keyring.Record) error {
	if err := w.write("update"); err != nil {
		return err
	}
	defer w.note("updated")
	return w.Store.Update(ctx, rec)
}

// TestP3: two durable writes around one sending, in this order; and at the
// moment of each sending, what a killed process would leave has the attempt.
func TestP3RecordedBeforeSent(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{})
	w := &watched{Store: s.store}
	sends := 0
	send := roundTripper(func(req *http.Request) (*http.Response, error) {
		sends++
		w.note("send")
		left, err := badgerkeys.Open(copyRing(t, s.dir), nil)
		if err != nil {
			t.Errorf("sending %d: what is left cannot be opened: %v", sends, err)
			return nil, err
		}
		defer left.Close()
		in, err := keyring.New(left, nil).Get(req.Context(), named(req.URL.Path))
		if err != nil {
			t.Errorf("sending %d: %v", sends, err)
			return nil, err
		}
		if in.Key.IsZero() || in.Key.String() != req.Header.Get("Idempotency-Key") || string(in.Request.Body) != pay {
			t.Errorf("sending %d under key %s; on the disk is key %s", sends, req.Header.Get("Idempotency-Key"), in.Key)
		}
		if n := len(in.Attempts); n == 0 || !in.Attempts[n-1].End.IsZero() {
			t.Errorf("sending %d: the attempts on the disk are %+v", sends, in.Attempts)
		}
		return s.srv.RoundTripper().RoundTrip(req)
	})
	c := client.New(w, s.profile, &client.Options{Retry: quick(3), Transport: send})

	res, err := c.Do(t.Context(), named("/v1/a"), s.post("/v1/a", pay))
	s.must(keyring.StateDone, res, err)
	if got := strings.Join(w.events, " "); got != "create created send update updated" {
		t.Errorf("the order was %s; want one write before and one after", got)
	}

	w.events = nil
	s.srv.Script(clienttest.LoseAnswer(), unavailable())
	res, err = c.Do(t.Context(), named("/v1/b"), s.post("/v1/b", pay))
	s.must(keyring.StateDone, res, err)
	if n := len(res.Intent.Attempts); n != 3 {
		t.Errorf("%d attempts on record, want 3", n)
	}
	if got := strings.Join(w.events, " "); got != "create created"+strings.Repeat(" send update updated update updated", 2)+" send update updated" {
		t.Errorf("the order was %s", got)
	}

	// What cannot be recorded is not sent: the first attempt of a new intent and
	// of a known one, and the second of a call.
	if _, err := c.Begin(t.Context(), named("/v1/c"), s.post("/v1/c", pay)); err != nil {
		t.Fatal(err)
	}
	hits := s.srv.Hits()
	w.full, w.room = true, 0
	if _, err := c.Do(t.Context(), named("/v1/d"), s.post("/v1/d", pay)); !errors.Is(err, keyring.ErrNoSpace) {
		t.Errorf("a new intent on a full disk: %v", err)
	}
	if _, err := c.Send(t.Context(), named("/v1/c")); !errors.Is(err, keyring.ErrNoSpace) {
		t.Errorf("a known intent on a full disk: %v", err)
	}
	if got := s.srv.Hits(); got != hits {
		t.Errorf("%d requests were sent without a record", got-hits)
	}
	w.room = 2 // the start and the end of one attempt
	s.srv.Script(unavailable())
	if _, err := c.Do(t.Context(), named("/v1/e"), s.post("/v1/e", pay)); !errors.Is(err, keyring.ErrNoSpace) || !errors.Is(err, client.ErrUnknown) {
		t.Errorf("a disk that is full after the first attempt: %v", err)
	}
	s.saw(seen{1, 0, 1, 1}, "/v1/e")
}

// TestP5: one attempt is one request, and the attempts on record are the
// requests that arrived.
func TestP5OneAttemptIsOneRequest(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{Retry: quick(3)})
	res, err := s.do("warm", s.post("/v1/warm", pay)) // from here on there is a connection to reuse
	s.must(keyring.StateDone, res, err)
	for i, f := range []clienttest.Fault{
		clienttest.LoseAnswer(), clienttest.LoseRequest(), clienttest.LoseRequest().Unread(), unavailable(),
		clienttest.CutAnswer(2), clienttest.Answer(429, clienttest.JSON(), []byte(`{}`)), clienttest.Answer(408, nil, nil),
	} {
		for _, body := range []string{pay, ""} {
			path := fmt.Sprintf("/v1/%d-%d", i, len(body))
			s.srv.On(path, f, f)
			_, _ = s.do(path, s.post(path, body))
			in := s.get(named(path))
			if hits := s.srv.Hits(path); hits != len(in.Attempts) || hits == 0 {
				t.Errorf("%s: %d requests, %d attempts on record", f, hits, len(in.Attempts))
			}
		}
	}
}

// TestC23: a redirect that turns a POST into a GET.
func TestC23NoRedirectIsFollowed(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{Retry: quick(3)})
	for i, c := range []struct {
		fault   clienttest.Fault
		want    keyring.State
		effects int
	}{
		{clienttest.Redirect(301, "/v1/pay/"), keyring.StateUnknown, 0},
		{clienttest.Redirect(302, "/v1/pay/"), keyring.StateUnknown, 0},
		{clienttest.Redirect(303, "/v1/pay/"), keyring.StateUnknown, 0},
		{clienttest.ActThenAnswer(303, http.Header{"Location": {"/v1/pay/"}}, nil), keyring.StateUnknown, 1},
		{clienttest.Redirect(307, "/v1/pay/"), keyring.StateRefused, 0},
		{clienttest.Redirect(308, "/v1/pay/"), keyring.StateRefused, 0},
	} {
		path := fmt.Sprintf("/v1/pay%d", i)
		s.srv.On(path, c.fault)
		res, err := s.do(path, s.post(path, pay))
		s.must(c.want, res, err)
		if location := res.Response().Header.Get("Location"); location != "/v1/pay/" {
			t.Errorf("%s: the outcome has the location %q", c.fault, location)
		}
		if c.want == keyring.StateUnknown && !errors.Is(err, keyring.ErrNeedsInspection) {
			t.Errorf("%s: %v; want a look to be asked for", c.fault, err)
		}
		s.restart()
		res, err = s.send(path)
		s.must(c.want, res, err)
		s.saw(seen{1, c.effects, 1, 1}, path)
	}
	s.saw(seen{}, "/v1/pay/")
}

// TestP6: a crowd on one intent, through two clients, at a provider that would
// act for each request.
func TestP6OneSenderAndOneOutcomeForAll(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		fault clienttest.Fault
		want  keyring.State
	}{{clienttest.Normal(), keyring.StateDone}, {clienttest.LoseAnswer(), keyring.StateUnknown}} {
		s := tell(t, &clienttest.Options{NoDedup: true}, client.Options{Retry: quick(3)})
		s.srv.Script(c.fault.Work(20 * time.Millisecond))
		clients := []*client.Client{s.client, s.another(nil)}
		results := make([]*client.Result, 64)
		errs := make([]error, len(results))
		var wg sync.WaitGroup
		for i := range results {
			req := s.post("/plain/payments", pay)
			wg.Go(func() { results[i], errs[i] = clients[i%2].Do(t.Context(), named("inv-7"), req) })
		}
		wg.Wait()
		s.saw(seen{1, 1, 1, 1})
		for i, res := range results {
			s.must(c.want, res, errs[i])
			if res.Intent.Key != results[0].Intent.Key || res.Outcome.Verdict.EffectID != results[0].Outcome.Verdict.EffectID {
				t.Errorf("one was told %s %+v, another %s %+v", results[0].Intent.Key, results[0].Outcome, res.Intent.Key, res.Outcome)
			}
		}
	}
}

// TestP7: another request under a known ref, before, while and after the first
// one is sent.
func TestP7AnotherRequestIsRefused(t *testing.T) {
	t.Parallel()
	s := tell(t, nil, client.Options{})
	other := func() *http.Request {
		req := s.post("/v1/payments?dry_run=SECRET", `{"amount":"SECRET"}`)
		req.Header.Set("X-Account", "SECRET")
		return req
	}
	refused := func(when string, hits int) {
		t.Helper()
		_, err := s.do("inv-7", other())
		_, berr := s.client.Begin(t.Context(), named("inv-7"), other())
		for _, err := range []error{err, berr} {
			var e *keyring.Error
			if !errors.Is(err, keyring.ErrDiffers) || !errors.As(err, &e) {
				t.Errorf("%s: %v", when, err)
				continue
			}
			if want := []string{"body", "header X-Account", "query dry_run"}; !reflect.DeepEqual(e.Fields, want) {
				t.Errorf("%s: the differences are %q, want %q", when, e.Fields, want)
			}
			if strings.Contains(fmt.Sprintf("%v %+v", err, err), "SECRET") {
				t.Errorf("%s: the error quotes a value: %v", when, err)
			}
		}
		if got := s.srv.Hits(); got != hits {
			t.Errorf("%s: %d requests, want %d", when, got, hits)
		}
	}
	if _, err := s.client.Begin(t.Context(), named("inv-7"), s.post("/v1/payments", pay)); err != nil {
		t.Fatal(err)
	}
	refused("before it is sent", 0)
	s.srv.Script(clienttest.StallBefore())
	sent := make(chan error)
	req := s.post("/v1/payments", pay)
	go func() {
		_, err := s.do("inv-7", req)
		sent <- err
	}()
	if err := s.srv.WaitHits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	refused("while it is sent", 1)
	s.srv.Release()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	refused("after it was sent", 1)
	s.restart()
	refused("after a restart", 1)
	s.saw(seen{1, 1, 1, 1})
}
