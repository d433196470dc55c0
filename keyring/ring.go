package keyring

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/samekey/samekey/internal/clock"
)

// writeTimeout bounds a write to the store once it has begun. A caller who
// gives up meanwhile must not leave a record half known.
const writeTimeout = 30 * time.Second

// Options are the settings of a [Ring]. The zero value is ready to use.
type Options struct {
	// AttemptTimeout is how long after its recorded start an attempt may still
	// write to the wire, and run. Zero means 30 seconds.
	AttemptTimeout time.Duration
	// Lease is how long a hold lasts when its owner is not heard of. Zero means
	// AttemptTimeout plus one minute; less than that is refused.
	Lease time.Duration
	// UnknownRetention is the retention to assume where a provider publishes
	// none. Zero means 1 hour.
	UnknownRetention time.Duration
	// ClockTrusted says whether the wall clock can be believed. Nil means yes.
	// A machine without a battery clock says no until its time is synchronised:
	// meanwhile a key that was sent before counts as too old to be sent again.
	ClockTrusted func() bool
	// Owner names this sender to people, in holds and attempts. Empty means
	// program, process id and host.
	Owner string
	// MaxOpen and MaxIntents bound the store, all scopes together. A full store
	// refuses new intents with ErrFull; nothing is evicted. Zero means no limit.
	MaxOpen, MaxIntents int
}

// Ring holds the rules: which key, which bytes, whether they may be sent. All
// methods may be called from many goroutines at once.
//
// A ring asks for nobody's permission: it hands out requests and answers of
// every scope. Package client has the access check for programs that act for
// several people.
type Ring struct {
	store    Store
	sessions Sessions // nil where the store has none
	timer    Timer    // nil where the local clock judges leases
	opts     Options
	err      error // of the options; reported by every call

	// lost has the ids of holds whose record was reported as failed. Should it
	// turn up after all, the hold is known to have sent nothing.
	lost sync.Map
}

// New returns a ring over store. A nil opts means the defaults. Options that
// cannot work (a negative duration, a lease shorter than an attempt and a
// minute) make every call report [ErrInvalid].
func New(store Store, opts *Options) *Ring {
	r := &Ring{store: store}
	if opts != nil {
		r.opts = *opts
	}
	o := &r.opts
	if o.AttemptTimeout == 0 {
		o.AttemptTimeout = defaultAttemptTimeout
	}
	if o.Lease == 0 {
		o.Lease = o.AttemptTimeout + leaseBeyondTimeout
	}
	if o.UnknownRetention == 0 {
		o.UnknownRetention = defaultUnknown
	}
	if o.Owner == "" {
		o.Owner = defaultOwner()
	}
	switch {
	case isNil(store):
		r.err = fmt.Errorf("%w: the store is nil; look at the error of opening it", ErrInvalid)
		return r
	case o.AttemptTimeout < 0 || o.Lease < 0 || o.UnknownRetention < 0:
		r.err = fmt.Errorf("%w: AttemptTimeout, Lease or UnknownRetention is negative; leave it zero for the default", ErrInvalid)
	case o.MaxOpen < 0 || o.MaxIntents < 0:
		r.err = fmt.Errorf("%w: MaxOpen or MaxIntents is negative; leave it zero for no limit", ErrInvalid)
	case o.Lease < o.AttemptTimeout+leaseBeyondTimeout:
		r.err = fmt.Errorf("%w: Lease must be at least AttemptTimeout plus one minute, %s", ErrInvalid, o.AttemptTimeout+leaseBeyondTimeout)
	}
	r.sessions, _ = store.(Sessions)
	r.timer, _ = store.(Timer)
	return r
}

// isNil also sees a nil pointer inside the interface.
func isNil(store Store) bool {
	if store == nil {
		return true
	}
	v := reflect.ValueOf(store)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

func defaultOwner() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("%s (process %d on %s)", filepath.Base(os.Args[0]), os.Getpid(), host)
}

