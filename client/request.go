package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/keyring"
)

// given is a request as a caller handed it over, read and taken apart.
type given struct {
	draft keyring.Draft
	taken canon.Taken // credentials and tracing headers, for this call alone
}

// quiet is an error with a text of ours around a cause whose text might quote
// what must not be shown.
type quiet struct {
	text  string
	cause error
}

func (q quiet) Error() string   { return q.text }
func (q quiet) Unwrap() []error { return []error{keyring.ErrInvalid, q.cause} }

// read takes req apart. The body is read here, once, and closed.
func (c *Client) read(req *http.Request) (given, error) {
	if req == nil || req.URL == nil {
		return given{}, fmt.Errorf("%w: the request or its URL is nil", keyring.ErrInvalid)
	}
	body, err := c.readBody(req)
	if err != nil {
		return given{}, err
	}
	switch {
	case req.Host != "" && req.URL.Host != "" && !strings.EqualFold(req.Host, req.URL.Host):
		return given{}, fmt.Errorf("%w: the request's Host is not that of its URL, which is not supported", keyring.ErrInvalid)
	case len(req.Trailer) > 0:
		return given{}, fmt.Errorf("%w: the request has trailers, which are not supported", keyring.ErrInvalid)
	}
	method := req.Method
	if method == "" {
		method = http.MethodGet
	}
	rawURL := req.URL.String()
	header := req.Header.Clone()
	g := given{}
	if name := c.profile.KeyHeader(method, rawURL); name != "" {
		if g.draft.Key, err = callersKey(header, name); err != nil {
			return given{}, err
		}
		header.Del(name)
	}
	request := keyring.Request{Method: method, URL: rawURL, Header: header, Body: body}
	clean, taken, err := canon.Strip(canon.Request(request), c.names)
	if err != nil {
		return given{}, fmt.Errorf("%w: %w", keyring.ErrInvalid, err)
	}
	g.taken = taken
	// What is stored is stripped by the ring as well; it is given the whole
	// request so that it notes which credentials the request needs.
	g.draft.Request = request
	g.draft.Terms = c.profile.TermsFor(keyring.Request(clean))
	g.draft.Contract.Place = c.profile.Place(method, clean.URL)
	g.draft.Contract.Credentials = c.opts.Credentials
	return g, nil
}

// readBody reads at most MaxBody bytes.
func (c *Client) readBody(req *http.Request) ([]byte, error) {
	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}
	defer req.Body.Close()
	if req.ContentLength > c.opts.MaxBody {
		return nil, c.tooLarge()
	}
	body, err := io.ReadAll(io.LimitReader(req.Body, max(c.opts.MaxBody, c.opts.MaxBody+1)))
	switch {
	case err != nil:
		return nil, quiet{"the request's body cannot be read", err}
	case int64(len(body)) > c.opts.MaxBody:
		return nil, c.tooLarge()
	case req.ContentLength > 0 && int64(len(body)) != req.ContentLength:
		return nil, fmt.Errorf("%w: the request's body has %d bytes, but its ContentLength says %d; was it read before?",
			keyring.ErrInvalid, len(body), req.ContentLength)
	}
	return body, nil
}

func (c *Client) tooLarge() error {
	return fmt.Errorf("%w: the request's body is larger than Options.MaxBody, %d bytes", keyring.ErrInvalid, c.opts.MaxBody)
}

// callersKey takes a key that the caller has put on the request.
func callersKey(header http.Header, name string) (keyring.Key, error) {
	values := header.Values(name)
	switch len(values) {
	case 0:
		return keyring.Key{}, nil
	case 1:
	default:
		return keyring.Key{}, fmt.Errorf("%w: the request carries %d values of %s; give one, or none", keyring.ErrInvalid, len(values), name)
	}
	key, err := keyring.ParseKey(strings.Trim(values[0], `"`))
	if err != nil {
		return keyring.Key{}, fmt.Errorf("header %s: %w", name, err)
	}
	return key, nil
}

