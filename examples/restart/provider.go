package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/samekey/samekey/client/clienttest"
)

// The program runs as a process of its own, with these variables set.
const (
	envAPI     = "SAMEKEY_RESTART_API"
	envKeyring = "SAMEKEY_RESTART_KEYRING"
)

var orders = []string{"order-1", "order-2"}

func path(order string) string { return "/orders/" + order + "/charge" }

// playTwice runs the program against a server that acts on the first charge and
// never answers, kills it there, runs it again, and counts.
func playTwice(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "samekey-restart-")
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
	self, err := os.Executable()
	if err != nil {
		return err
	}
	program := func() *exec.Cmd {
		cmd := exec.CommandContext(ctx, self)
		cmd.Env = append(os.Environ(), envAPI+"="+api, envKeyring+"="+filepath.Join(dir, "keyring"))
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		return cmd
	}

	fmt.Println("first start:")
	srv.On(path(orders[0]), clienttest.StallAfter())
	first := program()
	if err := first.Start(); err != nil {
		return err
	}
	if err := srv.WaitHits(ctx, 1, path(orders[0])); err != nil {
		return errors.Join(err, first.Process.Kill(), first.Wait())
	}
	if err := first.Process.Kill(); err != nil {
		return err
	}
	if err := first.Wait(); err == nil {
		return errors.New("the first run ended well, although it was killed")
	}
	fmt.Println("  killed while it waited for the answer to", orders[0])

	fmt.Println("second start:")
	if err := program().Run(); err != nil {
		return fmt.Errorf("the second run: %w", err)
	}

	for i, order := range orders {
		p, hits := path(order), 2-i // the first order was sent by both runs
		if srv.Hits(p) != hits || srv.Effects(p) != 1 || len(srv.Keys(p)) != 1 || len(srv.Bodies(p)) != 1 {
			return fmt.Errorf("%s is wrong: the server saw %s", order, srv)
		}
		fmt.Printf("%s: %d requests, 1 key, 1 charge\n", order, hits)
	}
	return nil
}
