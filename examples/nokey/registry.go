package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"text/tabwriter"

	"github.com/samekey/samekey/badgerkeys"
	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
)

// registry keeps one content per name: a PUT of a name that is taken is 403, as
// in the registries of npm and PyPI.
type registry struct {
	mu     sync.Mutex
	hashes map[string]string // by path
}

func (r *registry) act(hit clienttest.Seen) (int, http.Header, []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	hash, taken := r.hashes[hit.Path]
	switch {
	case hit.Method == http.MethodGet && taken:
		h := clienttest.JSON()
		h.Set("Content-Sha256", hash)
		return http.StatusOK, h, []byte(`{}`)
	case hit.Method == http.MethodGet:
		return http.StatusNotFound, clienttest.JSON(), []byte(`{}`)
	case taken:
		return http.StatusForbidden, clienttest.JSON(), []byte(`{"code":"exists"}`)
	}
	r.hashes[hit.Path] = hit.BodyDigest
	return http.StatusCreated, clienttest.JSON(), []byte(`{}`)
}

const opening = `A program publishes three releases to a registry that knows no keys. The first answer
to each is a 503, which may mean that it was stored, or not.

`

const closing = `
THE LOOK SAYS  what a GET of the release's name shows, compared by its hash
OUTCOME        what is known in the end, and by whose word
PUTS           requests to publish that the registry saw

Shown: nothing was published twice, and nobody else's release was taken for ours.
`

// play publishes three releases, each of which is answered with a 503, and
// writes what came of them.
func play(ctx context.Context) (err error) {
	dir, err := os.MkdirTemp("", "samekey-nokey-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	reg := &registry{hashes: map[string]string{}}
	srv := clienttest.NewServer(&clienttest.Options{NoDedup: true, Act: reg.act})
	defer func() { err = errors.Join(err, srv.Close()) }()
	api, err := srv.Listen()
	if err != nil {
		return err
	}
	store, err := badgerkeys.OpenOrCreate(filepath.Join(dir, "keyring"), nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	c, err := newClient(store, api)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close(context.Background())) }()

	theirs := sha256.Sum256([]byte("somebody else's"))
	reg.hashes["/pkg/ours/2.0.0"] = hex.EncodeToString(theirs[:])
	unavailable := []byte(`{"code":"unavailable"}`)
	fmt.Print(opening)
	tw := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "WHAT HAPPENS\tTHE LOOK SAYS\tWHAT FOLLOWS\tOUTCOME\tPUTS")
	for _, x := range []struct {
		what, look, then, path string
		fault                  clienttest.Fault
		state                  keyring.State
		puts                   int
	}{
		{"stored, then 503", "present", "nothing is sent", "/pkg/ours/1.0.0", clienttest.ActThenAnswer(503, clienttest.JSON(), unavailable), keyring.StateDone, 1},
		{"503, and the name is somebody else's", "other", "nothing is sent", "/pkg/ours/2.0.0", clienttest.Answer(503, clienttest.JSON(), unavailable), keyring.StateRefused, 1},
		{"503, and nothing stored", "absent", "sent once more", "/pkg/ours/3.0.0", clienttest.Answer(503, clienttest.JSON(), unavailable), keyring.StateDone, 2},
	} {
		srv.Script(x.fault)
		res, err := publish(ctx, c, api+x.path, []byte("release "+x.path))
		if res == nil {
			return err
		}
		puts := 0
		for _, hit := range srv.Requests(x.path) {
			if hit.Method == http.MethodPut {
				puts++
			}
		}
		look, by := "none", "registry"
		for _, f := range res.Intent.Findings {
			look = f.Kind.String() // the last one
		}
		if res.Outcome.Source == keyring.SourceInspection {
			by = "look"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s by %s\t%d\n", x.what, look, x.then, res.Outcome.State, by, puts)
		refused := errors.Is(err, client.ErrRefused)
		if look != x.look || res.Outcome.State != x.state || puts != x.puts || len(srv.Keys(x.path)) != 0 || (err == nil) == refused {
			return fmt.Errorf("%s is wrong: %s after %d PUT, the look said %s; want %s after %d, %s: %w", x.path, res.Outcome.State, puts, look, x.state, x.puts, x.look, err)
		}
	}
	if n := srv.Effects(); n != 2 {
		return fmt.Errorf("the registry stored %d releases, want 2", n)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	fmt.Print(closing)
	return nil
}
