package clienttest

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options change what a [Server] does. The zero value de-duplicates by the
// header Idempotency-Key, for ever, and keeps refusals like successes.
type Options struct {
	// NoDedup makes every hit an effect. [Server.Dedup] decides by path.
	NoDedup bool

	// KeyHeader names the header with the key. Empty means Idempotency-Key. A
	// value in double quotes is read as a string of RFC 8941.
	KeyHeader string

	// Key finds the key where it does not stand in a header. Nil: KeyHeader.
	Key func(Seen) string

	// Retention is how long a key is remembered, by the server's clock. Zero
	// means for ever.
	Retention time.Duration

	// StoreLag is how long after an effect, by the server's clock, its key is
	// known. Before that the same key acts again, and a running key is not
	// recognised. Zero means that the key is known before the effect.
	StoreLag time.Duration

	// ForgetRefusals frees the key when the operation answers 400 or more.
	ForgetRefusals bool

	// Now is the server's clock; [Server.Advance] is added to it. Nil means
	// time.Now.
	Now func() time.Time

	// Act does the operation and answers. A status below 400 counts as an
	// effect, unless the method is GET or HEAD. It is called by many goroutines
	// at once, but never twice at once for one key that is de-duplicated. Nil
	// means 201 with {"id":"eff_N","path":"..."}, and 200 with {} for GET and
	// HEAD.
	Act func(Seen) (status int, header http.Header, body []byte)

	// Fault chooses what happens to a hit for which no script is left. Nil
	// means [Normal]. [RefuseConnection] has no effect here.
	Fault func(Seen) Fault
}

// Seen is one hit.
type Seen struct {
	N          int // from 1, over all paths
	KeyHit     int // from 1, among the hits with this key; 0 without a key
	Method     string
	Path       string
	Query      string // raw, without the question mark
	Header     http.Header
	Length     int64  // the Content-Length that came with it; -1: none or chunked
	Chunked    bool   // of HTTP/1.1 requests
	Proto      string // "HTTP/1.1", "HTTP/2.0"
	Body       []byte // for Options.Act and Options.Fault only; nil in Server.Requests
	BodyDigest string // SHA-256, hexadecimal; empty if the body was left unread
	Key        string // empty: none
	At         time.Time
}

// Server is a provider. It is an http.Handler, to be mounted anywhere; it can
// listen by itself, and it can do without sockets. All methods may be called
// at once from many goroutines. Close it after use.
type Server struct {
	opts Options

	mu      sync.Mutex
	seen    []Seen
	acted   []Seen // the hits that had an effect
	effects int    // ids given out
	keys    map[string]*entry
	keyHits map[string]int
	dedup   map[string]bool    // by path
	scripts map[string][]Fault // by path; "" is for all others
	changed chan struct{}      // closed and replaced with each hit
	release chan struct{}      // closed and replaced with each Release
	skew    time.Duration
	open    map[net.Conn]struct{}
	most    int

	listeners []*http.Server
	clients   []*http.Transport
	closed    chan struct{}
	closeOnce sync.Once
	running   sync.WaitGroup
}

// NewServer returns a provider that listens nowhere yet. Nil means no options.
func NewServer(opts *Options) *Server {
	s := &Server{
		keys:    map[string]*entry{},
		keyHits: map[string]int{},
		dedup:   map[string]bool{},
		scripts: map[string][]Fault{},
		changed: make(chan struct{}),
		release: make(chan struct{}),
		open:    map[net.Conn]struct{}{},
		closed:  make(chan struct{}),
	}
	if opts != nil {
		s.opts = *opts
	}
	if s.opts.KeyHeader == "" {
		s.opts.KeyHeader = "Idempotency-Key"
	}
	if s.opts.Now == nil {
		s.opts.Now = time.Now
	}
	return s
}

// Script adds faults, one for each hit to come on any path without a script of
// its own. After the last one hits are normal again, or as Options.Fault says.
func (s *Server) Script(faults ...Fault) { s.On("", faults...) }

