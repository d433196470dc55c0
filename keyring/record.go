package keyring

import (
	"time"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/internal/clock"
)

// record is the changing part of what is stored for a ref. Its JSON form is
// part of the stored format, see codec.go.
type record struct {
	Ref         Ref          `json:"ref"`
	Revision    uint64       `json:"revision"`
	WriteID     string       `json:"write"` // tells our own write whose answer was lost from somebody else's
	Begun       stamp        `json:"begun"`
	Last        stamp        `json:"last"`                // the latest moment on record
	ClockOff    bool         `json:"clock_off,omitempty"` // the provider's clock and ours disagreed last time
	Generations []generation `json:"generations"`         // the last one is current
	Hold        *holdMark    `json:"hold,omitempty"`
	Park        *park        `json:"park,omitempty"`
	Round       *round       `json:"round,omitempty"`
	AnswerOf    int          `json:"answer_of,omitempty"` // the attempt that the stored answer belongs to
	Answer      []byte       `json:"-"`                   // stored beside the JSON
}

// generation is one key's life within a ref.
type generation struct {
	Number     int           `json:"number"`
	Key        string        `json:"key"`
	Form       uint8         `json:"form"`
	Parts      []storedPart  `json:"parts"`
	Method     string        `json:"method"`
	Needs      []string      `json:"needs,omitempty"` // places that held credentials
	Terms      storedTerms   `json:"terms"`
	RequestSum []byte        `json:"request_sum"` // SHA-256 over ref and stored request
	Age        time.Duration `json:"age,omitempty"`
	Attempts   []attempt     `json:"attempts,omitempty"`
	Findings   []finding     `json:"findings,omitempty"`
	Abandoned  *stamp        `json:"abandoned,omitempty"`
	// Fixed stands for Parts where these are lost: a damaged record that a
	// person has closed.
	Fixed []byte `json:"fixed,omitempty"`
}

type storedPart struct {
	Name string `json:"name"`
	Sum  []byte `json:"sum"`
}

// storedTerms spells the terms out, so that renaming a field of Terms cannot
// change what an old record says.
type storedTerms struct {
	Profile       string        `json:"profile,omitempty"`
	Dedup         Dedup         `json:"dedup,omitempty"`
	KeepsRefusals bool          `json:"keeps_refusals,omitempty"`
	MarksRunning  bool          `json:"marks_running,omitempty"`
	Retention     time.Duration `json:"retention,omitempty"`
	Margin        time.Duration `json:"margin,omitempty"`
	Spacing       time.Duration `json:"spacing,omitempty"`
	Settle        time.Duration `json:"settle,omitempty"`
}

type attempt struct {
	Number   int           `json:"number"`
	Hold     string        `json:"hold"`
	Owner    string        `json:"owner,omitempty"`
	Identity string        `json:"identity,omitempty"` // the credential's name, where the sender told it
	Start    stamp         `json:"start"`
	Deadline time.Duration `json:"deadline"` // from Start; nothing is written to the wire after it
	End      *stamp        `json:"end,omitempty"`
	Verdict  storedVerdict `json:"verdict"`
}

type storedVerdict struct {
	Kind       VerdictKind   `json:"kind,omitempty"`
	Status     int           `json:"status,omitempty"`
	EffectID   string        `json:"effect_id,omitempty"`
	Code       string        `json:"code,omitempty"`
	RequestID  string        `json:"request_id,omitempty"`
	Why        string        `json:"why,omitempty"`
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	Date       time.Time     `json:"date,omitzero"`
	NoResend   bool          `json:"no_resend,omitempty"`
	Front      bool          `json:"front,omitempty"`
	SignIn     bool          `json:"sign_in,omitempty"`
	Replayed   bool          `json:"replayed,omitempty"`
	Unreadable bool          `json:"unreadable,omitempty"`
}

// finding is what a look at the provider's side said, as it counts.
type finding struct {
	Kind     FindingKind `json:"kind"`
	EffectID string      `json:"effect_id,omitempty"`
	By       string      `json:"by,omitempty"`
	Evidence string      `json:"evidence,omitempty"`
	Said     time.Time   `json:"said,omitzero"` // the time that the looker gave
	At       stamp       `json:"at"`            // when the look began, by our clocks
	After    int         `json:"after"`         // the last attempt on record by then
	Attested bool        `json:"attested,omitempty"`
	TooSoon  bool        `json:"too_soon,omitempty"` // it said "absent" before that counts
}

// holdMark is the sole right to send, as recorded.
type holdMark struct {
	ID      string        `json:"id"`
	Owner   string        `json:"owner"`
	Session string        `json:"session,omitempty"`
	Since   stamp         `json:"since"`
	Lease   time.Duration `json:"lease"`
}

// park is a wait that is agreed on: the provider's wish, or the policy's.
type park struct {
	Since stamp         `json:"since"`
	Wait  time.Duration `json:"wait"`
}

// round is a run of attempts with waits between them, as the sender's policy
// counts it. One that a crash cut short goes on.
type round struct {
	Since    stamp `json:"since"`
	Attempts int   `json:"attempts"`
	Over     bool  `json:"over,omitempty"`
}

// stamp is a recorded moment: both clocks, and the boot they were read in.
type stamp struct {
	Wall time.Time     `json:"wall"`
	Mono time.Duration `json:"mono"`
	Boot string        `json:"boot"`
}

// after says whether s is later than t, by the monotonic clock within one boot.
func (s stamp) after(t stamp) bool {
	if s.Boot == t.Boot {
		return s.Mono > t.Mono
	}
	return s.Wall.After(t.Wall)
}

func stampOf(r clock.Reading) stamp { return stamp{Wall: r.Wall, Mono: r.Mono, Boot: r.Boot} }

// clone copies what an update may change, so that a write that fails leaves
// the caller's copy as it was.
func (r *record) clone() *record {
	c := *r
	if r.Round != nil {
		round := *r.Round
		c.Round = &round
	}
	c.Generations = make([]generation, len(r.Generations))
	for i, g := range r.Generations {
		g.Attempts = append([]attempt(nil), g.Attempts...)
		g.Findings = append([]finding(nil), g.Findings...)
		c.Generations[i] = g
	}
	return &c
}

// current is the generation whose key counts. A record always has one.
func (r *record) current() *generation { return &r.Generations[len(r.Generations)-1] }

// startRound counts an attempt that starts now.
func (r *record) startRound(now clock.Reading) {
	if r.Round == nil || r.Round.Over {
		r.Round = &round{Since: stampOf(now)}
	}
	r.Round.Attempts++
}

// lastNumber is the number of the latest attempt under any key.
func (r *record) lastNumber() int {
	for i := len(r.Generations) - 1; i >= 0; i-- {
		if a := r.Generations[i].Attempts; len(a) > 0 {
			return a[len(a)-1].Number
		}
	}
	return 0
}

func (g *generation) canonParts() []canon.Part {
	parts := make([]canon.Part, len(g.Parts))
	for i, p := range g.Parts {
		parts[i] = canon.Part{Name: p.Name, Sum: [16]byte(p.Sum)}
	}
	return parts
}

func (g *generation) fingerprint() Fingerprint {
	if len(g.Fixed) == 33 {
		return Fingerprint{form: g.Fixed[0], sum: [32]byte(g.Fixed[1:])}
	}
	return Fingerprint{form: g.Form, sum: canon.Sum(g.Form, g.canonParts())}
}

func storedParts(parts []canon.Part) []storedPart {
	stored := make([]storedPart, len(parts))
	for i, p := range parts {
		stored[i] = storedPart{Name: p.Name, Sum: p.Sum[:]}
	}
	return stored
}
