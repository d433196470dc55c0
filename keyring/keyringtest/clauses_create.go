package keyringtest

import (
	"context"
	"fmt"
	"strings"

	"github.com/samekey/samekey/keyring"
)

var createClauses = []clause{
	{
		"Create/Load",
		"Load returns what Create was given, field by field.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			a, b := sample("acct", "a"), sample("acct", "b")
			b.Open, b.Generation, b.Fingerprint = false, 7, keyring.Fingerprint{}
			if err := create(ctx, s, a, b); err != nil {
				return err
			}
			for _, rec := range []keyring.Record{a, b} {
				if err := holds(ctx, s, rec); err != nil {
					return err
				}
			}
			return lacks(ctx, s, keyring.Ref{Scope: "acct", Name: "c"})
		},
	},
	{
		"Create/taken",
		"If the ref is taken, Create changes nothing and reports ErrExists: otherwise a second caller's key replaces the first one's.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			first := sample("acct", "a")
			if err := create(ctx, s, first); err != nil {
				return err
			}
			second := first
			second.Data, second.Request, second.Open = []byte("other data"), []byte("other request"), false
			if err := wants("Create of a taken ref", s.Create(ctx, second, keyring.Limits{}), keyring.ErrExists); err != nil {
				return err
			}
			// Taken comes first: who is told that the keyring is full would not
			// look for the intent that is there.
			full := keyring.Limits{MaxOpen: 1, MaxIntents: 1}
			if err := wants("Create of a taken ref in a full store", s.Create(ctx, first, full), keyring.ErrExists); err != nil {
				return err
			}
			if err := holds(ctx, s, first); err != nil {
				return err
			}
			// The refused ones count for nothing.
			return create2(ctx, s, keyring.Limits{MaxOpen: 2, MaxIntents: 2}, sample("acct", "b"))
		},
	},
	{
		"Create/taken, at once",
		"Of many callers that create one ref at once, one succeeds and the others get ErrExists: the one key of an intent is decided here.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			for round := range 5 {
				rec := sample("acct", fmt.Sprint("round ", round))
				variant := func(i int) keyring.Record {
					r := rec
					r.Data = fmt.Appendf(nil, "data of caller %d", i)
					return r
				}
				errs := atOnce(16, func(i int) error { return s.Create(ctx, variant(i), keyring.Limits{}) })
				n, err := count(errs, keyring.ErrExists)
				if err != nil {
					return err
				}
				if n != 1 {
					return fmt.Errorf("%d callers at once created one ref", n)
				}
				for i, err := range errs {
					if err != nil {
						continue
					}
					if err := holds(ctx, s, variant(i)); err != nil {
						return fmt.Errorf("the record is not that of the caller who created it: %w", err)
					}
				}
			}
			return nil
		},
	},
	{
		"Create/limit of open intents",
		"A store with MaxOpen open intents takes no further open one, over all scopes, and reports ErrFull. Final ones do not count.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			lim := keyring.Limits{MaxOpen: 2}
			final := sample("acct", "final")
			final.Open = false
			a, b, c := sample("x", "a"), sample("y", "b"), sample("z", "c")
			if err := create2(ctx, s, lim, final, a, b); err != nil {
				return err
			}
			if err := wants("Create of a third open record where two are allowed", s.Create(ctx, c, lim), keyring.ErrFull); err != nil {
				return err
			}
			if err := lacks(ctx, s, c.Ref); err != nil {
				return err
			}
			other := sample("acct", "another final")
			other.Open = false
			if err := create2(ctx, s, lim, other); err != nil {
				return fmt.Errorf("a record that is not open fell under the limit of open ones: %w", err)
			}
			a = next(a)
			a.Open = false
			if err := s.Update(ctx, a); err != nil {
				return err
			}
			if err := create2(ctx, s, lim, c); err != nil {
				return fmt.Errorf("after an update had made one of them final: %w", err)
			}
			a = next(a)
			a.Open = true
			if err := s.Update(ctx, a); err != nil {
				return err
			}
			lim.MaxOpen = 3
			d := sample("x", "d")
			if err := wants("Create after an update had opened a record again", s.Create(ctx, d, lim), keyring.ErrFull); err != nil {
				return err
			}
			if err := s.Delete(ctx, b.Ref, b.Revision); err != nil {
				return err
			}
			if err := create2(ctx, s, lim, d); err != nil {
				return fmt.Errorf("after an open record was deleted: %w", err)
			}
			return wants("Create in a full store", s.Create(ctx, sample("x", "e"), lim), keyring.ErrFull)
		},
	},
	{
		"Create/limit of intents",
		"A store with MaxIntents intents takes no further one, over all scopes, and reports ErrFull. Zero is no limit.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			lim := keyring.Limits{MaxIntents: 2}
			final := sample("x", "final")
			final.Open = false
			a, b := sample("y", "a"), sample("z", "b")
			if err := create2(ctx, s, lim, final, a); err != nil {
				return err
			}
			if err := wants("Create of a third record where two are allowed", s.Create(ctx, b, lim), keyring.ErrFull); err != nil {
				return err
			}
			if err := lacks(ctx, s, b.Ref); err != nil {
				return err
			}
			if err := s.Delete(ctx, final.Ref, 1); err != nil {
				return err
			}
			if err := create2(ctx, s, lim, b); err != nil {
				return fmt.Errorf("after a record was deleted: %w", err)
			}
			return create(ctx, s, final)
		},
	},
	{
		"Create/limits, at once",
		"The check of the limits and the change are one transaction: of many callers at once exactly as many succeed as there is room for.",
		func(ctx context.Context, open func() keyring.Store) error {
			for _, lim := range []keyring.Limits{{MaxOpen: 5}, {MaxIntents: 5}} {
				s := open()
				errs := atOnce(24, func(i int) error {
					return s.Create(ctx, sample("acct", fmt.Sprint(i)), lim)
				})
				n, err := count(errs, keyring.ErrFull)
				if err != nil {
					return err
				}
				if n != 5 {
					return fmt.Errorf("with %+v, %d of 24 callers at once created a record", lim, n)
				}
				found, err := scan(ctx, s, keyring.Query{AllScopes: true})
				if err != nil {
					return err
				}
				if len(found) != 5 {
					return fmt.Errorf("with %+v, 5 callers created a record and %d are there", lim, len(found))
				}
			}
			return nil
		},
	},
	{
		"refs/kept apart",
		"Two refs are the same only if both scope and name are: a store that glues them together hands one intent's key to another.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			var recs []keyring.Record
			for _, r := range oddRefs() {
				recs = append(recs, sample(r.Scope, r.Name))
			}
			if err := create(ctx, s, recs...); err != nil {
				return err
			}
			scopes := make(map[string][]keyring.Record)
			for _, rec := range recs {
				if err := holds(ctx, s, rec); err != nil {
					return err
				}
				scopes[rec.Ref.Scope] = append(scopes[rec.Ref.Scope], rec)
			}
			for scope, want := range scopes {
				if err := finds(ctx, s, keyring.Query{Scope: scope}, want...); err != nil {
					return err
				}
				if err := finds(ctx, s, keyring.Query{Scope: scope, OpenOnly: true}, want...); err != nil {
					return err
				}
			}
			// Deleting one leaves the others.
			if err := s.Delete(ctx, recs[0].Ref, 1); err != nil {
				return err
			}
			return finds(ctx, s, keyring.Query{AllScopes: true}, recs[1:]...)
		},
	},
}

