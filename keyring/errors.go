package keyring

import (
	"errors"
	"strings"
	"time"
)

// Errors to branch on with errors.Is. They come wrapped in an [*Error].
var (
	// ErrInvalid: what was given cannot be used; the text says what to change.
	// What was turned down was not sent; earlier calls about the same intent may
	// have sent something.
	ErrInvalid = errors.New("invalid")
	// ErrNotFound: the keyring has no such intent.
	ErrNotFound = errors.New("no such intent in this keyring")
	// ErrExists: Store.Create found the ref taken.
	ErrExists = errors.New("the ref is taken")
	// ErrStale: the record has moved on since it was read.
	ErrStale = errors.New("the record has changed meanwhile")
	// ErrDiffers: the ref is known with another request. Error.Fields names what
	// differs. To send something else, use another ref.
	ErrDiffers = errors.New("the request differs from the one on record")
	// ErrHeld: somebody else is sending this intent. Error.Until says for how
	// long at most.
	ErrHeld = errors.New("the intent is held by another sender")
	// ErrNeedsInspection: the effect may exist, and sending again would not be
	// protected. Look at the provider's side.
	ErrNeedsInspection = errors.New("look at the provider's side before anything is sent again")
	// ErrFinal: the intent is final; there is nothing to send.
	ErrFinal = errors.New("the intent is final")
	// ErrTooSoon: it is too early to send again, or to look. Error.Until says
	// when.
	ErrTooSoon = errors.New("too soon")
	// ErrDamaged: the record or its request fails its checksum. It is not sent
	// and gets no other key, until a person has said what became of it.
	ErrDamaged = errors.New("the record is damaged")
	// ErrPurged: the intent was final and its details were purged.
	ErrPurged = errors.New("the intent was purged")
)

// Errors that stores report.
var (
	// ErrFull: a limit on the number of intents is reached. Nothing is evicted:
	// settle open intents, or raise the limit. What is purged keeps its ref, and
	// counts as an intent.
	ErrFull = errors.New("the keyring is full")
	// ErrNoSpace: the disk has too little room for a safe write.
	ErrNoSpace = errors.New("too little disk space for the keyring")
	// ErrBusy: another process has the keyring. The text names it.
	ErrBusy = errors.New("the keyring is in use by another process")
	// ErrUnreadable: the keyring is there but cannot be read: damaged, of
	// another format, or locked by another encryption key. It was not changed.
	ErrUnreadable = errors.New("the keyring cannot be read")
	// ErrLost: the keyring, or part of it, is gone. No new one was started.
	ErrLost = errors.New("the keyring is lost")
	// ErrRolledBack: the keyring is an older copy of itself.
	ErrRolledBack = errors.New("the keyring was rolled back")
	// ErrClosed: the store, ring or client is closed.
	ErrClosed = errors.New("the keyring is closed")
)

// Error is what the methods of a [Ring] and a [Hold] report. It never holds a
// body, a query value or a credential.
type Error struct {
	Op     string    // the method, in lower case: "begin", "acquire", "start", "finish", "rekey", ...
	Ref    Ref       // the intent concerned; zero where there is none
	Until  time.Time // with ErrHeld: when the lease ends; with ErrTooSoon: the earliest moment
	Fields []string  // with ErrDiffers: what differs, such as "body" or "header Stripe-Account"; sorted
	Open   int       // with ErrFull: how many intents are open, in all scopes
	Oldest []Ref     // with ErrFull: up to five of the ref's scope that are open for longest, oldest first
	Err    error
}

// Error returns the text: the method and the ref, then [Error.Reason].
func (e *Error) Error() string {
	text := "keyring: " + e.Op
	if e.Ref != (Ref{}) {
		text += " " + e.Ref.String()
	}
	return text + ": " + e.Reason()
}

// Reason returns what is wrong, with the differing fields, the open intents or
// the time at its end, and without the method and the ref.
func (e *Error) Reason() string {
	var b strings.Builder
	b.WriteString(e.Err.Error())
	if len(e.Fields) > 0 {
		b.WriteString(": " + strings.Join(e.Fields, ", "))
	}
	for i, ref := range e.Oldest {
		b.WriteString([]string{"; open for longest: ", ", "}[min(i, 1)] + ref.String())
	}
	if !e.Until.IsZero() {
		b.WriteString(" (until " + e.Until.UTC().Format(time.RFC3339) + ")")
	}
	return b.String()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// wrap puts err into an Error, unless it is one already.
func wrap(op string, ref Ref, err error) error {
	if err == nil {
		return nil
	}
	var e *Error
	if errors.As(err, &e) {
		return err
	}
	return &Error{Op: op, Ref: ref, Err: err}
}
