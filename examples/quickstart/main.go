// The quickstart charges six orders through a payment server that does what
// goes wrong in the field, and shows what comes of each. It needs no arguments,
// no set-up and no network, and takes a few seconds:
//
//	go run ./examples/quickstart
//
// Read shop.go for what a program of your own looks like, and scenes.go for
// how it is used. The server is [clienttest.Server] on a port of this machine.
// The exit status is 0 only if all that was counted is right.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"time"

	"github.com/samekey/samekey/client/clienttest"
)

// patience bounds the whole run; it ends far earlier unless something is wrong.
const patience = time.Minute

const opening = `A shop charges its customers through a payment server. The server runs here too:
it counts how often it really charged (EFFECTS), and things go wrong on purpose.

`

const closing = `
REF       the shop's own name for what is meant; the same in each call about it
KEY       what the server knows a request by; made once for a ref, then kept on disk
ATTEMPTS  requests that were sent for this ref so far
OUTCOME   what the caller is told; in Go an error, unless it is done
EFFECTS   charges that the server made for this ref so far
`

const shown = `
Shown: one key for each ref, and never more than one charge, whether the answer was
lost, the program killed or the call made again. What is not known to be done comes
back as an error that says what to do.

Read on in README.md; the code of this is in examples/quickstart.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	ctx, cancel := context.WithTimeout(ctx, patience)
	err := start(ctx)
	cancel()
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// start does what this process is there for, see child.go.
func start(ctx context.Context) error {
	if isChild() {
		return child(ctx)
	}
	return run(ctx, os.Stdout)
}

// run plays all scenes and writes the story to w. It reports what went wrong,
// and which lines are not as they should be.
func run(ctx context.Context, w io.Writer) (err error) {
	// A program of your own keeps its keyring where nobody cleans up.
	dir, err := os.MkdirTemp("", "samekey-quickstart-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	srv := clienttest.NewServer(nil)
	defer func() { err = errors.Join(err, srv.Close()) }()
	api, err := srv.Listen()
	if err != nil {
		return fmt.Errorf("the payment server cannot listen: %w", err)
	}

	fmt.Fprint(w, opening)
	s := &story{srv: srv, keyring: filepath.Join(dir, "keyring"), api: api}
	if err := s.play(ctx); err != nil {
		return err
	}
	if err := writeTable(w, s.lines); err != nil {
		return err
	}
	fmt.Fprint(w, closing, "\n")
	for _, said := range s.said {
		fmt.Fprintln(w, said)
	}
	if err := check(s.lines); err != nil {
		return err
	}
	_, err = fmt.Fprint(w, shown)
	return err
}
