package keyringtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/samekey/samekey/keyring"
)

var endClauses = []clause{
	{
		"context",
		"A call whose context is over before it begins changes nothing and reports the context's error.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			rec := sample("acct", "a")
			if err := create(ctx, s, rec); err != nil {
				return err
			}
			over, cancel := context.WithCancel(ctx)
			cancel()
			fresh := sample("acct", "b")
			_, loadErr := s.Load(over, rec.Ref)
			for what, err := range map[string]error{
				"Create": s.Create(over, fresh, keyring.Limits{}),
				"Load":   loadErr,
				"Update": s.Update(over, next(rec)),
				"Delete": s.Delete(over, rec.Ref, rec.Revision),
			} {
				if err := wants(what+" with a cancelled context", err, context.Canceled); err != nil {
					return err
				}
			}
			// A change that was made too late would show in time: one more write
			// is behind it.
			last := sample("acct", "c")
			if err := create(ctx, s, last); err != nil {
				return err
			}
			return finds(ctx, s, keyring.Query{AllScopes: true}, rec, last)
		},
	},
	{
		"errors/no bytes",
		"No error quotes Data or Request: errors are logged, and these hold what is sent to the provider.",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			const marker = "card-4242-do-not-print"
			rec := sample("acct", "a")
			rec.Data, rec.Request = []byte(marker), []byte(marker)
			if err := create(ctx, s, rec); err != nil {
				return err
			}
			over, cancel := context.WithCancel(ctx)
			cancel()
			other := withBytes(sample("acct", "b"), rec.Data, rec.Request)
			stale, missing := rec, other
			stale.Revision, missing.Revision = 5, 2
			bad := other
			bad.Ref.Name = ""
			errs := []error{
				s.Create(ctx, rec, keyring.Limits{}),
				s.Create(ctx, other, keyring.Limits{MaxIntents: 1}),
				s.Create(ctx, other, keyring.Limits{MaxOpen: 1}),
				s.Create(over, other, keyring.Limits{}),
				s.Create(ctx, bad, keyring.Limits{}),
				s.Update(ctx, stale),
				s.Update(ctx, missing),
				s.Update(over, stale),
				s.Delete(ctx, rec.Ref, 7),
			}
			if closer, ok := s.(io.Closer); ok {
				errs = append(errs, closer.Close(), s.Update(ctx, stale), s.Create(ctx, other, keyring.Limits{}))
			}
			for i, err := range errs {
				if err != nil && strings.Contains(fmt.Sprintf("%v %+v %#v", err, err, err), marker) {
					return fmt.Errorf("error number %d of this clause quotes the bytes that were stored", i)
				}
			}
			return nil
		},
	},
	{
		"Close",
		"After Close, each method reports ErrClosed and none panics or hangs; to close again is harmless. (For stores that have a method Close.)",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			closer, ok := s.(io.Closer)
			if !ok {
				return nil
			}
			rec := sample("acct", "a")
			if err := create(ctx, s, rec); err != nil {
				return err
			}
			for range 2 {
				if err := closer.Close(); err != nil {
					return fmt.Errorf("Close: %w", err)
				}
			}
			_, loadErr := s.Load(ctx, rec.Ref)
			_, scanErr := scan(ctx, s, keyring.Query{AllScopes: true})
			errs := map[string]error{
				"Create": s.Create(ctx, sample("acct", "b"), keyring.Limits{}),
				"Load":   loadErr,
				"Update": s.Update(ctx, next(rec)),
				"Scan":   scanErr,
				"Delete": s.Delete(ctx, rec.Ref, 1),
			}
			if w, ok := s.(keyring.Waiter); ok {
				errs["Wait"] = w.Wait(ctx, rec.Ref, 1)
			}
			for what, err := range errs {
				if err := wants(what+" after Close", err, keyring.ErrClosed); err != nil {
					return err
				}
			}
			return nil
		},
	},
	{
		"Close/during calls",
		"Calls that are under way when the store is closed end well or with ErrClosed. (For stores that have a method Close.)",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			closer, ok := s.(io.Closer)
			if !ok {
				return nil
			}
			const n = 8
			begun := make(chan struct{}, n)
			for _, err := range atOnce(n+1, func(i int) error {
				if i == n {
					for range n {
						<-begun
					}
					return closer.Close()
				}
				begun <- struct{}{}
				for j := 0; ; j++ {
					rec := sample("acct", fmt.Sprint(i, " ", j))
					err := s.Create(ctx, rec, keyring.Limits{})
					if err == nil {
						_, err = s.Load(ctx, rec.Ref)
					}
					if err == nil && j%5 == 0 {
						_, err = scan(ctx, s, keyring.Query{Scope: "acct", OpenOnly: true})
					}
					if errors.Is(err, keyring.ErrClosed) {
						return nil
					}
					if err != nil {
						return err
					}
				}
			}) {
				if err != nil {
					return fmt.Errorf("while the store was closed: %w", err)
				}
			}
			return nil
		},
	},
}

