package wire

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

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

// The server sees not one byte of a late request over HTTP/1.1, and over TLS
// nothing but the alert that ends the connection.
func TestLateRequestsLeaveNoBytes(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	arrived := make(chan []byte, 1)
	go func() {
		conn, err := l.Accept()
		if err != nil {
			arrived <- []byte(err.Error())
			return
		}
		defer conn.Close()
		b, _ := io.ReadAll(conn) // to the end or a reset; what came is what counts
		arrived <- b
	}()
	rt := NewTransport()
	defer rt.CloseIdleConnections()
	req := Request{Method: "POST", URL: "http://" + l.Addr().String() + "/pay", Header: keyed(), Body: []byte("{}")}
	got := Send(within(t), rt, req, Options{MaxAnswer: 1, Late: lateFrom(2)})
	if !got.Late || !got.NotSent {
		t.Errorf("got %+v", got)
	}
	if b := <-arrived; len(b) > 0 {
		t.Errorf("the server read %q", b)
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
