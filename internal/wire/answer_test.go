package wire

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/samekey/samekey/client/clienttest"
)

// C35, first two runs.
func TestAnAnswerCutShortIsCut(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		s.Script(clienttest.CutAnswer(13))
		got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed(), Body: []byte("{}")}, options)
		if got.Status != 201 || !got.Cut || len(got.Body) != 13 || got.NotSent || got.Err == nil {
			t.Errorf("got %+v", got)
		}
		if s.Hits() != 1 {
			t.Errorf("got %s", s)
		}
		if got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed(), Body: []byte("{}")}, options); got.Status != 201 || got.Cut || got.Err != nil {
			t.Errorf("got %+v", got)
		}
	})
}

// C35, third run: an answer longer than allowed is kept up to the limit, costs
// little more, and does not hold its connection.
func TestAnAnswerLongerThanAllowedIsCut(t *testing.T) {
	const limit = 10 << 20
	long := bytes.Repeat([]byte("0123456789abcdef"), 11<<16)
	opts := &clienttest.Options{Act: func(r clienttest.Seen) (int, http.Header, []byte) {
		return 201, nil, long[:len(long)-len(r.Body)]
	}}
	onBoth(t, opts, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		send := func(less int) Reply {
			return Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Body: make([]byte, less)}, Options{MaxAnswer: limit})
		}
		send(0) // so that buffers of the connection are there
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		got := send(0)
		runtime.ReadMemStats(&after)
		if got.Status != 201 || !got.Cut || !errors.Is(got.Err, errTooLong) || !bytes.Equal(got.Body, long[:limit]) {
			t.Errorf("status %d, cut %v, %d bytes, error %v", got.Status, got.Cut, len(got.Body), got.Err)
		}
		// All that was allocated, and by the server too, which needs buffers of
		// its own for HTTP/2. Doubling until it fits would take twice the limit.
		bound := uint64(16 << 20)
		if got.Proto == "HTTP/2.0" {
			bound = 19 << 20
		}
		if grown := after.TotalAlloc - before.TotalAlloc; grown > bound {
			t.Errorf("it took %d bytes of memory to keep %d", grown, limit)
		}

		got = send(len(long) - limit)
		if got.Status != 201 || got.Cut || got.Err != nil || len(got.Body) != limit {
			t.Errorf("exactly the limit: status %d, cut %v, %d bytes, error %v", got.Status, got.Cut, len(got.Body), got.Err)
		}
	})
}

func TestAnAnswerWithoutEndIsCut(t *testing.T) {
	gone := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		defer close(gone)
		chunk := make([]byte, 32<<10)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}))
	defer srv.Close()
	rt := NewTransport()
	defer rt.CloseIdleConnections()
	got := Send(within(t), rt, Request{Method: "POST", URL: srv.URL}, Options{MaxAnswer: 100_000})
	if got.Status != 200 || !got.Cut || len(got.Body) != 100_000 {
		t.Errorf("status %d, cut %v, %d bytes", got.Status, got.Cut, len(got.Body))
	}
	<-gone // the connection was given up, not drained
}

// C65, at the wire.
func TestConnectionsAreUsedAgain(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		s.Script(clienttest.Answer(500, clienttest.JSON(), []byte(`{"code":"x"}`)).Forever())
		for range 200 {
			got := Send(within(t), rt, Request{Method: "POST", URL: url + "/pay", Header: keyed(), Body: []byte("{}")}, options)
			if got.Status != 500 || string(got.Body) != `{"code":"x"}` {
				t.Fatalf("got %+v", got)
			}
		}
		if _, most := s.Connections(); most > 2 {
			t.Errorf("there were %d connections", most)
		}
	})
}

func TestTheTimeIsUpWhileTheBodyIsRead(t *testing.T) {
	onBoth(t, nil, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
		s.Script(clienttest.StallBody(5))
		ctx, cancel := context.WithCancel(within(t))
		// The answer's head is there, its body will never be.
		got := Send(ctx, after{rt, cancel}, Request{Method: "POST", URL: url + "/pay"}, options)
		if got.Status != 201 || !got.Cut || !errors.Is(got.Err, context.Canceled) || got.NotSent {
			t.Errorf("got %+v", got)
		}
	})
}

