package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/keyring"
)

// Do makes req take effect once. The first call with a ref records a new key
// with the request, durably, then sends it, and sends it again under that key
// as long as that is safe and the policy sees a point in it. A later call with
// the same ref and an equal request goes on where the first one stopped, in
// this process or another; once the intent is final it is answered from the
// record and nothing is sent. Calls at the same time share one sending and its
// outcome.
//
// The error is nil if and only if the effect of req is known to exist. Otherwise
// it is an [*Error], whose Outcome says what is known and what may be done; it matches
// the errors of this package, and of package keyring: ErrInvalid for a request
// that cannot be used and ErrDiffers for one that is not the one on record
// (nothing is sent), ErrTooSoon with Outcome.NotBefore, ErrNeedsInspection.
// The Result is not nil wherever the intent is on record and the caller may
// see it, with or without an error.
//
// The request's body is read once, at the beginning, and closed. Credentials
// on the request (see Options.Authorize) are used for this call and not stored.
// A key that stands in the profile's header is taken as the intent's key.
//
// When ctx ends, Do records what is known and returns; what was sent may still
// take effect, and a later call finds out.
func (c *Client) Do(ctx context.Context, ref keyring.Ref, req *http.Request) (*Result, error) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		closeBody(req)
		return nil, c.fail(context.Background(), "do", ref, err)
	}
	defer leave()
	g, err := c.prepare(ctx, ref, req, true)
	if err != nil {
		return nil, c.fail(ctx, "do", ref, err)
	}
	in, hold, err := c.ring.BeginHeld(ctx, ref, g.draft)
	if err != nil {
		return nil, c.fail(ctx, "do", ref, err)
	}
	return c.settle(ctx, "do", in, hold, g.taken, true)
}

// Begin records an intent and sends nothing; see [Client.Send]. It reports what
// [keyring.Ring.Begin] reports, inside an [*Error]. A ref without a name gives
// a new intent, under a name of its own, each time.
//
// Credentials on the request are not stored: [Client.Send] has those of
// Options.Authorize alone.
func (c *Client) Begin(ctx context.Context, ref keyring.Ref, req *http.Request) (keyring.Intent, error) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		closeBody(req)
		return keyring.Intent{}, c.fail(context.Background(), "begin", ref, err)
	}
	defer leave()
	g, err := c.prepare(ctx, ref, req, false)
	if err != nil {
		return keyring.Intent{}, c.fail(ctx, "begin", ref, err)
	}
	in, err := c.ring.Begin(ctx, ref, g.draft)
	if err != nil {
		return keyring.Intent{}, c.fail(ctx, "begin", ref, err)
	}
	if err := c.allowed(ctx, in); err != nil {
		return keyring.Intent{}, &Error{Op: "begin", Ref: in.Ref, Err: err}
	}
	if in.State == keyring.StateNeverSent && len(in.Attempts) == 0 {
		c.tellBegun(ctx, in)
	}
	return in, nil
}

// Send sends what is on record for ref, with the credentials of
// Options.Authorize, and reports like [Client.Do]. It reports
// keyring.ErrNotFound for a ref that is not on record, keyring.ErrInvalid for an
// intent of another profile, and [ErrSignIn] for one that was begun with
// credentials when Options.Authorize is nil; nothing is sent then.
func (c *Client) Send(ctx context.Context, ref keyring.Ref) (*Result, error) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, c.fail(context.Background(), "send", ref, err)
	}
	defer leave()
	if ref.Name == "" {
		return nil, c.fail(ctx, "send", ref, ErrNoRef)
	}
	in, err := c.get(ctx, ref)
	if err != nil {
		return nil, c.fail(ctx, "send", ref, c.unknown(ctx, ref, err))
	}
	return c.settle(ctx, "send", in, nil, canon.Taken{}, false)
}

func closeBody(req *http.Request) {
	if req != nil && req.Body != nil {
		req.Body.Close()
	}
}

// prepare checks everything that can be checked before anything is stored.
func (c *Client) prepare(ctx context.Context, ref keyring.Ref, req *http.Request, named bool) (given, error) {
	if named && ref.Name == "" {
		closeBody(req)
		return given{}, fmt.Errorf("%w: name the intent, so that a second call is recognised", ErrNoRef)
	}
	g, err := c.read(req)
	if err != nil {
		return given{}, err
	}
	if canon.Origin(g.draft.Request.URL) == "" {
		return given{}, fmt.Errorf("%w: the URL must be absolute, such as https://api.example.com/v1/charges", keyring.ErrInvalid)
	}
	if err := c.checkOrigin(g.draft.Request.URL, true, true); err != nil {
		return given{}, err
	}
	if err := c.allowed(ctx, keyring.Intent{
		Ref: ref, State: keyring.StateNeverSent, Request: g.draft.Request, Terms: g.draft.Terms,
	}); err != nil {
		return given{}, err
	}
	g.draft.Identity, err = c.identity(ctx)
	return g, err
}

