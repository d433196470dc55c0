package clienttest_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/samekey/samekey/client/clienttest"
)

const pay = `{"amount":1250,"currency":"EUR","ref":"inv-7"}`

// way is one way to reach a server.
type way struct {
	name  string
	reach func(t *testing.T, s *clienttest.Server) (url string, rt http.RoundTripper)
}

var ways = []way{
	{"memory", func(_ *testing.T, s *clienttest.Server) (string, http.RoundTripper) {
		return "http://provider.test", s.RoundTripper()
	}},
	{"HTTP/1.1", func(t *testing.T, s *clienttest.Server) (string, http.RoundTripper) {
		url, err := s.Listen()
		if err != nil {
			t.Fatal(err)
		}
		tr := &http.Transport{}
		t.Cleanup(tr.CloseIdleConnections)
		return url, tr
	}},
	{"HTTP/2", func(t *testing.T, s *clienttest.Server) (string, http.RoundTripper) {
		url, tr, err := s.ListenTLS()
		if err != nil {
			t.Fatal(err)
		}
		return url, tr
	}},
}

// onAll runs a test on a fresh server by each way.
func onAll(t *testing.T, opts *clienttest.Options, test func(t *testing.T, s *clienttest.Server, c *caller)) {
	for _, w := range ways {
		t.Run(w.name, func(t *testing.T) {
			s := clienttest.NewServer(opts)
			t.Cleanup(func() { s.Close() })
			url, rt := w.reach(t, s)
			test(t, s, &caller{t: t, url: url, rt: rt, proto: w.name})
		})
	}
}

type caller struct {
	t     *testing.T
	url   string
	rt    http.RoundTripper
	proto string
}

type got struct {
	status int
	header http.Header
	body   string
	err    error // of the exchange
	cut    error // of reading the body
}

func (c *caller) do(ctx context.Context, method, path, key, body string) got {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, strings.NewReader(body))
	if err != nil {
		return got{err: err}
	}
	req.GetBody = nil // else net/http itself sends a request with a key again
	if key != "" {
		req.Header.Set("Idempotency-Key", key)
	}
	res, err := c.rt.RoundTrip(req)
	if err != nil {
		return got{err: err}
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return got{status: res.StatusCode, header: res.Header, body: string(b), cut: err}
}

func (c *caller) post(key, body string) got {
	return c.do(c.t.Context(), "POST", "/pay", key, body)
}

func (c *caller) want(g got, status int, body string) {
	c.t.Helper()
	if g.err != nil || g.cut != nil {
		c.t.Fatalf("got errors %v, %v; want status %d", g.err, g.cut, status)
	}
	if g.status != status || g.body != body {
		c.t.Fatalf("got %d %s; want %d %s", g.status, g.body, status, body)
	}
}

func counts(t *testing.T, s *clienttest.Server, hits, effects, keys, bodies int) {
	t.Helper()
	if s.Hits() != hits || s.Effects() != effects || len(s.Keys()) != keys || len(s.Bodies()) != bodies {
		t.Fatalf("got %s\nwant hits=%d effects=%d keys=%d bodies=%d", s, hits, effects, keys, bodies)
	}
}

const first = `{"id":"eff_1","path":"/pay"}`

func TestAKeySeenBeforeGetsTheStoredAnswer(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		a := c.post("k1", pay)
		c.want(a, 201, first)
		if a.header.Get("Idempotent-Replayed") != "" || a.header.Get("Request-Id") != "req_1" {
			t.Errorf("first answer has header %v", a.header)
		}
		b := c.post(`"k1"`, pay) // the quoted form is the same key
		c.want(b, 201, first)
		if b.header.Get("Idempotent-Replayed") != "true" || b.header.Get("Request-Id") != "req_2" {
			t.Errorf("second answer has header %v", b.header)
		}
		c.want(c.post("k1", "other"), 422, `{"code":"key_reused"}`)
		c.want(c.do(t.Context(), "POST", "/elsewhere", "k1", pay), 422, `{"code":"key_reused"}`)
		c.want(c.post("k2", pay), 201, `{"id":"eff_2","path":"/pay"}`)
		counts(t, s, 5, 2, 2, 2)
		if s.Hits("/pay") != 4 || s.Hits("/elsewhere") != 1 || s.Effects("/elsewhere") != 0 {
			t.Errorf("counts by path are wrong: %s", s)
		}
		if last := s.Requests("/pay")[1]; last.KeyHit != 2 || last.Key != "k1" || last.Body != nil || last.Length != int64(len(pay)) {
			t.Errorf("second hit is %+v", last)
		}
	})
}

