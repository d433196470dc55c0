package keyring

import "time"

// Source says how an outcome is known.
type Source uint8

const (
	// SourceRecord means that it follows from what is on record, and not from a
	// new word of the provider: nothing was sent, or what was sent stays in doubt.
	SourceRecord Source = iota
	// SourceProvider means that the provider said so.
	SourceProvider
	// SourceReplay means that the provider repeated a stored answer.
	SourceReplay
	// SourceInspection means that somebody looked at the provider's side.
	SourceInspection
	// SourceInference means that it follows: an object that we asked to delete,
	// perhaps twice, is gone.
	SourceInference
)

var sourceNames = [...]string{"record", "provider", "replay", "inspection", "inference"}

// String returns the word used in logs, such as "replay".
func (s Source) String() string {
	if int(s) < len(sourceNames) {
		return sourceNames[s]
	}
	return "unknown"
}

// Outcome is what is known about an intent, and what may be done next. The
// zero Outcome is doubt: StateUnknown.
type Outcome struct {
	State           State
	Source          Source
	Verdict         Verdict   // of the attempt that decides
	NotBefore       time.Time // earliest useful moment to send again; zero: now, or never
	NeedsInspection bool      // only a look at the provider's side helps
	NeedsSignIn     bool      // the provider turned the credentials away
	Broken          bool      // more than one effect was seen
	Next            string    // one sentence for a person
}

// next says what a person can do. docs/states.md quotes these sentences.
func (o Outcome) next() string {
	switch o.State {
	case StateDone:
		switch {
		case o.Broken:
			return "More than one effect was seen; look at the provider and undo what is too much."
		case o.Verdict.Unreadable:
			return "It took effect, but its answer could not be read; look at the provider for the details."
		}
		return "It took effect; there is nothing left to do."
	case StateRefused:
		return "The provider refused it and nothing took effect; correct the request and send it under another ref, or rekey this one."
	case StateAbandoned:
		return "It was given up; there is nothing left to do."
	case StateDamaged:
		return "Its record is damaged and will not be sent; look at the provider to see whether it took effect."
	case StateConflict:
		return "The provider knows this key with another request; look at the provider to see what took effect."
	case StateExpired:
		return "It may have taken effect, and the provider may have forgotten the key; look at the provider before anything is sent again."
	case StateSending:
		return "It is being sent at this moment; wait for its outcome."
	case StatePending:
		if o.NeedsInspection {
			return "The provider accepted it and is still working on it; look at the provider for how it ends."
		}
		return "The provider is still working on it; ask again later, under the same ref."
	case StateNeverSent:
		if o.NeedsSignIn {
			return "The provider turned the credentials away and nothing took effect; sign in, then send it again under the same ref."
		}
		return "Nothing has taken effect; send it again under the same ref."
	case StateUnknown:
	}
	switch {
	case o.NeedsInspection:
		return "It may have taken effect, and sending it again is not safe; look at the provider."
	case o.NeedsSignIn:
		return "It may have taken effect, and the provider turned the credentials away; sign in, then send it again under the same ref."
	}
	return "It may have taken effect; send it again under the same ref, which cannot make a second effect."
}
