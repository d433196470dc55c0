package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

const (
	defaultMaxBody   = 4 << 20
	defaultMaxAnswer = 10 << 20
	maxTimeout       = 24 * time.Hour
)

// Options are the settings of a [Client]. The zero value is ready to use, and
// is what a nil *Options means.
type Options struct {
	// Keyring holds the settings of the ring that the client makes. Those that
	// stand here as well (AttemptTimeout, UnknownRetention, ClockTrusted) may be
	// set in either place, but not differently in both.
	Keyring keyring.Options

	// Authorize adds credentials to a request that is about to be sent: headers,
	// or query parameters at the end. It is called for each attempt, so that a
	// fresh token is used. It must not change what is there, and may add
	// credentials and tracing headers alone, see Credentials; a request that it
	// changes otherwise is not sent. The request's body is a copy. What Authorize
	// adds is never stored or logged.
	//
	// When the provider turns the credentials away (401, 403), Authorize is asked
	// once more, and the request is sent again in the same call only if they are
	// others now. A source that caches tokens should therefore drop one that was
	// refused; [ErrSignIn] tells. When Authorize reports an error, nothing is
	// sent, and the call's error wraps it without quoting it, since such errors
	// often quote the exchange with a token server; let it match ErrSignIn where
	// the user has to sign in.
	//
	// Nil means that credentials are those on the request given to Do, for that
	// call alone; what is sent from the record later has none.
	Authorize func(ctx context.Context, req *http.Request) error

	// Credentials names headers and query parameters that are credentials at this
	// provider, such as "X-Shop-Pass", beside those that are recognised by their
	// names. They are not stored, and not compared. A name that may be a credential
	// and may be content, such as X-Card-Token, is not stored and is compared,
	// unless it is named here. Case, hyphens and underscores do not count.
	Credentials []string

	// Origins are the places that may be sent to, such as
	// "https://api.example.com", beside those that the profile names. Where
	// neither names any, Do sends to the origin of the request it is given, and
	// Send does not send credentials.
	Origins []string

	// Access is asked before an intent is recorded (with what the caller gave:
	// ref, request and terms), before it is sent, and before a recorded outcome
	// or answer is handed out. An error means no; the call's error wraps it
	// without quoting it, and tells nothing of what is on record. Nil allows
	// everything.
	Access func(ctx context.Context, in keyring.Intent) error

	// Scope is whose intents Resume takes. Empty: those whose ref has no scope.
	// The other methods take the scope of the ref they are given.
	Scope string

	// Credential names the identity in use, such as an account or a key's public
	// part; never the secret. It is recorded with each attempt. Where doubt
	// remains from an attempt under another identity, nothing is sent without a
	// look, since a provider that keeps keys apart by credential would not
	// recognise this one. Nil means that it is not told, and not checked.
	Credential func(ctx context.Context) (string, error)

	// Inspector looks at the provider's side when only a look helps, and when a
	// round of attempts ends in doubt. What it finds counts as package keyring
	// says; an intent for which it finds nothing may be sent again in the same
	// call. Nil means that such an intent is left as it is, with
	// Outcome.NeedsInspection.
	Inspector keyring.Inspector

	// Retry decides when another attempt is due. Nil means retry.Exponential{}.
	// Whether one is permitted is not its business.
	Retry retry.Policy

	// Budget bounds the repeated attempts of all calls together. Nil means one of
	// the client's own with its defaults; several clients may share one.
	Budget *retry.Budget

	// ClockTrusted says whether the wall clock can be believed, see
	// keyring.Options. Nil means yes.
	ClockTrusted func() bool

	// AttemptTimeout bounds one attempt, from its record to the last byte of the
	// answer. Zero means 30 seconds. The whole call is bounded by its context.
	AttemptTimeout time.Duration

	// UnknownRetention is the retention to assume where the provider publishes
	// none. Zero means 1 hour.
	UnknownRetention time.Duration

	// MaxBody bounds a request's body, in bytes. Zero means 4 MiB. A larger one
	// is refused before anything is stored.
	MaxBody int64

	// MaxAnswer bounds what is read of an answer's body, in bytes. Zero means
	// 10 MiB. A longer answer counts as not readable; what its status says
	// stands.
	MaxAnswer int64

	// Transport sends single requests. Nil means one of the client's own, made
	// like http.DefaultTransport. It must not send a request more than once and
	// must not follow redirects; http.Transport, as it is used here, does
	// neither.
	Transport http.RoundTripper

	// Hooks are told what happens. Nil means none.
	Hooks *Hooks

	// Logger receives one record per attempt and one per outcome; never a body,
	// a query or a credential. Nil discards them.
	Logger *slog.Logger
}

