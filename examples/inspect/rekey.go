package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
)

// conflict: this endpoint knows keys again, and has this one with another
// request: somebody else used it. It is of no use any more, and a look that
// finds nothing permits another one.
func (s *shop) conflict(ctx context.Context) error {
	s.srv.Script(clienttest.Conflict())
	_, err := s.charge(ctx, "order-3", "card-a")
	if !errors.Is(err, client.ErrConflict) {
		return fmt.Errorf("order-3 was to be a conflict: %w", err)
	}
	if err := s.waitToLook(ctx, err); err != nil {
		return err
	}
	seen, err := s.client.Inspect(ctx, ref("order-3"))
	if err != nil {
		return err
	}
	res, err := s.rekey(ctx, seen, "order-3", "card-a")
	if err != nil {
		return err
	}
	s.add(line{
		order: "order-3", what: "its key was used elsewhere", look: seen.Finding().Kind.String(),
		then: "sent under another key", want: counts{"done by server", 2, 2, 1},
	}, res)
	return nil
}

// refused: the provider's own no is as good as a look. The request is corrected
// under the same ref, which stands for the same order after all.
func (s *shop) refused(ctx context.Context) error {
	s.srv.Script(clienttest.Decide(http.StatusPaymentRequired, clienttest.JSON(), []byte(`{"code":"card_declined"}`)))
	if _, err := s.charge(ctx, "order-4", "card-a"); !errors.Is(err, client.ErrRefused) {
		return fmt.Errorf("order-4 was to be refused: %w", err)
	}
	seen, err := s.client.Ring().Refusal(ctx, ref("order-4"))
	if err != nil {
		return err
	}
	res, err := s.rekey(ctx, seen, "order-4", "card-b")
	if err != nil {
		return err
	}
	s.add(line{
		order: "order-4", what: "the card is declined", look: "(none is needed)",
		then: "another card, another key", want: counts{"done by server", 2, 2, 1},
	}, res)
	return nil
}