// On adds faults for the hits on one path, such as "/payments". The query does
// not count.
func (s *Server) On(path string, faults ...Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.scripts[path] = append(s.scripts[path], faults...)
}

// Unscript drops what is left of all scripts.
func (s *Server) Unscript() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.scripts)
}

// Dedup switches the de-duplication of one path on or off, whatever
// Options.NoDedup says.
func (s *Server) Dedup(path string, on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dedup[path] = on
}

// Release lets go on whatever stalls at this moment.
func (s *Server) Release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.release)
	s.release = make(chan struct{})
}

// Advance moves the server's clock forward, or back. Retention and StoreLag
// are judged by it; Work and Wait are not.
func (s *Server) Advance(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.skew += d
}

// Forget makes the server forget one key before its time. A request that is
// running goes on; its answer is not kept.
func (s *Server) Forget(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.keys, key)
}

// ForgetAll forgets all keys.
func (s *Server) ForgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.keys)
}

// Hits returns how many requests arrived: on these paths, or on all without
// any.
func (s *Server) Hits(paths ...string) int { return len(s.pick(&s.seen, paths)) }

// Effects returns how often the operation was really done.
func (s *Server) Effects(paths ...string) int { return len(s.pick(&s.acted, paths)) }

// Requests returns the hits in the order in which they arrived, without their
// bodies.
func (s *Server) Requests(paths ...string) []Seen { return s.pick(&s.seen, paths) }

// Keys returns the different keys seen, in the order of their first arrival.
func (s *Server) Keys(paths ...string) []string {
	return distinct(s.pick(&s.seen, paths), func(r Seen) string { return r.Key })
}

// Bodies returns the different bodies seen, as hexadecimal SHA-256, in the
// order of their first arrival. The empty body counts as one; bodies left
// unread are not counted.
func (s *Server) Bodies(paths ...string) []string {
	return distinct(s.pick(&s.seen, paths), func(r Seen) string { return r.BodyDigest })
}

// String sums up what was seen, for failure messages.
func (s *Server) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hits=%d effects=%d keys=%d bodies=%d", s.Hits(), s.Effects(), len(s.Keys()), len(s.Bodies()))
	for _, r := range s.Requests() {
		fmt.Fprintf(&b, "\n\t%d. %s %s key %q, body %.8s", r.N, r.Method, r.Path, r.Key, r.BodyDigest)
	}
	return b.String()
}

func (s *Server) pick(from *[]Seen, paths []string) []Seen {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []Seen
	for _, r := range *from {
		if len(paths) == 0 || slices.Contains(paths, r.Path) {
			r.Header = r.Header.Clone()
			out = append(out, r)
		}
	}
	return out
}

// distinct leaves out empty values.
func distinct(in []Seen, by func(Seen) string) []string {
	var out []string
	met := map[string]bool{"": true}
	for _, r := range in {
		if v := by(r); !met[v] {
			met[v] = true
			out = append(out, v)
		}
	}
	return out
}

// WaitHits returns nil once n requests have arrived on these paths, or on all
// without any. It returns the context's error when that ends first.
func (s *Server) WaitHits(ctx context.Context, n int, paths ...string) error {
	for {
		s.mu.Lock()
		changed := s.changed
		s.mu.Unlock()
		if s.Hits(paths...) >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// now needs s.mu.
func (s *Server) now() time.Time { return s.opts.Now().Add(s.skew) }

// Close ends all stalls, closes what listens, and waits until no request is
// being handled and no working time is running. Closing twice is harmless.
func (s *Server) Close() error {
	s.closeOnce.Do(func() {
		close(s.closed)
		s.mu.Lock()
		listeners, clients := s.listeners, s.clients
		s.mu.Unlock()
		for _, t := range clients {
			t.CloseIdleConnections()
		}
		for _, l := range listeners {
			_ = l.Close() // its error is about listeners that are closed already
		}
	})
	s.running.Wait()
	return nil
}
