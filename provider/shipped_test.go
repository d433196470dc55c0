package provider_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
	"github.com/samekey/samekey/provider/providertest"
)

const toot = "https://mastodon.example/api/v1/statuses"

func TestStripeAnswersAsDocumented(t *testing.T) {
	providertest.Run(t, provider.Stripe(), os.DirFS("testdata/stripe"))
}

func TestMastodonAnswersAsDocumented(t *testing.T) {
	providertest.Run(t, provider.Mastodon("https://mastodon.example"), os.DirFS("testdata/mastodon"))
}

func TestEachProfileIsFoundByItsName(t *testing.T) {
	var names []string
	for _, p := range provider.All() {
		if err := p.Err(); err != nil {
			t.Errorf("%q: %v", p.Name(), err)
		}
		names = append(names, p.Name())
		found, ok := provider.Lookup(p.Name())
		if !ok || found.Err() != nil || found.Name() != p.Name() {
			t.Errorf("%q: found %v, as %q, %v", p.Name(), ok, found.Name(), found.Err())
		}
	}
	// Stored intents have these names in them.
	if want := []string{"mastodon", "stripe"}; !slices.Equal(names, want) {
		t.Errorf("the profiles are %q, want %q, in this order", names, want)
	}
	for _, name := range []string{"", "Stripe", "stripe ", "draft", "acme"} {
		if p, ok := provider.Lookup(name); ok || p.Err() == nil {
			t.Errorf("%q: found %v, usable: %v", name, ok, p.Err() == nil)
		}
	}
	provider.All()[0] = provider.Profile{}
	if provider.All()[0].Name() != "mastodon" {
		t.Error("what a caller does to the slice stays")
	}
}

func TestStripeTakesTheKeyOnPostsAlone(t *testing.T) {
	p := provider.Stripe()
	const api = "https://api.stripe.com"
	promised := keyring.Terms{Profile: "stripe", Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour}
	for request, want := range map[string]struct {
		terms keyring.Terms
		key   string
	}{
		"POST /v1/charges":                      {promised, "Idempotency-Key"},
		"POST /v1/payment_intents/pi_1/capture": {promised, "Idempotency-Key"},
		"POST /v1/customers?expand[]=x":         {promised, "Idempotency-Key"},
		"POST /v2/core/accounts":                {keyring.Terms{Profile: "stripe"}, "Idempotency-Key"},
		"DELETE /v2/core/accounts/a":            {keyring.Terms{Profile: "stripe"}, ""},
		"DELETE /v1/customers/cus_1":            {keyring.Terms{Profile: "stripe"}, ""},
		"GET /v1/charges/ch_1":                  {keyring.Terms{Profile: "stripe"}, ""},
		"POST /v1/../v2/x":                      {keyring.Terms{Profile: "stripe"}, "Idempotency-Key"},
		"POST /oauth/token":                     {keyring.Terms{Profile: "stripe"}, "Idempotency-Key"},
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := p.Terms(method, api+path); got != want.terms {
			t.Errorf("%s: promised %+v", request, got)
		}
		if got := p.TermsFor(keyring.Request{Method: method, URL: api + path}); got != want.terms {
			t.Errorf("%s: promised %+v for the request", request, got)
		}
		if got := p.KeyHeader(method, api+path); got != want.key {
			t.Errorf("%s: the key goes into %q, want %q", request, got, want.key)
		}
	}
	if got := p.Origins(); !slices.Equal(got, []string{api}) {
		t.Errorf("its origins are %q", got)
	}
}

// 255: docs.stripe.com/api/idempotent_requests, read 2026-11.
func TestStripeTakesNoLongerKey(t *testing.T) {
	put := provider.Stripe().Place("POST", "https://api.stripe.com/v1/charges")
	for n, ok := range map[int]bool{36: true, 255: true, 256: false} {
		_, err := put(keyring.Request{}, key(t, strings.Repeat("k", n)))
		if (err == nil) != ok || err != nil && !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("%d characters: %v", n, err)
		}
	}
}