// identity asks Options.Credential.
func (c *Client) identity(ctx context.Context) (string, error) {
	if c.opts.Credential == nil {
		return "", nil
	}
	id, err := c.opts.Credential(ctx)
	if err != nil {
		return "", optionError{"Credential", err}
	}
	return id, nil
}

// settle brings an intent to an outcome: from the record, by sending it under
// the given hold or one that it acquires, or by waiting for whoever sends it.
// named says that the caller named the request in this very call.
func (c *Client) settle(ctx context.Context, op string, in keyring.Intent, hold *keyring.Hold, taken canon.Taken, named bool) (res *Result, err error) {
	defer func() {
		if hold != nil && res == nil && err == nil { // the application's code has panicked, and goes on doing so
			_ = hold.Release(context.WithoutCancel(ctx)) // without it the lease ends in doubt
		}
	}()
	if hold != nil { // of Do, whose intent is new
		c.tellBegun(ctx, in)
	}
	waited, looked := false, false
	for {
		if err := c.allowed(ctx, in); err != nil {
			if hold != nil {
				err = join(err, hold.Release(context.WithoutCancel(ctx)))
			}
			return nil, &Error{Op: op, Ref: in.Ref, Err: err}
		}
		if hold == nil {
			if in.State == keyring.StateDamaged || in.Purged || in.Final() || waited && in.HeldBy == "" && ended(in) {
				return c.outcome(ctx, op, in, !looked, nil)
			}
			if err := c.sendable(in, taken, named); err != nil {
				return c.outcome(ctx, op, in, true, err)
			}
			identity, err := c.identity(ctx)
			if err != nil {
				return c.outcome(ctx, op, in, true, err)
			}
			hold, err = c.ring.Acquire(ctx, in.Ref, keyring.Current{
				Terms:    c.profile.TermsFor(in.Request),
				Identity: identity,
			})
			switch {
			case errors.Is(err, keyring.ErrNeedsInspection) && !looked && c.wantsLook(in.Outcome()):
				looked = true
				seen, lerr := c.ring.InspectUnder(ctx, in.Ref, c.opts.Inspector, c.termsNow)
				switch {
				case lerr == nil:
					in = seen.Intent()
					continue
				case errors.Is(lerr, keyring.ErrStale), errors.Is(lerr, keyring.ErrHeld): // somebody else looked, or sends: go by that
					if in, lerr = c.get(ctx, in.Ref); lerr == nil {
						continue
					}
				}
				return c.refresh(ctx, op, in, join(lerr, err)) // the look's error first: it says when to look again
			case errors.Is(err, keyring.ErrHeld):
				waited = true
				if in, err = c.wait(ctx, in); err != nil {
					return c.outcome(ctx, op, in, true, err)
				}
				continue
			case errors.Is(err, keyring.ErrFinal): // since it was read: an outcome, no failure
				return c.refresh(ctx, op, in, nil)
			case err != nil:
				return c.refresh(ctx, op, in, err)
			}
			in = hold.Intent(ctx)
			continue
		}
		s := &call{client: c, hold: hold, taken: taken}
		var err error
		in, err = s.run(ctx)
		if errors.Is(err, keyring.ErrHeld) && s.attempts == 0 { // lost before anything was sent
			hold, waited = nil, true
			if in, err = c.wait(ctx, in); err == nil {
				continue
			}
		}
		return c.outcome(ctx, op, in, s.attempts == 0, err)
	}
}

// ended says whether whoever was waited for came to an outcome, rather than
// dying on the way, which leaves the sending to the next one.
func ended(in keyring.Intent) bool {
	n := len(in.Attempts)
	return n > 0 && !in.Attempts[n-1].End.IsZero()
}

// mine says whether an intent is this client's to send and to look for.
func (c *Client) mine(in keyring.Intent) error {
	if in.Terms.Profile != c.profile.Name() {
		return fmt.Errorf("%w: the intent was begun under profile %q, this client has %q; send it with a client whose profile has that name",
			keyring.ErrInvalid, in.Terms.Profile, c.profile.Name())
	}
	return nil
}

// sendable says whether this client may send an intent that is on record.
func (c *Client) sendable(in keyring.Intent, taken canon.Taken, named bool) error {
	if err := c.mine(in); err != nil {
		return err
	}
	own := len(taken.Names()) > 0
	if len(in.Needs) > 0 && !own && c.opts.Authorize == nil {
		return fmt.Errorf("%w: it was begun with %s, which is not stored; set Options.Authorize, or call Do with it", ErrSignIn, in.Needs[0])
	}
	return c.checkOrigin(in.Request.URL, named, c.opts.Authorize != nil)
}

// refresh reads the intent again after it could not be acquired: it may have
// become final meanwhile, which is an outcome and not a failure.
func (c *Client) refresh(ctx context.Context, op string, in keyring.Intent, cause error) (*Result, error) {
	now, err := c.get(context.WithoutCancel(ctx), in.Ref)
	if err != nil {
		return c.outcome(ctx, op, in, true, join(cause, err))
	}
	return c.outcome(ctx, op, now, true, cause)
}

