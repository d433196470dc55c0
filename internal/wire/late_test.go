package wire

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"

	"github.com/samekey/samekey/client/clienttest"
)

// lateFrom is late from its nth call on.
func lateFrom(n int32) func() bool {
	var calls atomic.Int32
	return func() bool { return calls.Add(1) >= n }
}

func TestLateBeforeAConnectionIsLookedFor(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	got := Send(within(t), s.RoundTripper(), Request{Method: "POST", URL: "http://provider.test/pay"}, Options{MaxAnswer: 1, Late: lateFrom(1)})
	if !got.Late || !got.NotSent || got.Err == nil || s.Hits() != 0 {
		t.Errorf("got %+v; %s", got, s)
	}
}

func TestLateWithAConnectionAtHandWritesNothing(t *testing.T) {
	for _, warm := range []bool{false, true} {
		onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
			if warm {
				if got := Send(within(t), rt, Request{Method: "GET", URL: url + "/warm"}, options); got.Err != nil {
					t.Fatal(got.Err)
				}
			}
			for _, body := range []string{"", "{}"} {
				o := Options{MaxAnswer: 1 << 10, Late: lateFrom(2)}
				got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed(), Body: []byte(body)}, o)
				if !got.Late || !got.NotSent || got.Err == nil || got.Status != 0 {
					t.Errorf("got %+v, want late and not sent", got)
				}
			}
			// On time again, all is well, and what arrives now is the first.
			if got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed()}, options); got.Status != 201 {
				t.Errorf("got %+v", got)
			}
			if s.Hits("/pay") != 1 {
				t.Errorf("a late request arrived: %s", s)
			}
			if _, most := s.Connections(); s.Requests("/pay")[0].Proto == "HTTP/2.0" && most != 1 {
				t.Errorf("being late cost an HTTP/2 connection: there were %d", most)
			}
		})
	}
}

func TestLateRequestsOpenNoHTTP2Stream(t *testing.T) {
	f := newFrames(t)
	if got := Send(within(t), f.rt, Request{Method: "GET", URL: f.url}, options); got.Status != 200 {
		t.Fatalf("got %+v", got)
	}
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			got := Send(within(t), f.rt, Request{Method: "POST", URL: f.url, Header: keyed()}, Options{MaxAnswer: 1, Late: lateFrom(2)})
			if !got.Late || !got.NotSent {
				t.Errorf("got %+v", got)
			}
		})
	}
	wg.Wait()
	// The server reads in order: once this one is served, it has read all.
	if got := Send(within(t), f.rt, Request{Method: "GET", URL: f.url}, options); got.Status != 200 {
		t.Fatalf("got %+v", got)
	}
	if conns, streams := f.counts(); conns != 1 || streams != 2 {
		t.Errorf("%d streams on %d connections; want 2 on 1", streams, conns)
	}
}

// counted counts the bytes that were written for good.
type counted struct {
	net.Conn
	n *atomic.Int64
}

func (c counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	c.n.Add(int64(n))
	return n, err
}

// Close gives the writer all the time it may want.
func (c counted) Close() error {
	for range 100 {
		runtime.Gosched()
	}
	return c.Conn.Close()
}

// Ending the context alone would leave HTTP/1.1's writer a moment in which it
// writes all the same, until net/http closes the connection.
func TestLateRequestsLeaveNoBytes(t *testing.T) {
	addr := listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) })
	var written, dialled atomic.Int64
	rt := NewTransport()
	defer rt.CloseIdleConnections()
	dial := rt.DialContext
	rt.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		dialled.Add(1)
		return counted{conn, &written}, err
	}
	req := Request{Method: "POST", URL: "http://" + addr + "/pay", Header: keyed(), Body: []byte("{}")}
	for range 20 {
		got := Send(within(t), rt, req, Options{MaxAnswer: 1, Late: lateFrom(2)})
		if !got.Late || !got.NotSent {
			t.Fatalf("got %+v", got)
		}
	}
	rt.CloseIdleConnections()
	if written.Load() != 0 || dialled.Load() == 0 {
		t.Errorf("%d bytes were written on %d connections", written.Load(), dialled.Load())
	}
}

func TestLateOverTLSWithHTTP1(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	url, trusting, err := s.ListenTLS()
	if err != nil {
		t.Fatal(err)
	}
	rt := NewTransport()
	defer rt.CloseIdleConnections()
	rt.TLSClientConfig = trusting.TLSClientConfig
	rt.ForceAttemptHTTP2 = false
	rt.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{} // HTTP/1.1 alone
	if got := Send(within(t), rt, Request{Method: "GET", URL: url + "/warm"}, options); got.Proto != "HTTP/1.1" {
		t.Fatalf("got %+v", got)
	}
	got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed(), Body: []byte("{}")}, Options{MaxAnswer: 1, Late: lateFrom(2)})
	if !got.Late || !got.NotSent {
		t.Errorf("got %+v", got)
	}
	if got := Send(within(t), rt, Request{Method: "GET", URL: url + "/warm"}, options); got.Status != 200 {
		t.Errorf("got %+v", got)
	}
	if s.Hits("/pay") != 0 {
		t.Errorf("got %s", s)
	}
}

// retrying sends twice, as some programs' transports do.
type retrying struct{ rt http.RoundTripper }

func (r retrying) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := r.rt.RoundTrip(req)
	if err == nil {
		return res, nil
	}
	return r.rt.RoundTrip(req)
}

func TestLateAtASecondTryDoesNotExcuseTheFirst(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	s.Script(clienttest.LoseAnswer())
	got := Send(within(t), retrying{s.RoundTripper()}, Request{Method: "POST", URL: "http://provider.test/pay"}, Options{MaxAnswer: 1, Late: lateFrom(3)})
	if !got.Late || got.NotSent {
		t.Errorf("got %+v, want late and doubt", got)
	}
	if s.Effects() != 1 || s.Hits() != 1 {
		t.Errorf("got %s", s)
	}
}

// What a transport says about its last try proves nothing about its first.
func TestProofOfTheLastTryDoesNotExcuseTheFirst(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	s.Script(clienttest.LoseAnswer(), clienttest.RefuseConnection())
	got := Send(within(t), retrying{s.RoundTripper()}, Request{Method: "POST", URL: "http://provider.test/pay"}, options)
	if got.Err == nil || got.NotSent || s.Effects() != 1 {
		t.Errorf("a refused connection: got %+v, want doubt; %s", got, s)
	}

	f := newFrames(t, hangUp, reset(http2.ErrCodeRefusedStream))
	got = Send(within(t), retrying{f.rt}, Request{Method: "POST", URL: f.url}, options)
	if _, streams := f.counts(); got.Err == nil || got.NotSent || streams != 2 {
		t.Errorf("a refused stream: got %+v, want doubt; %d streams", got, streams)
	}
}