// Get returns what is known about ref. It reports [ErrNotFound] for a ref that
// the keyring does not have. A damaged record is no error: its state is
// [StateDamaged].
func (r *Ring) Get(ctx context.Context, ref Ref) (Intent, error) {
	e, err := r.load(ctx, "get", ref)
	if err != nil {
		return Intent{}, err
	}
	return r.intent(ctx, e, nil), nil
}

// GetUnder is [Ring.Get] as seen under the terms that hold now, as terms gives
// them for the intent: of those and the stored ones the stricter decide what
// its state is and what may be done.
func (r *Ring) GetUnder(ctx context.Context, ref Ref, terms func(Intent) Terms) (Intent, error) {
	e, err := r.load(ctx, "get", ref)
	if err != nil {
		return Intent{}, err
	}
	in := r.intent(ctx, e, nil)
	if e.unusable() != nil {
		return in, nil
	}
	now := terms(in)
	return r.intent(ctx, e, &now), nil
}

// List yields the intents that fit q, damaged ones too, in no promised order.
// The zero Query is the empty scope's; set AllScopes for all. The loop over it
// may begin, send and inspect intents.
// An error of the store is yielded with a zero Intent and ends the listing.
func (r *Ring) List(ctx context.Context, q Query) iter.Seq2[Intent, error] {
	return func(yield func(Intent, error) bool) {
		if err := r.ready(ctx); err != nil {
			yield(Intent{}, wrap("list", Ref{}, err))
			return
		}
		for stored, err := range r.store.Scan(ctx, q) {
			if err != nil {
				yield(Intent{}, wrap("list", Ref{}, err))
				return
			}
			if !yield(r.intent(ctx, readEntry(stored), nil), nil) {
				return
			}
		}
	}
}

// ready reports why a call cannot even begin.
func (r *Ring) ready(ctx context.Context) error {
	if r.err != nil {
		return r.err
	}
	return ctx.Err()
}

// load reads a record by ref.
func (r *Ring) load(ctx context.Context, op string, ref Ref) (entry, error) {
	if err := r.ready(ctx); err != nil {
		return entry{}, wrap(op, ref, err)
	}
	normal, err := ref.Normal()
	if err != nil {
		return entry{}, wrap(op, ref, err)
	}
	if normal.Name == "" {
		return entry{}, wrap(op, ref, fmt.Errorf("%w: the ref has no name", ErrInvalid))
	}
	stored, err := r.store.Load(ctx, normal)
	if err != nil {
		return entry{}, wrap(op, normal, err)
	}
	return readEntry(stored), nil
}

// view gathers what the state of e depends on. terms, where given, are the
// ones that hold now.
func (r *Ring) view(ctx context.Context, e entry, terms *Terms) view {
	v := view{
		rec:     e.rec,
		now:     clock.Now(ctx),
		trusted: r.clockTrusted(),
		timeout: r.opts.AttemptTimeout,
		unknown: r.opts.UnknownRetention,
	}
	if e.rec == nil {
		return v
	}
	v.terms = e.rec.current().Terms.terms()
	if terms != nil {
		v.terms = v.terms.stricter(*terms, r.opts.UnknownRetention)
	}
	v.live = r.live(ctx, v.now, e.rec.Hold)
	return v
}

// live says whether a hold still runs. When the store cannot tell, it does.
func (r *Ring) live(ctx context.Context, now clock.Reading, h *holdMark) bool {
	if h == nil {
		return false
	}
	if r.timer != nil {
		t, err := r.timer.Now(ctx)
		return err != nil || t.Sub(h.Since.Wall) < h.Lease
	}
	if since(now, h.Since) >= h.Lease {
		return false
	}
	if r.sessions != nil && h.Session != "" {
		gone, err := r.sessions.Gone(ctx, h.Session)
		return err != nil || !gone
	}
	return true
}

func (r *Ring) clockTrusted() bool { return r.opts.ClockTrusted == nil || r.opts.ClockTrusted() }

