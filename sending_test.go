package samekey_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

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
		if location := res.Answer.Header.Get("Location"); location != "/v1/pay/" {
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
