package provider_test

import (
	"bytes"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

func TestRetryAfterIsBounded(t *testing.T) {
	const day = 24 * time.Hour
	date := func(d time.Duration) string { return now.Add(d).Format("Mon, 02 Jan 2006 15:04:05 GMT") }
	for _, tc := range []struct {
		claim, value, date string
		want               time.Duration
	}{
		{"C61: an hour", "3600", "", time.Hour},
		{"C61: more than a duration holds", "9223372037", "", day},
		{"C61: the largest signed number", "9223372036854775807", "", day},
		{"C61: a negative number is none", "-1", "", 0},
		{"C61: a fraction is none", "1.5", "", 0},
		{"C61: the year 2100", "Fri, 01 Jan 2100 00:00:00 GMT", "", day},
		{"C61: five seconds", "5", "", 5 * time.Second},
		{"C61: zero is none", "0", "", 0},
		{"C61: empty is none", "", "", 0},
		{"more digits than any number has", strings.Repeat("9", 400), "", day},
		{"a day is a day", "86400", "", day},
		{"a second more is a day", "86401", "", day},
		{"white space around it", " 7 ", "", 7 * time.Second},
		{"a sign is nonsense", "+5", "", 0},
		{"words are nonsense", "soon", "", 0},
		{"other digits are nonsense", "٣", "", 0},
		{"a date by our clock", date(90 * time.Second), "", 90 * time.Second},
		{"a date by the provider's clock", date(90 * time.Second), date(60 * time.Second), 30 * time.Second},
		{"a date by our clock where the provider's is nonsense", date(90 * time.Second), "yesterday", 90 * time.Second},
		{"a date in the past is none", date(-time.Hour), "", 0},
		{"a date in the old form", now.Add(time.Minute).Format(time.RFC850), "", time.Minute},
		{"a date in the form of C", now.Add(time.Minute).Format(time.ANSIC), "", time.Minute},
		{"the year 1", "Mon, 01 Jan 0001 00:00:00 GMT", "", 0},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			x := exchange("POST /charges", 429, jsonT, `{}`, "Retry-After", tc.value)
			if tc.date != "" {
				x.Header["Date"] = []string{tc.date}
			}
			if got := shop(t).Read(x).RetryAfter; got != tc.want {
				t.Errorf("%q: got %v, want %v", tc.value, got, tc.want)
			}
		})
	}
	x := exchange("POST /charges", 429, jsonT, `{}`, "Retry-After", "3", "Retry-After", "9", "Retry-After", "x")
	if got := shop(t).Read(x).RetryAfter; got != 9*time.Second {
		t.Errorf("of several wishes: got %v, want the longest", got)
	}
	x = exchange("POST /charges", 503, html, `x`, "Retry-After", date(time.Minute))
	x.Now = time.Time{}
	if got := shop(t).Read(x).RetryAfter; got != 0 {
		t.Errorf("a date without any clock: got %v, want none", got)
	}
	for _, status := range []int{202, 409, 503} {
		x := exchange("POST /charges", status, jsonT, `{"code":"in_progress"}`, "Retry-After", "5")
		if got := shop(t).Read(x).RetryAfter; got != 5*time.Second {
			t.Errorf("%d: got %v, want 5s", status, got)
		}
	}
}

func TestIDsAreFilledInAndBounded(t *testing.T) {
	long := strings.Repeat("a", 128)
	for _, tc := range []struct {
		claim, body, requestID   string
		wantEffect, wantExchange string
	}{
		{"plain ids", `{"id":"c1"}`, "req_1", "c1", "req_1"},
		{"a number is an id as it is written", `{"id":12345678901234567890123}`, "1", "12345678901234567890123", "1"},
		{"128 characters", `{"id":"` + long + `"}`, long, long, long},
		{"129 characters are no id", `{"id":"` + long + `a"}`, long + "a", "", ""},
		{"white space within is no id", `{"id":"a b"}`, "a b", "", ""},
		{"control characters are no id", `{"id":"a\u0007"}`, "a\x07", "", ""},
		{"other than ASCII is no id", `{"id":"ä"}`, "ä", "", ""},
		{"an object is no id", `{"id":{"id":"c1"}}`, "", "", ""},
		{"null is no id", `{"id":null}`, "", "", ""},
		{"a repeated id is no id", `{"id":"a","id":"a"}`, "", "", ""},
		{"an array has no id", `[{"id":"a"}]`, "", "", ""},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			v := shop(t).Read(exchange("POST /charges", 200, jsonT, tc.body, "Request-Id", tc.requestID))
			if v.Kind != done || v.EffectID != tc.wantEffect || v.RequestID != tc.wantExchange {
				t.Errorf("got %v, effect %q, request %q, want effect %q, request %q", v.Kind, v.EffectID, v.RequestID, tc.wantEffect, tc.wantExchange)
			}
		})
	}
	v := shop(t).Read(exchange("POST /charges", 402, jsonT, `{"id":"err_1","error":{"code":"card_declined"}}`,
		"X-Request-Id", "x7", "Date", "Mon, 30 Nov 2026 12:00:07 GMT"))
	if v.EffectID != "" || v.Code != "card_declined" || v.RequestID != "x7" || !v.Date.Equal(now.Add(7*time.Second)) {
		t.Errorf("of a refusal: got %+v", v)
	}
	if v := shop(t).Read(exchange("POST /charges", 200, jsonT, `{"code":"SAVE10","type":"coupon"}`)); v.Code != "" {
		t.Errorf("a success has the code %q", v.Code)
	}
}

