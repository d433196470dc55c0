package provider_test

import (
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

const (
	origin = "https://api.example.com"
	jsonT  = "application/json"
	html   = "text/html; charset=utf-8"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// shop has an endpoint of each kind, a replay mark and an advice header.
func shop(t testing.TB) provider.Profile {
	t.Helper()
	key := keyring.Terms{Dedup: keyring.DedupKey, KeepsRefusals: true, Retention: 24 * time.Hour}
	p, err := provider.New(provider.Spec{
		Name:         "shop",
		Origins:      []string{origin},
		ReplayHeader: "Idempotent-Replayed",
		AdviceHeader: "Shop-Should-Retry",
		Endpoints: []provider.Endpoint{
			{Pattern: "POST /charges", Terms: key},
			{Pattern: "POST /jobs", Terms: key, Accepted: true},
			{Pattern: "POST /graph", Terms: key, SuccessAt: "/data/refund/id"},
			{Pattern: "POST /judged", Terms: key, Success: func(x provider.Exchange) bool { return strings.Contains(string(x.Body), "fine") }},
			{Pattern: "POST /report", Terms: key, MediaTypes: []string{"application/pdf"}},
			{Pattern: "DELETE /posts/{id}", Terms: keyring.Terms{Dedup: keyring.DedupNatural}},
			{Pattern: "POST /vouched", Rules: []provider.Rule{{Status: 429, Kind: keyring.VerdictNotProcessed, Vouched: true}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// head makes a header of names and values in turn.
func head(pairs ...string) map[string][]string {
	h := map[string][]string{}
	for i := 0; i < len(pairs); i += 2 {
		h[pairs[i]] = append(h[pairs[i]], pairs[i+1])
	}
	return h
}

func exchange(request string, status int, mediaType, body string, pairs ...string) provider.Exchange {
	method, path, _ := strings.Cut(request, " ")
	x := provider.Exchange{Method: method, URL: origin + path, Status: status, Header: head(pairs...), Body: []byte(body), Attempt: 1, Now: now}
	if mediaType != "" {
		x.Header["Content-Type"] = append([]string{mediaType}, x.Header["Content-Type"]...)
	}
	return x
}

func cut(x provider.Exchange) provider.Exchange {
	x.Cut = true
	return x
}

// flags are the parts of a verdict beside its kind, in one comparable value.
type flags struct{ noResend, front, signIn, replayed, unreadable bool }

func flagsOf(v keyring.Verdict) flags {
	return flags{v.NoResend, v.Front, v.SignIn, v.Replayed, v.Unreadable}
}

type row struct {
	claim string
	x     provider.Exchange
	kind  keyring.VerdictKind
	flags flags
	why   string // a part of it
}

func (r row) check(t *testing.T, p provider.Profile) {
	t.Helper()
	v := p.Read(r.x)
	if v.Kind != r.kind || flagsOf(v) != r.flags {
		t.Errorf("got %v %+v (%s), want %v %+v", v.Kind, flagsOf(v), v.Why, r.kind, r.flags)
	}
	if v.Why == "" || !strings.Contains(v.Why, r.why) {
		t.Errorf("the reason %q does not say %q", v.Why, r.why)
	}
	if v.Status != r.x.Status {
		t.Errorf("got status %d, want %d", v.Status, r.x.Status)
	}
}

const (
	unclear      = keyring.VerdictUnclear
	notProcessed = keyring.VerdictNotProcessed
	pending      = keyring.VerdictPending
	conflict     = keyring.VerdictConflict
	already      = keyring.VerdictAlready
	refused      = keyring.VerdictRefused
	done         = keyring.VerdictDone
)

func TestTheGeneralTable(t *testing.T) {
	const charge, remove = "POST /charges", "DELETE /posts/7"
	var (
		plain = flags{}
		look  = flags{noResend: true}
		front = flags{front: true}
		sign  = flags{signIn: true}
	)
	rows := []row{
		{"a 200 of the expected type is done", exchange(charge, 200, jsonT, `{"id":"c1"}`), done, plain, ""},
		{"a 201 is done", exchange(charge, 201, jsonT, `{}`), done, plain, ""},
		{"a type with parameters is expected", exchange(charge, 200, "Application/JSON; charset=utf-8", `{}`), done, plain, ""},
		{"a type that ends in +json is expected", exchange(charge, 200, "application/hal+json", `{}`), done, plain, ""},
		{"a 204 is done", exchange(charge, 204, "", ""), done, plain, ""},
		{"a 204 is done whatever type it names", exchange(charge, 204, html, ""), done, plain, ""},
		{"a 205 is done", exchange(charge, 205, "", ""), done, plain, ""},
		{"an empty 200 is done", exchange(charge, 200, "", ""), done, plain, ""},
		{"a replayed success is done and says so", exchange(charge, 200, jsonT, `{}`, "Idempotent-Replayed", "true"), done, flags{replayed: true}, ""},
		{"a mark of another value is none", exchange(charge, 200, jsonT, `{}`, "Idempotent-Replayed", "false"), done, plain, ""},

		{"a 202 is pending, and only a look helps", exchange(charge, 202, jsonT, `{}`), pending, look, "accepted"},
		{"an empty 202 is pending", exchange(charge, 202, "", ""), pending, look, "accepted"},
		{"a 202 cut short is pending", cut(exchange(charge, 202, jsonT, `{`)), pending, look, "accepted"},
		{"a 202 of a sign-in page is unclear", exchange(charge, 202, html, "<html>"), unclear, plain, "not from the provider"},
		{"a 202 is done where that is the effect", exchange("POST /jobs", 202, jsonT, `{}`), done, plain, ""},

		{"a 2xx cut short is done and unreadable", cut(exchange(charge, 201, jsonT, `{"id":"c1"`)), done, flags{unreadable: true}, "could not be read whole"},
		{"a 2xx cut before its first byte is done and unreadable", cut(exchange(charge, 201, jsonT, "")), done, flags{unreadable: true}, ""},
		{"a 2xx that is not the JSON it says is done and unreadable", exchange(charge, 200, jsonT, `{"id":`), done, flags{unreadable: true}, ""},
		{"a 2xx with something after its JSON is done and unreadable", exchange(charge, 200, jsonT, `{} {}`), done, flags{unreadable: true}, ""},
		{"a 2xx page cut short is unclear", cut(exchange(charge, 200, html, "<ht")), unclear, plain, "not from the provider"},
		{"a 2xx cut short that names no type is unclear", cut(exchange(charge, 200, "", "")), unclear, plain, "not from the provider"},

		{"a 2xx page is unclear", exchange(charge, 200, html, "<html>"), unclear, plain, "not from the provider"},
		{"an empty 2xx page is unclear", exchange(charge, 200, html, ""), unclear, plain, "not from the provider"},
		{"a 2xx body without a type is unclear", exchange(charge, 200, "", `{"id":"c1"}`), unclear, plain, "not from the provider"},
		{"a 2xx with two types is unclear", exchange(charge, 200, jsonT, `{}`, "Content-Type", html), unclear, plain, "not from the provider"},
		{"a 2xx with a malformed type is unclear", exchange(charge, 200, "application/", `{}`), unclear, plain, "not from the provider"},
		{"a 206 is unclear", exchange(charge, 206, jsonT, `{}`), unclear, plain, "part"},
		{"a 207 is unclear", exchange(charge, 207, jsonT, `{}`), unclear, plain, "parts"},

		{"a success rule that finds its member is done", exchange("POST /graph", 200, jsonT, `{"data":{"refund":{"id":"r1"}}}`), done, plain, ""},
		{"a 207 with a success rule that agrees is done", exchange("POST /graph", 207, jsonT, `{"data":{"refund":{"id":"r1"}}}`), done, plain, ""},
		{"a success rule that misses its member is unclear", exchange("POST /graph", 200, jsonT, `{"errors":[{}]}`), unclear, plain, "does not show the effect"},
		{"a member that is null is missing", exchange("POST /graph", 200, jsonT, `{"data":{"refund":{"id":null}}}`), unclear, plain, "does not show"},
		{"a member that is false is missing", exchange("POST /graph", 200, jsonT, `{"data":{"refund":{"id":false}}}`), unclear, plain, "does not show"},
		{"a member that is empty is missing", exchange("POST /graph", 200, jsonT, `{"data":{"refund":{"id":""}}}`), unclear, plain, "does not show"},
		{"a member that is an object is there", exchange("POST /graph", 200, jsonT, `{"data":{"refund":{"id":{"a":[1,{"b":2}]}}}}`), done, plain, ""},
		{"a member that is repeated is missing", exchange("POST /graph", 200, jsonT, `{"data":{"refund":{"id":"a"}},"data":{"refund":{"id":"b"}}}`), unclear, plain, "does not show"},
		{"an empty answer shows nothing to a success rule", exchange("POST /graph", 204, "", ""), unclear, plain, "does not show"},
		{"an unreadable answer shows nothing to a success rule", cut(exchange("POST /graph", 200, jsonT, `{"data":`)), unclear, plain, "could not be read whole"},
		{"a success function that agrees is done", exchange("POST /judged", 200, jsonT, `"fine"`), done, plain, ""},
		{"a success function that does not is unclear", exchange("POST /judged", 200, jsonT, `"bad"`), unclear, plain, "does not show"},
		{"an endpoint's own type is expected", exchange("POST /report", 200, "application/pdf", "%PDF"), done, plain, ""},
		{"the profile's type is none of an endpoint's own", exchange("POST /report", 200, jsonT, `{}`), unclear, plain, "not from the provider"},
		{"a refusal comes in the profile's type nevertheless", exchange("POST /report", 422, jsonT, `{}`), refused, front, ""},

		{"a 300 is unclear, and only a look helps", exchange(charge, 300, html, "x", "Location", "/other"), unclear, look, "redirect 300 to the same host"},
		{"a 301 is unclear, and only a look helps", exchange(charge, 301, html, "x", "Location", "https://api.example.com/charges/"), unclear, look, "redirect 301 to https://api.example.com,"},
		{"a 302 is unclear, and only a look helps", exchange(charge, 302, "", "", "Location", "/login?next=x"), unclear, look, "redirect 302 to the same host"},
		{"a 303 is unclear, and only a look helps", exchange(charge, 303, jsonT, `{}`, "Location", "/charges/c1"), unclear, look, "redirect 303"},
		{"a 304 is unclear, and only a look helps", exchange(charge, 304, "", ""), unclear, look, "redirect 304"},
		{"a 307 is refused in front", exchange(charge, 307, html, "x", "Location", "https://eu.example.com/charges"), refused, front, "redirect 307 to https://eu.example.com,"},
		{"a 308 is refused in front", exchange(charge, 308, "", "", "Location", "https://eu.example.com/charges"), refused, front, "redirect 308"},
		{"a redirect to another host without a scheme names it", exchange(charge, 302, "", "", "Location", "//eu.example.com/x"), unclear, look, "to eu.example.com,"},
		{"a redirect to what is no URL does not quote it", exchange(charge, 302, "", "", "Location", "https://a b/%zz"), unclear, look, "to somewhere unreadable,"},
		{"a 307 that points nowhere is unclear", exchange(charge, 307, "", ""), unclear, look, "redirect 307"},

		{"a 400 is refused in front", exchange(charge, 400, jsonT, `{}`), refused, front, ""},
		{"a 402 is refused, perhaps by a gateway in front", exchange(charge, 402, jsonT, `{}`), refused, front, ""},
		{"a 402 without a body is refused in front", exchange(charge, 402, "", ""), refused, front, ""},
		{"a 404 is refused in front", exchange(charge, 404, jsonT, `{}`), refused, front, ""},
		{"a 404 without a body is refused in front", exchange(charge, 404, "", ""), refused, front, ""},
		{"a 405 is refused in front", exchange(charge, 405, jsonT, `{}`), refused, front, ""},
		{"a 406 is refused in front", exchange(charge, 406, jsonT, `{}`), refused, front, ""},
		{"a 410 is refused in front", exchange(charge, 410, jsonT, `{}`), refused, front, ""},
		{"a 411 is refused in front", exchange(charge, 411, jsonT, `{}`), refused, front, ""},
		{"a 412 is refused in front", exchange(charge, 412, jsonT, `{}`), refused, front, ""},
		{"a 413 is refused in front", exchange(charge, 413, jsonT, `{}`), refused, front, ""},
		{"a 414 is refused in front", exchange(charge, 414, jsonT, `{}`), refused, front, ""},
		{"a 415 is refused in front", exchange(charge, 415, jsonT, `{}`), refused, front, ""},
		{"a 422 is refused in front", exchange(charge, 422, "application/problem+json", `{}`), refused, front, ""},
		{"a 501 is refused in front", exchange(charge, 501, jsonT, `{}`), refused, front, ""},
		{"a replayed refusal is refused by the operation", exchange(charge, 400, jsonT, `{}`, "Idempotent-Replayed", "true"), refused, flags{replayed: true}, ""},
		{"a 400 page is unclear", exchange(charge, 400, html, "<html>"), unclear, plain, "not from the provider"},
		{"a 402 page is unclear", exchange(charge, 402, html, "<html>"), unclear, plain, "not from the provider"},
		{"a 404 page is unclear", exchange(charge, 404, html, "<html>"), unclear, plain, "not from the provider"},
		{"an empty 404 of a page's type is unclear", exchange(charge, 404, html, ""), unclear, plain, "not from the provider"},
		{"a 413 page is unclear", exchange(charge, 413, html, "<html>"), unclear, plain, "not from the provider"},
		{"a 422 body without a type is unclear", exchange(charge, 422, "", `{}`), unclear, plain, "not from the provider"},
		{"a 501 page is unclear", exchange(charge, 501, html, "<html>"), unclear, plain, "not from the provider"},
		{"a refusal cut short is unclear, as its code is lost", cut(exchange(charge, 400, jsonT, `{"error":`)), unclear, plain, "could not be read whole"},
		{"a refusal that is not the JSON it says is unclear", exchange(charge, 422, jsonT, `oops`), unclear, plain, "could not be read whole"},

		{"a 404 to a DELETE is already", exchange(remove, 404, jsonT, `{}`), already, plain, ""},
		{"a 410 to a DELETE is already", exchange(remove, 410, jsonT, `{}`), already, plain, ""},
		{"a 410 to a DELETE without a body is already", exchange(remove, 410, "", ""), already, plain, ""},
		{"a 404 to a DELETE without a body is refused in front", exchange(remove, 404, "", ""), refused, front, ""},
		{"a 404 page to a DELETE is unclear", exchange(remove, 404, html, "<html>"), unclear, plain, "not from the provider"},
		{"a 404 to a DELETE cut short is unclear", cut(exchange(remove, 404, jsonT, `{`)), unclear, plain, "could not be read whole"},

		{"a 401 is not processed, for want of a sign-in", exchange(charge, 401, jsonT, `{}`), notProcessed, sign, "door"},
		{"a 403 is not processed, for want of a sign-in", exchange(charge, 403, jsonT, `{}`), notProcessed, sign, "door"},
		{"a 407 is not processed, for want of a sign-in", exchange(charge, 407, html, "<html>"), notProcessed, sign, "door"},
		{"a 403 cut short is not processed, where it has no codes to lose", cut(exchange(charge, 403, jsonT, `{`)), notProcessed, sign, "door"},
		{"a 429 is not processed", exchange(charge, 429, html, "<html>"), notProcessed, plain, "door"},
		{"a 429 to a natural endpoint is not processed", exchange(remove, 429, jsonT, `{}`), notProcessed, plain, "door"},
		{"a 401 without de-duplication is unclear", exchange("POST /unlisted", 401, jsonT, `{}`), unclear, sign, "proxy"},
		{"a 403 without de-duplication is unclear", exchange("POST /unlisted", 403, jsonT, `{}`), unclear, sign, "proxy"},
		{"a 407 without de-duplication is unclear", exchange("POST /unlisted", 407, jsonT, `{}`), unclear, sign, "proxy"},
		{"a 429 without de-duplication is unclear", exchange("POST /unlisted", 429, jsonT, `{}`), unclear, plain, "proxy"},
		{"a 429 that the profile vouches for is not processed", exchange("POST /vouched", 429, jsonT, `{}`), notProcessed, plain, "rule"},
		{"a page is vouched for by nobody", exchange("POST /vouched", 429, html, "<html>"), unclear, plain, "proxy"},

		{"a 408 is unclear", exchange(charge, 408, jsonT, `{}`), unclear, plain, "may have arrived"},
		{"a 423 is unclear", exchange(charge, 423, jsonT, `{}`), unclear, plain, "may have arrived"},
		{"a 425 is unclear", exchange(charge, 425, jsonT, `{}`), unclear, plain, "may have arrived"},
		{"a 409 without a code is unclear", exchange(charge, 409, jsonT, `{}`), unclear, plain, "409"},
		{"a 409 with an unknown code is unclear", exchange(charge, 409, jsonT, `{"code":"version_conflict"}`), unclear, plain, "409"},
		{"a 409 page with a known code is unclear", exchange(charge, 409, html, `{"code":"idempotency_conflict"}`), unclear, plain, "409"},
		{"a 409 cut short is unclear", cut(exchange(charge, 409, jsonT, `{"code":"idempotency_conflict"}`)), unclear, plain, "409"},

		{"a 500 is unclear", exchange(charge, 500, jsonT, `{}`), unclear, plain, "500"},
		{"a replayed 500 is unclear, and only a look helps", exchange(charge, 500, jsonT, `{}`, "Idempotent-Replayed", "true"), unclear, flags{noResend: true, replayed: true}, "repeated"},
		{"a 502 is unclear", exchange(charge, 502, html, "<html>"), unclear, plain, "502"},
		{"a 503 is unclear", exchange(charge, 503, jsonT, `{}`), unclear, plain, "503"},
		{"a 504 is unclear", exchange(charge, 504, "", ""), unclear, plain, "504"},
		{"a 507 is unclear", exchange(charge, 507, jsonT, `{}`), unclear, plain, "507"},
		{"a 511 is unclear", exchange(charge, 511, html, "<html>"), unclear, plain, "511"},
		{"a 500 with a known code is unclear", exchange(charge, 500, jsonT, `{"code":"idempotency_conflict"}`), unclear, plain, "500"},

		{"a connection that was never made is not processed", provider.Exchange{Method: "POST", URL: origin + "/charges", NotSent: true}, notProcessed, plain, "not sent"},
		{"the same holds without de-duplication", provider.Exchange{Method: "POST", URL: origin + "/unlisted", NotSent: true}, notProcessed, plain, "not sent"},
		{"no answer is unclear", provider.Exchange{Method: "POST", URL: origin + "/charges"}, unclear, plain, "no answer"},
		{"an answer proves that it was sent", provider.Exchange{Method: "POST", URL: origin + "/charges", Status: 500, NotSent: true}, unclear, plain, "500"},
		{"a 101 is unclear", exchange(charge, 101, "", ""), unclear, plain, "not understood"},
		{"a 418 is unclear", exchange(charge, 418, jsonT, `{}`), unclear, plain, "not understood"},
		{"a 421 is unclear", exchange(charge, 421, jsonT, `{}`), unclear, plain, "not understood"},
		{"a 999 is unclear", exchange(charge, 999, jsonT, `{}`), unclear, plain, "not understood"},
		{"a negative status is unclear", exchange(charge, -200, jsonT, `{}`), unclear, plain, "not understood"},
	}
	p := shop(t)
	seen := map[string]bool{}
	for _, r := range rows {
		if seen[r.claim] {
			t.Errorf("two rows claim that %s", r.claim)
		}
		seen[r.claim] = true
		t.Run(r.claim, func(t *testing.T) { r.check(t, p) })
	}
}

func TestC23RedirectsAreReadNotFollowed(t *testing.T) {
	p := shop(t)
	for _, status := range []int{301, 302, 303} {
		v := p.Read(exchange("POST /charges", status, "", "", "Location", "https://user:hunter2@api.example.com/pay/?token=tok3n#frag"))
		if v.Kind != unclear || !v.NoResend {
			t.Errorf("%d: got %v, resend forbidden: %v", status, v.Kind, v.NoResend)
		}
		if !strings.Contains(v.Why, "https://api.example.com") {
			t.Errorf("%d: the reason %q does not say where to", status, v.Why)
		}
		for _, secret := range []string{"user", "hunter2", "tok3n", "/pay", "frag"} {
			if strings.Contains(v.Why, secret) {
				t.Errorf("%d: the reason %q quotes %q", status, v.Why, secret)
			}
		}
	}
}

func TestC33ASignInPageIsNotTheProvider(t *testing.T) {
	p := shop(t)
	v := p.Read(exchange("POST /charges", 200, html, `<form><input name=csrf value=ABC123></form>`, "Request-Id", "portal 7"))
	if v.Kind != unclear || v.Why != "200, not from the provider: its Content-Type is text/html, see Spec.MediaTypes" {
		t.Errorf("got %v, %q", v.Kind, v.Why)
	}
	if v.RequestID != "" || v.EffectID != "" || v.Code != "" {
		t.Errorf("the page left something in the verdict: %+v", v)
	}
}

func TestC35ACutAnswerIsDoneButUnreadable(t *testing.T) {
	v := shop(t).Read(cut(exchange("POST /charges", 201, jsonT, `{"id":"c1","a`)))
	if v.Kind != done || !v.Unreadable || v.EffectID != "c1" {
		t.Errorf("got %v, unreadable %v, effect %q", v.Kind, v.Unreadable, v.EffectID)
	}
}

func TestC37ConflictsAreTypedByTheirCode(t *testing.T) {
	problem := "application/problem+json"
	for _, tc := range []struct {
		claim, mediaType, body string
		status                 int
		kind                   keyring.VerdictKind
		code                   string
	}{
		{"Stripe's error type", jsonT, `{"error":{"type":"idempotency_error","message":"Keys for idempotent requests..."}}`, 400, conflict, "idempotency_error"},
		{"a problem type", problem, `{"type":"https://api.example.com/problems/idempotency-key-reused","status":422}`, 422, conflict, "idempotency-key-reused"},
		{"a problem type in a fragment", problem, `{"type":"https://api.example.com/problems#idempotency-key-reused"}`, 422, conflict, "idempotency-key-reused"},
		{"a problem type as a URN", problem, `{"type":"urn:example:problem:idempotency-key-reused"}`, 422, conflict, "idempotency-key-reused"},
		{"a bare code", jsonT, `{"code":"idempotency_conflict"}`, 409, conflict, "idempotency_conflict"},
		{"AWS", jsonT, `{"__type":"IdempotentParameterMismatch"}`, 400, conflict, "IdempotentParameterMismatch"},
		{"AWS with a namespace", jsonT, `{"__type":"com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException"}`, 400, conflict, "IdempotentParameterMismatchException"},
		{"Square", jsonT, `{"errors":[{"category":"INVALID_REQUEST_ERROR","code":"IDEMPOTENCY_KEY_REUSED"}]}`, 400, conflict, "IDEMPOTENCY_KEY_REUSED"},
		{"Increase", problem, `{"type":"idempotency_key_already_used_error","status":409}`, 409, conflict, "idempotency_key_already_used_error"},
		{"Resend", jsonT, `{"error":"invalid_idempotent_request"}`, 409, conflict, "invalid_idempotent_request"},
		{"a key that is in use", jsonT, `{"error":{"code":"idempotency_key_in_use","type":"idempotency_error"}}`, 409, pending, "idempotency_key_in_use"},
		{"concurrent requests", jsonT, `{"code":"concurrent_idempotent_requests"}`, 409, pending, "concurrent_idempotent_requests"},
		{"a request in progress", jsonT, `{"code":"PREVIOUS_REQUEST_IN_PROGRESS"}`, 409, pending, "PREVIOUS_REQUEST_IN_PROGRESS"},
		{"in progress", jsonT, `{"code":"in_progress"}`, 409, pending, "in_progress"},

		{"an unknown code", jsonT, `{"code":"payment_already_captured"}`, 409, unclear, "payment_already_captured"},
		{"a number for a code", jsonT, `{"code":409}`, 409, unclear, "409"},
		{"Stripe's error type with a 409", jsonT, `{"error":{"type":"idempotency_error"}}`, 409, unclear, "idempotency_error"},
		{"a code that may be about our success", jsonT, `{"code":"DUPLICATE_ERROR"}`, 409, unclear, "DUPLICATE_ERROR"},
		{"a code that is repeated", jsonT, `{"code":"idempotency_conflict","code":"in_progress"}`, 409, unclear, ""},
		{"prose with a code in it", jsonT, `{"error":"idempotency_conflict: key was used"}`, 409, unclear, ""},
		{"a code elsewhere", jsonT, `{"message":"idempotency_conflict"}`, 409, unclear, ""},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			v := shop(t).Read(exchange("POST /charges", tc.status, tc.mediaType, tc.body, "Request-Id", "req_7"))
			if v.Kind != tc.kind || v.Code != tc.code || v.Status != tc.status || v.RequestID != "req_7" {
				t.Errorf("got %v, code %q, status %d, request %q, want %v, code %q", v.Kind, v.Code, v.Status, v.RequestID, tc.kind, tc.code)
			}
			if v.NoResend {
				t.Error("resending is forbidden by the verdict, not by what follows from its kind")
			}
		})
	}
}

func TestC43ADeleteOfWhatIsGone(t *testing.T) {
	p := shop(t)
	for _, tc := range []row{
		{"a 404 of the provider is already", exchange("DELETE /posts/7", 404, jsonT, `{"error":"not found"}`), already, flags{}, ""},
		{"a 404 page is unclear", exchange("DELETE /posts/7", 404, html, `<h1>404</h1>`), unclear, flags{}, "not from the provider"},
		{"a 404 to a POST is no already", exchange("POST /charges", 404, jsonT, `{}`), refused, flags{front: true}, ""},
	} {
		t.Run(tc.claim, func(t *testing.T) { tc.check(t, p) })
	}
	if p.Place("DELETE", origin+"/posts/7") != nil {
		t.Error("a key goes along with a DELETE that is not listed as taking one")
	}
}

func TestC63AdviceIsFollowed(t *testing.T) {
	p := shop(t)
	const charge, advice = "POST /charges", "Shop-Should-Retry"
	for _, tc := range []row{
		{"a 409 with advice to resend is unclear and resent", exchange(charge, 409, jsonT, `{}`, advice, "true"), unclear, flags{}, "advises to send again"},
		{"a 503 with advice against is unclear and not resent", exchange(charge, 503, jsonT, `{}`, advice, "false"), unclear, flags{noResend: true}, "advises against"},
		{"a 503 page with advice against is not resent", exchange(charge, 503, html, "x", advice, "false"), unclear, flags{noResend: true}, "advises against"},
		{"a 500 without advice is resent", exchange(charge, 500, jsonT, `{}`), unclear, flags{}, ""},
		{"a 408 without advice is resent", exchange(charge, 408, jsonT, `{}`), unclear, flags{}, ""},
		{"a 425 without advice is resent", exchange(charge, 425, jsonT, `{}`), unclear, flags{}, ""},
		{"a 502 without advice is resent", exchange(charge, 502, html, "x"), unclear, flags{}, ""},
		{"a refusal with advice to resend is unclear", exchange(charge, 400, jsonT, `{}`, advice, "true"), unclear, flags{}, "advises"},
		{"a refusal with advice against is refused", exchange(charge, 402, jsonT, `{}`, advice, "false"), refused, flags{noResend: true, front: true}, "advises"},
		{"a replayed 500 with advice to resend is resent", exchange(charge, 500, jsonT, `{}`, advice, "true", "Idempotent-Replayed", "true"), unclear, flags{replayed: true}, "advises"},
		{"a page advises nobody to resend", exchange(charge, 500, html, "x", advice, "true", "Idempotent-Replayed", "true"), unclear, flags{noResend: true, replayed: true}, "repeated"},
		{"a redirect with advice to resend is not resent", exchange(charge, 302, "", "", advice, "true", "Location", "/x"), unclear, flags{noResend: true}, "redirect"},
		{"a conflict stays one", exchange(charge, 409, jsonT, `{"code":"idempotency_conflict"}`, advice, "true"), conflict, flags{}, ""},
		{"a 429 with advice against is not processed still", exchange(charge, 429, jsonT, `{}`, advice, "FALSE"), notProcessed, flags{noResend: true}, "advises"},
		{"a success needs no advice", exchange(charge, 200, jsonT, `{}`, advice, "false"), done, flags{}, ""},
		{"advice in other words is none", exchange(charge, 503, jsonT, `{}`, advice, "maybe"), unclear, flags{}, ""},
	} {
		t.Run(tc.claim, func(t *testing.T) { tc.check(t, p) })
	}
}
