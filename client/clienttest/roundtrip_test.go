package clienttest_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client/clienttest"
)

// traced records the hooks that are called, and may do something in GotConn.
func traced(ctx context.Context, gotConn func(httptrace.GotConnInfo)) (context.Context, *[]string) {
	var calls []string
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GetConn: func(hostPort string) { calls = append(calls, "get "+hostPort) },
		GotConn: func(info httptrace.GotConnInfo) {
			calls = append(calls, "got "+info.Conn.RemoteAddr().String())
			if gotConn != nil {
				gotConn(info)
			}
		},
		WroteHeaders:         func() { calls = append(calls, "headers") },
		WroteRequest:         func(httptrace.WroteRequestInfo) { calls = append(calls, "request") },
		GotFirstResponseByte: func() { calls = append(calls, "answer") },
	}), &calls
}

func TestHooksTellWhetherAnythingLeft(t *testing.T) {
	cases := []struct {
		name    string
		fault   clienttest.Fault
		gotConn func(cancel func()) func(httptrace.GotConnInfo)
		calls   []string
		hits    int
		err     error
	}{
		{
			name:  "refused",
			fault: clienttest.RefuseConnection(),
			calls: []string{"get provider.test:80"},
			err:   syscall.ECONNREFUSED,
		},
		{
			name:  "normal",
			fault: clienttest.Normal(),
			calls: []string{"get provider.test:80", "got provider.test:80", "headers", "request", "answer"},
			hits:  1,
		},
		{
			name: "connection closed in the hook",
			gotConn: func(func()) func(httptrace.GotConnInfo) {
				return func(info httptrace.GotConnInfo) { info.Conn.Close() }
			},
			calls: []string{"get provider.test:80", "got provider.test:80"},
			err:   net.ErrClosed,
		},
		{
			name: "context ended in the hook",
			gotConn: func(cancel func()) func(httptrace.GotConnInfo) {
				return func(httptrace.GotConnInfo) { cancel() }
			},
			calls: []string{"get provider.test:80", "got provider.test:80"},
			err:   context.Canceled,
		},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := clienttest.NewServer(nil)
			defer s.Close()
			s.Script(tc.fault)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var hook func(httptrace.GotConnInfo)
			if tc.gotConn != nil {
				hook = tc.gotConn(cancel)
			}
			ctx, calls := traced(ctx, hook)
			c := &caller{t: t, url: "http://provider.test", rt: s.RoundTripper()}
			g := c.do(ctx, "POST", "/pay", "k1", pay)
			if !errors.Is(g.err, tc.err) {
				t.Errorf("error is %v, want %v", g.err, tc.err)
			}
			if !slices.Equal(*calls, tc.calls) {
				t.Errorf("hooks %q, want %q", *calls, tc.calls)
			}
			if s.Hits() != tc.hits {
				t.Errorf("hits=%d, want %d", s.Hits(), tc.hits)
			}
		})
	}
}

func TestMemoryRunsOnTheBubblesClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.NewServer(&clienttest.Options{Retention: time.Hour})
		defer s.Close()
		c := &caller{t: t, url: "http://provider.test", rt: s.RoundTripper()}
		s.Script(clienttest.Normal().Work(40*time.Second), clienttest.Normal(), clienttest.Answer(504, nil, nil).Wait(time.Minute))

		// The client gives up, the server does not.
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		start := time.Now()
		if g := c.do(ctx, "POST", "/pay", "k1", pay); !errors.Is(g.err, context.DeadlineExceeded) {
			t.Fatalf("got %+v", g)
		}
		if waited := time.Since(start); waited != 30*time.Second {
			t.Errorf("waited %v", waited)
		}
		c.want(c.post("k1", pay), 409, `{"code":"in_progress"}`)
		counts(t, s, 2, 0, 1, 1)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		counts(t, s, 2, 1, 1, 1)

		start = time.Now()
		c.want(c.post("k1", pay), 504, "")
		if waited := time.Since(start); waited != time.Minute {
			t.Errorf("waited %v", waited)
		}
		c.want(c.post("k1", pay), 201, first)
		time.Sleep(time.Hour)
		c.want(c.post("k1", pay), 201, `{"id":"eff_2","path":"/pay"}`)
	})
}

func TestCloseEndsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.NewServer(nil)
		c := &caller{t: t, url: "http://provider.test", rt: s.RoundTripper()}
		s.Script(clienttest.StallBefore(), clienttest.StallBody(3), clienttest.Normal().Work(time.Hour))
		results := make(chan got, 3)
		for range 3 {
			go func() { results <- c.post("", pay) }()
			synctest.Wait()
		}
		s.Close()
		for range 3 {
			if g := <-results; g.err == nil && g.cut == nil {
				t.Errorf("got %+v", g)
			}
		}
		if s.Effects() != 1 {
			t.Errorf("got %s", s)
		}
	})
}

func TestABodyOfAnotherLengthIsNoHit(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	req, err := http.NewRequestWithContext(t.Context(), "POST", "http://provider.test/pay", strings.NewReader(pay))
	if err != nil {
		t.Fatal(err)
	}
	req.ContentLength++
	res, err := s.RoundTripper().RoundTrip(req)
	if err == nil {
		res.Body.Close()
		t.Fatal("a short body was taken")
	}
	if s.Hits() != 0 {
		t.Errorf("got %s", s)
	}
}
