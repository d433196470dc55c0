package keyringtest

import (
	"context"
	"fmt"

	"github.com/samekey/samekey/keyring"
)

var byteClauses = []clause{
	{
		"bytes/given",
		"Bytes given to a store are not kept or changed by it after the call: a caller that uses its buffer again would change what is sent.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			for _, size := range []int{50, 100 << 10} {
				rec := sample("acct", fmt.Sprint(size))
				data, request := filler(size, "data"), filler(size, "request")
				rec.Data, rec.Request = filler(size, "data"), filler(size, "request")
				if err := create(ctx, s, rec); err != nil {
					return err
				}
				if err := same(rec, withBytes(rec, data, request)); err != nil {
					return fmt.Errorf("Create changed the bytes it was given: %w", err)
				}
				clear(rec.Data)
				clear(rec.Request)
				if err := holds(ctx, s, withBytes(rec, data, request)); err != nil {
					return fmt.Errorf("after the bytes given to Create were overwritten: %w", err)
				}
				rec.Revision = 2
				rec.Data, rec.Request = filler(size, "data 2"), filler(size, "request 2")
				data, request = filler(size, "data 2"), filler(size, "request 2")
				if err := s.Update(ctx, rec); err != nil {
					return err
				}
				clear(rec.Data)
				clear(rec.Request)
				if err := holds(ctx, s, withBytes(rec, data, request)); err != nil {
					return fmt.Errorf("after the bytes given to Update were overwritten: %w", err)
				}
			}
			return nil
		},
	},
	{
		"bytes/returned",
		"Bytes that a store returns belong to the caller: changing them changes nothing in the store, nor in what others were given.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			for _, size := range []int{50, 100 << 10} {
				rec := sample("acct", fmt.Sprint(size))
				rec.Data, rec.Request = filler(size, fmt.Sprint("data ", size)), filler(size, "request")
				if err := create(ctx, s, rec); err != nil {
					return err
				}
				loaded, err := s.Load(ctx, rec.Ref)
				if err != nil {
					return err
				}
				other, err := s.Load(ctx, rec.Ref)
				if err != nil {
					return err
				}
				clear(loaded.Data)
				clear(loaded.Request)
				if err := same(other, rec); err != nil {
					return fmt.Errorf("after the bytes returned by another Load were overwritten: %w", err)
				}
				for scanned, err := range s.Scan(ctx, keyring.Query{Scope: "acct"}) {
					if err != nil {
						return err
					}
					clear(scanned.Data)
					clear(scanned.Request)
				}
				if err := holds(ctx, s, rec); err != nil {
					return fmt.Errorf("after the bytes returned by Load and Scan were overwritten: %w", err)
				}
			}
			// What a scan has yielded stays as it is when the scan goes on.
			found, err := scan(ctx, s, keyring.Query{Scope: "acct"})
			if err != nil {
				return err
			}
			for _, rec := range found {
				size := len(rec.Data)
				if err := same(rec, withBytes(rec, filler(size, fmt.Sprint("data ", size)), filler(size, "request"))); err != nil {
					return fmt.Errorf("bytes yielded by Scan changed as it went on: %w", err)
				}
			}
			return nil
		},
	},
	{
		"bytes/sizes",
		"Data of up to some 11 MiB and Request of up to some 5 MiB come back whole, by Load and by Scan, and so do sizes around the limits that databases have.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			sizes := [][2]int{
				{0, 0},
				{1, 0},
				{0, 1},
				{64<<10 - 1, 64<<10 - 1},
				{64 << 10, 64 << 10},
				{64<<10 + 1, 64<<10 + 1},
				{256<<10 - 1, 256 << 10},
				{256<<10 + 1, 256<<10 + 1},
				{1<<20 - 1, 1 << 20},
				{1<<20 + 1, 1<<20 + 1},
				{11 << 20, 5 << 20},
			}
			var want []keyring.Record
			for i, size := range sizes {
				rec := sample("acct", fmt.Sprint(i))
				rec.Data, rec.Request = filler(size[0], "data"), filler(size[1], "request")
				want = append(want, rec)
				if err := create(ctx, s, rec); err != nil {
					return fmt.Errorf("with %d bytes of Data and %d of Request: %w", size[0], size[1], err)
				}
				if err := holds(ctx, s, rec); err != nil {
					return err
				}
			}
			if err := finds(ctx, s, keyring.Query{Scope: "acct"}, want...); err != nil {
				return err
			}
			// Each gets the size of another by an update.
			for i := range want {
				size := sizes[(i+5)%len(sizes)]
				want[i].Revision++
				want[i].Data, want[i].Request = filler(size[0], "data 2"), filler(size[1], "request 2")
				if err := s.Update(ctx, want[i]); err != nil {
					return fmt.Errorf("with %d bytes of Data and %d of Request: %w", size[0], size[1], err)
				}
			}
			return finds(ctx, s, keyring.Query{Scope: "acct"}, want...)
		},
	},
	{
		"bytes/whole while they change",
		"A record is never returned with only part of its bytes because it is being changed: they would look damaged, and the intent with them.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			const size, updates = 100 << 10, 30
			version := func(revision uint64) keyring.Record {
				rec := sample("acct", "a")
				rec.Revision = revision
				rec.Data = filler(size, fmt.Sprint("data ", revision))
				rec.Request = filler(size, fmt.Sprint("request ", revision))
				return rec
			}
			if err := create(ctx, s, version(1)); err != nil {
				return err
			}
			whole := func(rec keyring.Record) error { return same(rec, version(rec.Revision)) }
			for _, err := range atOnce(5, func(i int) error {
				for revision := uint64(2); i == 0 && revision <= updates; revision++ {
					if err := s.Update(ctx, version(revision)); err != nil {
						return err
					}
				}
				for seen := uint64(0); i > 0 && seen < updates; {
					rec, err := s.Load(ctx, version(1).Ref)
					if err == nil {
						seen = rec.Revision
						err = whole(rec)
					}
					if err != nil {
						return fmt.Errorf("Load while the record was changed: %w", err)
					}
					for rec, err := range s.Scan(ctx, keyring.Query{Scope: "acct"}) {
						if err == nil {
							err = whole(rec)
						}
						if err != nil {
							return fmt.Errorf("Scan while the record was changed: %w", err)
						}
					}
				}
				return nil
			}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		"bytes/many large ones at once",
		"Large records that are written at once do not fail each other.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			const n = 12
			want := make([]keyring.Record, n)
			for i := range want {
				want[i] = sample("acct", fmt.Sprint(i))
				// Half just below 64 KiB, where a database transaction that takes
				// several overflows; half above.
				size := 60<<10 + (i%2)*(100<<10)
				want[i].Data, want[i].Request = filler(size, fmt.Sprint("data", i)), filler(size, fmt.Sprint("request", i))
			}
			for i, err := range atOnce(n, func(i int) error { return s.Create(ctx, want[i], keyring.Limits{}) }) {
				if err != nil {
					return fmt.Errorf("Create number %d of %d at once: %w", i, n, err)
				}
			}
			return finds(ctx, s, keyring.Query{Scope: "acct"}, want...)
		},
	},
}

func withBytes(rec keyring.Record, data, request []byte) keyring.Record {
	rec.Data, rec.Request = data, request
	return rec
}
