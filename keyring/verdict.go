package keyring

import "time"

// VerdictKind is what one attempt told us.
type VerdictKind uint8

const (
	// VerdictUnclear means that the attempt may have taken effect. It is zero on
	// purpose: forgetting to read an answer is doubt, never permission.
	VerdictUnclear VerdictKind = iota
	// VerdictNotProcessed means that the attempt provably did nothing: it never
	// left this machine, or was turned away at the door.
	VerdictNotProcessed
	// VerdictPending means that the provider is still working on an earlier
	// attempt under this key.
	VerdictPending
	// VerdictConflict means that the provider knows this key with another
	// request.
	VerdictConflict
	// VerdictAlready means that things are as our effect would leave them: the
	// name exists, the object is gone.
	VerdictAlready
	// VerdictRefused means that the provider said no to the intent itself: no
	// effect, and the same request will not have one.
	VerdictRefused
	// VerdictDone means that the effect exists.
	VerdictDone
)

var verdictNames = [...]string{"unclear", "not processed", "pending", "conflict", "already", "refused", "done"}

// String returns the word used in logs, such as "not processed". A kind that
// this version does not know reads as "unclear".
func (k VerdictKind) String() string {
	if int(k) < len(verdictNames) {
		return verdictNames[k]
	}
	return verdictNames[VerdictUnclear]
}

// doubt says whether the attempt may have had an effect, or may yet have one.
// A kind that this version does not know is doubt.
func (k VerdictKind) doubt() bool {
	return k == VerdictUnclear || k == VerdictPending || int(k) >= len(verdictNames)
}

// Verdict is what one attempt told us, with what helps to find it again at
// the provider. It holds no body and no credential. The zero Verdict is doubt.
type Verdict struct {
	Kind      VerdictKind
	Status    int    // HTTP status of the answer; 0 where there was none
	EffectID  string // the provider's id of the effect, if it told one
	Code      string // the provider's own code, such as "idempotency_error"
	RequestID string // the provider's id of the exchange
	Why       string // one phrase for logs and errors

	// RetryAfter is the wait that the provider asks for; 0: it asked for none.
	RetryAfter time.Duration
	// Date is the provider's own clock, if it told it.
	Date time.Time

	NoResend   bool // sending again would tell nothing new, or is unsafe: only a look helps
	Front      bool // of a refusal: it was made before the de-duplication was looked up
	SignIn     bool // turned away for want of working credentials
	Replayed   bool // the provider repeated a stored answer
	Unreadable bool // the effect is certain, the answer could not be read whole
}

// Attempt is one sending.
type Attempt struct {
	Number  int       // from 1, across all keys of the ref
	Start   time.Time // recorded before the first byte left
	End     time.Time // zero: no end is on record
	Verdict Verdict   // the zero Verdict (doubt) until there is an end
	Owner   string    // who sent it
	// Identity names the credential that it was sent with; empty: it was not told.
	Identity string
}
