package keyringtest

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/samekey/samekey/keyring"
)

var scanClauses = []clause{
	{
		"Scan/queries",
		"Scan yields each record that fits the query once, with its bytes, and no other: what it misses is never resumed, what it shows of another scope is sent with the wrong credentials.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			// Asked before there is anything, so that a store which remembers the
			// answer has one to forget.
			for _, openOnly := range []bool{false, true} {
				if err := finds(ctx, s, keyring.Query{AllScopes: true, OpenOnly: openOnly}); err != nil {
					return err
				}
			}
			var recs []keyring.Record
			for _, scope := range []string{"", "a", "b"} {
				for i := range 4 {
					rec := sample(scope, fmt.Sprint(i))
					rec.Open = i%2 == 0
					rec.Fingerprint = fingerprint(fmt.Sprint("request ", i/2))
					recs = append(recs, rec)
				}
			}
			recs[3].Data, recs[3].Request = filler(200<<10, "data"), filler(300<<10, "request")
			if err := create(ctx, s, recs...); err != nil {
				return err
			}
			// Some turned final, and some open, by an update.
			for i, rec := range recs {
				if i%3 != 0 {
					continue
				}
				changed := next(rec)
				changed.Open, changed.Fingerprint = !rec.Open, fingerprint("request 2")
				if err := s.Update(ctx, changed); err != nil {
					return err
				}
				changed.Request = rec.Request
				recs[i] = changed
			}
			queries := []keyring.Query{{AllScopes: true}, {AllScopes: true, Scope: "a"}, {Scope: ""}, {Scope: "a"}, {Scope: "b"}, {Scope: "none"}}
			for _, q := range queries {
				for _, openOnly := range []bool{false, true} {
					for _, request := range []string{"", "request 0", "request 1", "request 2", "never stored"} {
						q.OpenOnly, q.Fingerprint = openOnly, keyring.Fingerprint{}
						if request != "" {
							q.Fingerprint = fingerprint(request)
						}
						var want []keyring.Record
						for _, rec := range recs {
							if fits(rec, q) {
								want = append(want, rec)
							}
						}
						if err := finds(ctx, s, q, want...); err != nil {
							return err
						}
					}
				}
			}
			return nil
		},
	},
	{
		"Scan/many",
		"Scan yields all records however many there are, each once.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			const n = 600
			want := make([]keyring.Record, n)
			for i := range want {
				want[i] = sample("acct", strings.Repeat("n", i%7)+fmt.Sprint(i))
				want[i].Open = i%5 == 0
			}
			for _, err := range atOnce(8, func(i int) error { return create(ctx, s, want[i*n/8:(i+1)*n/8]...) }) {
				if err != nil {
					return err
				}
			}
			if err := finds(ctx, s, keyring.Query{Scope: "acct"}, want...); err != nil {
				return err
			}
			var open5 []keyring.Record
			for i := 0; i < n; i += 5 {
				open5 = append(open5, want[i])
			}
			return finds(ctx, s, keyring.Query{AllScopes: true, OpenOnly: true}, open5...)
		},
	},
	{
		"Scan/during changes",
		"A record that is there during the whole scan is yielded, once, whatever else changes meanwhile.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			const n = 60
			var stay, change []keyring.Record
			for i := range n {
				stay = append(stay, sample("acct", fmt.Sprint("stays ", i)))
				change = append(change, sample("acct", fmt.Sprint("changes ", i)))
			}
			if err := create(ctx, s, append(append([]keyring.Record(nil), stay...), change...)...); err != nil {
				return err
			}
			stop, done := make(chan struct{}), make(chan error, 1)
			go func() {
				done <- churn(ctx, s, change, stop)
			}()
			for range 20 {
				found, err := scan(ctx, s, keyring.Query{Scope: "acct"})
				for _, rec := range stay {
					if err == nil {
						if got, ok := found[rec.Ref]; ok {
							err = same(got, rec)
						} else {
							err = fmt.Errorf("Scan missed %q, which was there all the time", rec.Ref)
						}
					}
				}
				for ref, rec := range found {
					if err == nil && string(rec.Request) != "request of acct "+ref.Name {
						err = fmt.Errorf("Scan yielded %q with the bytes of another record", ref)
					}
				}
				if err != nil {
					close(stop)
					return errors.Join(err, <-done)
				}
			}
			close(stop)
			return <-done
		},
	},
	{
		"Scan/calls in between",
		"The loop over a scan may call the store: whoever resumes intents does.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			const n = 20
			for i := range n {
				if err := create(ctx, s, sample("acct", fmt.Sprint(i))); err != nil {
					return err
				}
			}
			seen := make(map[keyring.Ref]bool)
			for rec, err := range s.Scan(ctx, keyring.Query{Scope: "acct", OpenOnly: true}) {
				if err != nil {
					return err
				}
				if seen[rec.Ref] {
					return fmt.Errorf("Scan yielded %q twice after it was changed", rec.Ref)
				}
				seen[rec.Ref] = true
				if err := holds(ctx, s, rec); err != nil {
					return err
				}
				changed := next(rec)
				changed.Open = len(seen)%2 == 0
				if err := s.Update(ctx, changed); err != nil {
					return err
				}
			}
			if len(seen) != n {
				return fmt.Errorf("Scan yielded %d of %d records when the loop changed them", len(seen), n)
			}
			return nil
		},
	},
	{
		"Scan/left early",
		"A loop over a scan may be left early, and a scan may be run again; the store goes on working.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			for i := range 10 {
				if err := create(ctx, s, sample("acct", fmt.Sprint(i))); err != nil {
					return err
				}
			}
			again := s.Scan(ctx, keyring.Query{AllScopes: true})
			for stop := range 10 {
				n := 0
				for _, err := range again {
					if err != nil {
						return err
					}
					if n++; n > stop {
						break
					}
				}
				if n != stop+1 {
					return fmt.Errorf("Scan yielded %d records in run %d, want %d", n, stop, stop+1)
				}
				if err := create(ctx, s, sample("acct", fmt.Sprint("between ", stop))); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		"Scan/context",
		"A scan whose context is over yields its error. It never just ends, which would read as: there is no more.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			const n = 50
			for i := range n {
				if err := create(ctx, s, sample("acct", fmt.Sprint(i))); err != nil {
					return err
				}
			}
			for _, q := range []keyring.Query{{AllScopes: true}, {Scope: "acct", OpenOnly: true}, {Scope: "acct", Fingerprint: fingerprint("acct\x001")}} {
				over, cancel := context.WithCancel(ctx)
				cancel()
				_, err := scan(over, s, q)
				if err := wants(fmt.Sprintf("Scan with %+v and a cancelled context", q), err, context.Canceled); err != nil {
					return err
				}
			}
			over, cancel := context.WithCancel(ctx)
			defer cancel()
			seen := 0
			var failed error
			for _, err := range s.Scan(over, keyring.Query{AllScopes: true}) {
				if err != nil {
					failed = err
					break
				}
				if seen++; seen == 3 {
					cancel()
				}
			}
			switch {
			case failed == nil && seen < n:
				return fmt.Errorf("Scan ended after %d of %d records without an error when its context was cancelled", seen, n)
			case failed != nil && !errors.Is(failed, context.Canceled):
				return fmt.Errorf("Scan yielded %w when its context was cancelled", failed)
			}
			return nil
		},
	},
}

// churn updates, deletes and creates recs until stop is closed.
func churn(ctx context.Context, s keyring.Store, recs []keyring.Record, stop <-chan struct{}) error {
	recs = append([]keyring.Record(nil), recs...)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		rec := &recs[i%len(recs)]
		if rec.Revision < 3 {
			changed := next(*rec)
			changed.Open = !rec.Open
			if err := s.Update(ctx, changed); err != nil {
				return err
			}
			changed.Request = rec.Request
			*rec = changed
			continue
		}
		if err := s.Delete(ctx, rec.Ref, rec.Revision); err != nil {
			return err
		}
		*rec = sample(rec.Ref.Scope, rec.Ref.Name)
		if err := create(ctx, s, *rec); err != nil {
			return err
		}
	}
}
