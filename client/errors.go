package client

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/samekey/samekey/keyring"
)

// What an [*Error] matches with errors.Is, by the state of the intent. None of
// them but ErrRefused and ErrNotSent says that there is no effect.
var (
	// ErrRefused: the provider said no, for good; no effect.
	ErrRefused = errors.New("refused by the provider")
	// ErrPending: the provider is still working on it.
	ErrPending = errors.New("still pending at the provider")
	// ErrConflict: the provider knows the key with another request.
	ErrConflict = errors.New("the provider knows this key with another request")
	// ErrUnknown: the effect may exist.
	ErrUnknown = errors.New("not known whether it took effect")
	// ErrExpired: the effect may exist, and the provider may have forgotten the
	// key.
	ErrExpired = errors.New("not known whether it took effect, and too late to send it again under its key")
	// ErrNotSent: nothing that could have had an effect was sent.
	ErrNotSent = errors.New("nothing took effect yet")
	// ErrSignIn: the provider turned the credentials away, or there are none.
	// The key is kept; send again once they work.
	ErrSignIn = errors.New("working credentials are needed")
	// ErrAbandoned: the intent was given up after a look.
	ErrAbandoned = errors.New("given up")
	// ErrOrigin: the request goes to a place that the profile and
	// Options.Origins do not name. Nothing was sent, and what was not on record
	// was not stored.
	ErrOrigin = errors.New("the request's origin is not among those allowed")
	// ErrNoRef: a call needs a ref with a name. Nothing was stored or sent.
	ErrNoRef = errors.New("the ref has no name")
)

// Error is what the methods of a [Client] report. It says what is known about
// the intent, and never holds a body, a query or a credential.
type Error struct {
	Op      string // the method, in lower case: "do", "begin", "send", "resume", "inspect", "rekey"
	Ref     keyring.Ref
	Key     keyring.Key // zero where none is on record
	Outcome keyring.Outcome
	Err     error // what else there is to say: the context's error, the store's, ...; may be nil

	kinds []error // the sentinels above that apply
	local bool    // Err says it all: nothing came of the call itself

	keyless bool // the key did not go along with the request
}

// Error returns what is known, the provider's status, code and request id, and
// what to do next; where only a look helps, the key to look for.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("samekey: " + e.Op)
	if e.Ref != (keyring.Ref{}) {
		b.WriteString(" " + e.Ref.String())
	}
	if len(e.kinds) > 0 && !e.local {
		b.WriteString(": " + e.kinds[0].Error())
		e.writeVerdict(&b)
	}
	if e.Err != nil {
		b.WriteString(": " + e.reason())
	}
	if e.Outcome.Next == "" || !e.local && ours(e.Err) {
		return b.String()
	}
	b.WriteString(". " + e.Outcome.Next)
	if !e.Outcome.NotBefore.IsZero() && !errors.Is(e.Err, keyring.ErrTooSoon) { // which says it
		b.WriteString(" Not before " + e.Outcome.NotBefore.UTC().Format(time.RFC3339) + ".")
	}
	return b.String()
}

// reason is the text of the cause on one line, without repeating the ref.
func (e *Error) reason() string { return reasonOf(e.Err) }

func reasonOf(err error) string {
	switch err := err.(type) { //nolint:errorlint // what is wrapped around it would be lost
	case *keyring.Error:
		return err.Reason()
	case *both:
		return reasonOf(err.first) + "; " + reasonOf(err.second)
	}
	return err.Error()
}

// both is two errors that are met at once, the more telling first.
type both struct{ first, second error }

// join is like errors.Join for two, with a text on one line.
func join(first, second error) error {
	switch {
	case first == nil:
		return second
	case second == nil:
		return first
	}
	return &both{first, second}
}

func (b *both) Error() string   { return b.first.Error() + "; " + b.second.Error() }
func (b *both) Unwrap() []error { return []error{b.first, b.second} }

// Unwrap returns the sentinels that apply and the cause.
func (e *Error) Unwrap() []error {
	if e.Err == nil {
		return e.kinds
	}
	return append(e.kinds[:len(e.kinds):len(e.kinds)], e.Err)
}

// ours says whether err is about this side alone, so that what it says is what
// to do next.
func ours(err error) bool {
	var a authorizeError
	return errors.Is(err, keyring.ErrInvalid) || errors.Is(err, ErrOrigin) || errors.Is(err, ErrSignIn) || errors.As(err, &a)
}

