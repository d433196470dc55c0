package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/internal/clock"
	"github.com/samekey/samekey/internal/wire"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

// finishTimeout bounds the record of what came of an attempt, which has a
// context of its own: a caller who gives up must not lose it.
const finishTimeout = 30 * time.Second

// call is one sending of one intent, from its hold to its outcome: some
// attempts with waits between them.
type call struct {
	client *Client
	hold   *keyring.Hold
	taken  canon.Taken

	intent   keyring.Intent // as the latest record left it
	attempts int
	decision retry.Decision // after the latest attempt
	look     bool           // whether the inspector is asked after it
	signedIn [32]byte       // digest of the credentials of the latest attempt
	retried  bool           // a rejected credential was replaced once
	early    error          // why an attempt never began, or what failed beside the provider
}

type callKey struct{}

// run makes attempts until the round is over. Whatever happens, it returns
// what is on record, and gives the hold back.
func (c *call) run(ctx context.Context) (keyring.Intent, error) {
	c.intent = c.hold.Intent(ctx)
	carrier, err := retryablehttp.NewRequestWithContext(context.WithValue(ctx, callKey{}, c), c.intent.Request.Method, c.intent.Request.URL, nil)
	if err != nil {
		return c.end(ctx, quiet{"the recorded request cannot be sent", err})
	}
	// The library runs the loop: attempts, waits, cancelling. What it would
	// decide by (a response, an error) is not enough to decide by, so that
	// CheckRetry and Backoff repeat what the recorder below has decided.
	loop := &retryablehttp.Client{
		HTTPClient: c.client.http,
		RetryMax:   math.MaxInt,
		CheckRetry: func(context.Context, *http.Response, error) (bool, error) {
			return c.decision.Action == retry.Sleep, nil
		},
		Backoff:      func(_, _ time.Duration, _ int, _ *http.Response) time.Duration { return c.decision.Wait },
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
	}
	for {
		resp, err := loop.Do(carrier)
		if resp != nil {
			resp.Body.Close() // it holds no bytes, see recorder
		}
		switch {
		case c.early != nil:
			return c.end(ctx, c.early)
		case ctx.Err() != nil && !c.intent.Final():
			return c.end(ctx, context.Cause(ctx))
		case err != nil && ctx.Err() == nil: // the loop has no errors of its own
			return c.end(ctx, quiet{"the attempts ended unexpectedly", err})
		case !c.client.wantsLook(c.intent.Outcome()):
			return c.end(ctx, nil)
		}
		// The hold is kept for the look, so that nobody sends meanwhile.
		if _, err := c.hold.Inspect(ctx, c.client.opts.Inspector); err != nil {
			return c.end(ctx, err)
		}
		c.intent = c.hold.Intent(ctx)
		if c.intent.State != keyring.StateNeverSent {
			return c.end(ctx, nil)
		}
		// Nothing came of it: what follows is a repeat like any other.
		d := c.next(ctx, ctx, 0, 0)
		if d.Action != retry.Sleep || !c.client.opts.Budget.Take() {
			return c.end(ctx, nil)
		}
		if err := sleep(ctx, d.Wait); err != nil {
			return c.end(ctx, err)
		}
	}
}

// wantsLook says whether the inspector is to be asked, now that attempts have
// come to an end.
func (c *Client) wantsLook(o keyring.Outcome) bool {
	switch o.State {
	case keyring.StateUnknown, keyring.StateConflict, keyring.StateExpired:
		return c.opts.Inspector != nil
	case keyring.StatePending:
		return c.opts.Inspector != nil && o.NeedsInspection
	default:
		return false
	}
}

// end gives the hold back, if the last record did not.
func (c *call) end(ctx context.Context, err error) (keyring.Intent, error) {
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	if rerr := c.hold.Release(rctx); rerr != nil && err == nil {
		err = rerr
	}
	c.intent = c.hold.Intent(rctx)
	return c.intent, err
}

// recorder sits beneath the retry loop, in the place of a transport, and turns
// each of its rounds into one recorded attempt.
type recorder struct{}

// RoundTrip makes one attempt of the call in the request's context. The
// response has no body: nobody above may read, close or drain the answer.
func (recorder) RoundTrip(carrier *http.Request) (*http.Response, error) {
	c, ok := carrier.Context().Value(callKey{}).(*call)
	if !ok {
		return nil, errors.New("samekey: this transport is of no use elsewhere")
	}
	if err := c.attempt(carrier.Context()); err != nil {
		c.early = err
		c.decision = retry.Decision{}
		return nil, err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: carrier}, nil
}

