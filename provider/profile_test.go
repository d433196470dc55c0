package provider_test

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

func key(t *testing.T, s string) keyring.Key {
	t.Helper()
	k, err := keyring.ParseKey(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func TestDraftFollowsTheDraft(t *testing.T) {
	p := provider.Draft(24*time.Hour, "POST /v1/charges", "DELETE /v1/holds/{id}")
	if err := p.Err(); err != nil {
		t.Fatal(err)
	}
	want := keyring.Terms{Profile: "draft", Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour}
	for _, request := range []string{"POST /v1/charges", "DELETE /v1/holds/7"} {
		method, path, _ := strings.Cut(request, " ")
		if got := p.Terms(method, origin+path); got != want {
			t.Errorf("%s: got %+v", request, got)
		}
		r, err := p.Place(method, origin+path)(keyring.Request{Method: method}, key(t, "k-1"))
		if err != nil || !slices.Equal(r.Header["Idempotency-Key"], []string{`"k-1"`}) {
			t.Errorf("%s: got %q, %v, want the key in quotes", request, r.Header["Idempotency-Key"], err)
		}
	}
	if got, want := p.Terms("POST", origin+"/v1/other"), (keyring.Terms{Profile: "draft"}); got != want {
		t.Errorf("an unlisted request: got %+v", got)
	}
	if p.Name() != "draft" || len(p.Origins()) != 0 || p.MaxKey() != keyring.MaxKey {
		t.Errorf("got name %q, origins %v, longest key %d", p.Name(), p.Origins(), p.MaxKey())
	}
}

func TestDraftReadsItsOwnExamples(t *testing.T) {
	p := provider.Draft(0, "POST /charges")
	const body = `{"type":"https://developer.example.com/idempotency","title":"..."}`
	for _, tc := range []row{
		{"a missing key is refused in front", exchange("POST /charges", 400, "application/problem+json", body), refused, flags{front: true}, ""},
		{"a key used for another request is a conflict", exchange("POST /charges", 422, "application/problem+json", body), conflict, flags{}, ""},
		{"a running request is pending", exchange("POST /charges", 409, "application/problem+json", body), pending, flags{}, ""},
		{"a 409 with another type is unclear", exchange("POST /charges", 409, "application/problem+json", `{"type":"https://x/out-of-stock"}`), unclear, flags{}, ""},
		{"a 422 with another type is refused in front", exchange("POST /charges", 422, "application/problem+json", `{"type":"about:blank"}`), refused, flags{front: true}, ""},
	} {
		t.Run(tc.claim, func(t *testing.T) { tc.check(t, p) })
	}
}

func TestDraftRefusesNonsense(t *testing.T) {
	for claim, p := range map[string]provider.Profile{
		"a negative retention": provider.Draft(-1, "POST /x"),
		"no patterns":          provider.Draft(time.Hour),
		"a bad pattern":        provider.Draft(time.Hour, "/x"),
		"a repeated pattern":   provider.Draft(time.Hour, "POST /x/{a}", "POST /x/{b}"),
		"the zero profile":     {},
	} {
		t.Run(claim, func(t *testing.T) {
			if err := p.Err(); !errors.Is(err, keyring.ErrInvalid) {
				t.Errorf("got %v", err)
			}
			if got := p.Terms("POST", origin+"/x"); got != (keyring.Terms{}) {
				t.Errorf("it promises %+v", got)
			}
			if p.Place("POST", origin+"/x") != nil || p.KeyHeader("POST", origin+"/x") != "" || p.Name() != "" {
				t.Error("it sends a key, or has a name")
			}
			if v := p.Read(exchange("POST /x", 200, jsonT, `{"id":"c1"}`)); v.Kind != done || v.EffectID != "c1" {
				t.Errorf("a 200 reads as %v", v.Kind)
			}
			if v := p.Read(exchange("POST /x", 429, jsonT, `{}`)); v.Kind != unclear {
				t.Errorf("a 429 reads as %v", v.Kind)
			}
		})
	}
	for _, retention := range []time.Duration{0, time.Nanosecond, keyring.Forever} {
		if err := provider.Draft(retention, "POST /x").Err(); err != nil {
			t.Errorf("retention %d: %v", retention, err)
		}
	}
}

func TestPatterns(t *testing.T) {
	for _, tc := range []struct {
		claim, pattern, method, url string
		fits                        bool
	}{
		{"the same path", "POST /v1/charges", "POST", "/v1/charges", true},
		{"a query does not matter", "POST /v1/charges", "POST", "/v1/charges?x=1#f", true},
		{"another method", "POST /v1/charges", "PUT", "/v1/charges", false},
		{"methods are compared exactly", "POST /v1/charges", "post", "/v1/charges", false},
		{"paths are compared exactly", "POST /v1/charges", "POST", "/v1/Charges", false},
		{"a slash at the end counts", "POST /v1/charges", "POST", "/v1/charges/", false},
		{"a slash at the end of the pattern counts", "POST /v1/charges/", "POST", "/v1/charges", false},
		{"both with a slash", "POST /v1/charges/", "POST", "/v1/charges/", true},
		{"a longer path", "POST /v1/charges", "POST", "/v1/charges/7", false},
		{"a shorter path", "POST /v1/charges", "POST", "/v1", false},
		{"a doubled slash", "POST /v1/charges", "POST", "/v1//charges", false},
		{"a wildcard takes a segment", "DELETE /posts/{id}", "DELETE", "/posts/7", true},
		{"a wildcard takes an escaped slash", "PUT /{name}", "PUT", "/@scope%2fname", true},
		{"a wildcard takes no slash", "PUT /{name}", "PUT", "/@scope/name", false},
		{"a wildcard takes nothing less", "DELETE /posts/{id}", "DELETE", "/posts/", false},
		{"a wildcard takes no dots", "DELETE /posts/{id}", "DELETE", "/posts/..", false},
		{"a wildcard takes no escaped dots", "DELETE /posts/{id}", "DELETE", "/posts/%2E%2e", false},
		{"a wildcard in the middle", "POST /a/{id}/b", "POST", "/a/1/b", true},
		{"the rest takes all", "POST /{rest...}", "POST", "/a/b/c", true},
		{"the rest takes nothing", "POST /{rest...}", "POST", "/", true},
		{"the rest takes an empty path", "POST /{rest...}", "POST", "", true},
		{"the rest takes no dots", "POST /{rest...}", "POST", "/a/../b", false},
		{"the rest below a path", "POST /v1/{rest...}", "POST", "/v1/a/", true},
		{"the rest needs its slash", "POST /v1/{rest...}", "POST", "/v1", false},
		{"the root", "POST /", "POST", "/", true},
		{"the root alone", "POST /", "POST", "/x", false},
		{"an escaped literal is another", "POST /v1/charges", "POST", "/v1/char%67es", false},
		{"an escaped literal in the pattern", "POST /a%20b", "POST", "/a%20b", true},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			p := provider.Draft(time.Hour, tc.pattern)
			if err := p.Err(); err != nil {
				t.Fatal(err)
			}
			if got := p.Terms(tc.method, origin+tc.url).Dedup == keyring.DedupKey; got != tc.fits {
				t.Errorf("%q fits %s %s: %v, want %v", tc.pattern, tc.method, tc.url, got, tc.fits)
			}
		})
	}
	if got := provider.Draft(time.Hour, "POST /x").Terms("POST", "::not a url"); got.Dedup != keyring.DedupNone {
		t.Errorf("what is no URL is promised %+v", got)
	}
}

