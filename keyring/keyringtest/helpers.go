package keyringtest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/samekey/samekey/keyring"
)

// sample returns a new, open record with bytes and a fingerprint of its own.
func sample(scope, name string) keyring.Record {
	return keyring.Record{
		Ref:         keyring.Ref{Scope: scope, Name: name},
		Generation:  1,
		Revision:    1,
		Open:        true,
		Fingerprint: fingerprint(scope + "\x00" + name),
		Data:        []byte("data of " + scope + " " + name),
		Request:     []byte("request of " + scope + " " + name),
	}
}

// fingerprint returns the fingerprint that stands for the request named s.
func fingerprint(s string) keyring.Fingerprint {
	sum := sha256.Sum256([]byte(s))
	f, err := keyring.FingerprintOf(append([]byte{1}, sum[:]...))
	if err != nil {
		panic(err) // 33 bytes by construction
	}
	return f
}

// filler returns n bytes that no store can compress away, different for each
// seed.
func filler(n int, seed string) []byte {
	b := make([]byte, 0, n+sha256.Size)
	block := sha256.Sum256([]byte(seed))
	for len(b) < n {
		b = append(b, block[:]...)
		block = sha256.Sum256(block[:])
	}
	return b[:n]
}

// next returns rec as the update after it, with other Data and the stored
// request kept.
func next(rec keyring.Record) keyring.Record {
	rec.Revision++
	rec.Data = fmt.Appendf(nil, "data of revision %d", rec.Revision)
	rec.Request = nil
	return rec
}

// same says what differs between two records. Empty and nil bytes are the
// same. It tells lengths, since the bytes may be megabytes.
func same(got, want keyring.Record) error {
	var diff []string
	add := func(what string, got, want any) {
		diff = append(diff, fmt.Sprintf("%s is %v, want %v", what, got, want))
	}
	if got.Ref != want.Ref {
		add("Ref", fmt.Sprintf("%q", got.Ref), fmt.Sprintf("%q", want.Ref))
	}
	if got.Generation != want.Generation {
		add("Generation", got.Generation, want.Generation)
	}
	if got.Revision != want.Revision {
		add("Revision", got.Revision, want.Revision)
	}
	if got.Open != want.Open {
		add("Open", got.Open, want.Open)
	}
	if got.Fingerprint != want.Fingerprint {
		add("Fingerprint", got.Fingerprint, want.Fingerprint)
	}
	if !bytes.Equal(got.Data, want.Data) {
		add("Data", describe(got.Data), describe(want.Data))
	}
	if !bytes.Equal(got.Request, want.Request) {
		add("Request", describe(got.Request), describe(want.Request))
	}
	if diff == nil {
		return nil
	}
	return fmt.Errorf("record %q: %s", want.Ref, strings.Join(diff, "; "))
}

func describe(b []byte) string {
	sum := sha256.Sum256(b)
	return fmt.Sprintf("%d bytes (digest %x)", len(b), sum[:4])
}

// create adds recs to s, without limits.
func create(ctx context.Context, s keyring.Store, recs ...keyring.Record) error {
	for _, rec := range recs {
		if err := s.Create(ctx, rec, keyring.Limits{}); err != nil {
			return fmt.Errorf("Create of %q: %w", rec.Ref, err)
		}
	}
	return nil
}

// holds reports whether s has want, and has it so.
func holds(ctx context.Context, s keyring.Store, want keyring.Record) error {
	got, err := s.Load(ctx, want.Ref)
	if err != nil {
		return fmt.Errorf("Load of %q: %w", want.Ref, err)
	}
	return same(got, want)
}

// lacks reports whether s has no record of ref.
func lacks(ctx context.Context, s keyring.Store, ref keyring.Ref) error {
	_, err := s.Load(ctx, ref)
	return wants(fmt.Sprintf("Load of %q, which is not there,", ref), err, keyring.ErrNotFound)
}

// scan collects what q finds, and reports records that come twice and errors
// that come with a record or are not the last thing.
func scan(ctx context.Context, s keyring.Store, q keyring.Query) (map[keyring.Ref]keyring.Record, error) {
	found := make(map[keyring.Ref]keyring.Record)
	var failed error
	for rec, err := range s.Scan(ctx, q) {
		if failed != nil {
			return nil, fmt.Errorf("Scan went on after the error %w", failed)
		}
		if err != nil {
			failed = err
			if rec.Ref != (keyring.Ref{}) || rec.Data != nil || rec.Request != nil {
				return nil, fmt.Errorf("Scan yielded a record together with the error %w", err)
			}
			continue
		}
		if _, twice := found[rec.Ref]; twice {
			return nil, fmt.Errorf("Scan yielded %q twice", rec.Ref)
		}
		found[rec.Ref] = rec
	}
	return found, failed
}

// finds reports whether q finds exactly the records of want.
func finds(ctx context.Context, s keyring.Store, q keyring.Query, want ...keyring.Record) error {
	found, err := scan(ctx, s, q)
	if err != nil {
		return fmt.Errorf("Scan with %+v: %w", q, err)
	}
	for _, rec := range want {
		got, ok := found[rec.Ref]
		if !ok {
			return fmt.Errorf("Scan with %+v missed %q", q, rec.Ref)
		}
		if err := same(got, rec); err != nil {
			return fmt.Errorf("Scan with %+v: %w", q, err)
		}
		delete(found, rec.Ref)
	}
	for ref := range found {
		return fmt.Errorf("Scan with %+v yielded %q as well", q, ref)
	}
	return nil
}

// wants reports an error that is not the wanted one.
func wants(what string, err, want error) error {
	switch {
	case errors.Is(err, want):
		return nil
	case err == nil:
		return fmt.Errorf("%s reported no error, want one that is %q", what, want.Error())
	}
	return fmt.Errorf("%s reported %w, want an error that is %q", what, err, want.Error())
}

// atOnce calls f n times at once and returns the results.
func atOnce(n int, f func(i int) error) []error {
	errs := make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			errs[i] = f(i)
		})
	}
	close(start)
	wg.Wait()
	return errs
}

// count says how many of errs are nil, and reports the first one that is
// neither nil nor the other one allowed.
func count(errs []error, other error) (int, error) {
	n := 0
	for _, err := range errs {
		switch {
		case err == nil:
			n++
		case !errors.Is(err, other):
			return n, fmt.Errorf("one of the callers got %w, want nil or an error that is %q", err, other.Error())
		}
	}
	return n, nil
}