// The headers that choose the account, or the shape of what is asked for, are
// part of the request. Were they taken for credentials or traces, one account's
// request would pass for another's.
func TestStripesAccountIsPartOfWhatIsAskedFor(t *testing.T) {
	for _, name := range []string{"Stripe-Account", "Stripe-Context", "Stripe-Version"} {
		if !canon.Compared(name) || canon.Credential(name) || canon.Trace(name) {
			t.Errorf("%s is not compared, or not stored", name)
		}
	}
}

// Without the whole answer its code might say otherwise.
func TestStripeSettlesNothingByHalfAnAnswer(t *testing.T) {
	p := provider.Stripe()
	for _, status := range []int{400, 402, 404, 409, 429, 500} {
		x := cut(exchange("POST /v1/charges", status, jsonT, `{"error":{"type":"idempotency_error"`))
		if v := p.Read(x); v.Kind != unclear {
			t.Errorf("%d reads as %v", status, v.Kind)
		}
	}
}

func TestMastodonNeedsAnOrigin(t *testing.T) {
	for _, origin := range []string{"", "mastodon.example", "https://", "ftp://mastodon.example", "https://mastodon.example/@alice", "https://mastodon.example?x=1", "https://u:p@mastodon.example"} {
		p := provider.Mastodon(origin)
		if err := p.Err(); !errors.Is(err, keyring.ErrInvalid) || strings.Contains(err.Error(), "u:p") {
			t.Errorf("%q: %v", origin, err)
		}
		if p.KeyHeader("POST", toot) != "" || p.TermsFor(post(jsonT, `{}`)) != (keyring.Terms{}) {
			t.Errorf("%q: the profile sends a key, or promises something", origin)
		}
	}
	for _, origin := range []string{"https://mastodon.example", "HTTPS://Mastodon.Example:443/"} {
		p := provider.Mastodon(origin)
		if got := p.Origins(); p.Err() != nil || !slices.Equal(got, []string{"https://mastodon.example"}) {
			t.Errorf("%q: origins %q, %v", origin, got, p.Err())
		}
	}
	if p, ok := provider.Lookup("mastodon"); !ok || p.Err() != nil || len(p.Origins()) != 0 {
		t.Errorf("without an origin: %v, %v, origins %q", ok, p.Err(), p.Origins())
	}
}

// post is a request to post a status.
func post(mediaType, body string) keyring.Request {
	r := keyring.Request{Method: "POST", URL: toot, Body: []byte(body), Header: map[string][]string{}}
	if mediaType != "" {
		r.Header["Content-Type"] = []string{mediaType}
	}
	return r
}

func TestMastodonPromisesNothingElsewhere(t *testing.T) {
	p := provider.Mastodon("https://mastodon.example")
	for _, request := range []string{
		"POST /api/v1/statuses/113/reblog", "POST /api/v1/media", "POST /api/v2/statuses", "POST /api/v1/statuses/", "PUT /api/v1/statuses/113",
	} {
		method, path, _ := strings.Cut(request, " ")
		r := post(jsonT, `{"status":"x"}`)
		r.Method, r.URL = method, "https://mastodon.example"+path
		if got := p.TermsFor(r); got != (keyring.Terms{Profile: "mastodon"}) {
			t.Errorf("%s: promised %+v", request, got)
		}
	}
}