func TestReadCopesWithHostileBodies(t *testing.T) {
	p := shop(t)
	deep := strings.Repeat("[", 9000) + strings.Repeat("]", 9000)
	tooDeep := strings.Repeat("[", 20000) + strings.Repeat("]", 20000)
	for _, tc := range []struct {
		claim, body string
		status      int
		kind        keyring.VerdictKind
		effect      string
	}{
		{"deep nesting beside the id", `{"x":` + deep + `,"id":"c1"}`, 200, done, "c1"},
		{"deep nesting beside the code", `{"x":` + deep + `,"code":"idempotency_conflict"}`, 409, conflict, ""},
		{"nesting that the parser refuses is unreadable", `{"x":` + tooDeep + `,"id":"c1"}`, 200, done, ""},
		{"a number that fits no type", `{"n":1` + strings.Repeat("0", 5000) + `e999999,"id":"c1"}`, 200, done, "c1"},
		{"many members", `{` + strings.Repeat(`"a":1,`, 100000) + `"id":"c1"}`, 200, done, "c1"},
		{"containers at the places of scalars", `{"error":[],"code":{},"type":[[]],"errors":{"0":7}}`, 409, unclear, ""},
		{"repeated containers on the way", `{"error":{"code":"idempotency_conflict"},"error":{}}`, 409, unclear, ""},
		{"bytes that are no UTF-8", "{\"id\":\"\xff\"}", 200, done, ""},
	} {
		t.Run(tc.claim, func(t *testing.T) {
			v := p.Read(exchange("POST /charges", tc.status, jsonT, tc.body))
			if v.Kind != tc.kind || v.EffectID != tc.effect {
				t.Errorf("got %v, effect %q, unreadable %v, want %v, effect %q", v.Kind, v.EffectID, v.Unreadable, tc.kind, tc.effect)
			}
		})
	}
}

