package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client/clienttest"
)

const secretURL = "/pay?token=SECRET"

// listen runs a TCP server that does one thing with each connection.
func listen(t *testing.T, do func(net.Conn)) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				do(conn)
			}()
		}
	}()
	return l.Addr().String()
}

// says reads a request's head and answers with text.
func says(text string) func(net.Conn) {
	return func(conn net.Conn) {
		buf := make([]byte, 64<<10)
		for n := 0; !strings.Contains(string(buf[:n]), "\r\n\r\n"); {
			m, err := conn.Read(buf[n:])
			if err != nil {
				return
			}
			n += m
		}
		io.WriteString(conn, text)
	}
}

func nowhere(t *testing.T) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func proxied(t *testing.T, addr string) func(*http.Transport) {
	t.Helper()
	u, err := url.Parse("http://user:SECRET@" + addr)
	if err != nil {
		t.Fatal(err)
	}
	return func(rt *http.Transport) { rt.Proxy = http.ProxyURL(u) }
}

func TestFailuresAreNotSentOnlyOnProof(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0) // its handshakes are to fail
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	dialing := func(err error) func(*http.Transport) {
		return func(rt *http.Transport) {
			rt.DialContext = func(context.Context, string, string) (net.Conn, error) { return nil, err }
		}
	}
	cases := []struct {
		name    string
		url     string
		change  func(*http.Transport)
		notSent bool
		text    string
		is      error
	}{
		{"nobody listens", "http://" + nowhere(t), nil, true, "dial: connection refused", syscall.ECONNREFUSED},
		{"no such host", "http://provider.test", dialing(&net.DNSError{Err: "no such host", Name: "SECRET", IsNotFound: true}), true, "dns: no such host", nil},
		{"the lookup is slow", "http://provider.test", dialing(&net.DNSError{Err: "SECRET", IsTimeout: true}), true, "dns: timeout", nil},
		{"the lookup fails", "http://provider.test", dialing(&net.DNSError{Err: "SECRET"}), true, "dns: the lookup failed", nil},
		{"a dialer with words of its own", "http://provider.test", dialing(&net.OpError{Op: "SECRET", Err: errors.New("SECRET")}), true, "the exchange failed", nil},
		{"an unknown authority", secure.URL, nil, true, "tls: the server's certificate is signed by an unknown authority", nil},
		{"a certificate for another name", secure.URL, func(rt *http.Transport) {
			rt.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			rt.TLSClientConfig.ServerName = "provider.test"
		}, true, "tls: the server's certificate is for another name", nil},
		{"a certificate of another time", secure.URL, func(rt *http.Transport) {
			rt.TLSClientConfig = secure.Client().Transport.(*http.Transport).TLSClientConfig.Clone()
			rt.TLSClientConfig.Time = func() time.Time { return time.Unix(1<<33, 0) } // in 2242
		}, true, "tls: the server's certificate has expired or is not yet valid", nil},
		{"an alert", secure.URL, func(rt *http.Transport) {
			rt.TLSClientConfig = &tls.Config{MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10} // to be refused
		}, true, "tls: the server sent an alert", nil},
		{"HTTP where TLS is spoken", strings.Replace(plain.URL, "http:", "https:", 1), nil, true, "tls: the server does not speak TLS", nil},
		{"TLS cut short", "https://" + listen(t, func(net.Conn) {}), nil, true, "", nil},
		{"a proxy that is away", "https://provider.test", proxied(t, nowhere(t)), true, "proxy: connection refused", syscall.ECONNREFUSED},
		{"a proxy that refuses to connect", "https://provider.test", proxied(t, listen(t, says("HTTP/1.1 407 SECRET please\r\n\r\n"))), true, "the exchange failed", nil},
		{"a proxy that answers nonsense", "https://provider.test", proxied(t, listen(t, says("SECRET\r\n\r\n"))), true, "the answer is not well-formed HTTP", nil},

		{"a proxy that hangs up", "http://provider.test", proxied(t, listen(t, says(""))), false, "the connection was closed by the server", io.EOF},
		{"hung up", "http://" + listen(t, says("")), nil, false, "the connection was closed by the server", io.EOF},
		{"hung up in the head", "http://" + listen(t, says("HTTP/1.1 200 OK\r\nX: SECRET")), nil, false, "the connection was closed by the server", io.ErrUnexpectedEOF},
		{"not HTTP", "http://" + listen(t, says("SECRET and more\r\n\r\n")), nil, false, "the answer is not well-formed HTTP", nil},
		{"a status that is none", "http://" + listen(t, says("HTTP/1.1 abc SECRET\r\n\r\n")), nil, false, "the answer is not well-formed HTTP", nil},
		{"a header that is none", "http://" + listen(t, says("HTTP/1.1 200 OK\r\nSECRET\r\n\r\n")), nil, false, "the answer is not well-formed HTTP", nil},
		{"a length that is none", "http://" + listen(t, says("HTTP/1.1 200 OK\r\nContent-Length: SECRET\r\n\r\n")), nil, false, "the exchange failed", nil},
		{"a head without end", "http://" + listen(t, says("HTTP/1.1 200 OK\r\nX: "+strings.Repeat("SECRET", 100<<10))), nil, false, "the answer's header is longer than allowed", nil},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			rt := NewTransport()
			defer rt.CloseIdleConnections()
			if tc.change != nil {
				tc.change(rt)
			}
			got := Send(within(t), rt, Request{Method: "POST", URL: tc.url + secretURL, Header: keyed("Authorization", "SECRET"), Body: []byte("SECRET")}, options)
			if got.Err == nil || got.Status != 0 || got.Late || got.NotSent != tc.notSent {
				t.Fatalf("got %+v, want NotSent %v", got, tc.notSent)
			}
			noSecret(t, got.Err)
			if tc.text != "" && got.Err.Error() != tc.text {
				t.Errorf("the text is %q, want %q", got.Err, tc.text)
			}
			if tc.is != nil && !errors.Is(got.Err, tc.is) {
				t.Errorf("%v is not %v", got.Err, tc.is)
			}
		})
	}
}

