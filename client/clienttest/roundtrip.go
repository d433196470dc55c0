package clienttest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// RoundTripper returns a transport that hands requests to the server without
// sockets. Waiting in it is durable blocking in the sense of testing/synctest.
// It honours the request's context, while the answer's body is read too, and
// calls the hooks of net/http/httptrace as http.Transport does: GetConn;
// GotConn, unless the connection was refused; WroteHeaders; WroteRequest;
// GotFirstResponseByte. If the GotConn hook closes the connection or ends the
// context, nothing arrives.
//
// A client that stops waiting leaves the server working: a working time set by
// [Fault.Work] runs on, and acts at its end.
func (s *Server) RoundTripper() http.RoundTripper { return memory{s} }

type memory struct{ s *Server }

// Errors as a client meets them over sockets.
var (
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	errNoReply = fmt.Errorf("clienttest: connection closed without an answer: %w", io.EOF)
)

func (m memory) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx := req.Context()
	trace := httptrace.ContextClientTrace(ctx)
	if trace == nil {
		trace = &httptrace.ClientTrace{}
	}
	closeBody := sync.OnceFunc(func() {
		if req.Body != nil {
			req.Body.Close() // an error could be about reading alone, which is over
		}
	})
	defer closeBody()
	if req.URL == nil || req.URL.Host == "" {
		return nil, errors.New("clienttest: no host in the request's URL")
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if trace.GetConn != nil {
		trace.GetConn(hostPort(req.URL))
	}
	if m.s.refuses(req.URL.Path) {
		return nil, errRefused
	}
	conn := &memConn{host: hostPort(req.URL)}
	if trace.GotConn != nil {
		trace.GotConn(httptrace.GotConnInfo{Conn: conn})
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if conn.closed.Load() {
		return nil, net.ErrClosed
	}
	if !m.s.enter() {
		return nil, errNoReply
	}

	done := make(chan exchange, 1)
	header := http.Header{}
	for name, values := range req.Header {
		for _, v := range values {
			header.Add(name, v) // servers see canonical names
		}
	}
	length := req.ContentLength
	if length == 0 && req.Body != nil && req.Body != http.NoBody {
		length = -1
	}
	if trace.WroteHeaders != nil {
		trace.WroteHeaders()
	}
	// Read here, not by the server's goroutine: a transport may not touch the
	// request's body after RoundTrip has returned and closed it.
	body, readErr := readBody(req)
	closeBody()
	if trace.WroteRequest != nil {
		trace.WroteRequest(httptrace.WroteRequestInfo{Err: readErr})
	}
	go func() {
		defer m.s.running.Done()
		seen, out := m.s.serve(ctx, Seen{
			Method: req.Method, Path: req.URL.Path, Query: req.URL.RawQuery,
			Header: header, Length: length, Proto: "HTTP/1.1",
		}, func() ([]byte, error) { return body, readErr })
		done <- exchange{seen, out}
	}()
	if readErr != nil {
		return nil, readErr
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case x := <-done:
		if x.out.drop {
			if err := ctx.Err(); err != nil { // dropped because we left
				return nil, err
			}
			return nil, errNoReply
		}
		if trace.GotFirstResponseByte != nil {
			trace.GotFirstResponseByte()
		}
		return m.s.response(req, x), nil
	}
}

type exchange struct {
	seen Seen
	out  reply
}

// response makes what http.Transport would return.
func (s *Server) response(req *http.Request, x exchange) *http.Response {
	res := &http.Response{
		Status:     fmt.Sprintf("%03d %s", x.out.status, http.StatusText(x.out.status)),
		StatusCode: x.out.status,
		Proto:      "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        x.out.head(x.seen.N),
		ContentLength: int64(len(x.out.body)),
		Request:       req,
	}
	bodyless := req.Method == http.MethodHead || x.out.status == http.StatusNoContent || x.out.status == http.StatusNotModified
	if bodyless {
		res.Body = http.NoBody
		return res
	}
	res.Header.Set("Content-Length", fmt.Sprint(len(x.out.body)))
	b := &answerBody{ctx: req.Context(), s: s, left: x.out.body, end: io.EOF}
	if x.out.cut || x.out.stall {
		b.left = x.out.body[:x.out.part()]
	}
	switch {
	case x.out.cut:
		b.end = io.ErrUnexpectedEOF
	case x.out.stall:
		b.resume, b.rest = x.out.resume, x.out.body[x.out.part():]
	}
	res.Body = b
	return res
}

// answerBody is an answer's body that may be cut or stall.
type answerBody struct {
	ctx    context.Context // the exchange's: reading ends with it, as in net/http
	s      *Server
	left   []byte
	end    error
	resume <-chan struct{} // not nil: rest comes after it
	rest   []byte
	closed atomic.Bool
}

func (b *answerBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	if err := b.ctx.Err(); err != nil {
		return 0, err
	}
	if len(b.left) == 0 && b.resume != nil {
		switch resumed := b.s.pause(b.ctx, b.resume); {
		case resumed:
			b.left = b.rest
		case b.ctx.Err() != nil:
			return 0, b.ctx.Err()
		default: // the server was closed
			b.end = io.ErrUnexpectedEOF
		}
		b.resume, b.rest = nil, nil
	}
	if len(b.left) == 0 {
		return 0, b.end
	}
	n := copy(p, b.left)
	b.left = b.left[n:]
	return n, nil
}

func (b *answerBody) Close() error {
	b.closed.Store(true)
	return nil
}

// readBody reads a request's body and holds it to its length, as http.Transport
// does.
func readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	body, err := io.ReadAll(req.Body)
	if err == nil && req.ContentLength > 0 && req.ContentLength != int64(len(body)) {
		err = fmt.Errorf("clienttest: ContentLength is %d, the body has %d bytes", req.ContentLength, len(body))
	}
	return body, err
}

func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = "80"
		if u.Scheme == "https" {
			port = "443"
		}
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// memConn stands for the connection in httptrace.GotConnInfo. It carries
// nothing; closing it keeps the request back.
type memConn struct {
	host   string
	closed atomic.Bool
}

type memAddr string

func (memAddr) Network() string  { return "memory" }
func (a memAddr) String() string { return string(a) }

func (c *memConn) Read([]byte) (int, error)         { return 0, net.ErrClosed }
func (c *memConn) Write([]byte) (int, error)        { return 0, net.ErrClosed }
func (c *memConn) Close() error                     { c.closed.Store(true); return nil }
func (c *memConn) LocalAddr() net.Addr              { return memAddr("client") }
func (c *memConn) RemoteAddr() net.Addr             { return memAddr(c.host) }
func (c *memConn) SetDeadline(time.Time) error      { return nil }
func (c *memConn) SetReadDeadline(time.Time) error  { return nil }
func (c *memConn) SetWriteDeadline(time.Time) error { return nil }
