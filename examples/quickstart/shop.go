package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/retry"
)

// shop is a program that charges orders: a keyring, and a client on top.
type shop struct {
	store  *badgerkeys.Store
	client *client.Client
	api    string
}

// openShop opens the keyring in dir, which one process at a time can do.
func openShop(dir, api string) (*shop, error) {
	// What the server's documentation promises. A server that follows the IETF
	// draft needs no more than provider.Draft.
	profile, err := provider.New(provider.Spec{
		Name:         "quickstart",
		ReplayHeader: "Idempotent-Replayed", // marks an answer that is repeated
		Endpoints: []provider.Endpoint{{
			Pattern: "POST /orders/{order}/charge",
			Terms: keyring.Terms{
				Dedup:         keyring.DedupKey, // it acts once per key,
				KeepsRefusals: true,             // repeats a "no" as it repeats a "yes",
				MarksRunning:  true,             // knows the key of a request it is still working on,
				Retention:     24 * time.Hour,   // and keeps keys for a day
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	store, err := badgerkeys.OpenOrCreate(dir, nil)
	if err != nil {
		return nil, err
	}
	return &shop{
		store: store,
		client: client.New(store, profile, &client.Options{
			// Few attempts and short waits, since the server is next door. The
			// default is 5 attempts within 2 minutes.
			Retry: retry.Exponential{MinWait: 50 * time.Millisecond, MaxAttempts: 2},
		}),
		api: api,
	}, nil
}

// close waits for the calls under way, then lets go of the keyring.
func (s *shop) close() error {
	return errors.Join(s.client.Close(context.Background()), s.store.Close())
}

// charge may be called again for the same order, in this process or a later
// one: it takes effect once.
func (s *shop) charge(ctx context.Context, order string, cents int) (*client.Result, error) {
	body := fmt.Sprintf(`{"amount":%d,"currency":"EUR"}`, cents)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+path(order), strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	return s.client.Do(ctx, ref(order), req)
}

// ref names what is meant. It is made from the order alone, so that the next
// process comes to the same name.
func ref(order string) keyring.Ref { return keyring.Ref{Name: order + "/charge"} }

func path(order string) string { return "/orders/" + order + "/charge" }

// describe says in a few words what is known after a call. Its default is
// doubt: an error that it does not know is not taken for a failure.
func describe(res *client.Result, err error) string {
	out := client.OutcomeOf(err)
	var differs *keyring.Error
	switch {
	case err == nil && res.Outcome.Source == keyring.SourceRecord:
		return "done, from the record"
	case err == nil && res.Outcome.Verdict.Replayed:
		return "done, answer repeated"
	case err == nil:
		return "done"
	case errors.Is(err, keyring.ErrDiffers) && errors.As(err, &differs):
		return "not sent: " + strings.Join(differs.Fields, ", ") + " differs"
	case errors.Is(err, client.ErrConflict) && out.NeedsInspection:
		return "conflict, needs a look"
	case errors.Is(err, client.ErrPending):
		return "pending"
	case errors.Is(err, client.ErrRefused):
		return "refused"
	case errors.Is(err, client.ErrNotSent):
		return "not charged yet"
	default: // client.ErrUnknown, client.ErrExpired, and what comes with a later release
		return "unknown"
	}
}
