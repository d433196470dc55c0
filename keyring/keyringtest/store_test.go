package keyringtest

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/keyring"
)

func TestWaitInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		ref := keyring.Ref{Scope: "acct", Name: "order"}
		if err := s.Create(t.Context(), keyring.Record{Ref: ref, Revision: 1, Open: true}, keyring.Limits{}); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- s.Wait(t.Context(), ref, 1) }()
		synctest.Wait() // returns only if Wait blocks durably
		go func() {
			time.Sleep(time.Hour)
			if err := s.Update(t.Context(), keyring.Record{Ref: ref, Revision: 2}); err != nil {
				t.Error(err)
			}
		}()
		if err := <-done; err != nil {
			t.Errorf("Wait reported %v after the record had changed", err)
		}

		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.Wait(ctx, ref, 2); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Wait reported %v at the end of its context", err)
		}
		if n := len(s.data.waiting); n != 0 {
			t.Errorf("%d refs are still waited for", n)
		}

		go func() { done <- s.Wait(t.Context(), ref, 2) }()
		synctest.Wait()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, keyring.ErrClosed) {
			t.Errorf("Wait reported %v when the store was closed", err)
		}
	})
}

func TestReopenKeepsRecords(t *testing.T) {
	s := NewStore()
	ref := keyring.Ref{Name: "order"}
	if err := s.Create(t.Context(), keyring.Record{Ref: ref, Revision: 1, Data: []byte("x")}, keyring.Limits{}); err != nil {
		t.Fatal(err)
	}
	again := s.Reopen()
	if _, err := s.Load(t.Context(), ref); !errors.Is(err, keyring.ErrClosed) {
		t.Errorf("the opening that has ended reported %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rec, err := again.Load(t.Context(), ref)
	if err != nil || string(rec.Data) != "x" {
		t.Errorf("after Reopen: %+v, %v", rec, err)
	}
	for session, want := range map[string]bool{s.Session(): true, again.Session(): false, "": false} {
		if gone, err := again.Gone(t.Context(), session); gone != want || err != nil {
			t.Errorf("Gone(%q) = %v, %v; want %v", session, gone, err, want)
		}
	}
}

func TestMemoryStore(t *testing.T) {
	TestStore(t, func(t *testing.T) keyring.Store {
		s := NewStore()
		t.Cleanup(func() { _ = s.Close() })
		return s
	})
}
