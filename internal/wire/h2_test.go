package wire

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// frames is an HTTP/2 server made by hand, for what a real one does not do on
// demand. What it does with each request is scripted; after the script it
// answers 200.
type frames struct {
	url string
	rt  *http.Transport

	mu      sync.Mutex
	script  []action
	open    []net.Conn
	streams int // requests that began to arrive, over all connections
	whole   int // requests that arrived to their last byte
	methods []string
}

// action is what is done with a request.
type action func(fr *http2.Framer, conn net.Conn, id uint32)

func reset(code http2.ErrCode) action {
	return func(fr *http2.Framer, _ net.Conn, id uint32) { fr.WriteRSTStream(id, code) }
}

// goAway says that the stream before id was the last to be processed.
func goAway(code http2.ErrCode) action {
	return func(fr *http2.Framer, _ net.Conn, id uint32) {
		last := uint32(0)
		if id > 2 {
			last = id - 2
		}
		fr.WriteGoAway(last, code, []byte("SECRET"))
	}
}

func hangUp(_ *http2.Framer, conn net.Conn, _ uint32) { conn.Close() }

func newFrames(t *testing.T, script ...action) *frames {
	t.Helper()
	// Borrowed for its certificate.
	lender := httptest.NewUnstartedServer(nil)
	lender.StartTLS()
	t.Cleanup(lender.Close)
	pool := x509.NewCertPool()
	pool.AddCert(lender.Certificate())

	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: lender.TLS.Certificates, NextProtos: []string{"h2"}})
	if err != nil {
		t.Fatal(err)
	}
	f := &frames{url: "https://" + l.Addr().String(), rt: NewTransport(), script: script}
	f.rt.TLSClientConfig = &tls.Config{RootCAs: pool}
	var wg sync.WaitGroup
	t.Cleanup(func() {
		f.rt.CloseIdleConnections()
		l.Close()
		f.mu.Lock()
		open := f.open
		f.mu.Unlock()
		for _, conn := range open {
			conn.Close()
		}
		wg.Wait()
	})
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { f.serve(conn) })
		}
	})
	return f
}

func (f *frames) serve(conn net.Conn) {
	defer conn.Close()
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(conn, preface); err != nil || !bytes.Equal(preface, []byte(http2.ClientPreface)) {
		return
	}
	f.mu.Lock()
	f.open = append(f.open, conn)
	f.mu.Unlock()
	fr := http2.NewFramer(conn, conn)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	fr.WriteSettings()
	for {
		frame, err := fr.ReadFrame()
		if err != nil {
			return
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				fr.WriteSettingsAck()
			}
		case *http2.PingFrame:
			if !frame.IsAck() {
				fr.WritePing(true, frame.Data)
			}
		case *http2.MetaHeadersFrame:
			f.mu.Lock()
			f.streams++
			f.methods = append(f.methods, frame.PseudoValue("method"))
			f.mu.Unlock()
			if frame.StreamEnded() {
				f.act(fr, conn, frame.StreamID)
			}
		case *http2.DataFrame:
			if frame.StreamEnded() {
				f.act(fr, conn, frame.StreamID)
			}
		}
	}
}

func (f *frames) act(fr *http2.Framer, conn net.Conn, id uint32) {
	f.mu.Lock()
	f.whole++
	var do action
	if len(f.script) > 0 {
		do, f.script = f.script[0], f.script[1:]
	}
	f.mu.Unlock()
	if do != nil {
		do(fr, conn, id)
		return
	}
	var block bytes.Buffer
	if err := hpack.NewEncoder(&block).WriteField(hpack.HeaderField{Name: ":status", Value: "200"}); err != nil {
		panic(err)
	}
	fr.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
}

func (f *frames) counts() (conns, streams int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.open), f.streams
}
