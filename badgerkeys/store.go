package badgerkeys

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"sync"
	"time"

	"github.com/dgraph-io/badger/v4"

	"github.com/samekey/samekey/keyring"
)

// partMax bounds Data and Request each. It is above what package client lets
// through by default, and keeps a mistake from filling the memory.
const partMax = 64 << 20

// Store is an open keyring directory; [Open] and [OpenOrCreate] return one.
// It implements [keyring.Store], [keyring.Waiter] and [keyring.Sessions].
type Store struct {
	dir     string
	ringID  string
	session string
	log     *slog.Logger
	db      *badger.DB
	blobs   blobs
	lock    *dirLock
	witness *witness
	checked time.Time // when all tables were read last
	watch   watch
	room    room

	life      sync.RWMutex // held for reading within calls, never while they wait
	closed    bool
	closeOnce sync.Once
	closeErr  error

	queueMu  sync.Mutex
	queued   *sync.Cond
	queue    []*write
	draining bool
	ended    chan struct{} // closed when the committing goroutine has ended

	commitMu sync.Mutex // held for each transaction
	head     head       // below commitMu, as the rest
	openRefs openRefs
	failed   error // of the committing goroutine alone: why nothing more is written
	memFile  int   // number of the newest memtable log that is known to be durable
}

var (
	_ keyring.Store    = (*Store)(nil)
	_ keyring.Waiter   = (*Store)(nil)
	_ keyring.Sessions = (*Store)(nil)
)

// RingID returns the keyring's identity, which it has kept since it was
// created. A program that remembers it can ask for it with [Options].RingID.
func (s *Store) RingID() string {
	if s == nil {
		return ""
	}
	return s.ringID
}

// enter begins a call. If it returns nil, the caller calls leave.
func (s *Store) enter(ctx context.Context) error {
	if err := s.usable(); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return keyring.ErrClosed
	}
	return nil
}

func (s *Store) leave() { s.life.RUnlock() }

// Create implements [keyring.Store]. It reports [keyring.ErrInvalid] for a
// record that is not in the form that the contract asks for.
func (s *Store) Create(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
	if rec.Revision != 1 {
		return named(fmt.Errorf("%w: a new record has revision 1, not %d", keyring.ErrInvalid, rec.Revision))
	}
	return named(s.write(ctx, rec, change{kind: changeCreate, limits: lim}))
}

// Update implements [keyring.Store]. A record that is damaged reads as stale:
// nothing replaces what is not known.
func (s *Store) Update(ctx context.Context, rec keyring.Record) error {
	return named(s.write(ctx, rec, change{kind: changeUpdate, keep: rec.Request == nil}))
}

// Delete implements [keyring.Store]. A record that is damaged reads as stale.
func (s *Store) Delete(ctx context.Context, ref keyring.Ref, revision uint64) error {
	key, ok := refKey(ref)
	if err := s.enter(ctx); err != nil {
		return named(err)
	}
	if !ok {
		s.leave()
		return named(keyring.ErrNotFound)
	}
	return named(s.submit(&write{ctx: ctx, change: change{kind: changeDelete, ref: key, revision: revision}}))
}

// write checks rec, makes its parts and submits the change.
func (s *Store) write(ctx context.Context, rec keyring.Record, c change) error {
	var err error
	if c.ref, err = checkRecord(rec); err != nil {
		return err
	}
	if err := s.enter(ctx); err != nil {
		return err
	}
	w := &write{ctx: ctx, change: c}
	if err := s.parts(w, rec); err != nil {
		s.leave()
		return err
	}
	return s.submit(w)
}

// parts fills in the after-image, and writes the blobs it needs. Callers do
// that side by side, so that a large body holds up nobody else's commit.
func (s *Store) parts(w *write, rec keyring.Record) error {
	c := &w.change
	c.after = stored{
		revision:    rec.Revision,
		generation:  rec.Generation,
		open:        rec.Open,
		fingerprint: rec.Fingerprint,
	}
	if large := max(len(rec.Data), len(rec.Request)); large > inlineMax {
		if err := s.room.check(uint64(len(rec.Data) + len(rec.Request))); err != nil {
			return err
		}
		// Most changes that will be refused are found out before megabytes are
		// flushed for them.
		if err := s.foresee(c); err != nil {
			return err
		}
	}
	for _, p := range []struct {
		to   *part
		from []byte
	}{{&c.after.data, rec.Data}, {&c.after.request, rec.Request}} {
		made, err := s.newPart(p.from)
		if made.blob != nil {
			w.blobs = append(w.blobs, made.blob)
		}
		if err != nil {
			if err := s.blobs.remove(w.blobs); err != nil {
				s.log.Warn("blobs could not be removed", "error", err)
			}
			return fmt.Errorf("writing a blob: %w", err)
		}
		*p.to = made
	}
	c.request, c.after.request.inline = c.after.request.inline, nil
	return nil
}

