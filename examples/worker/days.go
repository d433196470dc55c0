package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

func path(order string) string { return "/orders/" + order + "/charge" }

// playTwoDays lets the worker run twice. On the first day one answer is lost and
// another one does not come before the day ends.
func playTwoDays(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "samekey-worker-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	srv := clienttest.NewServer(nil)
	defer func() { err = errors.Join(err, srv.Close()) }()
	api, err := srv.Listen()
	if err != nil {
		return err
	}
	d := days{srv: srv, dir: filepath.Join(dir, "keyring"), api: api}

	fmt.Println("A worker charges orders on two days. Each line is how a charge ended that day.")
	fmt.Println("first day: an answer is lost, and another one is still to come when the day ends")
	srv.On(path("order-2"), clienttest.LoseAnswer())
	srv.On(path("order-3"), clienttest.StallAfter())
	if err := d.day(ctx, []string{"order-1", "order-2", "order-3"}, map[string]int{"order-1": 1, "order-2": 2, "order-3": 1}); err != nil {
		return err
	}
	fmt.Println("second day: the worker goes on with what was left open, and has one new order")
	if err := d.day(ctx, []string{"order-4"}, map[string]int{"order-3": 2, "order-4": 1}); err != nil {
		return err
	}
	return d.check(ctx, map[string]int{"order-1": 1, "order-2": 2, "order-3": 2, "order-4": 1})
}

type days struct {
	srv      *clienttest.Server
	dir, api string
}

// day hands out orders, and ends the worker's context as soon as the server has
// seen that many requests for each order.
func (d days) day(ctx context.Context, orders []string, until map[string]int) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	queue := make(chan string, len(orders))
	for _, order := range orders {
		queue <- order
	}
	ended := make(chan error, 1)
	go func() { ended <- work(ctx, d.dir, d.api, queue) }()
	for order, n := range until {
		if err := d.srv.WaitHits(ctx, n, path(order)); err != nil {
			return errors.Join(err, <-ended)
		}
	}
	cancel()
	return <-ended
}

// check compares what the server counted, and looks for what is left open.
func (d days) check(ctx context.Context, hits map[string]int) (err error) {
	for order, n := range hits {
		p := path(order)
		if d.srv.Hits(p) != n || d.srv.Effects(p) != 1 || len(d.srv.Keys(p)) != 1 {
			return fmt.Errorf("%s is wrong: %d requests, %d charges, %d keys; want %d, 1, 1", order, d.srv.Hits(p), d.srv.Effects(p), len(d.srv.Keys(p)), n)
		}
	}
	store, err := badgerkeys.Open(d.dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	for in, err := range keyring.New(store, nil).List(ctx, keyring.Query{AllScopes: true, OpenOnly: true}) {
		if err != nil {
			return err
		}
		return fmt.Errorf("left open: %s", in)
	}
	fmt.Printf("%d orders, %d requests, %d charges, nothing left open\n", len(hits), d.srv.Hits(), d.srv.Effects())
	return nil
}