func TestWithoutDeduplicationEachHitActs(t *testing.T) {
	onAll(t, &clienttest.Options{NoDedup: true}, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Dedup("/safe", true)
		for range 2 {
			c.post("k1", pay)
			c.do(t.Context(), "POST", "/safe", "k2", pay)
		}
		if s.Effects("/pay") != 2 || s.Effects("/safe") != 1 {
			t.Errorf("got %s", s)
		}
		c.do(t.Context(), "GET", "/pay", "", "")
		if s.Effects("/pay") != 2 || s.Hits("/pay") != 3 {
			t.Errorf("a GET has an effect: %s", s)
		}
	})
}

func TestOneEffectHoweverManyArriveAtOnce(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Script(clienttest.StallBefore())
		var wg sync.WaitGroup
		results := make(chan int, 20)
		wg.Go(func() { results <- c.post("k1", pay).status })
		if err := s.WaitHits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for range 19 {
			wg.Go(func() { results <- c.post("k1", pay).status })
		}
		if err := s.WaitHits(t.Context(), 20); err != nil {
			t.Fatal(err)
		}
		s.Release()
		wg.Wait()
		close(results)
		by := map[int]int{}
		for status := range results {
			by[status]++
		}
		// A late one may find the answer stored.
		if by[201] < 1 || by[201]+by[409] != 20 {
			t.Errorf("got statuses %v", by)
		}
		counts(t, s, 20, 1, 1, 1)
	})
}

func TestLostRequestsHaveNoEffectAndLostAnswersHave(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Script(clienttest.LoseRequest(), clienttest.LoseAnswer())
		if g := c.post("k1", pay); g.err == nil {
			t.Fatalf("got %+v; want an error", g)
		}
		counts(t, s, 1, 0, 1, 1)
		if g := c.post("k1", pay); g.err == nil {
			t.Fatalf("got %+v; want an error", g)
		}
		counts(t, s, 2, 1, 1, 1)
		c.want(c.post("k1", pay), 201, first)
		counts(t, s, 3, 1, 1, 1)
	})
}

func TestCutAnswersSayHowLongTheyWouldHaveBeen(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Script(clienttest.CutAnswer(13))
		g := c.post("k1", pay)
		if g.status != 201 || g.body != first[:13] || g.cut == nil {
			t.Fatalf("got %+v", g)
		}
		if g.header.Get("Content-Length") != "28" {
			t.Errorf("Content-Length is %q", g.header.Get("Content-Length"))
		}
		if c.proto != "HTTP/2" && !errors.Is(g.cut, io.ErrUnexpectedEOF) {
			t.Errorf("reading ended with %v", g.cut)
		}
		c.want(c.post("k1", pay), 201, first)
		counts(t, s, 2, 1, 1, 1)
	})
}

