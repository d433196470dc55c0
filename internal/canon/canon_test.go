package canon

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
)

func TestCredentialsAreToldFromContent(t *testing.T) {
	for _, name := range []string{
		"Authorization", "proxy-authorization", "Cookie", "X-Api-Key", "api-key", "X-Auth-Token", "X-Vault-Token", "Private-Token", "X-Bearer", "Cb-Access-Passphrase", "Dd-Application-Key", "PayPal-Auth-Assertion", "X-Otp", "Authentication",
		"X-Amz-Security-Token", "Stripe-Signature", "X-Client-Secret", "Dpop", "Ocp-Apim-Subscription-Key", "X-Session-Id",
	} {
		if !Credential(name) || Compared(name) {
			t.Errorf("%s is taken for content", name)
		}
	}
	for _, name := range []string{
		"Content-Type", "Content-Encoding", "Accept", "Stripe-Account", "Stripe-Version", "Idempotency-Key", "X-Idempotency-Token",
		"PayPal-Request-Id", "X-Trace", "If-Match", "Prefer", "X-Author",
	} {
		if Credential(name) || !Compared(name) {
			t.Errorf("%s is not taken for content", name)
		}
	}
	for _, name := range []string{"Content-Length", "Connection", "Traceparent", "X-B3-TraceId", "User-Agent", "Date"} {
		if Compared(name) {
			t.Errorf("%s is compared", name)
		}
	}
}

func TestWhatIsStrippedCanBePutBack(t *testing.T) {
	r := Request{
		Method: "POST", URL: "https://u:p@api.test/a%2Fb?x=1&API_KEY=s%201&y=&token=t2#frag",
		Header: map[string][]string{
			"authorization": {"s3"}, "Traceparent": {"t"}, "Content-Length": {"7"}, "content-type": {"text/plain"}, "X-A": {"1", "2"},
		},
		Body: []byte("body"),
	}
	clean, taken, err := Strip(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := Request{Method: "POST", URL: "https://api.test/a%2Fb?x=1&y=", Header: map[string][]string{"Content-Type": {"text/plain"}, "X-A": {"1", "2"}}, Body: r.Body}
	if !reflect.DeepEqual(clean, want) {
		t.Errorf("clean: %+v", clean)
	}
	if got := taken.Names(); !reflect.DeepEqual(got, []string{"header Authorization", "query API_KEY", "query token", "userinfo"}) {
		t.Errorf("taken: %v", got)
	}
	full, err := taken.Put(clean)
	if err != nil {
		t.Fatal(err)
	}
	if full.URL != "https://u:p@api.test/a%2Fb?x=1&y=&API_KEY=s%201&token=t2" || full.Header["Authorization"][0] != "s3" || full.Header["Traceparent"][0] != "t" {
		t.Errorf("full: %+v", full)
	}
	if len(clean.Header) != 2 {
		t.Error("putting back changed the clean request")
	}
	again, nothing, err := Strip(clean, nil)
	if err != nil || !reflect.DeepEqual(again, clean) || len(nothing.Names()) > 0 {
		t.Errorf("stripping twice: %+v %v", again, err)
	}
}

func TestWhatHasNoCredentialsStaysAsItIs(t *testing.T) {
	for _, u := range []string{
		"http://a.test", "http://a.test/", "http://a.test?", "http://a.test/?b=2&a=1&a=%31&c", "http://a.test/?a=%zz", "http://a.test/%7Euser;p?x=a;b",
	} {
		clean, _, err := Strip(Request{Method: "GET", URL: u}, nil)
		if err != nil || clean.URL != u {
			t.Errorf("%s became %s (%v)", u, clean.URL, err)
		}
	}
}

func TestARequestIsComparedByItsParts(t *testing.T) {
	base := Request{Method: "POST", URL: "https://api.test/p?b=2&a=1", Header: map[string][]string{"X-A": {"1"}}, Body: []byte("x")}
	for _, c := range []struct {
		claim  string
		change func(*Request)
		want   []string
	}{
		{"scheme and host in capitals, default port", func(r *Request) { r.URL = "HTTPS://API.test:443/p?b=2&a=1" }, nil},
		{"sorted query", func(r *Request) { r.URL = "https://api.test/p?a=1&b=2" }, nil},
		{"another encoding of a parameter", func(r *Request) { r.URL = "https://api.test/p?a=%31&b=2" }, nil},
		{"another scheme", func(r *Request) { r.URL = strings.Replace(r.URL, "https", "http", 1) }, []string{"origin"}},
		{"another port", func(r *Request) { r.URL = strings.Replace(r.URL, ".test", ".test:8443", 1) }, []string{"origin"}},
		{"an encoded slash is not a slash", func(r *Request) { r.URL = "https://api.test/p%2Fq?b=2&a=1" }, []string{"path"}},
		{"a header in other letters", func(r *Request) { r.Header = map[string][]string{"x-a": {"1"}} }, nil},
		{"values that only join to the same", func(r *Request) { r.Header = map[string][]string{"X-A": {"", "1"}} }, []string{"header X-A"}},
		{"an empty parameter", func(r *Request) { r.URL += "&c=" }, []string{"query c"}},
		{"a body that is empty", func(r *Request) { r.Body = nil }, []string{"body"}},
		{"a query that does not parse", func(r *Request) { r.URL = "https://api.test/p?a=%zz" }, []string{"query", "query a", "query b"}},
		{"a name that could be data is quoted", func(r *Request) { r.URL += "&a%0Ab=1" }, []string{`query "a\nb"`}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			r := base
			c.change(&r)
			a, err := Parts(Latest, base)
			if err != nil {
				t.Fatal(err)
			}
			b, err := Parts(Latest, r)
			if err != nil {
				t.Fatal(err)
			}
			if got := Differences(a, b); !reflect.DeepEqual(got, c.want) {
				t.Errorf("differences %q, want %q", got, c.want)
			}
			if got := Differences(b, a); !reflect.DeepEqual(got, c.want) {
				t.Errorf("the other way round: %q, want %q", got, c.want)
			}
			if same := Sum(Latest, a) == Sum(Latest, b); same != (len(c.want) == 0) {
				t.Errorf("fingerprints equal: %v", same)
			}
		})
	}
}

