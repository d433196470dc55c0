// The example inspect shows what comes after "not known": a look at the
// provider's side, and what may follow from it. It needs no arguments and no
// network:
//
//	go run ./examples/inspect
//
// This file has the orders that a look settles, rekey.go those that get another
// key, look.go the look and the server, table.go what is printed. The exit status is 0 only if each order was charged once.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := play(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "inspect:", err)
		os.Exit(1)
	}
}

// found: the effect is there, its answer was lost. Do looks by itself when its
// attempts end in doubt, and the look settles it. The result has no answer then;
// the charge's id is in Outcome.Verdict.EffectID.
func (s *shop) found(ctx context.Context) error {
	s.srv.Script(clienttest.LoseAnswer())
	res, err := s.charge(ctx, "order-1", "card-a")
	if err != nil {
		return err
	}
	s.add(line{
		order: "order-1", what: "charged, but the answer is lost", look: "present",
		then: "nothing is sent", want: counts{"done by look", 1, 1, 1},
	}, res)
	return nil
}

// notFound: the request was lost on its way. A look that finds nothing counts
// only after Terms.Settle, since the request may still arrive; from then on the
// same call sends it once more, under its key.
func (s *shop) notFound(ctx context.Context) error {
	s.srv.Script(clienttest.LoseRequest())
	_, err := s.charge(ctx, "order-2", "card-a")
	if err := s.waitToLook(ctx, err); err != nil {
		return err
	}
	res, err := s.charge(ctx, "order-2", "card-a")
	if err != nil {
		return err
	}
	s.add(line{
		order: "order-2", what: "the request is lost", look: "absent",
		then: "sent again, same key", want: counts{"done by server", 2, 1, 1},
	}, res)
	return nil
}

// rekey gives the order another key and sends it. That uses the inspection up:
// a second Rekey with it would report keyring.ErrStale.
func (s *shop) rekey(ctx context.Context, seen keyring.Inspection, order, card string) (*client.Result, error) {
	req, err := s.request(ctx, order, card)
	if err != nil {
		return nil, err
	}
	if _, err := s.client.Rekey(ctx, seen, req); err != nil {
		return nil, err
	}
	return s.charge(ctx, order, card)
}