var optionalClauses = []clause{
	{
		"Wait",
		"Wait returns nil once the record has another revision or is gone, and the context's error when that ends first. (For stores that implement Waiter.)",
		func(ctx context.Context, open func() keyring.Store) error {
			s := open()
			w, ok := s.(keyring.Waiter)
			if !ok {
				return nil
			}
			limited, cancel := context.WithTimeout(ctx, patience)
			defer cancel()
			rec, other := sample("acct", "a"), sample("acct", "b")
			if err := create(ctx, s, rec, other); err != nil {
				return err
			}
			if err := w.Wait(limited, rec.Ref, 7); err != nil {
				return fmt.Errorf("Wait for another revision than 7 where 1 is stored: %w", err)
			}
			if err := w.Wait(limited, keyring.Ref{Scope: "acct", Name: "none"}, 1); err != nil {
				return fmt.Errorf("Wait for a ref that is not there: %w", err)
			}
			over, end := context.WithCancel(ctx)
			end()
			if err := w.Wait(over, rec.Ref, rec.Revision); err != nil && !errors.Is(err, context.Canceled) {
				return fmt.Errorf("Wait with a cancelled context reported %w", err)
			}

			const waiters = 4
			changed := next(rec)
			for _, err := range atOnce(waiters+1, func(i int) error {
				if i == waiters {
					return s.Update(ctx, changed)
				}
				return waitChanged(limited, s, w, rec.Ref, rec.Revision)
			}) {
				if err != nil {
					return fmt.Errorf("Wait while the record was updated: %w", err)
				}
			}
			for _, err := range atOnce(waiters+1, func(i int) error {
				if i == waiters {
					return s.Delete(ctx, rec.Ref, changed.Revision)
				}
				return waitChanged(limited, s, w, rec.Ref, changed.Revision)
			}) {
				if err != nil {
					return fmt.Errorf("Wait while the record was deleted: %w", err)
				}
			}
			return holds(ctx, s, other)
		},
	},
	{
		"Sessions",
		"Each opening has a session name of its own, and is not gone while it is open: otherwise two senders hold one intent. (For stores that implement Sessions.)",
		func(ctx context.Context, open func() keyring.Store) error {
			a := open()
			as, ok := a.(keyring.Sessions)
			if !ok {
				return nil
			}
			bs, ok := open().(keyring.Sessions)
			if !ok {
				return errors.New("one opening implements Sessions, another does not")
			}
			name := as.Session()
			switch {
			case name == "":
				return errors.New("the session has no name")
			case name != as.Session():
				return errors.New("the session's name changes")
			case name == bs.Session():
				return fmt.Errorf("two openings have the same session name %q", name)
			}
			for _, s := range []keyring.Sessions{as, bs} {
				gone, err := s.Gone(ctx, s.Session())
				if err != nil {
					return fmt.Errorf("Gone: %w", err)
				}
				if gone {
					return errors.New("Gone says true for the session that asks")
				}
			}
			gone, err := as.Gone(ctx, "")
			if err != nil {
				return fmt.Errorf("Gone: %w", err)
			}
			if gone {
				return errors.New("Gone says true for an empty name, which is nobody's and in doubt")
			}
			return nil
		},
	},
}

// waitChanged waits until the revision is another one. Wait may return early,
// so it asks again.
func waitChanged(ctx context.Context, s keyring.Store, w keyring.Waiter, ref keyring.Ref, revision uint64) error {
	for {
		if err := w.Wait(ctx, ref, revision); err != nil {
			return err
		}
		rec, err := s.Load(ctx, ref)
		if errors.Is(err, keyring.ErrNotFound) || err == nil && rec.Revision != revision {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
