package clienttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"strconv"
	"time"
)

// ServeHTTP handles one request. To lose an answer it closes the connection of
// an HTTP/1.1 request, and resets the stream of an HTTP/2 one.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !s.enter() {
		drop(w)
		return
	}
	defer s.running.Done()

	seen, out := s.serve(r.Context(), Seen{
		Method:  r.Method,
		Path:    r.URL.Path,
		Query:   r.URL.RawQuery,
		Header:  r.Header.Clone(),
		Length:  r.ContentLength,
		Chunked: len(r.TransferEncoding) > 0,
		Proto:   r.Proto,
	}, func() ([]byte, error) { return io.ReadAll(r.Body) })
	if out.drop {
		drop(w)
		return
	}
	for name, values := range out.head(seen.N) {
		w.Header()[name] = values
	}
	whole := !out.cut && !out.stall
	if len(out.body) > 0 || whole {
		w.Header().Set("Content-Length", strconv.Itoa(len(out.body)))
	}
	if out.status == http.StatusNoContent || out.status == http.StatusNotModified {
		w.Header().Del("Content-Length")
	}
	w.WriteHeader(out.status)
	part := out.body
	if !whole {
		part = out.body[:out.part()]
	}
	w.Write(part) // an error means that the client has left
	if whole {
		return
	}
	_ = http.NewResponseController(w).Flush() // likewise
	if out.cut || !s.pause(r.Context(), out.resume) {
		panic(http.ErrAbortHandler)
	}
	w.Write(out.body[len(part):])
}

// enter counts a request as being handled, unless the server is closed.
func (s *Server) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
		return false
	default:
	}
	s.running.Add(1)
	return true
}

// drop ends the exchange without an answer. Closing by hand works beneath
// middleware that recovers from panics; HTTP/2 leaves only the panic.
func drop(w http.ResponseWriter) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	conn.Close()
}

// Listen starts to listen on a port of the loopback interface for HTTP/1.1 and
// returns the URL, such as "http://127.0.0.1:40001".
func (s *Server) Listen() (url string, err error) {
	return s.listen(nil)
}

// ListenTLS is like [Server.Listen] for HTTPS with HTTP/2. The transport trusts
// the certificate made for it and speaks HTTP/2; without it, clients fail with
// a certificate error. [Server.Close] closes its idle connections.
func (s *Server) ListenTLS() (url string, transport *http.Transport, err error) {
	cert, pool, err := selfSigned()
	if err != nil {
		return "", nil, fmt.Errorf("clienttest: making a certificate: %w", err)
	}
	url, err = s.listen(&tls.Config{Certificates: []tls.Certificate{cert}, NextProtos: []string{"h2", "http/1.1"}})
	if err != nil {
		return "", nil, err
	}
	transport = &http.Transport{
		TLSClientConfig:     &tls.Config{RootCAs: pool},
		ForceAttemptHTTP2:   true,
		DisableCompression:  true,
		TLSHandshakeTimeout: 10 * time.Second,
	}
	s.mu.Lock()
	s.clients = append(s.clients, transport)
	s.mu.Unlock()
	return url, transport, nil
}

func (s *Server) listen(config *tls.Config) (string, error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0") // nothing to wait for
	if err != nil {
		return "", fmt.Errorf("clienttest: listening: %w", err)
	}
	server := &http.Server{
		Handler:           s,
		TLSConfig:         config,
		ReadHeaderTimeout: 10 * time.Second,
		ConnState:         s.count,
		ErrorLog:          log.New(io.Discard, "", 0), // lost answers are on purpose
	}
	s.mu.Lock()
	select {
	case <-s.closed:
		s.mu.Unlock()
		l.Close()
		return "", fmt.Errorf("clienttest: listening: %w", http.ErrServerClosed)
	default:
	}
	s.listeners = append(s.listeners, server)
	s.running.Add(1)
	s.mu.Unlock()
	go func() {
		defer s.running.Done()
		if config != nil {
			_ = server.ServeTLS(l, "", "") // always an error: the one after Close
		} else {
			_ = server.Serve(l)
		}
	}()
	scheme := "http://"
	if config != nil {
		scheme = "https://"
	}
	return scheme + l.Addr().String(), nil
}

// count follows the connections.
func (s *Server) count(c net.Conn, state http.ConnState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch state {
	case http.StateNew:
		s.open[c] = struct{}{}
		s.most = max(s.most, len(s.open))
	case http.StateClosed, http.StateHijacked:
		delete(s.open, c)
	case http.StateActive, http.StateIdle:
	}
}

// Connections returns how many connections are open over sockets, and how many
// there were at most at once.
func (s *Server) Connections() (open, most int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open), s.most
}

// selfSigned makes a certificate for the loopback address that lives for a day.
func selfSigned() (tls.Certificate, *x509.CertPool, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(now.UnixNano()),
		Subject:               pkix.Name{CommonName: "clienttest"},
		NotBefore:             now.Add(-time.Hour),
		NotAfter:              now.Add(24 * time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
		DNSNames:              []string{"localhost"},
		IPAddresses:           []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, pool, nil
}