func TestStallsEndByReleaseOrWithTheClient(t *testing.T) {
	cases := []struct {
		fault   clienttest.Fault
		effects int // after the client left
	}{
		{clienttest.StallBefore(), 0},
		{clienttest.StallAfter(), 1},
	}
	for _, tc := range cases {
		t.Run(tc.fault.String(), func(t *testing.T) {
			onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
				s.Script(tc.fault, tc.fault)
				ctx, leave := context.WithCancel(t.Context())
				left := make(chan got, 1)
				go func() { left <- c.do(ctx, "POST", "/pay", "k1", pay) }()
				if err := s.WaitHits(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				leave()
				if g := <-left; !errors.Is(g.err, context.Canceled) {
					t.Fatalf("got %+v", g)
				}

				stayed := make(chan got, 1)
				go func() { stayed <- c.do(t.Context(), "POST", "/pay", "k2", pay) }()
				if err := s.WaitHits(t.Context(), 2); err != nil {
					t.Fatal(err)
				}
				s.Release()
				if g := <-stayed; g.status != 201 {
					t.Fatalf("got %+v", g)
				}
				s.Close() // what the first hit did is over now
				if got := s.Effects(); got != tc.effects+1 {
					t.Errorf("effects=%d, want %d", got, tc.effects+1)
				}
			})
		})
	}
}

func TestAStalledBodyGoesOnAfterRelease(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Script(clienttest.StallBody(5), clienttest.StallBody(5))
		g := make(chan got, 1)
		go func() { g <- c.post("k1", pay) }()
		if err := s.WaitHits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		s.Release()
		c.want(<-g, 201, first)

		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, "POST", c.url+"/pay", strings.NewReader(pay))
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.rt.RoundTrip(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		part := make([]byte, 5)
		if _, err := io.ReadFull(res.Body, part); err != nil {
			t.Fatal(err)
		}
		cancel()
		if _, err := res.Body.Read(part); !errors.Is(err, context.Canceled) {
			t.Errorf("reading on ended with %v", err)
		}
	})
}

func TestScriptedAnswersLeaveTheKeyAlone(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Script(
			clienttest.Answer(503, nil, nil),
			clienttest.Pending(409),
			clienttest.Conflict(),
			clienttest.Redirect(303, "/pay/"),
		)
		c.want(c.post("k1", pay), 503, "")
		c.want(c.post("k1", pay), 409, `{"code":"in_progress"}`)
		c.want(c.post("k1", pay), 422, `{"code":"key_reused"}`)
		g := c.post("k1", pay)
		if g.status != 303 || g.header.Get("Location") != "/pay/" {
			t.Errorf("got %+v", g)
		}
		counts(t, s, 4, 0, 1, 1)
		c.want(c.post("k1", pay), 201, first)
	})
}

func TestAGatewayAnswersForAnEffectThatExists(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Script(clienttest.ActThenAnswer(504, nil, []byte("gateway")))
		c.want(c.post("k1", pay), 504, "gateway")
		counts(t, s, 1, 1, 1, 1)
		c.want(c.post("k1", pay), 201, first)
	})
}

func TestRefusalsAreKeptUnlessForgotten(t *testing.T) {
	for _, forget := range []bool{false, true} {
		onAll(t, &clienttest.Options{ForgetRefusals: forget}, func(t *testing.T, s *clienttest.Server, c *caller) {
			s.Script(clienttest.Decide(402, clienttest.JSON(), []byte(`{"code":"declined"}`)))
			c.want(c.post("k1", pay), 402, `{"code":"declined"}`)
			if s.Effects() != 0 {
				t.Errorf("a refusal has an effect")
			}
			if g := c.post("k1", pay); (g.status == 201) != forget {
				t.Errorf("forget=%v: the second answer is %d", forget, g.status)
			}
		})
	}
}

func TestKeysAreForgottenByTheServersClock(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	opts := &clienttest.Options{Retention: 24 * time.Hour, Now: func() time.Time { return start }}
	onAll(t, opts, func(t *testing.T, s *clienttest.Server, c *caller) {
		c.post("k1", pay)
		s.Advance(24*time.Hour - 1)
		c.post("k1", pay)
		counts(t, s, 2, 1, 1, 1)
		s.Advance(1)
		c.post("k1", pay)
		counts(t, s, 3, 2, 1, 1)
		if at := s.Requests()[2].At; !at.Equal(start.Add(24 * time.Hour)) {
			t.Errorf("third hit was at %v", at)
		}
		s.Forget("k2") // never known: harmless
		s.Forget("k1")
		c.post("k1", pay)
		s.ForgetAll()
		c.post("k1", pay)
		counts(t, s, 5, 4, 1, 1)
	})
}