func TestAnUnknownFormIsRefused(t *testing.T) {
	if _, err := Parts(Latest+1, Request{Method: "GET", URL: "http://a.test"}); err == nil {
		t.Error("a form of a later version is compared")
	}
}

func TestErrorsDoNotQuoteTheURL(t *testing.T) {
	r := Request{Method: "GET", URL: "http://a.test/%zz?SECRET"}
	_, err := Parts(Latest, r)
	if err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("parts: %v", err)
	}
	if _, _, err = Strip(r, nil); err == nil || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("strip: %v", err)
	}
}

func FuzzStrip(f *testing.F) {
	f.Add("https://u:p@api.test/a?x=1&token=2#f", "Authorization", "v")
	f.Add("http://a.test?&&=&token", "x-api-key", "")
	f.Fuzz(func(t *testing.T, rawURL, name, value string) {
		clean, taken, err := Strip(Request{Method: "POST", URL: rawURL, Header: map[string][]string{name: {value}}}, nil)
		if err != nil {
			return
		}
		u, err := url.Parse(clean.URL)
		if err != nil {
			t.Errorf("%q became %q, which does not parse", rawURL, clean.URL)
			return
		}
		if u.User != nil || u.Fragment != "" {
			t.Errorf("%q keeps userinfo or fragment: %q", rawURL, clean.URL)
		}
		for _, q := range strings.Split(u.RawQuery, "&") {
			if n, _, _ := strings.Cut(q, "="); Names(nil).Param(unescaped(n)) {
				t.Errorf("%q keeps a credential: %q", rawURL, clean.URL)
			}
		}
		for n := range clean.Header {
			if Credential(n) {
				t.Errorf("header %q is kept", n)
			}
		}
		parts, err := Parts(Latest, clean, taken.Parts()...)
		if err != nil {
			return
		}
		full, err := taken.Put(clean)
		if err != nil {
			return
		}
		again, taken2, err := Strip(full, nil)
		if err != nil {
			t.Fatalf("%q: %v", full.URL, err)
		}
		parts2, err := Parts(Latest, again, taken2.Parts()...)
		if err != nil || len(Differences(parts, parts2)) > 0 {
			t.Errorf("%q: with its credentials it is another request: %v %v", rawURL, Differences(parts, parts2), err)
		}
	})
}

func TestParametersThatAreCredentials(t *testing.T) {
	for _, name := range []string{"api_key", "apiKey", "API-KEY", "api_key[]", "auth[api_key]", "accessToken", "refreshToken", "clientSecret", "oauth_token", "private_token", "passphrase", "credential", "hapikey", "token"} {
		if !Names(nil).Param(name) {
			t.Errorf("%s would be stored", name)
		}
	}
	for _, name := range []string{"key", "page_token", "ClientToken", "amount", "author", "tokens", ""} {
		if Names(nil).Param(name) {
			t.Errorf("%s is taken for a credential", name)
		}
	}
	clean, taken, err := Strip(Request{Method: "GET", URL: "http://a.test/?a=1;api_key=s;b=2&c=3"}, nil)
	if err != nil || clean.URL != "http://a.test/?a=1;b=2&c=3" || len(taken.Query) != 1 {
		t.Errorf("%q %q %v", clean.URL, taken.Query, err)
	}
}

// What may be a credential and may be content is not stored, and is compared.
func TestWhatMayBeContentIsCompared(t *testing.T) {
	parts := func(r Request, declared ...string) []Part {
		t.Helper()
		clean, taken, err := Strip(r, NamesOf(declared))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(clean.URL, "tok_") || len(clean.Header) > 0 {
			t.Errorf("kept: %+v", clean)
		}
		p, err := Parts(Latest, clean, taken.Parts()...)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	a := Request{Method: "POST", URL: "http://a.test/?token=tok_a", Header: map[string][]string{"X-Card-Token": {"tok_a"}, "Authorization": {"a"}}}
	b := Request{Method: "POST", URL: "http://a.test/?token=tok_b", Header: map[string][]string{"X-Card-Token": {"tok_b"}, "Authorization": {"b"}}}
	if got := Differences(parts(a), parts(b)); !reflect.DeepEqual(got, []string{"header X-Card-Token", "query token"}) {
		t.Errorf("differences %q", got)
	}
	if got := Differences(parts(a, "token", "x_card_token"), parts(b, "TOKEN", "X-Card-Token")); len(got) > 0 {
		t.Errorf("declared as credentials, they still differ: %q", got)
	}
}

func TestSpellingsOfOneHeaderAreJoinedInOneOrder(t *testing.T) {
	r := Request{Method: "GET", URL: "http://a.test/", Header: map[string][]string{"x-a": {"1"}, "X-A": {"2"}, "X-a": {"3"}}}
	first, _, err := Strip(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if again, _, _ := Strip(r, nil); !reflect.DeepEqual(again, first) {
			t.Fatalf("%v, then %v", first.Header, again.Header)
		}
	}
}
