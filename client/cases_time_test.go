package client_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/internal/clock"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

// TestC61: Retry-After was obeyed without a limit, and overflowed.
func TestC61AWishIsFollowedWithinLimits(t *testing.T) {
	type span struct{ least, most time.Duration }
	own := span{time.Second, 30 * time.Second}
	for _, c := range []struct {
		value string // of Retry-After; empty: none
		hits  int
		gap   span // between hits
		later span // until NotBefore, where it is not worth sleeping
	}{
		{"3600", 1, span{}, span{time.Hour, time.Hour}},
		{"9223372037", 1, span{}, span{time.Second, 24 * time.Hour}},
		{"9223372036854775807", 1, span{}, span{time.Second, 24 * time.Hour}},
		{"99999999999999999999999999", 1, span{}, span{time.Second, 24 * time.Hour}},
		{"Fri, 01 Jan 2100 00:00:00 GMT", 1, span{}, span{time.Second, 24 * time.Hour}},
		{"-1", 3, own, span{}},
		{"1.5", 3, own, span{}},
		{"soon", 3, own, span{}},
		{"Fri, 01 Jan 1990 00:00:00 GMT", 3, own, span{}},
		{"", 3, own, span{}},
		{"5", 3, span{5 * time.Second, 5 * time.Second}, span{}},
		{"0", 3, own, span{}},
	} {
		t.Run(c.value, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := start(t, dedup(t), nil, client.Options{Retry: retry.Exponential{MaxAttempts: 3, MinWait: time.Second, MaxWait: 30 * time.Second}})
				h := clienttest.JSON()
				if c.value != "" {
					h.Set("Retry-After", c.value)
				}
				e.srv.Script(clienttest.Answer(429, h, []byte(`{}`)).Forever())
				began := time.Now()
				res, err := e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, keyring.StateNeverSent)
				e.want(counts{c.hits, 0, 1, 1})
				for i, g := range e.gaps() {
					if g < c.gap.least || g > c.gap.most {
						t.Errorf("gap %d is %v, want %v to %v", i+1, g, c.gap.least, c.gap.most)
					}
				}
				left := time.Until(res.Outcome.NotBefore)
				if c.hits == 1 {
					if slept := time.Since(began); slept != 0 {
						t.Errorf("slept for %v", slept)
					}
					if left < c.later.least || left > c.later.most {
						t.Errorf("to come back in %v, want %v to %v", left, c.later.least, c.later.most)
					}
				}
				if left <= 0 || left > 24*time.Hour {
					t.Errorf("to come back in %v", left)
				}

				// It is stored: neither another call nor a restart undoes it.
				e.restart(nil)
				again, err := e.do("inv-7", e.post("/pay", pay))
				if !errors.Is(err, keyring.ErrTooSoon) || !again.Outcome.NotBefore.Equal(res.Outcome.NotBefore) || e.srv.Hits() != c.hits {
					t.Errorf("%v, not before %v, then %v, %d hits", err, res.Outcome.NotBefore, again.Outcome.NotBefore, e.srv.Hits())
				}
				e.srv.Unscript()
				time.Sleep(left)
				res, err = e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, keyring.StateDone)
				e.want(counts{c.hits + 1, 1, 1, 1})
			})
		})
	}
}

