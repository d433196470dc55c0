package wire

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// readAnswer reads the answer's body to its end, up to limit bytes, and closes
// it. Read to its end, the connection can be used again; closed before, it is
// given up, which is cheaper than draining what nobody bounds. An error means
// that the bytes are not the whole answer.
//
// Nothing compressed is asked for, unless by the request itself. gzip is
// undone all the same, and taken off the header, as net/http would; any other
// coding leaves the bytes as they came, with an error.
func readAnswer(method string, res *http.Response, header http.Header, limit int64) (b []byte, err error) {
	if res.Body == nil {
		return nil, nil
	}
	defer func() {
		if v := recover(); v != nil { // of a foreign transport's body
			err = phrase(fmt.Sprintf("the answer's body panicked (%T)", v), nil)
		}
	}()
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return nil, errSwitched // its body is the bare connection, and has no end
	}
	bodyless := method == http.MethodHead || res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified
	length := res.ContentLength
	if bodyless {
		length = 0
	}
	coding := strings.Join(header.Values("Content-Encoding"), ",")
	if bodyless || length == 0 || coding == "" || strings.EqualFold(coding, "identity") {
		b, err = readAll(res.Body, length, limit)
		if err == nil && length > int64(len(b)) {
			err = errShort
		}
		return b, err
	}
	if !strings.EqualFold(coding, "gzip") && !strings.EqualFold(coding, "x-gzip") {
		b, err = readAll(res.Body, length, limit)
		if err == nil {
			err = errCoding
		}
		return b, err
	}
	// Compressed bytes are bounded too: there are streams that decode to
	// nothing for ever. Small answers can grow by compression, hence the rest.
	z, err := gzip.NewReader(io.LimitReader(res.Body, limit+64<<10))
	if errors.Is(err, io.EOF) { // not a byte: an empty answer
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	b, err = readAll(z, -1, limit)
	header.Del("Content-Encoding")
	header.Del("Content-Length")
	return b, err
}

// readAll reads r to its end. length is what r is said to have, below zero if
// unknown; it saves copying, and is trusted no further than the bytes that
// have come: a false one must not cost memory. At most limit bytes are kept,
// and errTooLong is returned if there are more; while it grows, at most the
// double is in use.
func readAll(r io.Reader, length, limit int64) ([]byte, error) {
	const small, idle = 64 << 10, 100
	size := min(int64(512), limit)
	if length >= 0 {
		size = min(length+1, small, limit) // one more, to meet the end in
	}
	b := make([]byte, 0, size)
	var probe [1]byte
	for empty := 0; ; {
		full := int64(len(b)) == limit
		room := b[len(b):cap(b)]
		switch {
		case full:
			room = probe[:]
		case len(room) == 0:
			size = min(max(2*int64(cap(b)), 512), limit)
			if length > int64(cap(b)) && cap(b) >= small {
				size = min(length+1, limit)
			}
			b = append(make([]byte, 0, size), b...)
			room = b[len(b):cap(b)]
		}
		n, err := r.Read(room)
		if full && n > 0 {
			return b, errTooLong
		}
		b = b[:len(b)+n]
		switch {
		case errors.Is(err, io.EOF):
			return b, nil
		case err != nil:
			return b, err
		case n > 0:
			empty = 0
		default:
			if empty++; empty == idle {
				return b, io.ErrNoProgress
			}
		}
	}
}
