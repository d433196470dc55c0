package client

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"sync"
	"time"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/internal/clock"
	"github.com/samekey/samekey/internal/wire"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

// Client sends intents to one provider. It is made by [New], and its methods
// may be called from many goroutines at once.
type Client struct {
	store   keyring.Store
	ring    *keyring.Ring
	profile provider.Profile
	opts    Options
	origins map[string]bool
	names   canon.Names // credentials by Options.Credentials
	http    *http.Client
	own     *http.Transport // made here because Options.Transport was nil
	err     error           // of store, profile or options; reported by every call

	closing context.Context // ends when Close stops waiting
	stop    context.CancelCauseFunc

	mu     sync.Mutex
	seen   clock.Reading // at the latest attempt, see awake
	calls  int
	closed bool
	idle   chan struct{} // made by Close; closed when calls reaches zero
}

// New returns a client for the provider that profile describes, keeping its
// intents in store. A nil opts means the defaults. A nil store, a profile with
// an error and options that cannot work make every call report
// [keyring.ErrInvalid]; nothing is stored or sent then.
//
// The client uses the store but does not own it: close the client first, then
// the store.
func New(store keyring.Store, profile provider.Profile, opts *Options) *Client {
	c := &Client{store: store, profile: profile}
	if opts != nil {
		c.opts = *opts
	}
	c.closing, c.stop = context.WithCancelCause(context.Background())
	switch {
	case isNil(store):
		store = nil
		c.err = fmt.Errorf("%w: %w", keyring.ErrInvalid, errNilStore)
	case profile.Err() != nil:
		c.err = profile.Err()
	default:
		c.err = c.opts.settle()
	}
	c.names = canon.NamesOf(c.opts.Credentials)
	c.ring = keyring.New(store, &c.opts.Keyring)
	if c.err != nil {
		return c
	}
	if c.origins, c.err = c.opts.origins(profile); c.err != nil {
		return c
	}
	if c.opts.Transport == nil {
		c.own = wire.NewTransport()
		c.opts.Transport = c.own
	}
	c.http = &http.Client{
		Transport: recorder{},
		// A redirect is an answer to read, not an instruction: following it would
		// send body and key to a place that the profile says nothing about.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return c
}

// isNil also sees a nil pointer inside the interface: what a program has that
// did not look at the error of opening its store.
func isNil(store keyring.Store) bool {
	if store == nil {
		return true
	}
	v := reflect.ValueOf(store)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// Ring returns the rules and records below the client, for the application's
// own tools: it asks neither Options.Access nor anybody else.
func (c *Client) Ring() *keyring.Ring { return c.ring }

// enter counts a call in, and gives it a context that also ends when Close
// stops waiting. Each enter needs one leave.
func (c *Client) enter(ctx context.Context) (context.Context, func(), error) {
	switch {
	case c.err != nil:
		return nil, nil, c.err
	case c.ring == nil:
		return nil, nil, fmt.Errorf("%w: a client is made by client.New", keyring.ErrInvalid)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, nil, closedError{}
	}
	c.calls++
	ctx, cancel := context.WithCancelCause(ctx)
	unhook := context.AfterFunc(c.closing, func() { cancel(context.Cause(c.closing)) })
	return ctx, func() {
		unhook()
		cancel(nil)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.calls--
		if c.calls == 0 && c.idle != nil {
			close(c.idle)
			c.idle = nil
		}
	}, nil
}

// Close refuses new calls and waits until those under way have recorded what
// came of them. When ctx ends first, the calls are cut short: their attempts
// are recorded as unclear, which Close still waits for, and the context's
// error is returned. Closing twice is harmless. The store stays open.
func (c *Client) Close(ctx context.Context) error {
	c.mu.Lock()
	c.closed = true
	if c.calls == 0 {
		c.mu.Unlock()
		return c.release()
	}
	if c.idle == nil {
		c.idle = make(chan struct{})
	}
	idle := c.idle
	c.mu.Unlock()

	select {
	case <-idle:
		return c.release()
	case <-ctx.Done():
	}
	c.stop(closedError{})
	<-idle // bounded: attempts end with their context, records by their own limit
	if err := c.release(); err != nil {
		return err
	}
	return ctx.Err()
}

// closedError tells the client's end from the store's.
type closedError struct{}

func (closedError) Error() string { return "the client was closed" }
func (closedError) Unwrap() error { return keyring.ErrClosed }

// release lets go of the idle connections of the client's own transport.
func (c *Client) release() error {
	if c.stop == nil { // a zero Client
		return nil
	}
	c.stop(keyring.ErrClosed)
	if c.own != nil {
		c.own.CloseIdleConnections()
	}
	return nil
}

// asleep is by how much the wall clock may outrun the monotonic one before the
// machine counts as having slept: as long as the client's own transport keeps an
// idle connection.
const asleep = 30 * time.Second

// awake drops idle connections where the machine has slept since the latest
// attempt: their timers stood still with the monotonic clock, but the other side
// has closed them, and an attempt on a dead one ends in doubt. A wall clock that
// was set forward costs no more than new connections.
func (c *Client) awake(ctx context.Context) {
	now := clock.Now(ctx)
	c.mu.Lock()
	last := c.seen
	c.seen = now
	c.mu.Unlock()
	if last.Boot != now.Boot || now.Wall.Sub(last.Wall)-(now.Mono-last.Mono) < asleep {
		return
	}
	if t, ok := c.opts.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}