// checkOrigin reports ErrOrigin unless the URL's origin may be sent to. fromCaller
// says that the caller named the URL in this very call.
func (c *Client) checkOrigin(rawURL string, fromCaller, secrets bool) error {
	origin := canon.Origin(rawURL)
	switch {
	case c.origins[origin]:
		return nil
	case len(c.origins) > 0:
		return fmt.Errorf("%w: %s; see Options.Origins", ErrOrigin, origin)
	case fromCaller || !secrets:
		return nil
	}
	return fmt.Errorf("%w: %s is named by the record alone, and credentials would go there; set Options.Origins", ErrOrigin, origin)
}

// authorized gives the request of one attempt: what is on record, with the
// credentials of this call, then those of Options.Authorize. It refuses to
// send when Authorize changed what is on record.
func (c *call) authorized(ctx context.Context, in keyring.Intent) (*http.Request, error) {
	full, err := c.taken.Put(canon.Request(in.Request))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", keyring.ErrInvalid, err)
	}
	req, err := http.NewRequestWithContext(ctx, full.Method, full.URL, newBody(full.Body))
	if err != nil {
		return nil, quiet{"the request cannot be made", err}
	}
	req.ContentLength = int64(len(full.Body))
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(newBody(full.Body)), nil }
	for name, values := range full.Header {
		req.Header[name] = append([]string(nil), values...)
	}
	if c.client.opts.Authorize != nil {
		if err := c.client.opts.Authorize(ctx, req); err != nil {
			return nil, authorizeError{err}
		}
	}
	if err := c.client.unchanged(in.Request, req); err != nil {
		return nil, err
	}
	if u := req.URL.User; u != nil {
		if req.Header.Get("Authorization") == "" {
			password, _ := u.Password()
			req.SetBasicAuth(u.Username(), password)
		}
		req.URL.User = nil
	}
	return req, nil
}

// authorizeError tells that Options.Authorize could not give credentials. It
// does not quote the cause, which often quotes an exchange with a token server.
type authorizeError struct{ cause error }

func (a authorizeError) Error() string {
	return fmt.Sprintf("Options.Authorize reported an error (%T)", a.cause)
}
func (a authorizeError) Unwrap() error { return a.cause }

var errAuthorize = errors.New("Options.Authorize changed more than credentials")

// unchanged says whether req still is the stored request, with nothing added
// but credentials and tracing headers.
func (c *Client) unchanged(stored keyring.Request, req *http.Request) error {
	refuse := func(what string) error { return fmt.Errorf("%w: %w: %s", keyring.ErrInvalid, errAuthorize, what) }
	if req.Method != stored.Method {
		return refuse("method")
	}
	for name, values := range stored.Header {
		if !slices.Equal(req.Header[name], values) {
			return refuse("header " + name)
		}
	}
	for name := range req.Header {
		canonical := http.CanonicalHeaderKey(name)
		_, known := stored.Header[canonical]
		switch {
		case known && name == canonical:
		case known:
			return refuse("header " + canonical + ", in another spelling")
		case !c.names.Header(name) && !canon.Trace(name):
			return refuse("header " + canonical + " (if it is a credential, name it in Options.Credentials)")
		}
	}
	want, err := url.Parse(stored.URL)
	if err != nil || req.URL == nil {
		return refuse("URL")
	}
	bare := *req.URL
	bare.User = nil
	added, ok := strings.CutPrefix(bare.String(), want.String())
	if !ok || added != "" && added[0] != '?' && added[0] != '&' {
		return refuse("URL")
	}
	for _, q := range strings.FieldsFunc(added, func(c rune) bool { return c == '?' || c == '&' || c == ';' }) {
		name, _, _ := strings.Cut(q, "=")
		if n, err := url.QueryUnescape(name); err != nil || !c.names.Param(n) {
			return refuse("query, by a parameter that is no credential (if it is one, name it in Options.Credentials)")
		}
	}
	return nil
}

// newBody gives each use a reader of its own over bytes that never change.
func newBody(b []byte) *bodyReader { return &bodyReader{b: b} }

// bodyReader hides the type of its reader from net/http, which would set
// GetBody for those it knows.
type bodyReader struct{ b []byte }

// Read reads the next bytes.
func (r *bodyReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.b)
	r.b = r.b[n:]
	return n, nil
}
