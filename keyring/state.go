package keyring

// State is what is known about an intent. It is computed from everything that
// is recorded, each time, and never stored as an opinion.
type State uint8

const (
	// StateUnknown means that the effect may or may not exist. It is the zero
	// value: what is not understood reads as doubt.
	StateUnknown State = iota
	// StateNeverSent means that nothing that could have had an effect was sent.
	StateNeverSent
	// StateSending means that an attempt is under way.
	StateSending
	// StatePending means that the provider says it is still working on it.
	StatePending
	// StateConflict means that the provider knows the key with another request.
	StateConflict
	// StateExpired means that the effect may exist and the provider may have
	// forgotten the key, so that sending again is not protected any more.
	StateExpired
	// StateDone means that the effect exists. Final.
	StateDone
	// StateRefused means that the provider said no, for good. Final.
	StateRefused
	// StateAbandoned means that the intent was given up after a look. Final.
	StateAbandoned
	// StateDamaged means that the record or its request fails its checksum.
	StateDamaged
)

var stateNames = [...]string{
	"unknown", "never sent", "sending", "pending", "conflict", "expired", "done", "refused", "abandoned", "damaged",
}

// String returns the word used in logs, such as "never sent". A state that
// this version does not know reads as "unknown".
func (s State) String() string {
	if int(s) < len(stateNames) {
		return stateNames[s]
	}
	return stateNames[StateUnknown]
}

// Final says whether nothing more will be sent in this state.
func (s State) Final() bool {
	return s == StateDone || s == StateRefused || s == StateAbandoned
}
