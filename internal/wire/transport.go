package wire

import (
	"net"
	"net/http"
	"time"
)

// NewTransport returns the transport that a client uses where it is given
// none. It is to be shared, and its idle connections are to be closed in the
// end. It is made by hand rather than cloned from http.DefaultTransport, which
// programs replace.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 30 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:               http.ProxyFromEnvironment,
		DialContext:         dialer.DialContext,
		ForceAttemptHTTP2:   true,
		DisableCompression:  true, // an answer is kept as it came
		TLSHandshakeTimeout: 10 * time.Second,
		MaxIdleConns:        128,
		// Two, the default, would have most of a busy program's callers dial.
		MaxIdleConnsPerHost: 64,
		// A connection that the server closes at the moment it is used leaves
		// doubt. Servers close idle ones after a minute or more, mostly; half
		// of that keeps away from it.
		IdleConnTimeout:       30 * time.Second,
		ExpectContinueTimeout: time.Second,
		// The default is 10 MiB; answers in our field have a few KiB.
		MaxResponseHeaderBytes: 256 << 10,
		// After a machine's sleep its HTTP/2 connections are dead without
		// knowing it; a ping tells before the attempt's deadline does.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 10 * time.Second, PingTimeout: 5 * time.Second},
	}
}