// noSecret looks at an error and all its causes, in each form that a log may
// print.
func noSecret(t *testing.T, err error) {
	t.Helper()
	for ; err != nil; err = errors.Unwrap(err) {
		for _, verb := range []string{"%v", "%+v", "%#v"} {
			if s := fmt.Sprintf(verb, err); strings.Contains(s, "SECRET") || strings.Contains(s, "provider.test") {
				t.Errorf("the error tells too much: %s", s)
			}
		}
	}
}

func TestACutAnswersHeadIsStillAnAnswer(t *testing.T) {
	cases := []struct{ name, text string }{
		{"a chunk that is none", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\nSECRET\r\n"},
		{"chunks without end", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"},
		{"shorter than it says", "HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nabc"},
		{"another protocol", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: SECRET\r\nConnection: upgrade\r\n\r\nabc"},
	}
	for _, tc := range cases {
		rt := NewTransport()
		got := Send(within(t), rt, Request{Method: "POST", URL: "http://" + listen(t, says(tc.text))}, options)
		rt.CloseIdleConnections()
		if got.Status/100 != 2 && got.Status != 101 || !got.Cut || got.Err == nil || got.NotSent {
			t.Errorf("%s: got %+v", tc.name, got)
		}
		noSecret(t, got.Err)
	}
}

// What stalls is bounded by the context, at each stage. The context is ended
// when the stage is reached, so that nothing waits for a clock.
func TestStallsEndWithTheContext(t *testing.T) {
	secret := errors.New("SECRET")
	cases := []struct {
		name    string
		notSent bool
		start   func(t *testing.T, end func()) (rt *http.Transport, url string)
	}{
		{"dialling", true, func(_ *testing.T, end func()) (*http.Transport, string) {
			rt := NewTransport()
			rt.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
				end()
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return rt, "http://provider.test"
		}},
		{"shaking hands", true, func(t *testing.T, end func()) (*http.Transport, string) {
			return NewTransport(), "https://" + listen(t, func(c net.Conn) { end(); io.Copy(io.Discard, c) })
		}},
		{"asking a proxy", true, func(t *testing.T, end func()) (*http.Transport, string) {
			rt := NewTransport()
			proxied(t, listen(t, func(c net.Conn) { end(); io.Copy(io.Discard, c) }))(rt)
			return rt, "https://provider.test"
		}},
		{"waiting for the answer", false, func(t *testing.T, end func()) (*http.Transport, string) {
			return NewTransport(), "http://" + listen(t, func(c net.Conn) {
				says("")(c)
				end()
				io.Copy(io.Discard, c)
			})
		}},
		{"writing the body", false, func(t *testing.T, end func()) (*http.Transport, string) {
			gone := make(chan struct{})
			t.Cleanup(func() { close(gone) })
			return NewTransport(), "http://" + listen(t, func(c net.Conn) {
				says("")(c)
				end()
				<-gone // nothing more is read
			})
		}},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(within(t))
			rt, url := tc.start(t, func() { cancel(secret) })
			defer rt.CloseIdleConnections()
			got := Send(ctx, rt, Request{Method: "POST", URL: url + secretURL, Body: make([]byte, 16<<20)}, options)
			if !errors.Is(got.Err, context.Canceled) || got.NotSent != tc.notSent || got.Status != 0 {
				t.Errorf("got %+v, want NotSent %v", got, tc.notSent)
			}
			noSecret(t, got.Err)
		})
	}
}

func TestTheDeadlineBoundsAllOfAnAttempt(t *testing.T) {
	cases := []struct {
		fault  clienttest.Fault
		status int
	}{
		{clienttest.StallBefore(), 0},
		{clienttest.StallAfter(), 0},
		{clienttest.StallBody(3), 201},
		{clienttest.Normal().Work(time.Hour), 0},
	}
	for _, tc := range cases {
		synctest.Test(t, func(t *testing.T) {
			s := clienttest.NewServer(nil)
			defer s.Close()
			s.Script(tc.fault)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			start := time.Now()
			got := Send(ctx, s.RoundTripper(), Request{Method: "POST", URL: "http://provider.test/pay"}, options)
			if !errors.Is(got.Err, context.DeadlineExceeded) || got.Status != tc.status || got.Cut != (tc.status != 0) || got.NotSent {
				t.Errorf("%v: got %+v", tc.fault, got)
			}
			if took := time.Since(start); took != 30*time.Second {
				t.Errorf("%v: it took %v", tc.fault, took)
			}
		})
	}
}

// foreign is somebody's transport.
type foreign func(*http.Request) (*http.Response, error)

func (f foreign) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }

