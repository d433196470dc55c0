package wire

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/client/clienttest"
)

var options = Options{MaxAnswer: 1 << 20}

// within gives an attempt the deadline it must have. It is far away: no test
// waits for it.
func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// onBoth runs a test over HTTP/1.1 and HTTP/2, on a provider of its own and
// with the transport that clients use.
func onBoth(t *testing.T, opts *clienttest.Options, test func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport)) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(proto, func(t *testing.T) {
			s := clienttest.NewServer(opts)
			t.Cleanup(func() { s.Close() })
			rt := NewTransport()
			t.Cleanup(rt.CloseIdleConnections)
			if proto == "HTTP/1.1" {
				url, err := s.Listen()
				if err != nil {
					t.Fatal(err)
				}
				test(t, s, url, rt)
				return
			}
			url, trusting, err := s.ListenTLS()
			if err != nil {
				t.Fatal(err)
			}
			rt.TLSClientConfig = trusting.TLSClientConfig
			test(t, s, url, rt)
		})
	}
}

func keyed(extra ...string) http.Header {
	h := http.Header{"Idempotency-Key": {"k-1"}}
	for i := 0; i+1 < len(extra); i += 2 {
		h.Add(extra[i], extra[i+1])
	}
	return h
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// C17.
func TestEveryAttemptCarriesTheWholeBodyWithItsLength(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		body := bytes.Repeat([]byte("0123456789"), 7168) // 71,680 bytes
		s.Script(clienttest.Answer(503, nil, nil))
		for _, want := range []int{503, 201} {
			got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay?x=1", Header: keyed(), Body: body}, options)
			if got.Status != want || got.Err != nil || got.Cut || got.NotSent {
				t.Fatalf("got %+v, want status %d", got, want)
			}
		}
		seen := s.Requests()
		if len(seen) != 2 {
			t.Fatalf("got %s", s)
		}
		for _, r := range seen {
			if r.BodyDigest != digest(body) || r.Length != int64(len(body)) || r.Chunked || r.Query != "x=1" || r.Key != "k-1" {
				t.Errorf("hit %d arrived as %+v", r.N, r)
			}
		}
	})
}

// C19. The bytes are shared by all attempts; a write to them, or a reader
// shared by two attempts, is a race.
func TestAnAnswerBeforeTheBodyWasReadLeavesTheNextAttemptWhole(t *testing.T) {
	body := bytes.Repeat([]byte{0xa5}, 4<<20)
	onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		for range 50 {
			before := s.Hits()
			early := clienttest.Answer(503, nil, nil).Unread()
			s.Script(early, early)
			for range 3 {
				got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed(), Body: body}, options)
				// The server may close on us before its answer is read; then
				// the attempt is in doubt, and nothing else.
				if got.Status != 503 && got.Status != 201 && (got.Err == nil || got.NotSent) {
					t.Fatalf("got %+v", got)
				}
			}
			if hits := s.Hits() - before; hits != 3 {
				t.Fatalf("three attempts made %d hits", hits)
			}
		}
		if got := s.Bodies(); len(got) != 1 || got[0] != digest(body) {
			t.Errorf("bodies arrived as %v, want %s", got, digest(body))
		}
	})
}

func TestAnEmptyBodyArrivesAsOne(t *testing.T) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS", "PROPFIND"} {
		onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
			got := Send(within(t), rt, Request{Method: method, URL: url + "/x", Header: keyed()}, options)
			if got.Err != nil || got.Status/100 != 2 {
				t.Fatalf("%s: got %+v", method, got)
			}
			r := s.Requests()[0]
			if r.Chunked || r.BodyDigest != digest(nil) {
				t.Errorf("%s arrived as %+v", method, r)
			}
			lengths := r.Header.Values("Content-Length")
			takes := method == "POST" || method == "PUT" || method == "PATCH"
			if r.Proto == "HTTP/1.1" && takes && (r.Length != 0 || !slices.Equal(lengths, []string{"0"})) {
				t.Errorf("%s arrived with length %d, Content-Length %q; want one that says 0", method, r.Length, lengths)
			}
			if !takes && len(lengths) > 0 {
				t.Errorf("%s arrived with Content-Length %q", method, lengths)
			}
		})
	}
}

func TestHeadersArriveAsGivenButForThoseOfTheConnection(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		given := keyed(
			"Content-Type", "application/json",
			"X-Two", "a", "X-Two", "b",
			"Connection", "close, X-Hop",
			"X-Hop", "1",
			"Host", "elsewhere.test",
			"Content-Length", "999",
			"Transfer-Encoding", "chunked",
			"Proxy-Authorization", "Basic c2VjcmV0",
			"Proxy-Connection", "keep-alive",
			"Keep-Alive", "timeout=1",
			"Te", "gzip",
			"Trailer", "X-Late",
			"Upgrade", "websocket",
		)
		for range 2 {
			got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: given, Body: []byte("{}")}, options)
			if got.Err != nil {
				t.Fatal(got.Err)
			}
		}
		for _, r := range s.Requests() {
			r.Header.Del("Content-Length") // HTTP/1.1 servers and HTTP/2 servers differ in keeping it
			want := http.Header{
				"Idempotency-Key": {"k-1"}, "Content-Type": {"application/json"}, "X-Two": {"a", "b"}, "User-Agent": {"samekey"},
			}
			for name, values := range r.Header {
				if !slices.Equal(values, want[name]) {
					t.Errorf("%s arrived as %q, want %q", name, values, want[name])
				}
			}
			if len(r.Header) != len(want) {
				t.Errorf("arrived: %v", r.Header)
			}
			if r.Length != 2 || r.Chunked {
				t.Errorf("arrived: %+v", r)
			}
		}
		if _, most := s.Connections(); most != 1 {
			t.Errorf("%d connections for two attempts in sequence", most)
		}
		if len(given) != 14 || given.Get("X-Hop") != "1" {
			t.Errorf("the caller's header was changed: %v", given)
		}

		Send(within(t), rt, Request{Method: "POST", URL: url + "/agent", Header: keyed("User-Agent", "mine/1")}, options)
		if got := s.Requests("/agent")[0].Header["User-Agent"]; !slices.Equal(got, []string{"mine/1"}) {
			t.Errorf("User-Agent is %q", got)
		}
	})
}