func TestC45MastodonPromisesNothingForScheduledStatuses(t *testing.T) {
	const (
		form  = "application/x-www-form-urlencoded"
		parts = "multipart/form-data; boundary=b"
	)
	at := func(query string, r keyring.Request) keyring.Request {
		r.URL += query
		return r
	}
	with := func(r keyring.Request, name string, values ...string) keyring.Request {
		r.Header[name] = values
		return r
	}
	for _, tc := range []struct {
		claim    string
		r        keyring.Request
		promised bool
	}{
		{"JSON without a date", post(jsonT, `{"status":"x"}`), true},
		{"JSON with parameters of its type", post("application/json; charset=utf-8", `{"status":"x"}`), true},
		{"JSON with a date", post(jsonT, `{"status":"x","scheduled_at":"2026-12-24"}`), false},
		{"JSON with null is without a date", post(jsonT, `{"scheduled_at":null}`), true},
		{"JSON with nothing in it is without a date", post(jsonT, `{"scheduled_at":""}`), true},
		{"a number may be a date", post(jsonT, `{"scheduled_at":1}`), false},
		{"an object may be a date", post(jsonT, `{"scheduled_at":{}}`), false},
		{"an escaped name is the name", post(jsonT, `{"scheduled\u005fat":"2026-12-24"}`), false},
		{"two of them, whichever counts", post(jsonT, `{"scheduled_at":"2026-12-24","scheduled_at":""}`), false},
		{"the word in the text is no date", post(jsonT, `{"status":"scheduled_at"}`), true},
		{"the name elsewhere is no date", post(jsonT, `{"poll":{"scheduled_at":"x"}}`), true},
		{"what is no JSON may have one", post(jsonT, `{"status":"x"`), false},
		{"no body where JSON is said", post(jsonT, ``), false},
		{"another JSON type may be read otherwise", post("application/ld+json", `{}`), false},
		{"a form without a date", post(form, `status=x`), true},
		{"a form with one", post(form, `status=x&scheduled_at=2026`), false},
		{"a form with an empty one", post(form, `status=x&scheduled_at=`), true},
		{"a form with an empty one and another", post(form, `scheduled_at=&scheduled_at=2026`), false},
		{"a form with an escaped name", post(form, `scheduled%5Fat=2026`), false},
		{"a form with brackets at the name", post(form, `scheduled_at[]=2026`), false},
		{"a form with brackets around the name", post(form, `%5Bscheduled_at%5D=2026`), false},
		{"a form that cannot be read", post(form, `status=%zz`), false},
		{"a form with semicolons may be cut there", post(form, `status=x;scheduled_at=2026`), false},
		{"parts without a date", post(parts, "--b\r\nContent-Disposition: form-data; name=\"status\"\r\n\r\nx\r\n--b--\r\n"), true},
		{"parts with one", post(parts, "--b\r\nContent-Disposition: form-data; name=\"scheduled_at\"\r\n\r\n2026\r\n--b--\r\n"), false},
		{"nothing but a query without a date", at("?status=x", post("", "")), true},
		{"a query with one", at("?status=x&scheduled_at=2026", post("", "")), false},
		{"a query with one beside a body without", at("?scheduled_at=2026", post(jsonT, `{"status":"x"}`)), false},
		{"a query that cannot be read", at("?status=%zz", post(jsonT, `{"status":"x"}`)), false},
		{"a body of no type", post("", `{"status":"x"}`), false},
		{"a body of two types", with(post("", `{"status":"x"}`), "Content-Type", jsonT, form), false},
		{"plain text", post("text/plain", `{"status":"x"}`), false},
		{"a compressed body", with(post(parts, "x"), "Content-Encoding", "gzip"), false},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			p := provider.Mastodon("https://mastodon.example")
			want := keyring.Terms{Profile: "mastodon"}
			if tc.promised {
				want.Dedup, want.Retention = keyring.DedupKey, time.Hour
			}
			if got := p.TermsFor(tc.r); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
			x := provider.Exchange{Method: "POST", URL: tc.r.URL, Sent: tc.r, Status: 429, Header: head("Content-Type", jsonT), Body: []byte(`{}`)}
			if v := p.Read(x); (v.Kind == notProcessed) != tc.promised {
				t.Errorf("a 429 reads as %v", v.Kind)
			}
		})
	}
}