// attempt is record, act, record. Its order is what makes a call safe.
func (c *call) attempt(ctx context.Context) error {
	identity, err := c.client.identity(ctx)
	if err != nil {
		return err
	}
	if err := c.hold.As(identity); err != nil {
		return err
	}
	if _, err := c.hold.Start(ctx); err != nil { // 1. durable: an attempt is under way
		return err
	}
	c.attempts++
	var (
		verdict  = keyring.Verdict{Kind: keyring.VerdictNotProcessed, Why: "not sent: a panic came before it"}
		answer   []byte
		refused  error
		recorded bool
	)
	defer func() {
		if !recorded { // the application's code has panicked, and goes on doing so
			fctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
			defer cancel()
			_, _ = c.hold.Finish(fctx, verdict, answer, keyring.After{}) // without it the lease ends in doubt
		}
	}()
	c.client.tellAttempt(ctx, c.hold)
	verdict, answer, refused = c.act(ctx, &verdict) // 2. the only line that touches the network

	// 3. durable: what came of it, in a context of its own.
	fctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), finishTimeout)
	defer cancel()
	c.decision = c.decide(ctx, fctx, verdict)
	if refused != nil {
		c.decision, c.look = retry.Decision{Reason: "the attempt was not made"}, false
	}
	after := keyring.After{Keep: c.decision.Action == retry.Sleep || c.look, Wait: c.decision.Wait}
	recorded = true
	in, err := c.hold.Finish(fctx, verdict, answer, after)
	if err != nil {
		return join(err, refused)
	}
	c.intent = in
	if verdict.Kind == keyring.VerdictDone {
		c.client.opts.Budget.Return()
	}
	c.client.tellAnswer(fctx, in, verdict, c.decision)
	return refused
}

// act sends the stored request once and reads what comes back. refused is an
// error on our own side, with nothing sent.
// Once a byte may leave, cut is what the attempt amounts to if it is cut short.
func (c *call) act(ctx context.Context, cut *keyring.Verdict) (verdict keyring.Verdict, answer []byte, refused error) {
	in := c.hold.Intent(ctx)
	ctx, cancel := context.WithTimeout(ctx, c.hold.Left(ctx))
	defer cancel()
	req, err := c.authorized(ctx, in)
	if err != nil {
		v := keyring.Verdict{Kind: keyring.VerdictNotProcessed, Why: "not sent: it could not be authorized"}
		return v, nil, err
	}
	if err := c.sameIdentity(ctx, in); err != nil {
		return keyring.Verdict{Kind: keyring.VerdictNotProcessed, Why: "not sent: it was recorded under another identity"}, nil, err
	}
	if err := c.client.checkOrigin(req.URL.String(), true, true); err != nil {
		return keyring.Verdict{Kind: keyring.VerdictNotProcessed, Why: "not sent: its origin is not allowed"}, nil, err
	}
	c.signedIn = c.client.credentials(req)
	c.client.awake(ctx)
	*cut = keyring.Verdict{Why: "the attempt was cut short by a panic"}
	reply := wire.Send(ctx, c.client.opts.Transport, wire.Request{
		Method: req.Method, URL: req.URL.String(), Header: req.Header, Body: in.Request.Body,
	}, wire.Options{
		MaxAnswer: c.client.opts.MaxAnswer,
		Late:      func() bool { return c.hold.Left(ctx) <= 0 },
	})
	verdict = c.client.profile.Read(provider.Exchange{
		Method:  in.Request.Method,
		URL:     in.Request.URL,
		Sent:    in.Request,
		Status:  reply.Status,
		Header:  reply.Header,
		Body:    reply.Body,
		Cut:     reply.Cut,
		NotSent: reply.NotSent,
		Now:     clock.Now(ctx).Wall,
	})
	if reply.Status == 0 {
		verdict.Why = why(reply)
		return verdict, nil, nil
	}
	a := Answer{Status: reply.Status, Header: reply.Header, Body: reply.Body}
	if reply.Cut && len(a.Body) > cutKept {
		a.Body = a.Body[:cutKept]
	}
	return verdict, a.encode(), nil
}

