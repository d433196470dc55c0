package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
)

const price = 1250 // cents

// story is the shop and its server, and what was seen of them so far.
type story struct {
	srv     *clienttest.Server
	keyring string // directory
	api     string
	shop    *shop

	lines []line
	said  []string // what errors said to the person who reads them
}

// play opens the shop and plays one scene after the other. A scene that could
// not be played ends it; a wrong count is found later, see check.
func (s *story) play(ctx context.Context) (err error) {
	if s.shop, err = openShop(s.keyring, s.api); err != nil {
		return err
	}
	defer func() {
		if s.shop != nil {
			err = errors.Join(err, s.shop.close())
		}
	}()
	for i, scene := range []func(context.Context) error{
		s.ordinary, s.lostAnswer, s.killed, s.pending, s.conflict, s.otherAmount,
	} {
		if err := scene(ctx); err != nil {
			return fmt.Errorf("scene %d: %w", i+1, err)
		}
	}
	return nil
}

// ordinary: nothing goes wrong, and the call is made twice all the same.
func (s *story) ordinary(ctx context.Context) error {
	const order = "order-1"
	res, err := s.shop.charge(ctx, order, price)
	if err := s.tell(ctx, "1. an ordinary charge", order, describe(res, err),
		counts{outcome: "done", attempts: 1, effects: 1, keys: 1}); err != nil {
		return err
	}
	res, err = s.shop.charge(ctx, order, price)
	return s.tell(ctx, "   the same call again", order, describe(res, err),
		counts{outcome: "done, from the record", attempts: 1, effects: 1, keys: 1})
}

// lostAnswer: the connection breaks after the server has charged. The second
// attempt has the same key, and the server repeats its answer.
func (s *story) lostAnswer(ctx context.Context) error {
	const order = "order-2"
	s.srv.On(path(order), clienttest.LoseAnswer())
	res, err := s.shop.charge(ctx, order, price)
	return s.tell(ctx, "2. charged, but the answer is lost", order, describe(res, err),
		counts{outcome: "done, answer repeated", attempts: 2, effects: 1, keys: 1})
}

// killed: another process charges, and is killed when the server has acted but
// not answered. This process then opens the keyring and makes the same call.
func (s *story) killed(ctx context.Context) error {
	const order = "order-3"
	s.srv.On(path(order), clienttest.StallAfter())

	// One process at a time has a keyring open.
	err := s.shop.close()
	s.shop = nil
	if err != nil {
		return err
	}
	if err := killWhile(ctx, s.keyring, s.api, order, func() bool { return s.srv.Effects(path(order)) > 0 }); err != nil {
		return err
	}
	if s.shop, err = openShop(s.keyring, s.api); err != nil {
		return err
	}

	in, err := s.shop.client.Ring().Get(ctx, ref(order))
	if err != nil {
		return err
	}
	if err := s.tell(ctx, "3. charged, then our process is killed", order, in.State.String(),
		counts{outcome: "unknown", attempts: 1, effects: 1, keys: 1}); err != nil {
		return err
	}
	res, err := s.shop.charge(ctx, order, price)
	return s.tell(ctx, "   the next process makes the call", order, describe(res, err),
		counts{outcome: "done, answer repeated", attempts: 2, effects: 1, keys: 1})
}

// pending: the server says that it is still working on it, for longer than we
// want to wait here. The outcome says when to come back.
func (s *story) pending(ctx context.Context) error {
	const order = "order-4"
	s.srv.On(path(order), clienttest.Pending(409), clienttest.Pending(409))
	res, err := s.shop.charge(ctx, order, price)
	if err := s.tell(ctx, "4. the server is still busy with it", order, describe(res, err),
		counts{outcome: "pending", attempts: 2, effects: 0, keys: 1}); err != nil {
		return err
	}
	out := client.OutcomeOf(err)
	s.said = append(s.said, "4. says: "+out.Next)
	if err := waitUntil(ctx, out.NotBefore); err != nil {
		return err
	}
	res, err = s.shop.charge(ctx, order, price)
	return s.tell(ctx, "   the same call a little later", order, describe(res, err),
		counts{outcome: "done", attempts: 3, effects: 1, keys: 1})
}

// conflict: the server has seen this key with another request. No number of
// attempts and no other key makes that right; a person has to look.
func (s *story) conflict(ctx context.Context) error {
	const order = "order-5"
	s.srv.On(path(order), clienttest.Conflict())
	res, err := s.shop.charge(ctx, order, price)
	s.said = append(s.said, "5. says: "+client.OutcomeOf(err).Next)
	return s.tell(ctx, "5. the server knows the key from elsewhere", order, describe(res, err),
		counts{outcome: "conflict, needs a look", attempts: 1, effects: 0, keys: 1})
}

// otherAmount: the first order once more, with another amount. It is another
// request under a known ref, which is a mistake: nothing is sent.
func (s *story) otherAmount(ctx context.Context) error {
	const order = "order-1"
	res, err := s.shop.charge(ctx, order, 10*price)
	if err != nil {
		s.said = append(s.said, "6. says: "+err.Error())
	}
	return s.tell(ctx, "6. order-1 again, with another amount", order, describe(res, err),
		counts{outcome: "not sent: body differs", attempts: 1, effects: 1, keys: 1})
}

// tell adds a line: what the caller was told, what the keyring has on record,
// and what the server counted.
func (s *story) tell(ctx context.Context, what, order, outcome string, want counts) error {
	in, err := s.shop.client.Ring().Get(ctx, ref(order))
	if err != nil {
		return err
	}
	keys := s.srv.Keys(path(order))
	if key := in.Key.String(); !slices.Contains(keys, key) {
		keys = append(keys, key)
	}
	s.lines = append(s.lines, line{
		what: what,
		ref:  in.Ref.String(),
		key:  in.Key.String(),
		seen: counts{
			outcome:  outcome,
			attempts: len(in.Attempts),
			effects:  s.srv.Effects(path(order)),
			keys:     len(keys),
		},
		want: want,
	})
	return nil
}

// waitUntil returns at t, or with the context's error when that ends first.
func waitUntil(ctx context.Context, t time.Time) error {
	timer := time.NewTimer(time.Until(t))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