func (e *Error) writeVerdict(b *strings.Builder) {
	v := e.Outcome.Verdict
	var parts []string
	if v.Status != 0 && !strings.HasPrefix(v.Why, strconv.Itoa(v.Status)) {
		parts = append(parts, "status "+statusText(v.Status))
	}
	if v.Why != "" {
		parts = append(parts, v.Why)
	}
	if v.Code != "" {
		parts = append(parts, "code "+v.Code)
	}
	if v.RequestID != "" {
		parts = append(parts, "request "+v.RequestID)
	}
	if e.Outcome.NeedsInspection && !e.Key.IsZero() && !e.keyless {
		parts = append(parts, "key "+e.Key.String())
	}
	if len(parts) > 0 {
		b.WriteString(" (" + strings.Join(parts, ", ") + ")")
	}
}

// kindsOf lists the sentinels for an outcome; none where the effect exists.
func kindsOf(o keyring.Outcome) []error {
	var kinds []error
	switch o.State {
	case keyring.StateDone:
		return nil
	case keyring.StateRefused:
		kinds = append(kinds, ErrRefused)
	case keyring.StateAbandoned:
		kinds = append(kinds, ErrAbandoned)
	case keyring.StatePending:
		kinds = append(kinds, ErrPending)
	case keyring.StateConflict:
		kinds = append(kinds, ErrConflict)
	case keyring.StateExpired:
		kinds = append(kinds, ErrExpired)
	case keyring.StateNeverSent:
		kinds = append(kinds, ErrNotSent)
	case keyring.StateDamaged:
		kinds = append(kinds, ErrUnknown, keyring.ErrDamaged)
	case keyring.StateUnknown, keyring.StateSending:
		kinds = append(kinds, ErrUnknown)
	default:
		kinds = append(kinds, ErrUnknown)
	}
	if o.NeedsSignIn {
		kinds = append(kinds, ErrSignIn)
	}
	if o.NeedsInspection {
		kinds = append(kinds, keyring.ErrNeedsInspection)
	}
	return kinds
}

// OutcomeOf says what is known after a call that returned err. For an error
// that it does not know, and for nil, the answer is the zero Outcome: doubt.
// Where err is nil, the effect exists and Result.Outcome says more.
func OutcomeOf(err error) keyring.Outcome {
	var e *Error
	if errors.As(err, &e) {
		return e.Outcome
	}
	return keyring.Outcome{}
}

// fail makes the error of a call that could not go as far as an outcome of its
// own. What is on record for ref is added, if the caller may see it.
func (c *Client) fail(ctx context.Context, op string, ref keyring.Ref, err error) error {
	var done *Error
	if err == nil || errors.As(err, &done) {
		return err
	}
	e := &Error{Op: op, Ref: ref, Err: because(ctx, err), local: true}
	var denied accessError
	if c.ring == nil || ref.Name == "" || errors.Is(err, keyring.ErrClosed) || errors.As(err, &denied) {
		return e
	}
	in, gerr := c.get(context.WithoutCancel(ctx), ref)
	switch {
	case errors.Is(gerr, keyring.ErrNotFound):
		if c.unknown(ctx, ref, gerr) != gerr { //nolint:errorlint // the very same: Access has nothing against it
			return e
		}
		e.Outcome = keyring.Outcome{State: keyring.StateNeverSent, Next: "Nothing was stored or sent."}
	case gerr != nil:
		return e
	default:
		if denied := c.allowed(ctx, in); denied != nil {
			if errors.Is(err, keyring.ErrDiffers) { // which would tell what is on record
				e.Err = denied
			}
			return e
		}
		e.Outcome, e.Key = in.Outcome(), in.Key
	}
	if errors.Is(err, keyring.ErrDiffers) {
		// What is known is about the request on record, which is not this one:
		// no sentinel, lest one be taken for the other.
		e.Outcome.Next = "This request was not sent. The one on record is " + e.Outcome.State.String() +
			"; send that one with Send, or give this one a ref of its own."
		return e
	}
	e.kinds = kindsOf(e.Outcome)
	return e
}

// because adds why ctx ended to an error that only says that it did: a caller
// whose own context lives on is told that the client was closed.
func because(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if ctx.Err() == nil || !errors.Is(err, ctx.Err()) || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}