type badBody func([]byte) (int, error)

func (b badBody) Read(p []byte) (int, error) { return b(p) }
func (badBody) Close() error                 { return nil }

func TestForeignTransportsProveNothing(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	hook := func(req *http.Request) *httptrace.ClientTrace { return httptrace.ContextClientTrace(req.Context()) }
	cases := []struct {
		name    string
		rt      foreign
		notSent bool
	}{
		{"no hooks, a dial error", func(*http.Request) (*http.Response, error) { return nil, refused }, false},
		{"hooks, a dial error", func(req *http.Request) (*http.Response, error) {
			hook(req).GetConn("x:1")
			return nil, refused
		}, true},
		{"no hooks, a refused stream", func(*http.Request) (*http.Response, error) {
			return nil, errors.New("http2: Transport: cannot retry err [stream error: stream ID 1; REFUSED_STREAM; received from peer] after Request.Body was written; define Request.GetBody to avoid this error")
		}, false},
		{"a panic", func(*http.Request) (*http.Response, error) { panic("SECRET") }, false},
		{"a panic while dialling", func(req *http.Request) (*http.Response, error) {
			hook(req).GetConn("x:1")
			panic(errors.New("SECRET"))
		}, false},
		{"nothing at all", func(*http.Request) (*http.Response, error) { return nil, nil }, false},
		{"nothing at all while dialling", func(req *http.Request) (*http.Response, error) {
			hook(req).GetConn("x:1")
			return nil, nil
		}, false},
		{"an answer with an error", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Body: http.NoBody}, &url.Error{Op: "Post", URL: "http://SECRET", Err: io.EOF}
		}, false},
	}
	for _, tc := range cases {
		got := Send(within(t), tc.rt, Request{Method: "POST", URL: "http://provider.test" + secretURL}, options)
		if got.Err == nil || got.Status != 0 || got.NotSent != tc.notSent {
			t.Errorf("%s: got %+v, want NotSent %v", tc.name, got, tc.notSent)
		}
		noSecret(t, got.Err)
	}
}

func TestForeignBodies(t *testing.T) {
	cases := []struct {
		name   string
		body   io.ReadCloser
		length int64
		method string
		want   string
		cut    bool
	}{
		{"none", nil, 0, "POST", "", false},
		{"whole", io.NopCloser(strings.NewReader("abc")), 3, "POST", "abc", false},
		{"of unknown length", io.NopCloser(strings.NewReader("abc")), -1, "POST", "abc", false},
		{"shorter than it says, without an error", io.NopCloser(strings.NewReader("abc")), 4, "POST", "abc", true},
		{"of a HEAD", http.NoBody, 4, "HEAD", "", false},
		{"neither bytes nor an end", badBody(func([]byte) (int, error) { return 0, nil }), -1, "POST", "", true},
		{"an error", badBody(func([]byte) (int, error) { return 0, errors.New("SECRET") }), -1, "POST", "", true},
		{"a panic", badBody(func([]byte) (int, error) { panic("SECRET") }), -1, "POST", "", true},
	}
	for _, tc := range cases {
		rt := foreign(func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 200, Proto: "HTTP/1.1", Body: tc.body, ContentLength: tc.length}, nil
		})
		got := Send(within(t), rt, Request{Method: tc.method, URL: "http://provider.test"}, options)
		if got.Status != 200 || got.Cut != tc.cut || (got.Err != nil) != tc.cut || string(got.Body) != tc.want {
			t.Errorf("%s: got %+v", tc.name, got)
		}
		noSecret(t, got.Err)
	}
}

func TestTheCallersOwnTraceIsKept(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	called := false
	ctx := httptrace.WithClientTrace(within(t), &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { called = true }})
	if got := Send(ctx, s.RoundTripper(), Request{Method: "POST", URL: "http://provider.test"}, options); got.Status != 201 || !called {
		t.Errorf("got %+v, called %v", got, called)
	}
}

func TestRefusedConnectionsInMemoryAreNotSent(t *testing.T) {
	s := clienttest.NewServer(nil)
	defer s.Close()
	s.Script(clienttest.RefuseConnection(), clienttest.LoseRequest())
	for _, want := range []bool{true, false} {
		got := Send(within(t), s.RoundTripper(), Request{Method: "POST", URL: "http://provider.test/pay"}, options)
		if got.Err == nil || got.NotSent != want {
			t.Errorf("got %+v, want NotSent %v", got, want)
		}
	}
}
