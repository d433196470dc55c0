package keyringtest

import (
	"context"
	"fmt"

	"github.com/samekey/samekey/keyring"
)

var changeClauses = []clause{
	{
		"Update/replaces",
		"Update replaces everything that the record has but its Request, if that is nil.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			rec, other := sample("acct", "a"), sample("acct", "b")
			if err := create(ctx, s, rec, other); err != nil {
				return err
			}
			changed := next(rec)
			changed.Generation, changed.Open, changed.Fingerprint = 2, false, fingerprint("another request")
			if err := s.Update(ctx, changed); err != nil {
				return fmt.Errorf("Update from revision 1 to 2: %w", err)
			}
			changed.Request = rec.Request
			if err := holds(ctx, s, changed); err != nil {
				return err
			}
			again := next(changed)
			again.Generation, again.Open, again.Data = 3, true, nil
			if err := s.Update(ctx, again); err != nil {
				return fmt.Errorf("Update from revision 2 to 3: %w", err)
			}
			again.Request = rec.Request
			if err := holds(ctx, s, again); err != nil {
				return err
			}
			return holds(ctx, s, other)
		},
	},
	{
		"Update/request",
		"A nil Request keeps the stored bytes, other bytes replace them, empty but not nil removes them.",
		func(ctx context.Context, open func() keyring.Store) error {
			for _, size := range []int{100, 1 << 20} {
				s := open()
				rec := sample("acct", "a")
				rec.Request = filler(size, "first")
				if err := create(ctx, s, rec); err != nil {
					return err
				}
				kept := rec.Request
				for _, step := range []struct {
					what          string
					request, want []byte
				}{
					{"nil after Create", nil, kept},
					{"other bytes", filler(size, "second"), filler(size, "second")},
					{"nil after other bytes", nil, filler(size, "second")},
					{"empty", []byte{}, nil},
					{"nil after empty", nil, nil},
					{"bytes after empty", filler(size, "third"), filler(size, "third")},
				} {
					rec = next(rec)
					rec.Request = step.request
					if err := s.Update(ctx, rec); err != nil {
						return fmt.Errorf("Update with Request %s: %w", step.what, err)
					}
					rec.Request = step.want
					if err := holds(ctx, s, rec); err != nil {
						return fmt.Errorf("after Update with Request %s: %w", step.what, err)
					}
					if err := finds(ctx, s, keyring.Query{Scope: "acct"}, rec); err != nil {
						return fmt.Errorf("after Update with Request %s: %w", step.what, err)
					}
				}
			}
			return nil
		},
	},
	{
		"Update/revision",
		"Update changes nothing and reports ErrStale unless the stored revision is the one before: otherwise a sender that was taken over from overwrites what came after.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			rec := sample("acct", "a")
			if err := create(ctx, s, rec); err != nil {
				return err
			}
			second := next(rec)
			if err := s.Update(ctx, second); err != nil {
				return err
			}
			second.Request = rec.Request
			for _, revision := range []uint64{0, 1, 2, 4, 1 << 40} {
				stale := next(second)
				stale.Revision, stale.Data, stale.Request, stale.Open = revision, []byte("stale"), []byte("stale"), false
				if err := wants(fmt.Sprintf("Update to revision %d from 2", revision), s.Update(ctx, stale), keyring.ErrStale); err != nil {
					return err
				}
			}
			if err := holds(ctx, s, second); err != nil {
				return fmt.Errorf("after updates that were refused: %w", err)
			}
			return finds(ctx, s, keyring.Query{AllScopes: true, OpenOnly: true}, second)
		},
	},
	{
		"Update/missing",
		"Update of a ref that is not there makes nothing and reports ErrNotFound.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			for _, revision := range []uint64{1, 2} {
				rec := sample("acct", "a")
				rec.Revision = revision
				if err := wants("Update of a missing ref", s.Update(ctx, rec), keyring.ErrNotFound); err != nil {
					return err
				}
				if err := lacks(ctx, s, rec.Ref); err != nil {
					return err
				}
			}
			return finds(ctx, s, keyring.Query{AllScopes: true})
		},
	},
	{
		"Update/at once",
		"Of many callers that update one revision at once, one succeeds and the others get ErrStale: this is what makes one of them the sender.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			rec := sample("acct", "a")
			if err := create(ctx, s, rec); err != nil {
				return err
			}
			for range 10 {
				variant := func(i int) keyring.Record {
					r := next(rec)
					r.Data = fmt.Appendf(nil, "caller %d, revision %d", i, r.Revision)
					return r
				}
				errs := atOnce(16, func(i int) error { return s.Update(ctx, variant(i)) })
				n, err := count(errs, keyring.ErrStale)
				if err != nil {
					return err
				}
				if n != 1 {
					return fmt.Errorf("%d callers at once updated revision %d", n, rec.Revision)
				}
				for i, err := range errs {
					if err == nil {
						request := rec.Request
						rec = variant(i)
						rec.Request = request
					}
				}
				if err := holds(ctx, s, rec); err != nil {
					return fmt.Errorf("the record is not that of the caller who updated it: %w", err)
				}
			}
			return nil
		},
	},
	{
		"Update/many refs at once",
		"Callers that change different refs at once do not disturb each other, and one that is refused does not fail its neighbours.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			const n = 40
			recs := make([]keyring.Record, n)
			for i := range recs {
				recs[i] = sample("acct", fmt.Sprint(i))
			}
			if err := create(ctx, s, recs...); err != nil {
				return err
			}
			for i, err := range atOnce(n, func(i int) error {
				rec := next(recs[i])
				if i%4 == 0 {
					rec.Revision = 9
				}
				if err := s.Update(ctx, rec); i%4 != 0 {
					return err
				} else if err := wants("the stale one of many updates", err, keyring.ErrStale); err != nil {
					return err
				}
				return wants("Create of a taken ref among updates", s.Create(ctx, recs[i], keyring.Limits{}), keyring.ErrExists)
			}) {
				if err != nil {
					return fmt.Errorf("caller %d: %w", i, err)
				}
			}
			want := make([]keyring.Record, n)
			for i := range want {
				want[i] = recs[i]
				if i%4 != 0 {
					want[i] = next(recs[i])
					want[i].Request = recs[i].Request
				}
			}
			return finds(ctx, s, keyring.Query{Scope: "acct"}, want...)
		},
	},
	{
		"Delete",
		"Delete removes the record of that revision alone, and reports ErrStale or ErrNotFound otherwise. The ref is free then.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			rec, other := sample("acct", "a"), sample("acct", "b")
			rec.Request = filler(100<<10, "large")
			if err := create(ctx, s, rec, other); err != nil {
				return err
			}
			second := next(rec)
			if err := s.Update(ctx, second); err != nil {
				return err
			}
			second.Request = rec.Request
			for _, revision := range []uint64{0, 1, 3} {
				if err := wants(fmt.Sprintf("Delete of revision %d where 2 is stored", revision), s.Delete(ctx, rec.Ref, revision), keyring.ErrStale); err != nil {
					return err
				}
			}
			if err := holds(ctx, s, second); err != nil {
				return fmt.Errorf("after deletes that were refused: %w", err)
			}
			if err := s.Delete(ctx, rec.Ref, 2); err != nil {
				return fmt.Errorf("Delete of the stored revision: %w", err)
			}
			if err := lacks(ctx, s, rec.Ref); err != nil {
				return err
			}
			if err := finds(ctx, s, keyring.Query{AllScopes: true}, other); err != nil {
				return err
			}
			if err := finds(ctx, s, keyring.Query{AllScopes: true, OpenOnly: true}, other); err != nil {
				return err
			}
			if err := wants("Delete of a deleted record", s.Delete(ctx, rec.Ref, 2), keyring.ErrNotFound); err != nil {
				return err
			}
			if err := wants("Update of a deleted record", s.Update(ctx, next(second)), keyring.ErrNotFound); err != nil {
				return err
			}
			if err := create(ctx, s, rec); err != nil {
				return fmt.Errorf("after Delete: %w", err)
			}
			return holds(ctx, s, rec)
		},
	},
}
