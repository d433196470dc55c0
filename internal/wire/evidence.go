package wire

import (
	"context"
	"crypto/tls"
	"errors"
	"net/http/httptrace"
	"regexp"
	"sync"
)

// evidence gathers what shows that nothing was sent.
//
// A transport calls GetConn before it looks for a connection and GotConn when
// it has one, before it writes. The first without the second is proof: the
// transport does report, and it had nothing to write to. A transport that
// reports neither proves nothing. What comes after GotConn proves nothing
// either: over HTTP/2 the frame leaves before the next hook is called, and a
// write that failed may have been received.
//
// More than one GotConn means that a transport tried more than once, so that
// what it says in the end is about its last try alone.
type evidence struct {
	late   func() bool
	cancel context.CancelCauseFunc

	mu       sync.Mutex
	getConn  int
	gotConn  int  // connections that could have been written to
	heldBack bool // a connection was there and late said true
}

func (e *evidence) trace() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		GetConn: func(string) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.getConn++
		},
		GotConn: e.got,
	}
}

// got is called by the transport immediately before it writes, on HTTP/1.1
// and HTTP/2. When it is late, ending the context is enough for HTTP/2, which
// looks at it under the lock of the connection's writer, and must be: others
// use the connection. HTTP/1.1 hands the request to its writer without looking,
// so the connection is closed.
//
// HTTP/2 without TLS cannot be told from HTTP/1.1 here. Its connection is
// closed too, and others on it end in doubt.
func (e *evidence) got(info httptrace.GotConnInfo) {
	if e.late == nil || !e.late() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.gotConn++
		return
	}
	e.mu.Lock()
	e.heldBack = true
	e.mu.Unlock()
	e.cancel(errLate)
	if c, ok := info.Conn.(interface{ ConnectionState() tls.ConnectionState }); ok && c.ConnectionState().NegotiatedProtocol == "h2" {
		return
	}
	if info.Conn != nil {
		info.Conn.Close() // closed is all it has to be
	}
}

func (e *evidence) wasLate() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.heldBack
}

// failed reads an attempt without an answer.
func (e *evidence) failed(ctx context.Context, err error) Reply {
	e.mu.Lock()
	defer e.mu.Unlock()
	var own *Error
	switch {
	case e.heldBack:
		return Reply{Late: true, NotSent: e.gotConn == 0, Err: errLate}
	case errors.As(err, &own) && own.own: // it broke its contract; its hooks prove nothing
		return Reply{Err: own}
	case e.gotConn == 0:
		return Reply{NotSent: e.getConn > 0, Err: safe(ctx, err)}
	case e.gotConn == 1 && unprocessed(err):
		return Reply{NotSent: true, Err: phrase("http2: the server refused the stream before processing it", nil)}
	}
	return Reply{Err: safe(ctx, err)}
}

// unprocessedText is all that net/http leaves of a stream that the server did
// not process and said so: by resetting it with REFUSED_STREAM (RFC 9113, 8.7),
// or by a GOAWAY with a lower last stream (6.8). The text is anchored, since
// other errors quote what the server sent. What does not match is doubt; a test
// with a server that really resets streams fails when the text changes.
//
// A GOAWAY with an error code about a connection's first stream has another
// text and is left out: servers that end a connection in anger are known to
// say zero for the last stream without having counted.
var unprocessedText = regexp.MustCompile(`^http2: Transport: cannot retry err \[(` +
	`stream error: stream ID \d+; REFUSED_STREAM; received from peer|` +
	`http2: Transport received Server's graceful shutdown GOAWAY` +
	`)\] after Request\.Body was written; define Request\.GetBody to avoid this error$`)

// unprocessed says whether err shows that the server did not process the
// stream. It is the one place that reads an error's text for a decision.
func unprocessed(err error) bool { return unprocessedText.MatchString(err.Error()) }
