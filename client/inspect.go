package client

import (
	"context"
	"fmt"
	"net/http"

	"github.com/samekey/samekey/keyring"
)

// Inspect asks Options.Inspector for a look at the provider's side and records
// what it says; see [keyring.Ring.Inspect] for when it counts and for the
// errors. It reports keyring.ErrInvalid where there is no inspector (for what a
// person saw there is [Client.Attest]) and for an intent of another profile: what this client's inspector cannot find is no
// word about another provider.
func (c *Client) Inspect(ctx context.Context, ref keyring.Ref) (keyring.Inspection, error) {
	if c.err == nil && c.opts.Inspector == nil {
		return keyring.Inspection{}, c.fail(ctx, "inspect", ref, fmt.Errorf("%w: Options.Inspector is nil", keyring.ErrInvalid))
	}
	return c.inspect(ctx, ref, c.opts.Inspector)
}

// Attest records what a person saw at the provider's side; see
// [keyring.Attest] and [keyring.Ring.Inspect] for when it counts and for the
// errors. It asks Options.Access, and goes by the stricter of the recorded terms
// and what the profile promises now.
func (c *Client) Attest(ctx context.Context, ref keyring.Ref, f keyring.Finding) (keyring.Inspection, error) {
	return c.inspect(ctx, ref, keyring.Attest(f))
}

func (c *Client) inspect(ctx context.Context, ref keyring.Ref, by keyring.Inspector) (keyring.Inspection, error) {
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return keyring.Inspection{}, c.fail(context.Background(), "inspect", ref, err)
	}
	defer leave()
	in, err := c.get(ctx, ref)
	if err != nil {
		return keyring.Inspection{}, c.fail(ctx, "inspect", ref, c.unknown(ctx, ref, err))
	}
	if err := c.allowed(ctx, in); err != nil {
		return keyring.Inspection{}, &Error{Op: "inspect", Ref: in.Ref, Err: err}
	}
	if in.State != keyring.StateDamaged && !in.Purged { // whose those were cannot be told; the ring refuses them
		if err := c.mine(in); err != nil {
			return keyring.Inspection{}, c.fail(ctx, "inspect", ref, err)
		}
	}
	seen, err := c.ring.InspectUnder(ctx, ref, by, c.termsNow)
	if err != nil {
		return keyring.Inspection{}, c.fail(ctx, "inspect", ref, err)
	}
	if err := c.allowed(ctx, seen.Intent()); err != nil { // the look may have taken long
		return keyring.Inspection{}, &Error{Op: "inspect", Ref: in.Ref, Err: err}
	}
	return seen, nil
}

// Rekey gives an intent another key, with the request given here, which may be
// the one on record or a corrected one. It sends nothing; [Client.Do] with the
// same request does. It needs an inspection, see [keyring.Ring.Rekey] for
// which, and for the errors.
func (c *Client) Rekey(ctx context.Context, seen keyring.Inspection, req *http.Request) (keyring.Intent, error) {
	ref := seen.Intent().Ref
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		closeBody(req)
		return keyring.Intent{}, c.fail(context.Background(), "rekey", ref, err)
	}
	defer leave()
	if ref.Name == "" { // a zero one: let the ring say so
		closeBody(req)
		_, err := c.ring.Rekey(ctx, seen, keyring.Draft{})
		return keyring.Intent{}, c.fail(ctx, "rekey", ref, err)
	}
	g, err := c.prepare(ctx, ref, req, false)
	if err != nil {
		return keyring.Intent{}, c.fail(ctx, "rekey", ref, err)
	}
	if err := c.allowed(ctx, seen.Intent()); err != nil {
		return keyring.Intent{}, &Error{Op: "rekey", Ref: ref, Err: err}
	}
	if profile := seen.Intent().Terms.Profile; ref.Name != "" && profile != c.profile.Name() && profile != "" {
		return keyring.Intent{}, c.fail(ctx, "rekey", ref, fmt.Errorf("%w: the intent was begun under profile %q, this client has %q", keyring.ErrInvalid, profile, c.profile.Name()))
	}
	in, err := c.ring.Rekey(ctx, seen, g.draft)
	if err != nil {
		return keyring.Intent{}, c.fail(ctx, "rekey", ref, err)
	}
	c.tellBegun(ctx, in)
	return in, nil
}
