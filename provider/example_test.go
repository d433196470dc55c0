package provider_test

import (
	"fmt"
	"time"

	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

func ExampleDraft() {
	p := provider.Draft(24*time.Hour, "POST /v1/orders", "POST /v1/orders/{id}/refund")
	for _, path := range []string{"/v1/orders", "/v1/orders/7/refund", "/v1/customers"} {
		terms := p.Terms("POST", "https://api.example.com"+path)
		fmt.Println(path, terms.Dedup, terms.Retention)
	}
	// Output:
	// /v1/orders key 24h0m0s
	// /v1/orders/7/refund key 24h0m0s
	// /v1/customers none 0s
}

func ExampleNew() {
	p, err := provider.New(provider.Spec{
		Name:         "acme",
		Origins:      []string{"https://api.acme.example"},
		KeyHeader:    "Acme-Key",
		ReplayHeader: "Acme-Replayed",
		Endpoints: []provider.Endpoint{{
			Pattern: "POST /pay",
			Terms:   keyring.Terms{Dedup: keyring.DedupKey, Retention: 7 * 24 * time.Hour},
		}},
		Rules: []provider.Rule{
			{Status: 409, Code: "still_working", Kind: keyring.VerdictPending},
			{Status: 422, Code: "declined", Kind: keyring.VerdictRefused, ByOperation: true},
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	v := p.Read(provider.Exchange{
		Method: "POST",
		URL:    "https://api.acme.example/pay",
		Status: 409,
		Header: map[string][]string{"Content-Type": {"application/json"}, "Retry-After": {"2"}},
		Body:   []byte(`{"error":{"code":"still_working"}}`),
	})
	fmt.Println(v.Kind, v.Code, v.RetryAfter)
	// Output: pending still_working 2s
}

func ExampleLookup() {
	for _, name := range []string{"stripe", "mastodon", "acme"} {
		p, ok := provider.Lookup(name)
		fmt.Println(name, ok, p.Origins())
	}
	// Output:
	// stripe true [https://api.stripe.com]
	// mastodon true []
	// acme false []
}

func ExampleMastodon() {
	p := provider.Mastodon("https://mastodon.example")
	for _, body := range []string{
		`{"status":"Version 2 is out."}`,
		`{"status":"Version 2 is out.","scheduled_at":"2026-12-24T09:00:00Z"}`,
	} {
		terms := p.TermsFor(keyring.Request{
			Method: "POST",
			URL:    "https://mastodon.example/api/v1/statuses",
			Header: map[string][]string{"Content-Type": {"application/json"}},
			Body:   []byte(body),
		})
		fmt.Println(terms.Dedup, terms.Retention)
	}
	// Output:
	// key 1h0m0s
	// none 0s
}

// Acme overlooks the key of what comes in several parts.
func ExampleEndpoint_termsIf() {
	p, err := provider.New(provider.Spec{
		Name: "acme",
		Endpoints: []provider.Endpoint{{
			Pattern: "POST /v1/documents",
			Terms:   keyring.Terms{Dedup: keyring.DedupKey, Retention: 24 * time.Hour},
			TermsIf: func(r keyring.Request) bool {
				kind := r.Header["Content-Type"]
				return len(kind) == 1 && kind[0] == "application/json"
			},
		}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, kind := range []string{"application/json", "multipart/form-data; boundary=b"} {
		fmt.Println(p.TermsFor(keyring.Request{
			Method: "POST",
			URL:    "https://api.acme.example/v1/documents",
			Header: map[string][]string{"Content-Type": {kind}},
		}).Dedup)
	}
	// Output:
	// key
	// none
}
