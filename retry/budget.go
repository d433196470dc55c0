package retry

import "sync"

// What the fields of [Budget] mean when they are zero: five hundred attempts more
// than there are intents is little for a provider in trouble, and more than a
// program with a handful of intents ever needs.
const (
	defaultBurst = 500
	defaultShare = 0.2
)

// Budget bounds the repeated attempts of all intents of a client together, so
// that an outage is not made worse by everybody trying again. Each repeated
// attempt takes one from it, each attempt that went well gives back a share of
// one. First attempts are free. The zero value is ready to use; it must not be
// copied after that. Its methods may be called from many goroutines.
type Budget struct {
	// Burst is how many repeated attempts the budget holds, and begins with. Zero
	// means 500; a negative one means no bound at all.
	Burst int
	// Share is what an attempt that went well gives back. Zero or less means 0.2.
	Share float64

	mu    sync.Mutex
	spent float64
}

// Take takes one repeated attempt, or reports false if there is none.
func (b *Budget) Take() bool {
	if b == nil || b.Burst < 0 {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	burst := float64(b.Burst)
	if b.Burst == 0 {
		burst = defaultBurst
	}
	if b.spent+1 > burst {
		return false
	}
	b.spent++
	return true
}

// Return gives back the share of an attempt that went well.
func (b *Budget) Return() {
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	share := b.Share
	if !(share > 0) { // zero, negative, and what is no number
		share = defaultShare
	}
	b.spent = max(0, b.spent-share)
}
