package providertest

import (
	"os"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

const declined = `A declined card is the operation's own no.
Source: the reference of Acme Pay, read 2026-11.

-- request --
POST https://api.example.com/v1/charges
Content-Type: application/json

{"amount":2000}
-- answer --
402
Content-Type: application/json
Request-Id: r-1

{"error":{"code":"card_declined"}}
-- want --
verdict: refused
code: card_declined
request id: r-1
terms: key, keeps refusals, retention 24h0m0s
key: Idempotency-Key
`

func acme(t *testing.T, change func(*provider.Spec)) provider.Profile {
	t.Helper()
	s := provider.Spec{
		Name:         "acme",
		ReplayHeader: "Acme-Replayed",
		Endpoints: []provider.Endpoint{{
			Pattern: "POST /v1/charges",
			Terms:   keyring.Terms{Dedup: keyring.DedupKey, KeepsRefusals: true, Retention: 24 * time.Hour},
			Rules:   []provider.Rule{{Status: 402, Kind: keyring.VerdictRefused, ByOperation: true}},
		}},
	}
	if change != nil {
		change(&s)
	}
	p, err := provider.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// edit replaces what must be there once.
func edit(t *testing.T, s, old, new string) string {
	t.Helper()
	if strings.Count(s, old) != 1 {
		t.Fatalf("%q is there %d times", old, strings.Count(s, old))
	}
	return strings.Replace(s, old, new, 1)
}

func TestRunAcceptsWhatIsRight(t *testing.T) {
	crlf := strings.ReplaceAll(declined, "\n", "\r\n")
	Run(t, acme(t, nil), fstest.MapFS{
		"declined.txt":     {Data: []byte(declined)},
		"crlf.txt":         {Data: []byte(crlf)},
		"no-last-line.txt": {Data: []byte(strings.TrimSuffix(declined, "\n"))},
		"README.md":        {Data: []byte("no exchange")},
		"below/other.txt":  {Data: []byte("no exchange")},
	})
}

func TestADirectoryWithoutExchangesIsAFailure(t *testing.T) {
	if names, err := files(fstest.MapFS{"below/a.txt": {}, "a.json": {}}); err == nil {
		t.Errorf("found %q", names)
	}
}

// TestTheExampleInThePackageComment keeps what a reader copies in working
// order.
func TestTheExampleInThePackageComment(t *testing.T) {
	src, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var example strings.Builder
	for line := range strings.Lines(string(src)) {
		text, ok := strings.CutPrefix(line, "//\t")
		switch {
		case ok:
			example.WriteString(text)
		case example.Len() > 0 && line == "//\n":
			example.WriteString("\n")
		case example.Len() > 0:
			if err := check(acme(t, nil), example.String()); err != nil {
				t.Errorf("%v\n%s", err, example.String())
			}
			return
		}
	}
	t.Error("the package comment has no example")
}

func TestEachDifferenceIsSeen(t *testing.T) {
	for _, tc := range []struct {
		claim, old, new string
		want            string // part of the report; empty: it is right
	}{
		{"another verdict", "verdict: refused", "verdict: done", `verdict: got "refused", want "done"`},
		{"a verdict that there is not", "verdict: refused", "verdict: declined", `want "declined"`},
		{"another code", "code: card_declined", "code: lost_card", `code: got "card_declined", want "lost_card"`},
		{"a code that is not wanted", "code: card_declined\n", "", `code: got "card_declined", want ""`},
		{"a request id that is not wanted", "request id: r-1\n", "", `request id: got "r-1", want ""`},
		{"a flag that is not there", "verdict: refused", "verdict: refused\nflags: front", `flags: got "", want "front"`},
		{"a flag that is not wanted", "Request-Id: r-1", "Request-Id: r-1\nAcme-Replayed: true", `flags: got "replayed", want ""`},
		{"a wait that is not wanted", "Request-Id: r-1", "Request-Id: r-1\nRetry-After: 5", `retry after: got "5s", want ""`},
		{"an effect that is not there", "verdict: refused", "verdict: refused\neffect id: c1", `effect id: got "", want "c1"`},
		{"a name that there is not", "verdict: refused", "verdict: refused\ncolour: red", `colour: got "", want "red"`},
		{"fewer promises", "terms: key, keeps refusals, retention 24h0m0s", "terms: key, retention 24h0m0s", "terms: got"},
		{"another retention", "retention 24h0m0s", "retention 1h0m0s", "terms: got"},
		{"no promises", "terms: key, keeps refusals, retention 24h0m0s", "terms: none", "terms: got"},
		{"another header for the key", "key: Idempotency-Key", "key: X-Key", `key: got "Idempotency-Key", want "X-Key"`},
		{"a key in quotes", "key: Idempotency-Key", `key: "Idempotency-Key"`, "key: got"},
		{"no key", "key: Idempotency-Key", "key: none", "key: got"},
		{"a request with a key of its own", "Content-Type: application/json\n\n{\"amount\"", "Idempotency-Key: x\n\n{\"amount\"", "cannot be placed"},
		{"a wait as long as wanted", "Request-Id: r-1\n", "Request-Id: r-1\nRetry-After: Mon, 30 Nov 2026 12:00:05 GMT\n", `retry after: got "5s"`},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			err := check(acme(t, nil), edit(t, declined, tc.old, tc.new))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
			if err != nil && !strings.Contains(err.Error(), "A declined card is") {
				t.Errorf("%v does not say what the exchange shows", err)
			}
		})
	}
}