// get reads an intent as it stands under what the profile promises now.
func (c *Client) get(ctx context.Context, ref keyring.Ref) (keyring.Intent, error) {
	return c.ring.GetUnder(ctx, ref, c.termsNow)
}

// termsNow are what the profile promises now, for an intent of its own.
func (c *Client) termsNow(in keyring.Intent) keyring.Terms {
	if in.Terms.Profile != c.profile.Name() {
		return in.Terms
	}
	return c.profile.TermsFor(in.Request)
}

// allowed asks Options.Access.
func (c *Client) allowed(ctx context.Context, in keyring.Intent) error {
	if c.opts.Access == nil {
		return nil
	}
	if err := c.opts.Access(ctx, in); err != nil {
		return accessError{err}
	}
	return nil
}

// unknown asks Options.Access about a ref that is not on record, so that
// whoever may not see it cannot tell that from one that is.
func (c *Client) unknown(ctx context.Context, ref keyring.Ref, err error) error {
	if !errors.Is(err, keyring.ErrNotFound) {
		return err
	}
	if denied := c.allowed(ctx, keyring.Intent{Ref: ref, State: keyring.StateNeverSent}); denied != nil {
		return denied
	}
	return err
}

// optionError tells that a function of the options reported an error, without
// quoting it: such errors often quote a URL with its query.
type optionError struct {
	option string
	cause  error
}

func (o optionError) Error() string {
	return fmt.Sprintf("Options.%s reported an error (%T)", o.option, o.cause)
}
func (o optionError) Unwrap() error { return o.cause }

// accessError tells that Options.Access said no. It does not quote the cause:
// whoever is turned away learns nothing by it.
type accessError struct{ cause error }

func (a accessError) Error() string { return "not allowed by Options.Access" }
func (a accessError) Unwrap() error { return a.cause }

// outcome turns what is on record into what is returned. recorded says that
// nothing was sent in this call.
func (c *Client) outcome(ctx context.Context, op string, in keyring.Intent, recorded bool, cause error) (*Result, error) {
	if err := c.allowed(ctx, in); err != nil { // the sending may have taken long
		return nil, &Error{Op: op, Ref: in.Ref, Err: err}
	}
	out := in.Outcome()
	if recorded {
		out.Source = keyring.SourceRecord
	}
	answer, err := ParseAnswer(said(in))
	if err != nil {
		cause = join(cause, err)
	}
	// What this call met counts beside what is on record: credentials that it
	// lacks, terms or an identity under which sending again is not protected.
	kinds := kindsOf(out)
	if errors.Is(cause, ErrSignIn) {
		out.NeedsSignIn = true
	}
	if errors.Is(cause, keyring.ErrNeedsInspection) && !out.NeedsInspection && !in.Final() {
		out.NeedsInspection, out.NotBefore = true, time.Time{}
		out.Next = "It may have taken effect, and as things are now sending it again is not protected; look at the provider."
	}
	if early, theirs := (*keyring.Error)(nil), (optionError{}); !errors.As(cause, &theirs) && out.NeedsInspection && errors.As(cause, &early) && errors.Is(early, keyring.ErrTooSoon) {
		out.NotBefore = early.Until // when the look that came too early counts
	}
	res := &Result{Intent: in, Outcome: out, Answer: answer}
	c.tellOutcome(ctx, in, out, cause)
	if out.State == keyring.StateDone {
		return res, nil
	}
	if in.Purged {
		cause = join(cause, keyring.ErrPurged)
	}
	if out.NeedsInspection && in.Terms.Dedup == keyring.DedupNone && len(in.Attempts) > 0 {
		if note := c.unlisted(in.Request); note != nil {
			cause = join(cause, note)
		}
	}
	return res, &Error{Op: op, Ref: in.Ref, Key: in.Key, Outcome: out, Err: because(ctx, cause), kinds: kinds, keyless: !carries(in)}
}

// carries says whether the key goes along with the request, so that one can
// search for it at the provider.
func carries(in keyring.Intent) bool {
	for _, values := range in.Request.Header {
		for _, v := range values {
			if strings.Contains(v, in.Key.String()) {
				return true
			}
		}
	}
	return false
}

// said is the recorded answer, unless the effect is known otherwise and the
// answer is that of an attempt which said something else.
func said(in keyring.Intent) []byte {
	for _, a := range in.Attempts {
		if in.State == keyring.StateDone && a.Number == in.AnswerOf && a.Verdict.Kind != keyring.VerdictDone {
			return nil
		}
	}
	return in.Answer
}

// errUnlisted is a hint, not a failure: nothing depends on it.
var errUnlisted = errors.New("no endpoint of the profile fits it, so that nothing is promised for it and it is sent once")

// unlisted says whether the profile knows nothing about a request: often a
// pattern or a URL with a typing error.
func (c *Client) unlisted(r keyring.Request) error {
	if c.profile.Lists(r.Method, r.URL) {
		return nil
	}
	return errUnlisted
}
