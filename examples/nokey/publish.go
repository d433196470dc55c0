package main

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/keyring"
)

// publish may be called again for the same release. Where a look came too early
// to count, it waits and makes the same call once more.
func publish(ctx context.Context, c *client.Client, url string, content []byte) (*client.Result, error) {
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodPut, url, bytes.NewReader(content))
		if err != nil {
			return nil, err
		}
		res, err := c.Do(ctx, keyring.Ref{Name: url}, req)
		var early *keyring.Error
		if !errors.Is(err, keyring.ErrTooSoon) || !errors.As(err, &early) {
			return res, err
		}
		select {
		case <-time.After(max(time.Until(early.Until), time.Second)): // each look costs a request
		case <-ctx.Done():
			return res, err
		}
	}
}
