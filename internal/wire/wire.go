// Package wire sends one attempt.
//
// The promise: one call of [Send] is at most one request on the wire, on
// HTTP/1.1 and HTTP/2, with the same bytes each time. Nothing is sent again by
// the HTTP stack, no redirect is followed, no cookie is kept, the answer is
// read whole and within a bound. What is reported as not sent provably had no
// effect; all else is doubt.
//
// Start at [Send] and [NewTransport].
//
// It does not say what an answer means (see package provider) nor when to send
// (see packages keyring and retry). A [http.RoundTripper] that sends a request
// twice by itself cannot be held back from here.
package wire

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
)

// Request is what is sent. Nothing of it may change any more, not even after
// Send has returned: over HTTP/1.1 and HTTP/2 alike a server may answer early,
// and the body's last bytes are then still being read.
type Request struct {
	Method string // required
	URL    string // absolute, http or https
	// Header is sent as it is, but for the names that belong to the connection
	// or to the framing: Connection and what it names, Content-Length, Host,
	// Keep-Alive, Proxy-Authorization, Proxy-Connection, TE, Trailer,
	// Transfer-Encoding, Upgrade.
	Header http.Header
	Body   []byte
}

// Options bound an attempt.
type Options struct {
	// MaxAnswer is how many bytes of the answer's body are kept. Required.
	MaxAnswer int64

	// Late is asked before a connection is looked for and again immediately
	// before the first byte is written to it. When it says true, nothing is
	// written. It must be quick, and may be called from any goroutine. Nil
	// means never.
	Late func() bool
}

// Reply is what came of an attempt. Look at Status first: when it is not zero
// there was an answer, and Err says at most why the body was not read whole.
type Reply struct {
	Status int    // 0: there was no answer
	Proto  string // "HTTP/1.1" or "HTTP/2.0"
	Header http.Header
	Body   []byte // the first MaxAnswer bytes at most

	// Cut means that Body is not the whole answer: it ended early, was longer
	// than MaxAnswer, could not be decoded, or the time was up.
	Cut bool

	// NotSent means that nothing of the request reached the provider's
	// application, on positive evidence. False is doubt.
	NotSent bool

	// Late means that Options.Late held the request back.
	Late bool

	// Err is what went wrong, in words that hold neither the URL nor anything
	// that was sent or received. errors.Is finds context.Canceled,
	// context.DeadlineExceeded, system error numbers, io.EOF and
	// io.ErrUnexpectedEOF.
	Err error
}

// Send sends req once over rt and reads the answer. All of it, the last byte
// of the answer included, is bounded by ctx, which must have a deadline; rt
// must honour it, as [http.Transport] does.
//
// A request or options that cannot be used come back as an error with NotSent.
func Send(ctx context.Context, rt http.RoundTripper, req Request, o Options) (reply Reply) {
	unsent := func(err error) Reply { return Reply{NotSent: true, Err: err} }
	if rt == nil {
		return unsent(errors.New("no transport is given"))
	}
	if o.MaxAnswer <= 0 {
		return unsent(errors.New("the bound on the answer's length must be above zero"))
	}
	if _, ok := ctx.Deadline(); !ok {
		return unsent(errors.New("the attempt's context has no deadline"))
	}
	out, err := build(req)
	if err != nil {
		return unsent(err)
	}
	if ctx.Err() != nil {
		return unsent(safe(ctx, ctx.Err()))
	}
	if o.Late != nil && o.Late() {
		return Reply{NotSent: true, Late: true, Err: errLate}
	}

	inner, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ev := &evidence{late: o.Late, cancel: cancel}
	out = out.WithContext(httptrace.WithClientTrace(inner, ev.trace()))

	res, err := roundTrip(rt, out)
	if err != nil {
		if res != nil && res.Body != nil {
			res.Body.Close() // against the contract, and nothing to learn from it
		}
		return ev.failed(ctx, err)
	}
	reply = Reply{Status: res.StatusCode, Proto: res.Proto, Header: res.Header.Clone(), Late: ev.wasLate()}
	reply.Header.Del("Set-Cookie") // a credential, and nobody's who sends an intent
	reply.Body, err = readAnswer(req.Method, res, reply.Header, o.MaxAnswer)
	if err != nil {
		reply.Cut, reply.Err = true, safe(ctx, err)
	}
	return reply
}

// roundTrip turns what a foreign transport may do wrong into errors.
func roundTrip(rt http.RoundTripper, req *http.Request) (res *http.Response, err error) {
	defer func() {
		// What was recovered is left out: it may quote the request.
		if v := recover(); v != nil {
			res, err = nil, phrase(fmt.Sprintf("the transport panicked (%T)", v), nil)
		}
	}()
	res, err = rt.RoundTrip(req)
	if res == nil && err == nil {
		err = phrase("the transport returned neither an answer nor an error", nil)
	}
	return res, err
}

var errLate = phrase("too late to send: the attempt's time is up", nil)

// errTooLong and its kin say why an answer was not read whole.
var (
	errTooLong  = phrase("the answer is longer than allowed", nil)
	errCoding   = phrase("the answer has a Content-Encoding that was not asked for", nil)
	errSwitched = phrase("the server switched to another protocol", nil)
	errShort    = phrase("the answer is shorter than its Content-Length", io.ErrUnexpectedEOF)
)