// foresee decides the change against what is there now.
func (s *Store) foresee(c *change) error {
	txn := s.db.NewTransaction(false)
	defer txn.Discard()
	b := batch{txn: txn} // without counts, so that limits are left to the commit
	early := *c
	early.limits = keyring.Limits{}
	if _, err := b.decide(&early); err != nil {
		return refusal(err)
	}
	return nil
}

// checkRecord reports ErrInvalid for a record that the ring would not have
// passed on, and returns the part of its keys that stands for its ref.
func checkRecord(rec keyring.Record) (string, error) {
	normal, err := rec.Ref.Normal()
	if err != nil {
		return "", err
	}
	if normal != rec.Ref || rec.Ref.Name == "" {
		return "", fmt.Errorf("%w: a stored ref is in normal form and has a name", keyring.ErrInvalid)
	}
	if n := max(len(rec.Data), len(rec.Request)); n > partMax {
		return "", fmt.Errorf("%w: the record has %d bytes in one piece, at most %d are allowed", keyring.ErrInvalid, n, partMax)
	}
	ref, _ := refKey(normal)
	return ref, nil
}

// Load implements [keyring.Store].
func (s *Store) Load(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
	if err := s.enter(ctx); err != nil {
		return keyring.Record{}, named(err)
	}
	defer s.leave()
	key, ok := refKey(ref)
	if !ok {
		return keyring.Record{}, named(keyring.ErrNotFound)
	}
	rec, err := s.load(ref, key)
	return rec, named(err)
}

// load reads a record with its parts. A part that is missing or damaged is nil.
func (s *Store) load(ref keyring.Ref, key string) (keyring.Record, error) {
	var before *stored
	for {
		rec, now, whole, err := s.read(ref, key)
		// A blob may have gone because the record has moved on since it was
		// read. It is damaged only if the record still is as it was.
		if err != nil || whole || before != nil && bytes.Equal(before.encode(), now.encode()) {
			return rec, err
		}
		before = now
	}
}

// read is one attempt of load.
func (s *Store) read(ref keyring.Ref, key string) (rec keyring.Record, now *stored, whole bool, err error) {
	var request []byte
	var open bool
	err = s.db.View(func(txn *badger.Txn) error {
		var err error
		if now, err = get(txn, key); err != nil || now == nil {
			return err
		}
		if now.damaged {
			open, err = has(txn, at(prefOpen, key))
			return err
		}
		if now.request.size > 0 {
			request, err = inlineRequest(txn, key, now.request)
		}
		return err
	})
	if err != nil {
		return keyring.Record{}, nil, false, fmt.Errorf("reading %s: %w", ref, safe(err))
	}
	if now == nil {
		return keyring.Record{}, nil, false, keyring.ErrNotFound
	}
	rec = keyring.Record{Ref: ref}
	if now.damaged {
		rec.Open = open
		return rec, now, true, nil
	}
	rec.Generation, rec.Revision, rec.Open, rec.Fingerprint = now.generation, now.revision, now.open, now.fingerprint
	rec.Data, rec.Request = now.data.inline, request
	whole = true
	for _, p := range []struct {
		to   *[]byte
		blob *blobRef
	}{{&rec.Data, now.data.blob}, {&rec.Request, now.request.blob}} {
		if p.blob == nil {
			continue
		}
		content, err := s.blobs.read(p.blob)
		switch {
		case errors.Is(err, errDamaged):
			whole = false
		case err != nil:
			return keyring.Record{}, nil, false, fmt.Errorf("reading a blob of %s: %w", ref, err)
		}
		*p.to = content
	}
	return rec, now, whole, nil
}

// inlineRequest returns the bytes of a small request, or nil if they are not
// those that the record means.
func inlineRequest(txn *badger.Txn, ref string, want part) ([]byte, error) {
	key := at(prefReq, ref)
	item, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var request []byte
	err = item.Value(func(sealed []byte) error {
		value, err := unseal(key, sealed)
		if err == nil && uint64(len(value)) == want.size && crc32.Checksum(value, castagnoli) == want.sum {
			request = bytes.Clone(value)
		}
		return nil
	})
	return request, err
}

func has(txn *badger.Txn, key []byte) (bool, error) {
	_, err := txn.Get(key)
	if errors.Is(err, badger.ErrKeyNotFound) {
		return false, nil
	}
	return err == nil, err
}

// Session implements [keyring.Sessions].
func (s *Store) Session() string {
	if s == nil {
		return ""
	}
	return s.session
}

// Gone implements [keyring.Sessions]. Nobody else can have the keyring open
// while this process holds its lock, so each session but this one has ended.
// An empty name is nobody's, and nothing is known about it.
func (s *Store) Gone(ctx context.Context, session string) (bool, error) {
	if err := s.enter(ctx); err != nil {
		return false, named(err)
	}
	defer s.leave()
	return session != s.session && session != "", nil
}
