// The example restart shows a program that is killed in the middle of a charge,
// and what it does when it is started again: nothing but what it always does
// first, [client.Client.Resume]. It needs no arguments and no network:
//
//	go run ./examples/restart
//
// This file is the program; provider.go plays the payment server and the fate
// that kills it. The exit status is 0 only if each order was charged once.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var err error
	if api := os.Getenv(envAPI); api != "" {
		err = charges(ctx, os.Getenv(envKeyring), api)
	} else {
		err = playTwice(ctx)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "restart:", err)
		os.Exit(1)
	}
}

// charges is the whole program. It is the same at its first start and at each
// later one.
func charges(ctx context.Context, dir, api string) (err error) {
	store, err := badgerkeys.OpenOrCreate(dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	c := client.New(store, provider.Draft(24*time.Hour, "POST /orders/{order}/charge"), &client.Options{
		// A request that is sent from the record has no credentials but these,
		// and they go nowhere else.
		Origins: []string{api},
		Authorize: func(_ context.Context, req *http.Request) error {
			req.Header.Set("Authorization", "Bearer made-for-this-attempt")
			return nil
		},
	})
	defer func() { err = errors.Join(err, c.Close(context.Background())) }()

	// First what an earlier run has left open. It needs no request: method, URL,
	// body and key are on record. An error is about one intent, or about the
	// listing if there is no result; neither is a reason not to go on.
	for res, err := range c.Resume(ctx) {
		if err != nil {
			fmt.Println("  left open still:", err)
			continue
		}
		fmt.Printf("  resumed  %s\n", res)
	}

	// Then the work of the day. The first order is there again, as in any
	// program that does not know how far it came.
	for _, order := range orders {
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, api+path(order), strings.NewReader(`{"amount":1250}`))
		if err != nil {
			return err
		}
		req.Header.Set("Content-Type", "application/json")
		res, err := c.Do(ctx, keyring.Ref{Name: order + "/charge"}, req)
		if err != nil {
			return err // read docs/states.md for what else there is to do
		}
		fmt.Printf("  charged  %s, known from the %s\n", res, res.Outcome.Source)
	}
	return nil
}