func TestAKeyThatIsStoredLateActsAgainBefore(t *testing.T) {
	start := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	opts := &clienttest.Options{StoreLag: 3 * time.Second, Now: func() time.Time { return start }}
	onAll(t, opts, func(t *testing.T, s *clienttest.Server, c *caller) {
		c.post("k1", pay)
		s.Advance(2 * time.Second)
		c.post("k1", pay)
		counts(t, s, 2, 2, 1, 1)
		s.Advance(time.Second)
		c.want(c.post("k1", pay), 201, first)
		counts(t, s, 3, 2, 1, 1)
	})
}

func TestScriptsByPathGoBeforeTheCommonOneAndForeverStays(t *testing.T) {
	opts := &clienttest.Options{Fault: func(r clienttest.Seen) clienttest.Fault {
		if string(r.Body) == "fail" {
			return clienttest.Answer(500, nil, nil)
		}
		return clienttest.Normal()
	}}
	onAll(t, opts, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Script(clienttest.Answer(501, nil, nil))
		s.On("/pay", clienttest.Answer(502, nil, nil), clienttest.Answer(503, nil, nil).Forever(), clienttest.Normal())
		var statuses []int
		for range 3 {
			statuses = append(statuses, c.post("k1", pay).status)
		}
		statuses = append(statuses, c.do(t.Context(), "POST", "/x", "", "fail").status)
		s.Unscript()
		statuses = append(statuses, c.post("k2", "fail").status, c.post("k3", pay).status)
		want := []int{502, 503, 503, 501, 500, 201}
		for i := range want {
			if statuses[i] != want[i] {
				t.Fatalf("got %v, want %v", statuses, want)
			}
		}
	})
}

func TestAnUnreadBodyIsAnsweredAllTheSame(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		s.Script(clienttest.Answer(503, nil, nil).Unread())
		big := strings.Repeat("x", 4<<20)
		if g := c.post("k1", big); g.status != 503 {
			t.Fatalf("got %+v", g)
		}
		if r := s.Requests()[0]; r.BodyDigest != "" {
			t.Errorf("the body was read: %s", s)
		}
		c.want(c.post("k1", big), 201, first)
	})
}

func TestTheOperationCanBeOnesOwn(t *testing.T) {
	opts := &clienttest.Options{
		KeyHeader: "X-Request",
		Act: func(r clienttest.Seen) (int, http.Header, []byte) {
			return 202, http.Header{"Request-Id": {"mine"}}, bytes.ToUpper(r.Body)
		},
	}
	onAll(t, opts, func(t *testing.T, s *clienttest.Server, c *caller) {
		g := c.post("not the key", "abc")
		c.want(g, 202, "ABC")
		if g.header.Get("Request-Id") != "mine" || len(s.Keys()) != 0 {
			t.Errorf("got %+v; %s", g, s)
		}
	})
}

func TestWaitHitsEndsWithItsContext(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.WaitHits(ctx, 1); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestAClosedServerAnswersNothing(t *testing.T) {
	onAll(t, nil, func(t *testing.T, s *clienttest.Server, c *caller) {
		c.post("k1", pay)
		s.Close()
		s.Close()
		if g := c.post("k1", pay); g.err == nil {
			t.Errorf("got %+v", g)
		}
		if _, err := s.Listen(); err == nil {
			t.Errorf("a closed server listens")
		}
		if s.Hits() != 1 {
			t.Errorf("got %s", s)
		}
	})
}

func TestConnectionsAreCounted(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	url, rt := ways[1].reach(t, s)
	c := &caller{t: t, url: url, rt: rt}
	for range 5 {
		c.post("", pay)
	}
	if _, most := s.Connections(); most != 1 {
		t.Errorf("five requests in sequence took %d connections", most)
	}
}