// TestC63: clients of one service disagreed on what to send again. Whether each
// status is doubt is tested in package provider; here is what the client does
// about it.
func TestC63WhatIsSentAgainFollowsTheTableAndTheAdvice(t *testing.T) {
	p, err := provider.New(provider.Spec{
		Name: "box", AdviceHeader: "Stripe-Should-Retry", ReplayHeader: "Idempotent-Replayed",
		Endpoints: []provider.Endpoint{{Pattern: "POST /{rest...}", Terms: keyring.Terms{
			Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour,
		}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	again, look := keyring.StateDone, keyring.StateUnknown
	for _, c := range []struct {
		status int
		advice string
		hits   int
		want   keyring.State
	}{
		{409, "true", 2, again},
		{503, "false", 1, look},
		{500, "", 2, again},
		{408, "", 2, again},
		{425, "", 2, again},
		{502, "", 2, again},

		{409, "", 2, again},
		{409, "false", 1, look},
		{423, "", 2, again},
		{429, "", 2, again},
		{500, "true", 2, again},
		{500, "false", 1, look},
		{500, "perhaps", 2, again},
		{503, "", 2, again},
		{504, "", 2, again},
		{599, "", 2, again},
		{303, "", 1, look},
		{303, "true", 1, look}, // advice on an error is no word about a redirect
		{422, "true", 2, again},
		{400, "", 1, keyring.StateRefused},
		{402, "", 1, keyring.StateRefused},
		{402, "false", 1, keyring.StateRefused},
		{404, "", 1, keyring.StateRefused},
		{422, "", 1, keyring.StateRefused},
		{501, "", 1, keyring.StateRefused},
		{401, "", 1, keyring.StateNeverSent},
		{403, "", 1, keyring.StateNeverSent},
	} {
		t.Run(strings.TrimSpace(http.StatusText(c.status)+" "+c.advice), func(t *testing.T) {
			e := start(t, p, nil, client.Options{Retry: quick(3)})
			h := clienttest.JSON()
			if c.advice != "" {
				h.Set("Stripe-Should-Retry", c.advice)
			}
			e.srv.Script(clienttest.Answer(c.status, h, []byte(`{}`)))
			res, err := e.do("inv-7", e.post("/pay", pay))
			e.state(res, err, c.want)
			e.want(counts{c.hits, c.hits - 1, 1, 1})
			if c.want == look && (!res.Outcome.NeedsInspection || !errors.Is(err, keyring.ErrNeedsInspection)) {
				t.Errorf("%v; want a look to be asked for", err)
			}
			if (c.want == keyring.StateNeverSent) != errors.Is(err, client.ErrSignIn) {
				t.Errorf("%v", err)
			}
		})
	}
}

// machine has a wall clock that can be set, and that goes on while the
// monotonic one and the timers stand still.
type machine struct {
	mu     sync.Mutex
	booted time.Time
	offset time.Duration
}

func boot() *machine { return &machine{booted: time.Now()} }

func (m *machine) Read() clock.Reading {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	return clock.Reading{Wall: now.Add(m.offset).Round(0).UTC(), Mono: now.Sub(m.booted), Boot: "boot-1"}
}

func (m *machine) jump(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.offset += d
}

// pooled is a transport that keeps connections, and counts how often they are
// dropped.
type pooled struct {
	http.RoundTripper
	dropped int
}

func (p *pooled) CloseIdleConnections() { p.dropped++ }

// TestC67: across a sleep the monotonic clock stands still.
func TestC67SleepAndSetClocks(t *testing.T) {
	backoff := retry.Exponential{MinWait: 30 * time.Second, MaxWait: 30 * time.Second}
	for _, c := range []struct {
		claim     string
		retention time.Duration
		jump      time.Duration
		after     []clienttest.Fault // of the hits after the first, before it goes well
		want      keyring.State
		hits      int
	}{
		{"a sleep of eight hours within a window of a day", 24 * time.Hour, 8 * time.Hour, nil, keyring.StateDone, 2},
		{"it does not use up the time of the round", 24 * time.Hour, 8 * time.Hour, []clienttest.Fault{clienttest.Answer(503, clienttest.JSON(), nil)}, keyring.StateDone, 3},
		{"a sleep of eight hours past a window of six", 6 * time.Hour, 8 * time.Hour, nil, keyring.StateExpired, 1},
		{"a wall clock that steps back two hours", 24 * time.Hour, -2 * time.Hour, nil, keyring.StateDone, 2},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := boot()
				terms := keyring.Terms{Dedup: keyring.DedupKey, Retention: c.retention}
				e := start(t, withTerms(t, "POST /{rest...}", terms), nil, client.Options{Retry: backoff})
				e.ctx = clock.With(e.ctx, m)
				conns := &pooled{RoundTripper: e.opts.Transport}
				e.restart(func(o *client.Options) { o.Transport = conns })
				e.srv.Script(append([]clienttest.Fault{clienttest.LoseAnswer()}, c.after...)...)
				began := time.Now()
				time.AfterFunc(time.Second, func() { m.jump(c.jump) }) // during the wait
				res, err := e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, c.want)
				e.want(counts{c.hits, 1, 1, 1})
				if slept := c.jump > 0 && c.hits > 1; (conns.dropped != 0) != slept || conns.dropped > 1 {
					t.Errorf("idle connections were dropped %d times", conns.dropped)
				}
				if want := time.Duration(max(1, c.hits-1)) * 30 * time.Second; time.Since(began) != want {
					t.Errorf("it took %v of the monotonic clock, want %v", time.Since(began), want)
				}
				if c.want == keyring.StateExpired && (!errors.Is(err, client.ErrExpired) || !res.Outcome.NeedsInspection) {
					t.Errorf("%v; want ErrExpired and a look", err)
				}
			})
		})
	}
}

