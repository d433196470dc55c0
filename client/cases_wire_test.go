package client_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/keyring"
)

// streams is an HTTP/2 server that resets streams as a script says, which the
// provider in a box cannot. After the script it acts and answers 201.
type streams struct {
	url string
	rt  *http.Transport

	mu      sync.Mutex
	resets  []http2.ErrCode
	open    []net.Conn
	seen    []string // the keys of the requests that began to arrive
	effects int
}

func newStreams(t *testing.T, resets ...http2.ErrCode) *streams {
	t.Helper()
	lender := httptest.NewUnstartedServer(nil) // of a certificate
	lender.StartTLS()
	t.Cleanup(lender.Close)
	pool := x509.NewCertPool()
	pool.AddCert(lender.Certificate())
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: lender.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	s := &streams{url: "https://" + l.Addr().String(), resets: resets}
	s.rt = &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{RootCAs: pool}}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		s.rt.CloseIdleConnections()
		l.Close()
		s.mu.Lock()
		for _, conn := range s.open {
			conn.Close()
		}
		s.mu.Unlock()
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.mu.Lock()
			s.open = append(s.open, conn)
			s.mu.Unlock()
			wg.Go(func() { s.serve(conn) })
		}
	})
	return s
}

func (s *streams) serve(conn net.Conn) {
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil {
		return
	}
	fr := http2.NewFramer(conn, conn)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if fr.WriteSettings() != nil {
		return
	}
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				err = fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				err = fr.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			var key string
			for _, f := range frame.RegularFields() {
				if f.Name == "idempotency-key" {
					key = f.Value
				}
			}
			s.mu.Lock()
			s.seen = append(s.seen, key)
			s.mu.Unlock()
			if frame.StreamEnded() {
				err = s.act(fr, frame.StreamID)
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				err = s.act(fr, frame.StreamID)
			}
		}
		if err != nil {
			return
		}
	}
}

func (s *streams) act(fr *http2.Framer, id uint32) error {
	s.mu.Lock()
	code := http2.ErrCodeNo
	if len(s.resets) > 0 {
		code, s.resets = s.resets[0], s.resets[1:]
	}
	if code != http2.ErrCodeRefusedStream {
		s.effects++
	}
	s.mu.Unlock()
	if code != http2.ErrCodeNo {
		return fr.WriteRSTStream(id, code)
	}
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range []hpack.HeaderField{{Name: ":status", Value: "201"}, {Name: "content-type", Value: "application/json"}} {
		if err := enc.WriteField(f); err != nil {
			return err
		}
	}
	if err := fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		return err
	}
	return fr.WriteData(id, true, []byte(`{"id":"eff_1"}`))
}

// TestC31: a stream that was refused before processing is safe to send again;
// any other reset is not.
func TestC31OnlyARefusedStreamIsSentAgainWithoutDedup(t *testing.T) {
	for _, c := range []struct {
		claim   string
		resets  []http2.ErrCode
		dedup   bool
		want    keyring.State
		streams int
		effects int
	}{
		{"refused, then served", []http2.ErrCode{http2.ErrCodeRefusedStream}, false, keyring.StateDone, 2, 1},
		{"acted, then reset", []http2.ErrCode{http2.ErrCodeInternal}, false, keyring.StateUnknown, 1, 1},
		{"refused, then acted and reset", []http2.ErrCode{http2.ErrCodeRefusedStream, http2.ErrCodeInternal}, false, keyring.StateUnknown, 2, 1},
		{"refused each time", []http2.ErrCode{http2.ErrCodeRefusedStream, http2.ErrCodeRefusedStream}, false, keyring.StateNeverSent, 2, 0},
		{"cancelled by the server", []http2.ErrCode{http2.ErrCodeCancel}, false, keyring.StateUnknown, 1, 1},
		{"with de-duplication a reset is followed by the same key", []http2.ErrCode{http2.ErrCodeInternal}, true, keyring.StateDone, 2, 2}, // this server de-duplicates nothing
	} {
		t.Run(c.claim, func(t *testing.T) {
			s := newStreams(t, c.resets...)
			p := nodedup(t)
			if c.dedup {
				p = dedup(t)
			}
			e := start(t, p, nil, client.Options{Transport: s.rt, Retry: quick(2)})
			e.url = s.url
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, c.want)
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.seen) != c.streams || s.effects != c.effects || len(slices.Compact(slices.Clone(s.seen))) != 1 || s.seen[0] != res.Intent.Key.String() {
				t.Errorf("streams %q, %d effects; want %d, %d, all under %s", s.seen, s.effects, c.streams, c.effects, res.Intent.Key)
			}
			for i, a := range res.Intent.Attempts {
				refused := i < len(c.resets) && c.resets[i] == http2.ErrCodeRefusedStream
				if (a.Verdict.Kind == keyring.VerdictNotProcessed) != refused {
					t.Errorf("attempt %d reads as %s (%s)", a.Number, a.Verdict.Kind, a.Verdict.Why)
				}
			}
			if c.want == keyring.StateUnknown && !errors.Is(err, keyring.ErrNeedsInspection) {
				t.Errorf("%v; want a look to be asked for", err)
			}
		})
	}
}
