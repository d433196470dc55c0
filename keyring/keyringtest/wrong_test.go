package keyringtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/keyring"
)

// TestWrongStores runs clauses on stores that are wrong in one way each: a
// clause that lets its wrong store pass protects nobody.
func TestWrongStores(t *testing.T) {
	byName := make(map[string]clause)
	for _, c := range clauses() {
		byName[c.name] = c
	}
	for _, w := range wrongStores {
		t.Run(w.how, func(t *testing.T) {
			c, ok := byName[w.clause]
			if !ok {
				t.Fatalf("there is no clause %q", w.clause)
			}
			// In a bubble, what would hang for long ends at once.
			synctest.Test(t, func(t *testing.T) {
				err := c.check(t.Context(), func() keyring.Store { return w.wrap(NewStore()) })
				if err == nil {
					t.Errorf("clause %q passes a store that %s", w.clause, w.how)
				} else {
					t.Log(err)
				}
			})
		})
	}
}

// TestClausesTried demands a wrong store for each clause.
func TestClausesTried(t *testing.T) {
	tried := make(map[string]bool)
	for _, w := range wrongStores {
		tried[w.clause] = true
	}
	for _, c := range clauses() {
		if !tried[c.name] {
			t.Errorf("no wrong store shows that clause %q can fail", c.name)
		}
	}
}

// wrong is a store whose methods can be replaced one by one.
type wrong struct {
	*Store
	create func(context.Context, keyring.Record, keyring.Limits) error
	load   func(context.Context, keyring.Ref) (keyring.Record, error)
	update func(context.Context, keyring.Record) error
	scan   func(context.Context, keyring.Query) iter.Seq2[keyring.Record, error]
	delete func(context.Context, keyring.Ref, uint64) error
	wait   func(context.Context, keyring.Ref, uint64) error
	gone   func(context.Context, string) (bool, error)
	name   func() string
	close  func() error
}

func (w *wrong) Create(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
	if w.create != nil {
		return w.create(ctx, rec, lim)
	}
	return w.Store.Create(ctx, rec, lim)
}

func (w *wrong) Load(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
	if w.load != nil {
		return w.load(ctx, ref)
	}
	return w.Store.Load(ctx, ref)
}

func (w *wrong) Update(ctx context.Context, rec keyring.Record) error {
	if w.update != nil {
		return w.update(ctx, rec)
	}
	return w.Store.Update(ctx, rec)
}

func (w *wrong) Scan(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
	if w.scan != nil {
		return w.scan(ctx, q)
	}
	return w.Store.Scan(ctx, q)
}

func (w *wrong) Delete(ctx context.Context, ref keyring.Ref, revision uint64) error {
	if w.delete != nil {
		return w.delete(ctx, ref, revision)
	}
	return w.Store.Delete(ctx, ref, revision)
}

func (w *wrong) Wait(ctx context.Context, ref keyring.Ref, revision uint64) error {
	if w.wait != nil {
		return w.wait(ctx, ref, revision)
	}
	return w.Store.Wait(ctx, ref, revision)
}

func (w *wrong) Gone(ctx context.Context, session string) (bool, error) {
	if w.gone != nil {
		return w.gone(ctx, session)
	}
	return w.Store.Gone(ctx, session)
}

func (w *wrong) Session() string {
	if w.name != nil {
		return w.name()
	}
	return w.Store.Session()
}

func (w *wrong) Close() error {
	if w.close != nil {
		return w.close()
	}
	return w.Store.Close()
}

// wrongScan replaces the records that a scan yields.
func wrongScan(s *Store, with func(keyring.Record) []keyring.Record) func(context.Context, keyring.Query) iter.Seq2[keyring.Record, error] {
	return func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
		return func(yield func(keyring.Record, error) bool) {
			for rec, err := range s.Scan(ctx, q) {
				if err != nil {
					yield(rec, err)
					return
				}
				for _, r := range with(rec) {
					if !yield(r, nil) {
						return
					}
				}
			}
		}
	}
}

// wrongQuery replaces the query of a scan.
func wrongQuery(s *Store, with func(keyring.Query) keyring.Query) func(context.Context, keyring.Query) iter.Seq2[keyring.Record, error] {
	return func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
		return s.Scan(ctx, with(q))
	}
}