func TestRulesAreTriedInOrder(t *testing.T) {
	p, err := provider.New(provider.Spec{
		Name:   "ruled",
		CodeAt: []string{"/error/code", "/errors/0/extensions/code"},
		Rules: []provider.Rule{
			{Status: 409, Kind: keyring.VerdictPending},
			{Status: 403, Code: "E403", Kind: keyring.VerdictAlready, EffectIDAt: []string{"/links/0/id"}},
			{Status: 422, Code: "declined", Kind: keyring.VerdictRefused, ByOperation: true},
			{Status: 422, Code: "invalid", Kind: keyring.VerdictRefused},
			{Status: 410, Kind: keyring.VerdictRefused, ByOperation: true},
			{Status: 503, Kind: keyring.VerdictPending},
			{Status: 503, Code: "store_down", Kind: keyring.VerdictNotProcessed, Vouched: true},
			{Status: 200, Code: "MISMATCH", Kind: keyring.VerdictConflict},
			{Status: 409, Code: "original", Kind: keyring.VerdictDone},
			{Code: "burnt", Kind: keyring.VerdictUnclear, NoResend: true},
			{Status: 429, Code: "sign_in", Kind: keyring.VerdictNotProcessed, SignIn: true, Vouched: true},
		},
		Endpoints: []provider.Endpoint{
			{Pattern: "POST /own", Terms: keyring.Terms{Dedup: keyring.DedupKey}, Rules: []provider.Rule{{Status: 422, Code: "declined", Kind: keyring.VerdictAlready}}},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	code := func(c string) string { return `{"error":{"code":"` + c + `"},"links":[{"id":"c1"}]}` }
	for _, tc := range []row{
		{"a rule without a code reads any code", exchange("POST /x", 409, jsonT, code("what")), pending, flags{}, "rule"},
		{"a rule without a code reads an empty answer", exchange("POST /x", 409, "", ""), pending, flags{}, "rule"},
		{"a plain code goes before a rule without one", exchange("POST /x", 409, jsonT, code("idempotency_conflict")), conflict, flags{}, "by its code"},
		{"a rule with a code goes before the general table", exchange("POST /x", 403, jsonT, code("E403")), already, flags{}, "rule"},
		{"a page fits no rule", exchange("POST /x", 503, html, "<html>"), unclear, flags{}, "503"},
		{"an answer cut short fits no rule", cut(exchange("POST /x", 503, jsonT, `{`)), unclear, flags{}, "503"},
		{"a 403 cut short may have had the code", cut(exchange("POST /own", 403, jsonT, `{`)), unclear, flags{}, "might say otherwise"},
		{"a 401 cut short may have had no code of ours but those for any status", cut(exchange("POST /own", 401, jsonT, `{`)), unclear, flags{}, "might say otherwise"},
		{"a rule with a code goes before one without", exchange("POST /x", 503, jsonT, code("store_down")), notProcessed, flags{}, "rule"},
		{"a refusal by the operation is not in front", exchange("POST /x", 422, jsonT, code("declined")), refused, flags{}, "rule"},
		{"a refusal of any code by the operation is not in front", exchange("POST /x", 410, jsonT, `{}`), refused, flags{}, "rule"},
		{"without a body it is, as nobody says who made it", exchange("POST /x", 410, "", ""), refused, flags{front: true}, "rule"},
		{"another refusal is", exchange("POST /x", 422, jsonT, code("invalid")), refused, flags{front: true}, "rule"},
		{"an endpoint's rule goes first", exchange("POST /own", 422, jsonT, code("declined")), already, flags{}, "rule"},
		{"a success can be a conflict", exchange("POST /x", 200, jsonT, `{"errors":[{"extensions":{"code":"MISMATCH"}}]}`), conflict, flags{}, "rule"},
		{"a failure can be a success", exchange("POST /x", 409, jsonT, code("original")), done, flags{}, "rule"},
		{"a rule for any status reads a 4xx", exchange("POST /x", 400, jsonT, code("burnt")), unclear, flags{noResend: true}, "rule"},
		{"a rule for any status reads no 5xx", exchange("POST /x", 500, jsonT, code("burnt")), unclear, flags{}, "500"},
		{"a rule can ask for a sign-in", exchange("POST /x", 429, jsonT, code("sign_in")), notProcessed, flags{signIn: true}, "rule"},
		{"codes are compared exactly", exchange("POST /x", 403, jsonT, code("e403")), unclear, flags{signIn: true}, "door"},
	} {
		t.Run(tc.claim, func(t *testing.T) { tc.check(t, p) })
	}
	if v := p.Read(exchange("POST /x", 403, jsonT, code("E403"))); v.EffectID != "c1" || v.Code != "E403" {
		t.Errorf("a rule's effect id: got %q, code %q", v.EffectID, v.Code)
	}
}

func TestAnyMediaTypeIncludesNone(t *testing.T) {
	p, err := provider.New(provider.Spec{Name: "loose", MediaTypes: []string{"*/*"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []row{
		{"a page is done", exchange("POST /x", 200, html, "<html>"), done, flags{}, ""},
		{"no type is done", exchange("POST /x", 200, "", "ok"), done, flags{}, ""},
		{"a code is found without a type", exchange("POST /x", 409, "", `{"code":"idempotency_conflict"}`), conflict, flags{}, ""},
		{"a page is refused", exchange("POST /x", 404, html, "<html>"), refused, flags{front: true}, ""},
	} {
		t.Run(tc.claim, func(t *testing.T) { tc.check(t, p) })
	}
}

// FuzzRead holds the table to what must be so for every answer, whatever it
// looks like, where no rule of a profile says more.
func FuzzRead(f *testing.F) {
	f.Add("POST", "/charges", 200, jsonT, []byte(`{"id":"c1"}`), "5", "true", "true", false, false)
	f.Add("POST", "/charges", 500, jsonT, []byte(`{"error":{"code":"x"}}`), "-1", "false", "true", false, false)
	f.Add("DELETE", "/posts/7", 404, jsonT, []byte(`{}`), "1.5", "", "", true, false)
	f.Add("POST", "/unlisted", 503, html, []byte(`<html>csrf=ABC123`), "Fri, 01 Jan 2100 00:00:00 GMT", "", "", false, false)
	f.Add("POST", "/graph", 409, "application/problem+json", []byte(`{"type":"https://x/idempotency-key-reused"}`), "99999999999999999999", "", "", false, false)
	f.Add("PATCH", "/%2e%2e/charges", 0, "", []byte(nil), "", "", "", false, true)
	f.Add("", "::", -1, ";;", []byte(`{"errors":[{"code":"in_progress"}]}`), "", "maybe", "", true, true)
	f.Add("POST", "/charges", 400, jsonT, []byte(`[[[[[[[[[[[[[[[[`), "", "", "", false, false)
	f.Add("POST", "/charges", 422, jsonT, []byte(`{"__type":"a#b","id":1e999999}`), "", "", "", false, false)
	p := shop(f)
	f.Fuzz(func(t *testing.T, method, path string, status int, mediaType string, body []byte, after, advice, replayed string, isCut, notSent bool) {
		x := provider.Exchange{
			Method: method, URL: origin + path, Status: status, Body: bytes.Clone(body), Cut: isCut, NotSent: notSent, Now: now,
			Header: head("Content-Type", mediaType, "Retry-After", after, "Shop-Should-Retry", advice, "Idempotent-Replayed", replayed, "Location", path, "Request-Id", after),
		}
		v := p.Read(x)
		if again := p.Read(x); again != v {
			t.Errorf("read as %+v, and then as %+v", v, again)
		}
		if !bytes.Equal(x.Body, body) {
			t.Error("the body was changed")
		}
		if v.Kind == done && status/100 != 2 {
			t.Errorf("%d is done", status)
		}
		if status/100 == 5 && (v.Kind == notProcessed || v.Kind == already || v.Kind == refused && status != 501) {
			t.Errorf("%d is %v", status, v.Kind)
		}
		if status/100 == 2 && v.Kind != done && v.Kind != unclear && v.Kind != pending {
			t.Errorf("%d is %v", status, v.Kind)
		}
		if v.Kind == already && method != "DELETE" {
			t.Errorf("a %s is already", method)
		}
		if v.Kind == notProcessed && status != 0 && p.Terms(method, x.URL).Dedup == keyring.DedupNone {
			t.Errorf("%d is not processed without de-duplication", status)
		}
		if (v.Kind == refused || v.Kind == already) && isCut && status != 307 && status != 308 {
			t.Errorf("%d, cut short, is %v", status, v.Kind)
		}
		if v.Front && v.Kind != refused || v.Unreadable && v.Kind != done {
			t.Errorf("%v with %+v", v.Kind, flagsOf(v))
		}
		if v.RetryAfter < 0 || v.RetryAfter > 24*time.Hour {
			t.Errorf("wait %v", v.RetryAfter)
		}
		for _, s := range []string{v.EffectID, v.Code, v.RequestID} {
			if len(s) > 128 || strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c > '~' }) {
				t.Errorf("an id of %q", s)
			}
		}
		if v.Why == "" || !strings.Contains(v.Why, strconv.Itoa(status)) && status != 0 {
			t.Errorf("the reason for %d is %q", status, v.Why)
		}
	})
}

// C45: an endpoint that was listed by mistake shows a second effect under one
// key, also where the first answer was cut short.
func TestC45TheEffectOfACutAnswerIsReadAsFarAsItIsWhole(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"s1","path":"/sch`:     "s1",
		`{"id":"s1","path":"/a,b`:     "s1",
		`{"id":"s1"`:                  "", // it may go on: nothing says that the member is over
		`{"id":"s1,s2`:                "", // a comma within a string
		`{"id":12,"x":`:               "12",
		`{"id":12`:                    "",
		`{"x":{"id":"no"},"id":"s1",`: "s1",
		`{"id":"a","id":"b","x`:       "", // twice is no answer
		`["id",`:                      "",
		``:                            "",
	} {
		x := exchange("POST /charges", 201, "application/json", body)
		x.Cut = true
		v := shop(t).Read(x)
		if v.Kind != keyring.VerdictDone || !v.Unreadable || v.EffectID != want {
			t.Errorf("%s: %s, effect %q, unreadable %v; want done, %q", body, v.Kind, v.EffectID, v.Unreadable, want)
		}
	}
}