// settle fills in defaults and reports options that cannot work.
func (o *Options) settle() error {
	for _, d := range []struct {
		name       string
		mine, ring *time.Duration
	}{
		{"AttemptTimeout", &o.AttemptTimeout, &o.Keyring.AttemptTimeout},
		{"UnknownRetention", &o.UnknownRetention, &o.Keyring.UnknownRetention},
	} {
		switch {
		case *d.mine == 0:
			*d.mine = *d.ring
		case *d.ring != 0 && *d.ring != *d.mine:
			return fmt.Errorf("%w: Options.%s and Options.Keyring.%s are set differently", keyring.ErrInvalid, d.name, d.name)
		}
		*d.ring = *d.mine
	}
	if o.ClockTrusted != nil && o.Keyring.ClockTrusted != nil {
		return fmt.Errorf("%w: ClockTrusted is set in Options and in Options.Keyring; set one", keyring.ErrInvalid)
	}
	if o.ClockTrusted != nil {
		o.Keyring.ClockTrusted = o.ClockTrusted
	}
	if o.AttemptTimeout > maxTimeout {
		return fmt.Errorf("%w: AttemptTimeout is longer than a day", keyring.ErrInvalid)
	}
	if o.MaxBody < 0 || o.MaxAnswer < 0 {
		return fmt.Errorf("%w: MaxBody or MaxAnswer is negative", keyring.ErrInvalid)
	}
	if o.MaxBody == 0 {
		o.MaxBody = defaultMaxBody
	}
	if o.MaxAnswer == 0 {
		o.MaxAnswer = defaultMaxAnswer
	}
	if o.Retry == nil {
		o.Retry = retry.Exponential{}
	}
	if p, ok := o.Retry.(interface{ Err() error }); ok {
		if err := p.Err(); err != nil {
			return fmt.Errorf("%w: Options.Retry: %w", keyring.ErrInvalid, err)
		}
	}
	if by := o.Inspector; by != nil {
		// A program's look, whatever it is made of: one by keyring.Attest would
		// count as a person's, for every intent. Its errors are not quoted.
		o.Inspector = keyring.InspectorFunc(func(ctx context.Context, in keyring.Intent) (keyring.Finding, error) {
			f, err := by.Inspect(ctx, in)
			if err != nil {
				err = optionError{"Inspector", err}
			}
			return f, err
		})
	}
	if o.Budget == nil {
		o.Budget = &retry.Budget{}
	}
	if o.Hooks == nil {
		o.Hooks = &Hooks{}
	} else {
		hooks := *o.Hooks
		o.Hooks = &hooks
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

// origins gathers the places that may be sent to.
func (o *Options) origins(p provider.Profile) (map[string]bool, error) {
	allowed := map[string]bool{}
	for i, s := range append(p.Origins(), o.Origins...) {
		u, err := url.Parse(s)
		if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" ||
			u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return nil, fmt.Errorf("%w: origin %d of the profile's and of Options.Origins must look like https://api.example.com, without path, query or password", keyring.ErrInvalid, i+1)
		}
		allowed[canon.Origin(s)] = true
	}
	return allowed, nil
}

var errNilStore = errors.New("the store is nil; open one with badgerkeys.OpenOrCreate")