func TestBadPatternsAreRefused(t *testing.T) {
	for _, pattern := range []string{
		"", "POST", "/x", "POST x", " /x", "POST  /x", "PO ST /x", "POST /x?y", "POST /x#y", "POST /ä", "POST /a b",
		"POST /{}", "POST /{...}", "POST /{a", "POST /a}", "POST /a{b}", "POST /{a}b", "POST /{a-b}", "POST /{a}/{a}",
		"POST /{a...}/b", "POST /a//b", "POST /../b", "POST /./b", "POST /%2e%2e", "POST /%zz", "POST https://x/y",
	} {
		if err := provider.Draft(time.Hour, pattern).Err(); !errors.Is(err, keyring.ErrInvalid) {
			t.Errorf("%q: got %v", pattern, err)
		}
	}
}

func TestTheFirstPatternWinsAndHidesNoOther(t *testing.T) {
	for _, tc := range []struct {
		claim    string
		patterns []string
		bad      bool
	}{
		{"the special before the general", []string{"POST /a/b", "POST /a/{x}", "POST /a/{rest...}", "POST /{rest...}"}, false},
		{"the same twice", []string{"POST /a", "POST /a"}, true},
		{"the same but for a name", []string{"POST /{a}", "POST /{b}"}, true},
		{"a wildcard before a literal", []string{"POST /{a}", "POST /b"}, true},
		{"a wildcard before the slash at the end", []string{"POST /a/{b}", "POST /a/"}, false},
		{"the rest before all", []string{"POST /{rest...}", "POST /a/b"}, true},
		{"the rest before a deeper rest", []string{"POST /{rest...}", "POST /a/{rest...}"}, true},
		{"a wildcard before a rest", []string{"POST /{a}", "POST /{rest...}"}, false},
		{"a literal before another", []string{"POST /a/b", "POST /a/c"}, false},
		{"a rest before the slash at the end", []string{"POST /a/{rest...}", "POST /a/"}, true},
		{"a wildcard and a rest before a rest", []string{"POST /{a}/{rest...}", "POST /{rest...}"}, false},
		{"another method", []string{"POST /{a}", "PUT /b"}, false},
		{"another length", []string{"POST /{a}", "POST /{a}/{b}"}, false},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			if err := provider.Draft(0, tc.patterns...).Err(); (err != nil) != tc.bad {
				t.Errorf("got %v, want an error: %v", err, tc.bad)
			}
		})
	}
	p, err := provider.New(provider.Spec{Name: "order", Endpoints: []provider.Endpoint{
		{Pattern: "POST /a/b", Terms: keyring.Terms{Retention: 1}},
		{Pattern: "POST /a/{x}", Terms: keyring.Terms{Retention: 2}},
		{Pattern: "POST /{rest...}", Terms: keyring.Terms{Retention: 3}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]time.Duration{"/a/b": 1, "/a/c": 2, "/a/": 3, "/c": 3} {
		if got := p.Terms("POST", origin+path).Retention; got != want {
			t.Errorf("%s: endpoint %d, want %d", path, got, want)
		}
	}
}

func TestPlaceSendsTheKeyWhereItBelongs(t *testing.T) {
	natural := keyring.Terms{Dedup: keyring.DedupNatural}
	p, err := provider.New(provider.Spec{
		Name:      "placed",
		KeyHeader: "x-idem-key",
		Endpoints: []provider.Endpoint{
			{Pattern: "POST /pay", Terms: keyring.Terms{Dedup: keyring.DedupKey}, KeyHeader: "PAY-KEY"},
			{Pattern: "POST /bare", NoKey: true},
			{Pattern: "PUT /named/{id}", Terms: natural},
			{Pattern: "PUT /keyed/{id}", Terms: natural, KeyHeader: "Other-Key"},
			{Pattern: "DELETE /holds/{id}", Terms: keyring.Terms{Dedup: keyring.DedupKey}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	for request, want := range map[string]string{
		"POST /pay":       "Pay-Key",
		"POST /bare":      "",
		"PUT /named/1":    "",
		"PUT /keyed/1":    "Other-Key",
		"DELETE /holds/1": "X-Idem-Key",
		"POST /unlisted":  "X-Idem-Key",
		"PATCH /unlisted": "X-Idem-Key",
		"PUT /unlisted":   "",
		"DELETE /x":       "",
		"GET /x":          "",
		"post /x":         "",
	} {
		method, path, _ := strings.Cut(request, " ")
		if got := p.KeyHeader(method, origin+path); got != want {
			t.Errorf("%s: the key goes into %q, want %q", request, got, want)
		}
		place := p.Place(method, origin+path)
		if (place == nil) != (want == "") {
			t.Errorf("%s: there is a place: %v", request, place != nil)
			continue
		}
		if place == nil {
			continue
		}
		r, err := place(keyring.Request{}, key(t, "k-1"))
		if err != nil || !maps.EqualFunc(r.Header, map[string][]string{want: {"k-1"}}, slices.Equal) {
			t.Errorf("%s: got %v, %v", request, r.Header, err)
		}
	}
}

func TestPlaceLeavesTheRequestAlone(t *testing.T) {
	in := keyring.Request{Method: "POST", URL: origin + "/charges", Header: head("Content-Type", jsonT), Body: []byte("x")}
	out, err := shop(t).Place("POST", in.URL)(in, key(t, "k-1"))
	if err != nil {
		t.Fatal(err)
	}
	if len(in.Header) != 1 {
		t.Errorf("the given header is now %v", in.Header)
	}
	if out.Method != in.Method || out.URL != in.URL || string(out.Body) != "x" || out.Header["Content-Type"][0] != jsonT {
		t.Errorf("something else changed: %+v", out)
	}
}

func TestPlaceRefusesAnotherKey(t *testing.T) {
	p, err := provider.New(provider.Spec{Name: "short", KeyMax: 36})
	if err != nil {
		t.Fatal(err)
	}
	if p.MaxKey() != 36 {
		t.Errorf("the longest key has %d characters", p.MaxKey())
	}
	for _, tc := range []struct {
		claim  string
		header map[string][]string
		key    keyring.Key
		ok     bool
	}{
		{"no key at all", nil, keyring.Key{}, false},
		{"the longest key", nil, key(t, strings.Repeat("k", 36)), true},
		{"a longer key", nil, key(t, strings.Repeat("k", 37)), false},
		{"the same key", head("Idempotency-Key", "k-1"), key(t, "k-1"), true},
		{"the same key in quotes", head("Idempotency-Key", `"k-1"`), key(t, "k-1"), true},
		{"the same key under another spelling", head("idempotency-key", "k-1"), key(t, "k-1"), true},
		{"another key", head("Idempotency-Key", "k-2"), key(t, "k-1"), false},
		{"another key under another spelling", head("idempotency-KEY", "k-2"), key(t, "k-1"), false},
		{"the same and another", head("Idempotency-Key", "k-1", "Idempotency-Key", "k-2"), key(t, "k-1"), false},
		{"an empty key", head("Idempotency-Key", ""), key(t, "k-1"), false},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			r, err := p.Place("POST", origin+"/x")(keyring.Request{Header: tc.header}, tc.key)
			if (err == nil) != tc.ok || err != nil && !errors.Is(err, keyring.ErrInvalid) {
				t.Fatalf("got %v, want success: %v", err, tc.ok)
			}
			if tc.ok && !maps.EqualFunc(r.Header, map[string][]string{"Idempotency-Key": {tc.key.String()}}, slices.Equal) {
				t.Errorf("got %v", r.Header)
			}
			if err != nil && strings.Contains(err.Error(), "k-2") {
				t.Errorf("%v quotes the header", err)
			}
		})
	}
}

func TestNewRefusesContradictions(t *testing.T) {
	ep := func(e provider.Endpoint) provider.Spec {
		if e.Pattern == "" {
			e.Pattern = "POST /x"
		}
		return provider.Spec{Name: "n", Endpoints: []provider.Endpoint{e}}
	}
	terms := func(t keyring.Terms) provider.Spec { return ep(provider.Endpoint{Terms: t}) }
	rule := func(r provider.Rule) provider.Spec {
		return provider.Spec{Name: "n", Rules: []provider.Rule{r}}
	}
	for claim, s := range map[string]provider.Spec{
		"no name":                              {},
		"a name with a space":                  {Name: "a b"},
		"a name that is too long":              {Name: strings.Repeat("n", 65)},
		"an origin without a scheme":           {Name: "n", Origins: []string{"api.example.com"}},
		"an origin of another scheme":          {Name: "n", Origins: []string{"ftp://api.example.com"}},
		"an origin with a path":                {Name: "n", Origins: []string{"https://api.example.com/v1"}},
		"an origin with a query":               {Name: "n", Origins: []string{"https://api.example.com?x"}},
		"an origin with a user":                {Name: "n", Origins: []string{"https://u:p@api.example.com"}},
		"a key header that is none":            {Name: "n", KeyHeader: "a b"},
		"a key header that is taken":           {Name: "n", KeyHeader: "authorization"},
		"a negative KeyMax":                    {Name: "n", KeyMax: -1},
		"a KeyMax that no made key fits":       {Name: "n", KeyMax: 35},
		"a KeyMax beyond all keys":             {Name: "n", KeyMax: keyring.MaxKey + 1},
		"a replay header that is none":         {Name: "n", ReplayHeader: "a:"},
		"an advice header that is none":        {Name: "n", AdviceHeader: "a:"},
		"a request id header that is none":     {Name: "n", RequestIDHeaders: []string{""}},
		"a media type without a slash":         {Name: "n", MediaTypes: []string{"json"}},
		"a media type with a wildcard":         {Name: "n", MediaTypes: []string{"text/*"}},
		"a media type with parameters":         {Name: "n", MediaTypes: []string{"text/plain; charset=utf-8"}},
		"a pointer without a slash":            {Name: "n", CodeAt: []string{"code"}},
		"a pointer with a bad escape":          {Name: "n", EffectIDAt: []string{"/a~2"}},
		"a pointer that is too deep":           {Name: "n", EffectIDAt: []string{strings.Repeat("/a", 17)}},
		"a bad pattern":                        ep(provider.Endpoint{Pattern: "x"}),
		"terms of another profile":             terms(keyring.Terms{Profile: "m"}),
		"a negative retention":                 terms(keyring.Terms{Retention: -1}),
		"a negative margin":                    terms(keyring.Terms{Margin: -1}),
		"a negative spacing":                   terms(keyring.Terms{Spacing: -1}),
		"a negative settle time":               terms(keyring.Terms{Settle: -1}),
		"an unknown Dedup":                     terms(keyring.Terms{Dedup: 9}),
		"kept refusals without keys":           terms(keyring.Terms{KeepsRefusals: true}),
		"running keys with a natural one":      terms(keyring.Terms{Dedup: keyring.DedupNatural, MarksRunning: true}),
		"keys that are not sent":               ep(provider.Endpoint{Terms: keyring.Terms{Dedup: keyring.DedupKey}, NoKey: true}),
		"a condition for no promise":           ep(provider.Endpoint{TermsIf: func(keyring.Request) bool { return true }}),
		"a header for a key that is not sent":  ep(provider.Endpoint{NoKey: true, KeyHeader: "K"}),
		"a bad header of an endpoint":          ep(provider.Endpoint{KeyHeader: "Host"}),
		"a bad media type of an endpoint":      ep(provider.Endpoint{MediaTypes: []string{"x"}}),
		"a bad success pointer":                ep(provider.Endpoint{SuccessAt: "x"}),
		"a bad rule of an endpoint":            ep(provider.Endpoint{Rules: []provider.Rule{{}}}),
		"a rule about nothing":                 rule(provider.Rule{}),
		"a rule about no status there is":      rule(provider.Rule{Status: 600}),
		"a rule with an unknown kind":          rule(provider.Rule{Status: 400, Kind: 99}),
		"a failure that is done without code":  rule(provider.Rule{Status: 409, Kind: keyring.VerdictDone}),
		"any failure that is done":             rule(provider.Rule{Code: "x", Kind: keyring.VerdictDone}),
		"a 500 that is not processed":          rule(provider.Rule{Status: 500, Kind: keyring.VerdictNotProcessed}),
		"a 503 that is refused":                rule(provider.Rule{Status: 503, Kind: keyring.VerdictRefused}),
		"a 200 that is refused":                rule(provider.Rule{Status: 200, Kind: keyring.VerdictRefused}),
		"a 303 that is already":                rule(provider.Rule{Status: 303, Kind: keyring.VerdictAlready}),
		"vouching for a refusal":               rule(provider.Rule{Status: 400, Kind: keyring.VerdictRefused, Vouched: true}),
		"an operation that did not refuse":     rule(provider.Rule{Status: 400, Kind: keyring.VerdictAlready, ByOperation: true}),
		"a code that never fits":               rule(provider.Rule{Status: 400, Code: "a#b", Kind: keyring.VerdictConflict}),
		"a bad pointer of a rule":              rule(provider.Rule{Status: 400, EffectIDAt: []string{"x"}}),
		"an endpoint that is never reached by": {Name: "n", Endpoints: []provider.Endpoint{{Pattern: "POST /{a}"}, {Pattern: "POST /b"}}},
	} {
		t.Run(claim, func(t *testing.T) {
			p, err := provider.New(s)
			if !errors.Is(err, keyring.ErrInvalid) {
				t.Errorf("got %v", err)
			}
			if p.Err() == nil {
				t.Error("the profile that came with it claims to be usable")
			}
			if err != nil && strings.Contains(err.Error(), "u:p") {
				t.Errorf("%v quotes the password", err)
			}
		})
	}
}

func TestAProfileCannotBeChanged(t *testing.T) {
	s := provider.Spec{
		Name:             "fixed",
		Origins:          []string{"HTTPS://API.example.com:443/", "http://localhost:8080"},
		CodeAt:           []string{"/code"},
		EffectIDAt:       []string{"/id"},
		RequestIDHeaders: []string{"X-Id"},
		MediaTypes:       []string{jsonT},
		Rules:            []provider.Rule{{Status: 409, Code: "busy", Kind: keyring.VerdictPending}},
		Endpoints: []provider.Endpoint{{
			Pattern: "POST /x", Terms: keyring.Terms{Dedup: keyring.DedupKey}, MediaTypes: []string{jsonT},
			Rules: []provider.Rule{{Status: 409, Code: "taken", Kind: keyring.VerdictConflict}},
		}},
	}
	p, err := provider.New(s)
	if err != nil {
		t.Fatal(err)
	}
	look := func() []keyring.Verdict {
		return []keyring.Verdict{
			p.Read(exchange("POST /x", 409, jsonT, `{"code":"busy"}`, "X-Id", "7")),
			p.Read(exchange("POST /x", 409, jsonT, `{"code":"taken"}`)),
			p.Read(exchange("POST /x", 200, jsonT, `{"id":"c1"}`)),
		}
	}
	before, terms := look(), p.Terms("POST", origin+"/x")
	if before[0].Kind != pending || before[0].RequestID != "7" || before[1].Kind != conflict || before[2].EffectID != "c1" {
		t.Fatalf("got %+v", before)
	}

	s.Origins[0], s.CodeAt[0], s.EffectIDAt[0], s.RequestIDHeaders[0], s.MediaTypes[0] = "x", "/x", "/x", "X", "x/x"
	s.Rules[0] = provider.Rule{}
	s.Endpoints[0].MediaTypes[0] = "x/x"
	s.Endpoints[0].Rules[0] = provider.Rule{}
	s.Endpoints[0] = provider.Endpoint{}
	if got := p.Origins(); len(got) == 2 {
		got[0] = "x"
	}
	if after := look(); !slices.Equal(after, before) || p.Terms("POST", origin+"/x") != terms {
		t.Errorf("it reads now as %+v, before as %+v", after, before)
	}
	if got := p.Origins(); !slices.Equal(got, []string{"https://api.example.com", "http://localhost:8080"}) {
		t.Errorf("its origins are %v", got)
	}
}

func TestTermsMayDependOnWhatIsInTheRequest(t *testing.T) {
	terms := keyring.Terms{Dedup: keyring.DedupKey, KeepsRefusals: true, Retention: time.Hour}
	p, err := provider.New(provider.Spec{Name: "picky", Endpoints: []provider.Endpoint{
		{Pattern: "POST /x", Terms: terms, TermsIf: func(r keyring.Request) bool { return string(r.Body) == "now" }},
		{Pattern: "POST /y", Terms: terms},
	}})
	if err != nil {
		t.Fatal(err)
	}
	terms.Profile = "picky"
	nothing := keyring.Terms{Profile: "picky"}
	send := func(path, body string) keyring.Request {
		return keyring.Request{Method: "POST", URL: origin + path, Body: []byte(body)}
	}
	for _, tc := range []struct {
		claim string
		got   keyring.Terms
		want  keyring.Terms
	}{
		{"a request that meets the condition", p.TermsFor(send("/x", "now")), terms},
		{"one that does not", p.TermsFor(send("/x", "later")), nothing},
		{"one that is not at hand", p.Terms("POST", origin+"/x"), nothing},
		{"an endpoint without a condition", p.TermsFor(send("/y", "later")), terms},
		{"an endpoint without a condition, the request not at hand", p.Terms("POST", origin+"/y"), terms},
		{"an endpoint that is not listed", p.TermsFor(send("/z", "now")), nothing},
		{"an empty profile", provider.Profile{}.TermsFor(send("/x", "now")), keyring.Terms{}},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: got %+v, want %+v", tc.claim, tc.got, tc.want)
		}
	}
	if got := p.KeyHeader("POST", origin+"/x"); got != "Idempotency-Key" {
		t.Errorf("the key goes into %q, whatever is promised", got)
	}

	x := exchange("POST /x", 429, jsonT, `{}`)
	for _, tc := range []struct {
		claim string
		sent  keyring.Request
		want  keyring.VerdictKind
	}{
		{"the request meets the condition", send("/x", "now"), notProcessed},
		{"the request does not", send("/x", "later"), unclear},
		{"the request is not at hand", keyring.Request{}, unclear},
		{"the request is another's", send("/y", "now"), unclear},
	} {
		if x.Sent = tc.sent; p.Read(x).Kind != tc.want {
			t.Errorf("a 429 where %s reads as %v, want %v", tc.claim, p.Read(x).Kind, tc.want)
		}
	}
}