func TestWrongProfilesAreSeen(t *testing.T) {
	seen := 0
	for _, tc := range []struct {
		claim  string
		change func(*provider.Spec)
		want   string
	}{
		{"terms that go by the key", func(s *provider.Spec) {
			s.Endpoints[0].TermsIf = func(r keyring.Request) bool { return len(r.Header) < 2 }
		}, `with the key placed, the terms are "none"`},
		{"a success rule that changes its mind", func(s *provider.Spec) {
			s.Rules = []provider.Rule{{Status: 200, Kind: keyring.VerdictDone}}
			s.Endpoints[0].Success = func(provider.Exchange) bool { seen++; return seen%2 == 0 }
		}, "and then as"},
		{"a success rule that writes", func(s *provider.Spec) {
			s.Endpoints[0].Success = func(x provider.Exchange) bool { x.Body[0] = '['; return true }
		}, "changed its body"},
		{"a key that is not sent", func(s *provider.Spec) {
			s.Endpoints[0] = provider.Endpoint{Pattern: "POST /v1/charges", NoKey: true}
		}, `key: got "none"`},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			content := edit(t, declined, "402\n", "200\n")
			content = edit(t, content, "verdict: refused\ncode: card_declined\n", "verdict: done\n")
			err := check(acme(t, tc.change), content)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestOtherAnswersAndTerms(t *testing.T) {
	p, err := provider.New(provider.Spec{Name: "other", Endpoints: []provider.Endpoint{
		{Pattern: "DELETE /posts/{id}", Terms: keyring.Terms{Dedup: keyring.DedupNatural, Margin: time.Minute, Spacing: 2 * time.Second, Settle: time.Hour}},
		{Pattern: "POST /posts", Terms: keyring.Terms{Dedup: keyring.DedupKey, MarksRunning: true, Retention: keyring.Forever}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	const head = "A claim.\nSource: ours.\n\n-- request --\n"
	for claim, tc := range map[string]struct {
		p    provider.Profile
		text string
	}{
		"no answer":               {p, "POST https://x.example/posts\n-- answer --\nnone\n-- want --\nverdict: unclear\nterms: key, marks running, retention forever\nkey: Idempotency-Key"},
		"not sent":                {p, "POST https://x.example/posts\n-- answer --\nnot sent\n-- want --\nverdict: not processed\nterms: key, marks running, retention forever\nkey: Idempotency-Key"},
		"cut":                     {p, "POST https://x.example/posts\n-- answer --\n201 cut\nContent-Type: application/json\n\n{\"id\"\n-- want --\nverdict: done\nflags: unreadable\nterms: key, marks running, retention forever\nkey: Idempotency-Key"},
		"an empty answer":         {p, "DELETE https://x.example/posts/7\n-- answer --\n204\n-- want --\nverdict: done\nterms: natural, margin 1m0s, spacing 2s, settle 1h0m0s\nkey: none"},
		"empty lines in the body": {p, "POST https://x.example/posts\n\n\n\n\n-- answer --\n200\nContent-Type: application/json\n\n\n{\"id\":\n\n\"7\"}\n\n-- want --\nverdict: done\neffect id: 7\nterms: key, marks running, retention forever\nkey: Idempotency-Key"},
		"a key in quotes":         {provider.Draft(0, "POST /posts"), "POST https://x.example/posts\n-- answer --\nnone\n-- want --\nverdict: unclear\nterms: key, keeps refusals, marks running\nkey: \"Idempotency-Key\""},
	} {
		t.Run(claim, func(t *testing.T) {
			if err := check(tc.p, head+tc.text); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestWrongFilesAreRefused(t *testing.T) {
	for _, tc := range []struct{ claim, old, new, want string }{
		{"no source", "Source: the", "From: the", `"Source:"`},
		{"an empty source", "Source: the reference of Acme Pay, read 2026-11.", "Source:", `"Source:"`},
		{"no claim", "A declined card is the operation's own no.\nSource: the reference of Acme Pay, read 2026-11.\n", "", "does not say what"},
		{"no request", "-- request --\n", "", "-- request --"},
		{"no answer", "-- answer --\n", "", "-- answer --"},
		{"nothing wanted", "-- want --\n", "", "-- want --"},
		{"a request without a method", "POST https", "https", "method and a whole URL"},
		{"a request with a path alone", "https://api.example.com/v1", "/v1", "method and a whole URL"},
		{"no status", "402\n", "Payment required\n", "must be a status"},
		{"a status that is no number", "402\n", "4o2\n", "no status"},
		{"a negative status", "402\n", "-42\n", "no status"},
		{"a header that is none", "Request-Id: r-1", "Request-Id r-1", "not a header"},
		{"a header without a name", "Request-Id: r-1", ": r-1", "not a header"},
		{"no empty line before the body", "r-1\n\n{", "r-1\n{", "not a header"},
		{"an answer that is none, with a header", "402\n", "none\n", "no header and no body"},
		{"a wish without a value", "code: card_declined", "code:", "what is not wanted is left out"},
		{"a wish without a colon", "code: card_declined", "code card_declined", "what is not wanted is left out"},
		{"a wish twice", "verdict: refused", "verdict: refused\nverdict: done", "twice"},
		{"no verdict", "verdict: refused\n", "", `"verdict" is missing`},
		{"no terms", "terms: key, keeps refusals, retention 24h0m0s\n", "", `"terms" is missing`},
		{"no key", "key: Idempotency-Key\n", "", `"key" is missing`},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			err := check(acme(t, nil), edit(t, declined, tc.old, tc.new))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}