// The time of a round is that of the monotonic clock, and ends it.
func TestC67TheTimeOfARoundIsNotUsedUpBySleeping(t *testing.T) {
	for _, c := range []struct {
		claim string
		jump  time.Duration
	}{{"awake", 0}, {"asleep for eight hours", 8 * time.Hour}, {"set back", -time.Hour}} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := boot()
				e := start(t, dedup(t), nil, client.Options{
					Retry: retry.Exponential{MinWait: 30 * time.Second, MaxWait: 30 * time.Second, MaxAttempts: 100, Budget: 95 * time.Second},
				})
				e.ctx = clock.With(e.ctx, m)
				e.srv.Script(clienttest.Answer(503, clienttest.JSON(), nil).Forever())
				time.AfterFunc(time.Second, func() { m.jump(c.jump) })
				res, err := e.do("inv-7", e.post("/pay", pay))
				e.state(res, err, keyring.StateUnknown)
				e.want(counts{4, 0, 1, 1}) // at 0, 30, 60 and 90 seconds
			})
		})
	}
}

// The rest of the kind: an age never decreases, whatever the wall clock does
// after it was recorded, in this process or another.
func TestC67TheAgeOfAKeyNeverDecreases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := boot()
		terms := keyring.Terms{Dedup: keyring.DedupKey, MarksRunning: true, Retention: 6 * time.Hour}
		e := start(t, withTerms(t, "POST /{rest...}", terms), nil, client.Options{Retry: retry.Exponential{MaxAttempts: 1}})
		e.ctx = clock.With(e.ctx, m)
		e.srv.Script(clienttest.Answer(503, clienttest.JSON(), nil).Forever())
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		m.jump(4 * time.Hour)
		res, err = e.do("inv-7", e.post("/pay", pay)) // recorded at an age of four hours
		e.state(res, err, keyring.StateUnknown)
		until := res.Intent.ResendUntil()
		if left := until.Sub(m.Read().Wall); left > 2*time.Hour {
			t.Errorf("%v are left of six hours after four", left)
		}
		m.jump(-4 * time.Hour)
		if left := e.get("inv-7").ResendUntil().Sub(m.Read().Wall); left > 2*time.Hour {
			t.Errorf("%v are left after the clock was set back", left)
		}
		time.Sleep(2 * time.Hour)
		m.jump(5 * time.Hour)
		res, err = e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateExpired)
		m.jump(-5 * time.Hour)
		e.restart(nil)
		if in := e.get("inv-7"); in.State == keyring.StateNeverSent || in.State.Final() {
			t.Errorf("%s", in.State)
		}
		e.want(counts{2, 0, 1, 1})
	})
}
