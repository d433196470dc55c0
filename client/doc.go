// Package client makes a call take effect once.
//
// The promise: what [Client.Do] sends under a ref is recorded with its key
// before the first byte leaves, and is sent again, in this process or a later
// one, only as the identical request under the identical key. A nil error
// means that the effect exists; every other error says what is known.
//
// Start at [New] and [Client.Do]:
//
//	store, err := badgerkeys.OpenOrCreate(dir, nil)
//	...
//	c := client.New(store, provider.Draft(24*time.Hour, "POST /v1/charges"), nil)
//	res, err := c.Do(ctx, keyring.Ref{Name: "order-8123/charge"}, req)
//
// and at [OutcomeOf] for an error. [Client.Begin] and [Client.Send] are the two
// halves of Do, for programs that record now and send later. [Client.Resume]
// goes on with what a restart left open.
//
// A client adds nothing to what the provider promises: where an endpoint does
// not de-duplicate, a call is sent once, and doubt remains doubt. Package
// provider says what is promised where.
package client
