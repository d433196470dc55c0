package wire

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/textproto"
	"net/url"
	"strings"
)

// userAgent is sent where the request names none. It has no version in it: an
// upgrade must not change what an open intent sends.
const userAgent = "samekey"

// connectionHeaders belong to a connection or to the framing of a message, not
// to the request. Proxy-Authorization is among them: sent through a CONNECT
// proxy it would reach the provider.
var connectionHeaders = map[string]bool{
	"Connection":          true,
	"Content-Length":      true,
	"Host":                true,
	"Keep-Alive":          true,
	"Proxy-Authorization": true,
	"Proxy-Connection":    true,
	"Te":                  true,
	"Trailer":             true,
	"Transfer-Encoding":   true,
	"Upgrade":             true,
}

// build makes the request in the one form that net/http sends once.
//
// net/http sends a request again by itself when a kept-alive connection dies,
// or an HTTP/2 stream is refused, if it can have the body once more: if Body is
// nil or NoBody, or GetBody is set; and, over HTTP/1.1, if the method or an
// Idempotency-Key header makes it look repeatable. So Body is always a reader
// of our own and GetBody is nil.
//
// For an empty body that has a price, measured with Go 1.26: a length of zero
// with a reader reads as "unknown", and would be sent chunked, or probed and
// then replaced by nil. TransferEncoding "identity" turns both off, and leaves
// no Content-Length at all, which some servers answer with 411 to a POST.
// net/http drops the header Content-Length by its canonical name alone; in
// lower case it goes out as it is over HTTP/1.1 (there header names have no
// case). Over HTTP/2 it is always dropped: there an empty body arrives as an
// empty frame that ends the stream, without a length, which needs none.
func build(r Request) (*http.Request, error) {
	if !token(r.Method) {
		return nil, errors.New("the request's method is empty or not an HTTP token")
	}
	u, err := url.Parse(r.URL)
	switch {
	case err != nil: // err quotes the URL
		return nil, errors.New("the request's URL cannot be parsed")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("the request's URL must begin with http:// or https://")
	case u.Hostname() == "" || u.Opaque != "":
		return nil, errors.New("the request's URL names no host")
	}
	header, err := headerOf(r.Header)
	if err != nil {
		return nil, err
	}
	out := &http.Request{
		Method: r.Method, URL: u, Host: u.Host, Header: header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		ContentLength: int64(len(r.Body)),
	}
	if len(r.Body) > 0 {
		out.Body = io.NopCloser(bytes.NewReader(r.Body))
		return out, nil
	}
	out.Body = emptyBody{}
	out.TransferEncoding = []string{"identity"}
	switch r.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch:
		header["content-length"] = []string{"0"}
	}
	return out, nil
}

// emptyBody is a body without bytes that is neither nil nor NoBody.
type emptyBody struct{}

func (emptyBody) Read([]byte) (int, error) { return 0, io.EOF }
func (emptyBody) Close() error             { return nil }

// headerOf copies the headers that are sent. net/http would refuse bad ones
// too, but only where it is too late to know that nothing was sent.
func headerOf(in http.Header) (http.Header, error) {
	named := map[string]bool{} // by Connection
	agent := false
	for name, values := range in {
		switch textproto.CanonicalMIMEHeaderKey(name) {
		case "Connection":
			for _, v := range values {
				for option := range strings.SplitSeq(v, ",") {
					named[textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(option))] = true
				}
			}
		case "User-Agent":
			agent = true
		}
	}
	out := make(http.Header, len(in)+2)
	for name, values := range in {
		canonical := textproto.CanonicalMIMEHeaderKey(name)
		if connectionHeaders[canonical] || named[canonical] {
			continue
		}
		if !token(name) {
			return nil, errors.New("a header's name is not an HTTP token")
		}
		for _, v := range values {
			if strings.ContainsFunc(v, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }) {
				return nil, fmt.Errorf("header %s has a control character in its value", name)
			}
		}
		out[name] = append([]string(nil), values...)
	}
	if !agent || named["User-Agent"] {
		out["User-Agent"] = []string{userAgent}
	}
	return out, nil
}

// token says whether s is an HTTP token (RFC 9110, 5.6.2).
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		switch {
		case '0' <= c && c <= '9', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
			return false
		}
		return !strings.ContainsRune("!#$%&'*+-.^_`|~", c)
	})
}