// peek reads a record without copying it.
func peek(s *Store, ref keyring.Ref) (keyring.Record, bool) {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	rec, ok := s.data.records[ref]
	return rec, ok
}

// poke changes the stored records behind the store's back.
func poke(s *Store, f func(*data)) {
	s.data.mu.Lock()
	defer s.data.mu.Unlock()
	f(s.data)
}

// wide lets everybody else come between a check and a change: in a bubble, time
// passes only when all others wait.
func wide() { time.Sleep(time.Millisecond) }

var wrongStores = []struct {
	how    string
	clause string
	wrap   func(*Store) keyring.Store
}{
	{"forgets what it was given", "Create/Load", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, _ keyring.Limits) error { return nil }}
	}},
	{"loses the generation", "Create/Load", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			rec.Generation = 1
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"loses the fingerprint", "Create/Load", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			rec.Fingerprint = keyring.Fingerprint{}
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"takes each new record for an open one", "Create/Load", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			rec.Open = true
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"reports a missing record as an empty one", "Create/Load", func(s *Store) keyring.Store {
		return &wrong{Store: s, load: func(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
			rec, err := s.Load(ctx, ref)
			if errors.Is(err, keyring.ErrNotFound) {
				return keyring.Record{}, nil
			}
			return rec, err
		}}
	}},
	{"overwrites a taken ref", "Create/taken", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			poke(s, func(d *data) { delete(d.records, rec.Ref) })
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"takes a repeated Create for success", "Create/taken", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			if err := s.Create(ctx, rec, lim); !errors.Is(err, keyring.ErrExists) {
				return err
			}
			return nil
		}}
	}},
	{"says full before taken", "Create/taken", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			err := s.Create(ctx, rec, lim)
			if errors.Is(err, keyring.ErrExists) && lim.MaxIntents > 0 {
				return keyring.ErrFull
			}
			return err
		}}
	}},
	{"checks for a taken ref before it changes, not while", "Create/taken, at once", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			if _, ok := peek(s, rec.Ref); ok {
				return keyring.ErrExists
			}
			wide()
			poke(s, func(d *data) { d.put(clone(rec)) })
			return nil
		}}
	}},
	{"ignores the limits", "Create/limit of open intents", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, _ keyring.Limits) error {
			return s.Create(ctx, rec, keyring.Limits{})
		}}
	}},
	{"allows one open intent too many", "Create/limit of open intents", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			if lim.MaxOpen > 0 {
				lim.MaxOpen++
			}
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"counts an intent as open for ever", "Create/limit of open intents", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			err := s.Update(ctx, rec)
			if err == nil && !rec.Open {
				poke(s, func(d *data) { d.open++ })
			}
			return err
		}}
	}},
	{"counts final intents as open", "Create/limit of open intents", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			err := s.Create(ctx, rec, lim)
			if err == nil && !rec.Open {
				poke(s, func(d *data) { d.open++ })
			}
			return err
		}}
	}},
	{"ignores the limit of intents", "Create/limit of intents", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			return s.Create(ctx, rec, keyring.Limits{MaxOpen: lim.MaxOpen})
		}}
	}},
	{"allows one intent too few", "Create/limit of intents", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			if lim.MaxIntents > 1 {
				lim.MaxIntents--
			}
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"checks the limits before it changes, not while", "Create/limits, at once", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			full := false
			poke(s, func(d *data) {
				full = lim.MaxIntents > 0 && len(d.records) >= lim.MaxIntents || lim.MaxOpen > 0 && d.open >= lim.MaxOpen
			})
			if full {
				return keyring.ErrFull
			}
			wide()
			return s.Create(ctx, rec, keyring.Limits{})
		}}
	}},
	{"joins scope and name with a slash", "refs/kept apart", func(s *Store) keyring.Store {
		joined := func(ref keyring.Ref) keyring.Ref { return keyring.Ref{Name: ref.Scope + "/" + ref.Name} }
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			rec.Ref = joined(rec.Ref)
			return s.Create(ctx, rec, lim)
		}, load: func(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
			rec, err := s.Load(ctx, joined(ref))
			rec.Ref = ref
			return rec, err
		}}
	}},
	{"cuts long names", "refs/kept apart", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			rec.Ref.Name = rec.Ref.Name[:min(len(rec.Ref.Name), 255)]
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"does not bump the revision", "Update/replaces", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			err := s.Update(ctx, rec)
			if err == nil {
				poke(s, func(d *data) { r := d.records[rec.Ref]; r.Revision--; d.records[rec.Ref] = r })
			}
			return err
		}}
	}},
	{"keeps the Open of the creation", "Update/replaces", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			old, _ := peek(s, rec.Ref)
			rec.Open = old.Open
			return s.Update(ctx, rec)
		}}
	}},
	{"keeps the fingerprint of the creation", "Update/replaces", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			old, _ := peek(s, rec.Ref)
			rec.Fingerprint = old.Fingerprint
			return s.Update(ctx, rec)
		}}
	}},
	{"keeps Data that is nil", "Update/replaces", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			if rec.Data == nil {
				old, _ := peek(s, rec.Ref)
				rec.Data = old.Data
			}
			return s.Update(ctx, rec)
		}}
	}},
	{"removes the request when it is nil", "Update/request", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			if rec.Request == nil {
				rec.Request = []byte{}
			}
			return s.Update(ctx, rec)
		}}
	}},
	{"keeps the request when it is empty", "Update/request", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			if len(rec.Request) == 0 {
				rec.Request = nil
			}
			return s.Update(ctx, rec)
		}}
	}},
	{"never replaces a request", "Update/request", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			if len(rec.Request) > 0 {
				rec.Request = nil
			}
			return s.Update(ctx, rec)
		}}
	}},
	{"ignores the revision", "Update/revision", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			if old, ok := peek(s, rec.Ref); ok {
				rec.Revision = old.Revision + 1
			}
			return s.Update(ctx, rec)
		}}
	}},
	{"takes any later revision", "Update/revision", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			if old, ok := peek(s, rec.Ref); ok && rec.Revision > old.Revision {
				rec.Revision = old.Revision + 1
			}
			return s.Update(ctx, rec)
		}}
	}},
	{"creates what it should update", "Update/missing", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			err := s.Update(ctx, rec)
			if errors.Is(err, keyring.ErrNotFound) {
				poke(s, func(d *data) { d.put(clone(rec)) })
				return nil
			}
			return err
		}}
	}},
	{"checks the revision before it changes, not while", "Update/at once", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			old, ok := peek(s, rec.Ref)
			if !ok || old.Revision != rec.Revision-1 {
				return s.Update(ctx, rec)
			}
			wide()
			rec.Request = old.Request
			poke(s, func(d *data) { d.put(clone(rec)) })
			return nil
		}}
	}},
	{"fails the neighbours of a refused change", "Update/many refs at once", func(s *Store) keyring.Store {
		var mu sync.Mutex
		refused := false
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			mu.Lock()
			defer mu.Unlock()
			if refused {
				refused = false
				return keyring.ErrStale
			}
			err := s.Update(ctx, rec)
			refused = err != nil
			return err
		}}
	}},
	{"deletes whatever the revision", "Delete", func(s *Store) keyring.Store {
		return &wrong{Store: s, delete: func(ctx context.Context, ref keyring.Ref, _ uint64) error {
			rec, _ := peek(s, ref)
			return s.Delete(ctx, ref, rec.Revision)
		}}
	}},
	{"only says that it deletes", "Delete", func(s *Store) keyring.Store {
		return &wrong{Store: s, delete: func(ctx context.Context, ref keyring.Ref, revision uint64) error {
			if rec, ok := peek(s, ref); ok && rec.Revision == revision {
				return nil
			}
			return s.Delete(ctx, ref, revision)
		}}
	}},
	{"shows other scopes", "Scan/queries", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: wrongQuery(s, func(q keyring.Query) keyring.Query { q.AllScopes = true; return q })}
	}},
	{"takes the empty scope for all scopes", "Scan/queries", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: wrongQuery(s, func(q keyring.Query) keyring.Query {
			q.AllScopes = q.AllScopes || q.Scope == ""
			return q
		})}
	}},
	{"shows final records as open", "Scan/queries", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: wrongQuery(s, func(q keyring.Query) keyring.Query { q.OpenOnly = false; return q })}
	}},
	{"ignores the fingerprint", "Scan/queries", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: wrongQuery(s, func(q keyring.Query) keyring.Query {
			q.Fingerprint = keyring.Fingerprint{}
			return q
		})}
	}},
	{"misses open records", "Scan/queries", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: wrongScan(s, func(rec keyring.Record) []keyring.Record {
			if rec.Open && rec.Ref.Name == "0" {
				return nil
			}
			return []keyring.Record{rec}
		})}
	}},
	{"remembers which records were open", "Scan/queries", func(s *Store) keyring.Store {
		asked := false
		var open map[keyring.Ref]bool
		return &wrong{Store: s, scan: func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
			if q.OpenOnly && !asked {
				asked = true
				open = make(map[keyring.Ref]bool)
				poke(s, func(d *data) {
					for ref, rec := range d.records {
						open[ref] = rec.Open
					}
				})
			}
			return wrongScan(s, func(rec keyring.Record) []keyring.Record {
				if q.OpenOnly && !open[rec.Ref] {
					return nil
				}
				return []keyring.Record{rec}
			})(ctx, q)
		}}
	}},
	{"yields records twice", "Scan/queries", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: wrongScan(s, func(rec keyring.Record) []keyring.Record {
			return []keyring.Record{rec, rec}
		})}
	}},
	{"lists without bytes", "Scan/queries", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: wrongScan(s, func(rec keyring.Record) []keyring.Record {
			rec.Request = nil
			return []keyring.Record{rec}
		})}
	}},
	{"lists one page", "Scan/many", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
			n := 0
			return wrongScan(s, func(rec keyring.Record) []keyring.Record {
				if n++; n > 500 {
					return nil
				}
				return []keyring.Record{rec}
			})(ctx, q)
		}}
	}},
	{"misses what is there while others change", "Scan/during changes", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
			return func(yield func(keyring.Record, error) bool) {
				// As paging by position does when rows before it go away.
				n := 0
				for rec, err := range s.Scan(ctx, q) {
					if n++; n == 30 {
						continue
					}
					if !yield(rec, err) {
						return
					}
				}
			}
		}}
	}},
	{"yields a record again after it was changed", "Scan/calls in between", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
			return func(yield func(keyring.Record, error) bool) {
				for rec, err := range s.Scan(ctx, q) {
					if !yield(rec, err) {
						return
					}
					if now, ok := peek(s, rec.Ref); ok && now.Revision != rec.Revision && !yield(clone(now), nil) {
						return
					}
				}
			}
		}}
	}},
	{"cannot run a scan again", "Scan/left early", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
			n := 0
			return wrongScan(s, func(rec keyring.Record) []keyring.Record {
				if n++; n > 20 {
					return nil
				}
				return []keyring.Record{rec}
			})(ctx, q)
		}}
	}},
	{"ends a cancelled scan in silence", "Scan/context", func(s *Store) keyring.Store {
		return &wrong{Store: s, scan: func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
			return func(yield func(keyring.Record, error) bool) {
				started := ctx.Err() == nil
				for rec, err := range s.Scan(ctx, q) {
					if err != nil && started || !yield(rec, err) {
						return
					}
				}
			}
		}}
	}},
	{"keeps the caller's bytes", "bytes/given", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			err := s.Create(ctx, rec, lim)
			if err == nil {
				poke(s, func(d *data) { d.records[rec.Ref] = rec })
			}
			return err
		}}
	}},
	{"keeps the bytes given to Update", "bytes/given", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			err := s.Update(ctx, rec)
			if err == nil {
				poke(s, func(d *data) { d.records[rec.Ref] = rec })
			}
			return err
		}}
	}},
	{"uses the caller's bytes as a buffer", "bytes/given", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			err := s.Create(ctx, rec, lim)
			clear(rec.Data)
			return err
		}}
	}},
	{"hands out its own bytes", "bytes/returned", func(s *Store) keyring.Store {
		return &wrong{Store: s, load: func(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
			rec, ok := peek(s, ref)
			if !ok {
				return s.Load(ctx, ref)
			}
			return rec, nil
		}}
	}},
	{"yields one buffer again and again", "bytes/returned", func(s *Store) keyring.Store {
		buf := make([]byte, 0, 1<<20)
		return &wrong{Store: s, scan: wrongScan(s, func(rec keyring.Record) []keyring.Record {
			rec.Data = append(buf[:0], rec.Data...)
			return []keyring.Record{rec}
		})}
	}},
	{"cuts Data at a mebibyte", "bytes/sizes", func(s *Store) keyring.Store {
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			rec.Data = rec.Data[:min(len(rec.Data), 1<<20)]
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"removes old bytes under a reader", "bytes/whole while they change", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			wide()
			return s.Update(ctx, rec)
		}, load: func(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
			rec, err := s.Load(ctx, ref)
			wide()
			if now, ok := peek(s, ref); ok && now.Revision != rec.Revision {
				rec.Request = nil
			}
			return rec, err
		}}
	}},
	{"fails when large records come together", "bytes/many large ones at once", func(s *Store) keyring.Store {
		var mu sync.Mutex
		sum := 0
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			mu.Lock()
			sum += len(rec.Data)
			mu.Unlock()
			wide()
			mu.Lock()
			defer mu.Unlock()
			if sum > 300<<10 {
				return errors.New("too big")
			}
			return s.Create(ctx, rec, lim)
		}}
	}},
	{"writes in spite of a cancelled context", "context", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			if err := s.Update(context.WithoutCancel(ctx), rec); err != nil {
				return err
			}
			return ctx.Err()
		}}
	}},
	{"quotes what it was given", "errors/no bytes", func(s *Store) keyring.Store {
		return &wrong{Store: s, update: func(ctx context.Context, rec keyring.Record) error {
			if err := s.Update(ctx, rec); err != nil {
				return fmt.Errorf("updating %s: %w", bytes.TrimSpace(rec.Data), err)
			}
			return nil
		}}
	}},
	{"goes on after Close", "Close", func(s *Store) keyring.Store {
		return &wrong{Store: s, close: func() error { return nil }}
	}},
	{"cannot be closed twice", "Close", func(s *Store) keyring.Store {
		closed := false
		return &wrong{Store: s, close: func() error {
			if closed {
				return errors.New("already closed")
			}
			closed = true
			return s.Close()
		}}
	}},
	{"has another word for closed while it closes", "Close/during calls", func(s *Store) keyring.Store {
		word := func(err error) error {
			if errors.Is(err, keyring.ErrClosed) {
				return errors.New("DB Closed")
			}
			return err
		}
		return &wrong{Store: s, create: func(ctx context.Context, rec keyring.Record, lim keyring.Limits) error {
			return word(s.Create(ctx, rec, lim))
		}, load: func(ctx context.Context, ref keyring.Ref) (keyring.Record, error) {
			rec, err := s.Load(ctx, ref)
			return rec, word(err)
		}, scan: func(ctx context.Context, q keyring.Query) iter.Seq2[keyring.Record, error] {
			return func(yield func(keyring.Record, error) bool) {
				for rec, err := range s.Scan(ctx, q) {
					if !yield(rec, word(err)) {
						return
					}
				}
			}
		}}
	}},
	{"never returns from Wait", "Wait", func(s *Store) keyring.Store {
		return &wrong{Store: s, wait: func(ctx context.Context, _ keyring.Ref, _ uint64) error {
			<-ctx.Done()
			return ctx.Err()
		}}
	}},
	{"does not wake for a deletion", "Wait", func(s *Store) keyring.Store {
		return &wrong{Store: s, wait: func(ctx context.Context, ref keyring.Ref, revision uint64) error {
			err := s.Wait(ctx, ref, revision)
			if _, ok := peek(s, ref); !ok {
				<-ctx.Done()
				return ctx.Err()
			}
			return err
		}}
	}},
	{"names each session alike", "Sessions", func(s *Store) keyring.Store {
		return &wrong{Store: s, name: func() string { return "main" }}
	}},
	{"says of itself that it is gone", "Sessions", func(s *Store) keyring.Store {
		return &wrong{Store: s, gone: func(context.Context, string) (bool, error) { return true, nil }}
	}},
}