// C23, at the wire.
func TestRedirectsAreAnswers(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		for i, status := range []int{301, 302, 303, 307, 308} {
			s.Script(clienttest.Redirect(status, "/pay/"))
			got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed(), Body: []byte("{}")}, options)
			if got.Status != status || got.Header.Get("Location") != "/pay/" || got.Err != nil {
				t.Errorf("got %+v, want status %d", got, status)
			}
			if s.Hits() != i+1 || s.Hits("/pay/") != 0 {
				t.Errorf("got %s", s)
			}
		}
	})
}

func TestTheAnswerIsKeptWithoutItsCookies(t *testing.T) {
	opts := &clienttest.Options{Act: func(clienttest.Seen) (int, http.Header, []byte) {
		return 201, http.Header{"Set-Cookie": {"session=SECRET"}, "X-Kept": {"a", "b"}}, []byte("{}")
	}}
	onBoth(t, opts, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed()}, options)
		if got.Status != 201 || string(got.Body) != "{}" || got.Header.Get("Request-Id") != "req_1" || !slices.Equal(got.Header["X-Kept"], []string{"a", "b"}) {
			t.Errorf("got %+v", got)
		}
		if _, there := got.Header["Set-Cookie"]; there {
			t.Errorf("Set-Cookie was kept")
		}
		if want := s.Requests()[0].Proto; got.Proto != want {
			t.Errorf("Proto is %q, the server saw %q", got.Proto, want)
		}
	})
}

func TestInformationalAnswersComeBeforeTheAnswer(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.WriteHeader(http.StatusProcessing)
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, "done")
	}))
	defer srv.Close()
	rt := NewTransport()
	defer rt.CloseIdleConnections()
	got := Send(within(t), rt, Request{Method: "POST", URL: srv.URL}, options)
	if got.Status != 201 || string(got.Body) != "done" || got.Cut || got.Err != nil {
		t.Errorf("got %+v", got)
	}
}

func TestWhatCannotBeSentIsNotSent(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	good := Request{Method: "POST", URL: "http://provider.test/pay?token=SECRET"}
	with := func(change func(*Request)) Request { r := good; change(&r); return r }
	cases := []struct {
		name string
		req  Request
		opts Options
		rt   http.RoundTripper
	}{
		{"no method", with(func(r *Request) { r.Method = "" }), options, s.RoundTripper()},
		{"a method that is no token", with(func(r *Request) { r.Method = "PO ST" }), options, s.RoundTripper()},
		{"no URL", with(func(r *Request) { r.URL = "" }), options, s.RoundTripper()},
		{"a URL that cannot be parsed", with(func(r *Request) { r.URL = "http://SECRET:x%zz/" }), options, s.RoundTripper()},
		{"a URL without host", with(func(r *Request) { r.URL = "http:///SECRET" }), options, s.RoundTripper()},
		{"an opaque URL", with(func(r *Request) { r.URL = "http:SECRET" }), options, s.RoundTripper()},
		{"another scheme", with(func(r *Request) { r.URL = "ftp://SECRET/" }), options, s.RoundTripper()},
		{"a header name that is no token", with(func(r *Request) { r.Header = http.Header{"SECRET : x": {"1"}} }), options, s.RoundTripper()},
		{"a control character in a header", with(func(r *Request) { r.Header = http.Header{"X": {"SECRET\r\nY: 1"}} }), options, s.RoundTripper()},
		{"no bound on the answer", good, Options{}, s.RoundTripper()},
		{"no transport", good, options, nil},
	}
	for _, tc := range cases {
		got := Send(within(t), tc.rt, tc.req, tc.opts)
		if got.Err == nil || !got.NotSent || got.Late || got.Status != 0 {
			t.Errorf("%s: got %+v", tc.name, got)
		} else if strings.Contains(got.Err.Error(), "SECRET") {
			t.Errorf("%s: the error quotes the request: %v", tc.name, got.Err)
		}
	}
	if got := Send(t.Context(), s.RoundTripper(), good, options); got.Err == nil || !got.NotSent {
		t.Errorf("without a deadline: got %+v", got)
	}
	ctx, cancel := context.WithCancel(within(t))
	cancel()
	if got := Send(ctx, s.RoundTripper(), good, options); !errors.Is(got.Err, context.Canceled) || !got.NotSent {
		t.Errorf("with a context that has ended: got %+v", got)
	}
	if s.Hits() != 0 {
		t.Errorf("got %s", s)
	}
}