// create2 is create with limits.
func create2(ctx context.Context, s keyring.Store, lim keyring.Limits, recs ...keyring.Record) error {
	for _, rec := range recs {
		if err := s.Create(ctx, rec, lim); err != nil {
			return fmt.Errorf("Create of %q with %+v: %w", rec.Ref, lim, err)
		}
	}
	return nil
}

// oddRefs returns refs in normal form that careless encodings mix up: pairs
// that are one string when joined, that differ in case or in the last byte,
// that look like patterns or escapes, and the longest there are.
func oddRefs() []keyring.Ref {
	long := strings.Repeat("x", keyring.MaxRef-1)
	var odd strings.Builder
	for c := rune(0x20); c < 0x7f; c++ {
		odd.WriteRune(c)
	}
	odd.WriteString("é漢🔑\u00a0\u2028\ufeff\ufffd")
	return []keyring.Ref{
		{Scope: "a", Name: "b/c"},
		{Scope: "a/b", Name: "c"},
		{Scope: "ab", Name: "c"},
		{Scope: "a", Name: "bc"},
		{Scope: "", Name: "abc"},
		{Scope: "abc", Name: "a"},
		{Scope: "a:b", Name: "c"},
		{Scope: "a", Name: "b:c"},
		{Scope: "3", Name: "abc"},
		{Scope: "3abc", Name: "3"},
		{Scope: "a", Name: "B/c"},
		{Scope: "A", Name: "b/c"},
		{Scope: "a", Name: "%"},
		{Scope: "%", Name: "a"},
		{Scope: "a", Name: "_"},
		{Scope: "a", Name: "*"},
		{Scope: "..", Name: "../.."},
		{Scope: "a", Name: `\x00`},
		{Scope: "a", Name: "%00"},
		{Scope: "a", Name: "null"},
		{Scope: " ", Name: " "},
		{Scope: "a ", Name: "b"},
		{Scope: "a", Name: " b"},
		{Scope: "a", Name: "b "},
		{Scope: odd.String(), Name: odd.String()},
		{Scope: long + "1", Name: long + "1"},
		{Scope: long + "1", Name: long + "2"},
		{Scope: long + "2", Name: long + "1"},
		{Scope: long, Name: "1" + long},
	}
}
