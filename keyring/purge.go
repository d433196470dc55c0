package keyring

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/samekey/samekey/internal/clock"
)

// tombstone is what is left of a purged intent: that it was, and how it ended.
// Its ref stays taken.
type tombstone struct {
	KeySum   [16]byte // first half of SHA-256 of the key
	State    State
	Ended    time.Time // when it was last changed, to the second
	EffectID string
}

const tombMagic = "SKT"

// endlessKept is how long after its deadline an attempt without an end keeps
// its intent from being purged: a process that was suspended may come back.
const endlessKept = 24 * time.Hour

func isTombstone(b []byte) bool { return len(b) >= 3 && string(b[:3]) == tombMagic }

// encode gives Record.Data for a tombstone, under 200 bytes with an effect id
// of usual length: "SKT", format, state, key digest, time, effect id, and half
// of a SHA-256 over ref and all before it.
func (t *tombstone) encode(ref Ref) []byte {
	b := append([]byte(tombMagic), format, byte(t.State))
	b = append(b, t.KeySum[:]...)
	b = binary.BigEndian.AppendUint64(b, uint64(t.Ended.Unix()))
	b = append(b, t.EffectID...)
	sum := sumOf(ref, "tombstone", b)
	return append(b, sum[:16]...)
}

func decodeTombstone(ref Ref, b []byte) (*tombstone, error) {
	const head = 3 + 2 + 16 + 8
	if len(b) < head+16 {
		return nil, errShort
	}
	body := b[:len(b)-16]
	if sum := sumOf(ref, "tombstone", body); string(sum[:16]) != string(b[len(b)-16:]) || body[3] != format {
		return nil, errChecksum
	}
	t := &tombstone{
		State:    State(body[4]),
		KeySum:   [16]byte(body[5:21]),
		Ended:    time.Unix(int64(binary.BigEndian.Uint64(body[21:29])), 0).UTC(),
		EffectID: string(body[head:]),
	}
	if !t.State.Final() {
		return nil, errChecksum
	}
	return t, nil
}

// Purge removes the details of intents that are final, were last changed
// before the given moment, and whose key the provider has forgotten. Requests
// and answers go; a tombstone stays, so that the ref stays taken: a later call
// with an equal request is told how it ended, and nothing is sent. An intent
// that is open is never purged, and neither is one whose key is remembered for
// ever or is of unknown age.
//
// It returns how many were purged, or with dryRun how many would be. An error
// of the store ends it; what was purged until then stays purged.
func (r *Ring) Purge(ctx context.Context, before time.Time, dryRun bool) (int, error) {
	if err := r.ready(ctx); err != nil {
		return 0, wrap("purge", Ref{}, err)
	}
	n := 0
	for stored, err := range r.store.Scan(ctx, Query{AllScopes: true}) {
		if err != nil {
			return n, wrap("purge", Ref{}, err)
		}
		e := readEntry(stored)
		if e.unusable() != nil || !r.purgeable(ctx, e, before) {
			continue
		}
		if !dryRun {
			switch err := r.bury(ctx, e); {
			case errors.Is(err, ErrStale), errors.Is(err, ErrNotFound):
				continue // it has just changed: it is not as old as it was
			case err != nil:
				return n, wrap("purge", stored.Ref, err)
			}
		}
		n++
	}
	return n, nil
}

func (r *Ring) purgeable(ctx context.Context, e entry, before time.Time) bool {
	v := r.view(ctx, e, nil)
	state, out := v.fold()
	if !state.Final() || out.Broken || v.live || !e.rec.Last.Wall.Before(before) || !e.rec.Last.Wall.Before(v.now.Wall) {
		return false
	}
	for _, g := range e.rec.Generations {
		for i := range g.Attempts { // one without an end may yet be told of
			if a := &g.Attempts[i]; a.End == nil && since(v.now, a.Start) < a.Deadline+endlessKept {
				return false
			}
		}
	}
	for n := range e.rec.Generations {
		old := *e.rec
		old.Generations = e.rec.Generations[:n+1]
		if !old.forgotten(v.now, v.trusted, v.unknown) {
			return false
		}
	}
	return true
}

// forgotten says whether the provider has forgotten the current key.
func (r *record) forgotten(now clock.Reading, trusted bool, unknown time.Duration) bool {
	g := r.current()
	if g.Terms.Dedup != DedupKey || g.firstSent() == nil {
		return true // there was nothing to remember
	}
	retention := cmpOr(g.Terms.Retention, unknown)
	age, known := r.age(now, trusted)
	return retention != Forever && known && age > retention
}

// bury replaces the record by its tombstone, as the next revision.
func (r *Ring) bury(ctx context.Context, e entry) error {
	g := e.rec.current()
	state, out := r.view(ctx, e, nil).fold()
	sum := sha256.Sum256([]byte(g.Key))
	t := tombstone{KeySum: [16]byte(sum[:16]), State: state, Ended: e.rec.Last.Wall, EffectID: out.Verdict.EffectID}
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTimeout)
	defer cancel()
	return r.store.Update(wctx, Record{
		Ref: e.stored.Ref, Generation: e.stored.Generation, Revision: e.stored.Revision + 1, Fingerprint: e.stored.Fingerprint,
		Data: t.encode(e.stored.Ref), Request: []byte{},
	})
}
