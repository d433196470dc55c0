package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/keyring"
)

// charge may be called again for the same order.
func charge(ctx context.Context, c *client.Client, api, order string) {
	ref := keyring.Ref{Name: order + "/charge"}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, api+path(order), strings.NewReader(`{"amount":1250}`))
	if err != nil {
		fmt.Printf("  %s: %v\n", ref, err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	// What was recorded stays open after an error, and resume comes back to it. A
	// program of your own logs the error too: it says why.
	switch _, err = c.Do(ctx, ref, req); {
	case errors.Is(err, keyring.ErrClosed):
		fmt.Printf("  %s: %s, the day ended before its answer came\n", ref, client.OutcomeOf(err).State)
	case err != nil:
		fmt.Printf("  %s: %s. %s\n", ref, client.OutcomeOf(err).State, client.OutcomeOf(err).Next)
	}
}
