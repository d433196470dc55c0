// The example nokey publishes a release to a registry that knows no keys. The
// name of the release is what tells one from another there, so that a look can
// compare what stands under it: by its hash. It needs no arguments and no
// network:
//
//	go run ./examples/nokey
//
// This file has the client and its look, publish.go the call; registry.go plays
// the registry. The exit status is 0 only if nothing was
// published twice and nobody else's release was taken for ours.
package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := play(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "nokey:", err)
		os.Exit(1)
	}
}

func newClient(store keyring.Store, api string) (*client.Client, error) {
	profile, err := provider.New(provider.Spec{
		Name: "registry",
		Endpoints: []provider.Endpoint{{
			Pattern: "PUT /pkg/{name}/{version}",
			NoKey:   true,
			Terms: keyring.Terms{
				// One send, then a look. The registry answers "exists" to a repeat,
				// which would tell nothing about whose release it is.
				Dedup: keyring.DedupNone,
				// "Not there" counts so soon in an example alone: a request can be in a
				// proxy's queue, and a release takes a while to show. Leave this at its
				// default of 15 minutes, unless the provider promises less.
				Settle: 100 * time.Millisecond,
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	return client.New(store, profile, &client.Options{
		Origins:   []string{api},
		Inspector: keyring.InspectorFunc(byHash),
	}), nil
}

// byHash compares what stands under the release's name with what was sent.
func byHash(ctx context.Context, in keyring.Intent) (keyring.Finding, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, in.Request.URL, nil)
	if err != nil {
		return keyring.Finding{}, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return keyring.Finding{}, err // no look, no finding
	}
	defer resp.Body.Close()
	want := sha256.Sum256(in.Request.Body)
	f := keyring.Finding{By: "GET of the release", Evidence: "status " + resp.Status}
	switch got := resp.Header.Get("Content-Sha256"); {
	case resp.StatusCode == http.StatusNotFound:
		f.Kind = keyring.FindingAbsent
	case resp.StatusCode != http.StatusOK || got == "": // cannot tell: the zero Kind
	case got == hex.EncodeToString(want[:]):
		f.Kind = keyring.FindingPresent
	default:
		f.Kind, f.Evidence = keyring.FindingOther, "its hash is "+got
	}
	return f, nil
}
