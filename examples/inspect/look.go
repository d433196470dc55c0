package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

// settle is how long after the last attempt a look that finds nothing begins to
// count. Only an example can have it this short. A request can be in a proxy's
// queue, and what it did takes a while to show in lists: leave Terms.Settle at
// its default of 15 minutes, unless the provider promises less.
const settle = 100 * time.Millisecond

// look searches the provider's list for the order's own reference, in the
// request's body as it was sent. The key would do where lists show it.
func (s *shop) look(ctx context.Context, in keyring.Intent) (keyring.Finding, error) {
	var meant charge
	if err := json.Unmarshal(in.Request.Body, &meant); err != nil {
		return keyring.Finding{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.api+"/charges", nil)
	if err != nil {
		return keyring.Finding{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return keyring.Finding{}, err // no look, no finding
	}
	defer resp.Body.Close()
	var all []charge
	if err := json.NewDecoder(resp.Body).Decode(&all); err != nil || resp.StatusCode != http.StatusOK {
		return keyring.Finding{}, fmt.Errorf("the list cannot be read, status %d: %w", resp.StatusCode, err)
	}
	f := keyring.Finding{Kind: keyring.FindingAbsent, By: "list of charges", Evidence: fmt.Sprintf("%d charges, none for it", len(all))}
	for _, c := range all {
		if c.Reference == meant.Reference {
			f.Kind, f.EffectID, f.Evidence = keyring.FindingPresent, c.ID, "a charge with its reference"
		}
	}
	return f, nil
}

// waitToLook waits until a look that finds nothing would count, which the
// outcome of a call that looked too early says.
func (s *shop) waitToLook(ctx context.Context, err error) error {
	out := client.OutcomeOf(err)
	if !errors.Is(err, keyring.ErrTooSoon) || !out.NeedsInspection {
		return fmt.Errorf("the look was to come too early: %w", err)
	}
	select {
	case <-time.After(time.Until(out.NotBefore)):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type charge struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
}

type shop struct {
	srv    *clienttest.Server
	api    string
	client *client.Client
	lines  []line

	mu   sync.Mutex
	made []charge // by the server
}

// act is the operation: each POST that comes as far as this charges, and GET
// lists.
func (s *shop) act(hit clienttest.Seen) (int, http.Header, []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var body []byte
	var err error
	if hit.Method == http.MethodGet {
		body, err = json.Marshal(append([]charge{}, s.made...))
	} else {
		c := charge{ID: fmt.Sprintf("ch_%d", len(s.made)+1)}
		if err = json.Unmarshal(hit.Body, &c); err == nil {
			s.made = append(s.made, c)
			body, err = json.Marshal(c)
		}
	}
	if err != nil {
		return http.StatusBadRequest, clienttest.JSON(), []byte(`{}`)
	}
	return http.StatusOK, clienttest.JSON(), body
}

func ref(order string) keyring.Ref { return keyring.Ref{Name: order + "/charge"} }

// path is one for each order, so that the server's counts can be told apart.
func path(order string) string {
	if order == "order-3" {
		return "/keyed/charges/" + order
	}
	return "/charges/" + order
}

// request carries what the look finds it by, from the first time it is sent.
func (s *shop) request(ctx context.Context, order, card string) (*http.Request, error) {
	body := fmt.Sprintf(`{"reference":%q,"card":%q,"amount":1250}`, order, card)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.api+path(order), strings.NewReader(body))
	if err == nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, err
}

func (s *shop) charge(ctx context.Context, order, card string) (*client.Result, error) {
	req, err := s.request(ctx, order, card)
	if err != nil {
		return nil, err
	}
	return s.client.Do(ctx, ref(order), req)
}

func play(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "samekey-inspect-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s := &shop{}
	s.srv = clienttest.NewServer(&clienttest.Options{NoDedup: true, Act: s.act})
	s.srv.Dedup(path("order-3"), true)
	defer func() { err = errors.Join(err, s.srv.Close()) }()
	if s.api, err = s.srv.Listen(); err != nil {
		return err
	}
	profile, err := provider.New(provider.Spec{
		Name: "inspect",
		Endpoints: []provider.Endpoint{
			{Pattern: "POST /charges/{order}", Terms: keyring.Terms{Dedup: keyring.DedupNone, Settle: settle}},
			{Pattern: "POST /keyed/charges/{order}", Terms: keyring.Terms{Dedup: keyring.DedupKey, Retention: 24 * time.Hour, Settle: settle}},
		},
	})
	if err != nil {
		return err
	}
	store, err := badgerkeys.OpenOrCreate(filepath.Join(dir, "keyring"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	s.client = client.New(store, profile, &client.Options{Inspector: keyring.InspectorFunc(s.look)})
	defer func() { err = errors.Join(err, s.client.Close(context.Background())) }()

	if err := errors.Join(s.found(ctx), s.notFound(ctx), s.conflict(ctx), s.refused(ctx)); err != nil {
		return err
	}
	return s.tell(os.Stdout)
}