// sameIdentity says whether the identity is still the one that the attempt was
// recorded under: Options.Authorize may have signed somebody else in.
func (c *call) sameIdentity(ctx context.Context, in keyring.Intent) error {
	now, err := c.client.identity(ctx)
	if err != nil || len(in.Attempts) == 0 {
		return err
	}
	if len(in.Attempts) > 1 || in.Generation > 1 { // Authorize may have taken long, and an earlier attempt been told of
		if latest, err := c.client.ring.Get(ctx, in.Ref); err == nil && latest.State == keyring.StateDone && in.State != keyring.StateDone {
			return fmt.Errorf("an earlier attempt took effect meanwhile: %w", keyring.ErrFinal)
		}
	}
	if was := in.Attempts[len(in.Attempts)-1].Identity; was != now {
		return fmt.Errorf("%w: the attempt was recorded as %s, and would go out as %s", errIdentity, was, now)
	}
	return nil
}

var errIdentity = errors.New("Options.Credential names another identity than a moment ago; call again")

func why(r wire.Reply) string {
	switch {
	case r.Late:
		return "not sent: its deadline had passed"
	case r.Err == nil:
		return "no answer"
	case r.NotSent:
		return "not sent: " + r.Err.Error()
	}
	return "no answer: " + r.Err.Error()
}

// decide says what follows an attempt. The ring says whether another one would
// be permitted, the policy when it is due, the budget whether it is worth it.
func (c *call) decide(ctx, fctx context.Context, v keyring.Verdict) retry.Decision {
	p := c.hold.Preview(fctx, v)
	d := retry.Decision{Reason: "no further attempt is permitted: " + p.Outcome.State.String()}
	switch {
	case p.Again && v.SignIn:
		d = c.signIn(ctx, fctx)
	case p.Again:
		if d = c.next(ctx, fctx, v.RetryAfter, p.Wait); d.Action == retry.Sleep && !c.client.opts.Budget.Take() {
			d.Action, d.Reason = retry.Defer, "the budget for repeated attempts is used up"
		}
	}
	d.Wait = max(d.Wait, p.Wait, 0)
	c.look = d.Action != retry.Sleep && ctx.Err() == nil && c.client.wantsLook(p.Outcome)
	return d
}

// next asks the policy.
func (c *call) next(ctx, fctx context.Context, wish, notSooner time.Duration) retry.Decision {
	attempts, elapsed := c.hold.Round(fctx)
	progress := retry.Progress{
		Attempts:   max(attempts, c.attempts),
		Total:      max(len(c.intent.Attempts), attempts),
		Elapsed:    elapsed,
		RetryAfter: wish,
		NotSooner:  notSooner,
		Key:        c.intent.Key.String(),
	}
	if deadline, ok := ctx.Deadline(); ok {
		if progress.Left = time.Until(deadline); progress.Left == 0 {
			progress.Left = -1
		}
	}
	if ctx.Err() != nil {
		progress.Left = -1
	}
	return c.client.opts.Retry.Next(progress)
}

// signIn permits one more attempt after a rejected credential, and only with
// another one.
func (c *call) signIn(ctx, fctx context.Context) retry.Decision {
	stop := retry.Decision{Reason: "working credentials are needed"}
	if c.retried || c.client.opts.Authorize == nil || ctx.Err() != nil {
		return stop
	}
	ctx, cancel := context.WithTimeout(ctx, max(c.hold.Left(fctx), time.Second)) // its record waits for this
	defer cancel()
	req, err := c.authorized(ctx, c.hold.Intent(fctx))
	if err != nil || c.client.credentials(req) == c.signedIn {
		return stop
	}
	c.retried = true
	return retry.Decision{Action: retry.Sleep, Reason: "other credentials are at hand"}
}

// credentials is a digest of what authorizes req. It stays in memory and only
// tells whether two of them are the same.
func (c *Client) credentials(req *http.Request) [32]byte {
	h := sha256.New()
	write := func(s string) { _, _ = io.WriteString(h, s+"\x00") } // a hash never fails
	header := make([]string, 0, len(req.Header))
	for name := range req.Header {
		if c.names.Header(name) {
			header = append(header, name)
		}
	}
	slices.Sort(header)
	for _, name := range header {
		write(name)
		write(strings.Join(req.Header[name], "\x00"))
	}
	write(req.URL.RawQuery)
	write(req.URL.User.String())
	return [32]byte(h.Sum(nil))
}