// hold makes the mark of a new hold.
func (r *Ring) hold(ctx context.Context, now clock.Reading) (*holdMark, error) {
	h := &holdMark{ID: uuid.NewString(), Owner: r.opts.Owner, Since: stampOf(now), Lease: r.opts.Lease}
	if r.sessions != nil {
		h.Session = r.sessions.Session()
	}
	return h, r.stampByTimer(ctx, h)
}

// stampByTimer replaces the wall part of a hold's time by the store's clock,
// where that one judges leases.
func (r *Ring) stampByTimer(ctx context.Context, h *holdMark) error {
	if r.timer == nil {
		return nil
	}
	t, err := r.timer.Now(ctx)
	if err != nil {
		return fmt.Errorf("the store's clock cannot be read: %w", err)
	}
	h.Since.Wall = t
	return nil
}

func (r *Ring) intent(ctx context.Context, e entry, terms *Terms) Intent {
	return e.intent(r.view(ctx, e, terms))
}

// write is what create and update have in common. The record is stamped,
// given an id of its own, and encoded; after an error that leaves it open
// whether the store took it, it is looked up by that id, never guessed.
func (r *Ring) write(ctx context.Context, rec *record, request []byte, put func(context.Context, Record) error) (entry, error) {
	now := clock.Now(ctx)
	trusted := r.clockTrusted()
	if trusted && rec.wentBack(now) {
		rec.ClockOff = true // what was seen once must not be forgotten when the clock has caught up
	}
	if !now.Wall.Before(rec.Last.Wall) {
		rec.Last = stampOf(now)
	}
	g := rec.current()
	if age, known := rec.age(now, trusted); known {
		g.Age = age
	}
	rec.WriteID = uuid.NewString()
	data, err := encodeData(rec)
	if err != nil {
		return entry{}, err
	}
	out := entry{rec: rec, stored: Record{
		Ref: rec.Ref, Generation: g.Number, Revision: rec.Revision, Fingerprint: g.fingerprint(), Data: data, Request: request,
	}}
	state, _ := r.view(ctx, out, nil).fold()
	out.stored.Open = !state.Final()

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	err = put(ctx, out.stored)
	if err == nil {
		return out, nil
	}
	if errors.Is(err, ErrClosed) || errors.Is(err, ErrFull) || errors.Is(err, ErrInvalid) || errors.Is(err, ErrNoSpace) {
		return entry{}, err
	}
	if stored, lerr := r.store.Load(ctx, rec.Ref); lerr == nil {
		if got, derr := decodeData(rec.Ref, stored.Data); derr == nil && got.WriteID == rec.WriteID {
			return out, nil
		}
	}
	return entry{}, err
}

// takeRequest encodes the request of the current generation and notes its sum.
func (rec *record) takeRequest(request Request) []byte {
	raw := encodeRequest(request)
	sum := sumOf(rec.Ref, "request", raw)
	rec.current().RequestSum = sum[:]
	return raw
}

// create stores a new record.
func (r *Ring) create(ctx context.Context, rec *record, request Request) (entry, error) {
	raw := rec.takeRequest(request)
	rec.Revision = 1
	e, err := r.write(ctx, rec, raw, func(ctx context.Context, stored Record) error {
		return r.store.Create(ctx, stored, Limits{MaxOpen: r.opts.MaxOpen, MaxIntents: r.opts.MaxIntents})
	})
	e.request = request
	return e, err
}

// update stores what change makes of a copy of e's record, as the next
// revision. It reports ErrStale when the record has moved on.
func (r *Ring) update(ctx context.Context, e entry, change func(*record)) (entry, error) {
	rec := e.rec.clone()
	change(rec)
	rec.Revision = e.stored.Revision + 1
	next, err := r.write(ctx, rec, nil, r.store.Update)
	if err != nil {
		return entry{}, err
	}
	next.request, next.stored.Request = e.request, e.stored.Request
	return next, nil
}