// after does something when the head of an answer is there.
type after struct {
	rt http.RoundTripper
	do func()
}

func (a after) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := a.rt.RoundTrip(req)
	a.do()
	return res, err
}

func zipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestCodingsThatNobodyAskedFor(t *testing.T) {
	plain := []byte(`{"id":"eff_1"}`)
	z := zipped(t, plain)
	broken := bytes.Clone(z)
	broken[len(broken)-1] ^= 1
	cases := []struct {
		name, coding string
		body, want   []byte
		cut          bool
	}{
		{"identity", "identity", plain, plain, false},
		{"gzip", "gzip", z, plain, false},
		{"two members", "GZIP", append(bytes.Clone(z), z...), append(bytes.Clone(plain), plain...), false},
		{"gzip, empty", "gzip", nil, nil, false},
		{"gzip with a wrong checksum", "gzip", broken, plain, true},
		{"gzip cut short", "gzip", z[:len(z)-9], nil, true},
		{"not gzip at all", "gzip", plain, nil, true},
		{"gzip longer than allowed", "gzip", zipped(t, make([]byte, 50<<20)), make([]byte, 1<<20), true},
		{"empty members without end", "gzip", bytes.Repeat(zipped(t, nil), 100_000), nil, true},
		{"another coding", "br", plain, plain, true},
		{"two codings", "gzip, br", plain, plain, true},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			s := clienttest.NewServer(nil)
			defer s.Close()
			s.Script(clienttest.Answer(200, http.Header{"Content-Encoding": {tc.coding}}, tc.body))
			got := Send(within(t), s.RoundTripper(), Request{Method: "POST", URL: "http://provider.test/"}, options)
			if got.Status != 200 || got.Cut != tc.cut || (got.Err != nil) != tc.cut {
				t.Errorf("status %d, cut %v, error %v", got.Status, got.Cut, got.Err)
			}
			if !tc.cut && !bytes.Equal(got.Body, tc.want) || tc.cut && !bytes.HasPrefix(tc.want, got.Body) && tc.want != nil {
				t.Errorf("body is %d bytes, want %d", len(got.Body), len(tc.want))
			}
			if _, there := got.Header["Content-Encoding"]; there && strings.EqualFold(tc.coding, "gzip") && !tc.cut && len(tc.want) > 0 {
				t.Errorf("decoded, and the header still says %q", tc.coding)
			}
		})
	}
}

func TestReadAllKeepsNoMoreThanTheLimit(t *testing.T) {
	for _, have := range []int{0, 1, 511, 512, 513, 70_000, 300_000} {
		for _, limit := range []int64{1, 512, 70_000, 299_999, 300_000, 1 << 20} {
			for _, length := range []int64{-1, 0, 1, int64(have), 1 << 40} { // what it is said to have
				data := bytes.Repeat([]byte{7}, have)
				for name, r := range map[string]io.Reader{
					"end with the last bytes": iotest.DataErrReader(bytes.NewReader(data)),
					"end by itself":           bytes.NewReader(data),
				} {
					b, err := readAll(r, length, limit)
					kept := min(int64(have), limit)
					if int64(len(b)) != kept || int64(cap(b)) > limit || !bytes.Equal(b, data[:kept]) {
						t.Errorf("%s: have %d, limit %d, length %d: kept %d in %d", name, have, limit, length, len(b), cap(b))
					}
					if tooLong := int64(have) > limit; errors.Is(err, errTooLong) != tooLong || (err != nil) != tooLong {
						t.Errorf("%s: have %d, limit %d, length %d: error %v", name, have, limit, length, err)
					}
				}
			}
		}
	}
	if _, err := readAll(iotest.ErrReader(io.ErrUnexpectedEOF), 10, 10); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}
