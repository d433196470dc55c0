package client

import (
	"context"
	"log/slog"

	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/retry"
)

// about are the attributes that every record has.
func about(in keyring.Intent) []any {
	return []any{
		slog.String("ref", in.Ref.String()),
		slog.String("key", in.Key.String()),
		slog.String("fingerprint", in.Fingerprint.String()),
	}
}

func (c *Client) logBegun(ctx context.Context, in keyring.Intent) {
	c.opts.Logger.DebugContext(ctx, "samekey: intent on record", append(about(in), slog.String("state", in.State.String()))...)
}

func (c *Client) logAttempt(ctx context.Context, in keyring.Intent, v keyring.Verdict, d retry.Decision) {
	c.opts.Logger.InfoContext(ctx, "samekey: attempt", append(about(in),
		slog.Int("attempt", lastAttempt(in)),
		slog.String("verdict", v.Kind.String()),
		slog.Int("status", v.Status),
		slog.String("code", v.Code),
		slog.String("request_id", v.RequestID),
		slog.String("why", v.Why),
		slog.String("next", d.Action.String()),
		slog.Duration("wait", d.Wait),
		slog.String("reason", d.Reason),
	)...)
}

func (c *Client) logOutcome(ctx context.Context, in keyring.Intent, out keyring.Outcome, cause error) {
	level := slog.LevelInfo
	if out.NeedsInspection || out.Broken {
		level = slog.LevelWarn
	}
	args := append(about(in),
		slog.String("state", out.State.String()),
		slog.String("source", out.Source.String()),
		slog.Bool("needs_inspection", out.NeedsInspection),
		slog.Bool("needs_sign_in", out.NeedsSignIn),
	)
	if cause != nil {
		args = append(args, slog.String("cause", cause.Error()))
	}
	c.opts.Logger.Log(ctx, level, "samekey: outcome", args...)
}
