package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"
)

// The second process is this program with these variables set.
const (
	envKeyring = "SAMEKEY_QUICKSTART_KEYRING"
	envAPI     = "SAMEKEY_QUICKSTART_API"
	envOrder   = "SAMEKEY_QUICKSTART_ORDER"
)

func isChild() bool { return os.Getenv(envOrder) != "" }

// child charges one order. It is killed while it waits for the answer, so that
// to return at all is an error.
func child(ctx context.Context) error {
	s, err := openShop(os.Getenv(envKeyring), os.Getenv(envAPI))
	if err != nil {
		return err
	}
	res, err := s.charge(ctx, os.Getenv(envOrder), price)
	return errors.Join(fmt.Errorf("it was to be killed, but its call returned: %s", describe(res, err)), err, s.close())
}

// killWhile starts a second process that charges an order, and kills it, without
// a chance to clean up, as soon as acted says that the server has charged.
func killWhile(ctx context.Context, keyring, api, order string, acted func() bool) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), envKeyring+"="+keyring, envAPI+"="+api, envOrder+"="+order)
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !acted() {
		select {
		case err := <-ended:
			return fmt.Errorf("the second process ended too early: %w: %s", err, bytes.TrimSpace(stderr.Bytes()))
		case <-tick.C:
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		return err
	}
	if err := <-ended; err == nil {
		return errors.New("the second process ended well, although it was killed")
	}
	return nil
}
