package wire

import (
	"compress/flate"
	"compress/gzip"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
)

// Error is what went wrong with an exchange, in our own words: the errors of
// net/http quote URLs and the server's bytes. It unwraps to a cause only if
// that is one of a few well-known values.
type Error struct {
	text  string
	cause error
	own   bool // made here, not of a transport's error
}

// Error returns the text, such as "dial: connection refused".
func (e *Error) Error() string { return e.text }

// Unwrap returns the cause, which may be nil.
func (e *Error) Unwrap() error { return e.cause }

func phrase(text string, cause error) *Error { return &Error{text: text, cause: cause, own: true} }

// safe says err in our own words.
func safe(ctx context.Context, err error) error {
	var own *Error
	if errors.As(err, &own) && own.own {
		return own
	}
	text, cause := describe(ctx, err)
	if stage := stageOf(err); stage != "" {
		text = stage + ": " + text
	}
	return &Error{text: text, cause: cause}
}

// stageOf takes from a net.OpError the operations that package net itself
// names; a custom dialer can put anything there.
func stageOf(err error) string {
	var op *net.OpError
	if !errors.As(err, &op) {
		return ""
	}
	switch op.Op {
	case "dial", "read", "write":
		return op.Op
	case "proxyconnect", "socks connect":
		return "proxy"
	}
	return ""
}

// describe knows the errors that a transport meets. The order matters: one
// error can be several of these, and the more telling comes first.
func describe(ctx context.Context, err error) (text string, cause error) {
	// net/http returns the context's cause, which is the caller's own error.
	if ended := context.Cause(ctx); ended != nil && errors.Is(err, ended) {
		err = ctx.Err()
	}
	var (
		dns       *net.DNSError
		host      x509.HostnameError
		authority x509.UnknownAuthorityError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		op        *net.OpError
		timeout   interface{ Timeout() bool }
		errno     syscall.Errno
		stream    streamError
		corrupt   flate.CorruptInputError
	)
	switch {
	case errors.Is(err, context.Canceled):
		return "canceled", context.Canceled
	case errors.Is(err, context.DeadlineExceeded):
		return "timeout", context.DeadlineExceeded
	case errors.As(err, &dns):
		switch {
		case dns.IsNotFound:
			return "dns: no such host", nil
		case dns.IsTimeout:
			return "dns: timeout", os.ErrDeadlineExceeded
		}
		return "dns: the lookup failed", nil
	case errors.As(err, &host):
		return "tls: the server's certificate is for another name", nil
	case errors.As(err, &authority):
		return "tls: the server's certificate is signed by an unknown authority", nil
	case errors.As(err, &invalid):
		if invalid.Reason == x509.Expired {
			return "tls: the server's certificate has expired or is not yet valid", nil
		}
		return "tls: the server's certificate is invalid", nil
	case errors.As(err, &verify):
		return "tls: the server's certificate cannot be verified", nil
	case errors.As(err, &record):
		return "tls: the server does not speak TLS", nil
	case errors.As(err, &op) && op.Op == "remote error":
		return "tls: the server sent an alert", nil
	case errors.As(err, &errno): // before timeouts: ETIMEDOUT is both
		return errno.Error(), errno
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout", os.ErrDeadlineExceeded
	case errors.As(err, &stream):
		return fmt.Sprintf("http2: the stream was reset (error code %d)", stream.Code), nil
	case errors.Is(err, io.ErrUnexpectedEOF):
		return "the connection was closed by the server", io.ErrUnexpectedEOF
	case errors.Is(err, io.EOF):
		return "the connection was closed by the server", io.EOF
	case errors.Is(err, net.ErrClosed):
		return "the connection was closed", net.ErrClosed
	case errors.Is(err, gzip.ErrHeader), errors.Is(err, gzip.ErrChecksum), errors.As(err, &corrupt):
		return "the answer cannot be decoded", nil
	case errors.Is(err, io.ErrNoProgress):
		return "the answer's body gives neither bytes nor an end", nil
	}
	return byText(err.Error()), nil
}

// byText picks a phrase for errors that have nothing but a text. It is for
// people alone; nothing is decided by it.
func byText(s string) string {
	for _, known := range []struct{ part, phrase string }{
		{"server closed idle connection", "the connection was closed by the server"},
		{"server gave HTTP response to HTTPS client", "tls: the server does not speak TLS"},
		{"server response headers exceeded", "the answer's header is longer than allowed"},
		{"malformed", "the answer is not well-formed HTTP"},
		{"GOAWAY", "http2: the server ended the connection"},
		{"tls: ", "tls: the handshake failed"},
	} {
		if strings.Contains(s, known.part) {
			return known.phrase
		}
	}
	return "the exchange failed"
}

// streamError has the shape that the HTTP/2 errors of net/http and
// golang.org/x/net convert themselves to in errors.As: same field names,
// convertible types.
type streamError struct {
	StreamID uint32
	Code     uint32
	Cause    error
}

func (streamError) Error() string { return "http2 stream error" }
