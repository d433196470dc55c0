package client_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/keyring/keyringtest"
	"github.com/samekey/samekey/provider"
)

// The answer to the first attempt is lost. The second one carries the same key,
// so that the provider repeats its answer instead of charging again. (A draft
// server does not mark a repeated answer; a profile can say how one does.)
func ExampleClient_Do() {
	srv := clienttest.NewServer(nil)
	defer srv.Close()
	srv.Script(clienttest.LoseAnswer())

	store := keyringtest.NewStore() // a program uses badgerkeys.OpenOrCreate(dir, nil)
	c := client.New(store, provider.Draft(24*time.Hour, "POST /v1/charges"), &client.Options{Transport: srv.RoundTripper()})
	defer c.Close(context.Background())

	req, err := http.NewRequestWithContext(context.Background(), "POST", "https://api.example.com/v1/charges", strings.NewReader(`{"amount":1250}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(context.Background(), keyring.Ref{Name: "order-8123/charge"}, req)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(res.Outcome.State, "known by", res.Outcome.Source, "after", len(res.Intent.Attempts), "attempts")
	fmt.Println("effects:", srv.Effects(), "keys:", len(srv.Keys()))
	// Output:
	// done known by provider after 2 attempts
	// effects: 1 keys: 1
}

func ExampleOutcomeOf() {
	srv := clienttest.NewServer(nil)
	defer srv.Close()
	srv.Script(clienttest.Conflict())
	c := client.New(keyringtest.NewStore(), provider.Draft(24*time.Hour, "POST /v1/charges"), &client.Options{Transport: srv.RoundTripper()})
	defer c.Close(context.Background())

	req, err := http.NewRequestWithContext(context.Background(), "POST", "https://api.example.com/v1/charges", strings.NewReader(`{}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = c.Do(context.Background(), keyring.Ref{Name: "order-8124/charge"}, req)
	out := client.OutcomeOf(err)
	fmt.Println(errors.Is(err, client.ErrConflict), out.State, out.NeedsInspection)
	fmt.Println(out.Next)
	// Output:
	// true conflict true
	// The provider knows this key with another request; look at the provider to see what took effect.
}
