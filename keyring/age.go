package keyring

import (
	"time"

	"github.com/samekey/samekey/internal/clock"
)

// Defaults of the rules about time. The reasons are in docs/states.md.
const (
	defaultAttemptTimeout = 30 * time.Second
	leaseBeyondTimeout    = time.Minute
	defaultUnknown        = time.Hour        // horizon where the provider publishes none
	defaultSpacing        = 5 * time.Second  // after doubt, until the earlier attempt can no longer be on its way
	defaultSettle         = 15 * time.Minute // until "not found" begins to count
	maxMargin             = time.Hour
	maxSkew               = 5 * time.Minute // between our clock and the provider's
	maxStepBack           = 2 * time.Second // across a restart: what time servers correct; the margin covers it
)

// since is how long ago s was: by the monotonic clock where the boot is the
// same, else by the wall clock. It can be negative.
func since(now clock.Reading, s stamp) time.Duration {
	if now.Boot == s.Boot {
		return now.Mono - s.Mono
	}
	return now.Wall.Sub(s.Wall)
}

// sinceAtMost is how long ago s was by whichever clock says longer: for rules
// that must not come too late, such as the age of a key.
func sinceAtMost(now clock.Reading, s stamp) time.Duration {
	d := now.Wall.Sub(s.Wall)
	if now.Boot == s.Boot {
		d = max(d, now.Mono-s.Mono)
	}
	return d
}

// firstSent is the earliest attempt under this key that may have arrived.
// The provider's memory of the key is counted from it.
func (g *generation) firstSent() *attempt {
	for i := range g.Attempts {
		if a := &g.Attempts[i]; a.End == nil || a.Verdict.Kind != VerdictNotProcessed {
			return a
		}
	}
	return nil
}

// age is how long the provider may have known the key. It is unknown (false)
// when the clocks cannot be believed: after a restart, a wall clock earlier
// than the latest moment on record; a provider whose clock disagrees; or an
// application that says so.
func (r *record) age(now clock.Reading, trusted bool) (time.Duration, bool) {
	g := r.current()
	first := g.firstSent()
	if first == nil {
		return 0, true
	}
	d := max(g.Age, sinceAtMost(now, first.Start))
	return d, trusted && !r.ClockOff && !r.wentBack(now)
}

// wentBack says whether the wall clock is earlier than the latest moment on
// record and nothing else can tell how much time has passed.
func (r *record) wentBack(now clock.Reading) bool {
	return now.Boot != r.Last.Boot && r.Last.Wall.Sub(now.Wall) > maxStepBack
}

// horizon is the largest age at which an attempt may still be started, so
// that it ends before the provider may have forgotten the key. Zero or less
// permits no resend at all. forever is set where there is no end.
func (t Terms) horizon(timeout, unknown time.Duration) (limit time.Duration, forever bool) {
	if t.Dedup == DedupNatural && t.Retention == 0 {
		return 0, true // nothing to forget: the name itself is the key
	}
	retention := t.Retention
	if retention == 0 {
		retention = unknown
	}
	if retention == Forever {
		return 0, true
	}
	margin := t.Margin
	if margin < 2*timeout {
		margin = max(2*timeout, min(retention/10, maxMargin))
	}
	return retention - margin - timeout, false
}

// margin is the margin that zero stands for, apart from the attempt timeout.
func (t Terms) margin(unknown time.Duration) time.Duration {
	if t.Margin != 0 || t.Retention == Forever {
		return t.Margin
	}
	return min(cmpOr(t.Retention, unknown)/10, maxMargin)
}

// spacing is how long after the n-th unclear attempt the next one waits.
func (t Terms) spacing(n int) time.Duration {
	if t.MarksRunning || n < 1 {
		return 0
	}
	base := t.Spacing
	if base == 0 {
		base = defaultSpacing
	}
	if n == 1 {
		return base
	}
	d := base
	for range n { // the second waits four times as long as the first, then it doubles
		if d > 12*time.Hour {
			break
		}
		d *= 2
	}
	return d
}

// stricter combines the terms that an intent was begun under with those that
// hold now: of each pair, the one that permits less.
func (t Terms) stricter(u Terms, unknown time.Duration) Terms {
	if t.Dedup != u.Dedup {
		t.Dedup = DedupNone
	}
	t.KeepsRefusals = t.KeepsRefusals && u.KeepsRefusals
	t.MarksRunning = t.MarksRunning && u.MarksRunning
	if t.Margin != u.Margin {
		t.Margin = max(t.margin(unknown), u.margin(unknown))
	}
	if t.Retention != u.Retention {
		if t.Retention == 0 {
			t.Retention = unknown
		}
		if u.Retention == 0 {
			u.Retention = unknown
		}
		t.Retention = min(t.Retention, u.Retention)
	}
	if t.Spacing != u.Spacing {
		t.Spacing = max(cmpOr(t.Spacing, defaultSpacing), cmpOr(u.Spacing, defaultSpacing))
	}
	if t.Settle != u.Settle {
		t.Settle = max(cmpOr(t.Settle, defaultSettle), cmpOr(u.Settle, defaultSettle))
	}
	return t
}

func cmpOr(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return d
}
