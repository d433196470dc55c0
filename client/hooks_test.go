package client_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/samekey/samekey/client"
	"github.com/samekey/samekey/client/clienttest"
	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/retry"
)

var update = flag.Bool("update", false, "write the golden file anew (only when a log record is meant to change)")

// told is what hooks were told, in order.
type told struct {
	mu     sync.Mutex
	names  []string
	events []client.Event
}

func (l *told) hooks() *client.Hooks {
	note := func(name string) func(context.Context, client.Event) {
		return func(_ context.Context, e client.Event) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.names, l.events = append(l.names, name), append(l.events, e)
		}
	}
	return &client.Hooks{
		Begun: note("begun"), Attempt: note("attempt"), Answer: note("answer"), Waiting: note("waiting"),
		Final: note("final"), NeedsInspection: note("look"),
	}
}

// take gives the names since the last time.
func (l *told) take() (names string, events []client.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names, events = strings.Join(l.names, " "), l.events
	l.names, l.events = nil, nil
	return names, events
}

func TestHooksAreToldInOrder(t *testing.T) {
	busy := http.Header{"Content-Type": {"application/json"}, "Retry-After": {"3600"}}
	for _, c := range []struct {
		claim  string
		opts   client.Options
		path   string
		faults []clienttest.Fault
		calls  int
		want   string
	}{
		{"a success", client.Options{}, "/pay", nil, 1, "begun attempt answer final"},
		{"a second call is told how it ended", client.Options{}, "/pay", nil, 2, "begun attempt answer final final"},
		{
			"a success at the third attempt",
			client.Options{},
			"/pay",
			[]clienttest.Fault{clienttest.LoseAnswer(), clienttest.Answer(503, clienttest.JSON(), nil)},
			1,
			"begun attempt answer waiting attempt answer waiting attempt answer final",
		},
		{"a refusal", client.Options{}, "/pay", []clienttest.Fault{clienttest.Decide(402, clienttest.JSON(), []byte(`{}`))}, 1, "begun attempt answer final"},
		{"doubt that only a look can lift", client.Options{}, "/unlisted", []clienttest.Fault{clienttest.LoseAnswer()}, 2, "begun attempt answer look look"},
		{"a look that finds it", client.Options{Inspector: sees(present)}, "/unlisted", []clienttest.Fault{clienttest.LoseAnswer()}, 1, "begun attempt answer final"},
		{
			"a wait that is not slept through, and a call too soon",
			client.Options{},
			"/pay",
			[]clienttest.Fault{clienttest.Answer(429, busy, []byte(`{}`))},
			2,
			"begun attempt answer waiting",
		},
		{"credentials that do not work", client.Options{}, "/pay", []clienttest.Fault{clienttest.Answer(401, clienttest.JSON(), nil)}, 1, "begun attempt answer"},
		{"an attempt that is not made", client.Options{Authorize: func(context.Context, *http.Request) error { return errors.New("no") }}, "/pay", nil, 1, "begun attempt answer"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var l told
				c.opts.Hooks = l.hooks()
				e := start(t, withTerms(t, "POST /pay", keyring.Terms{Dedup: keyring.DedupKey, MarksRunning: true, Retention: 24 * time.Hour}), nil, c.opts)
				e.srv.Script(c.faults...)
				for range c.calls {
					_, _ = e.do("inv-7", e.post(c.path, pay)) // what it says is tested elsewhere
				}
				in := e.get("inv-7")
				names, events := l.take()
				if names != c.want {
					t.Errorf("told %q, want %q", names, c.want)
				}
				attempt := 0
				for i, ev := range events {
					name := strings.Fields(names)[i]
					if name == "attempt" {
						attempt++
					}
					if ev.Ref != in.Ref || ev.Key != in.Key || ev.Generation != 1 || ev.Fingerprint != in.Fingerprint || name != "begun" && ev.Attempt != attempt {
						t.Errorf("%s: %+v", name, ev)
					}
					switch name {
					case "attempt":
						if ev.State != keyring.StateSending {
							t.Errorf("about to be sent, and %s", ev.State)
						}
					case "answer":
						if got := in.Attempts[attempt-1].Verdict; ev.Verdict.Kind != got.Kind || ev.Verdict.Status != got.Status {
							t.Errorf("verdict %+v, on record %+v", ev.Verdict, got)
						}
					case "waiting":
						if ev.Reason == "" || !ev.Until.After(in.Begun) {
							t.Errorf("until %v, because %q", ev.Until, ev.Reason)
						}
					case "final", "look":
						if ev.Outcome.State != in.State || ev.Outcome.NeedsInspection != (name == "look") || ev.Outcome.Next == "" {
							t.Errorf("%s: %+v", name, ev.Outcome)
						}
					}
				}
			})
		})
	}
}

func TestHooksAreToldOfBeginningsAndOtherKeys(t *testing.T) {
	var l told
	var log bytes.Buffer
	e := start(t, dedup(t), nil, client.Options{Hooks: l.hooks(), Logger: slog.New(slog.NewTextHandler(&log, nil))})
	expect := func(want string) []client.Event {
		t.Helper()
		names, events := l.take()
		if names != want {
			t.Errorf("told %q, want %q", names, want)
		}
		return events
	}
	e.srv.Script(clienttest.Decide(402, clienttest.JSON(), []byte(`{}`)))
	if _, err := e.client.Begin(e.ctx, inv7, e.post("/pay", pay)); err != nil {
		t.Fatal(err)
	}
	expect("begun")
	_, _ = e.client.Send(e.ctx, inv7)
	expect("attempt answer final")
	if _, err := e.client.Begin(e.ctx, inv7, e.post("/pay", pay)); err != nil {
		t.Fatal(err)
	}
	expect("") // it is no longer true that nothing was sent
	seen, err := e.client.Ring().Refusal(e.ctx, inv7)
	if err == nil {
		_, err = e.client.Rekey(e.ctx, seen, e.post("/pay", pay))
	}
	if err != nil {
		t.Fatal(err)
	}
	if events := expect("begun"); len(events) == 1 && events[0].Generation != 2 {
		t.Errorf("generation %d, want 2", events[0].Generation)
	}
	_, _ = e.do("inv-7", e.post("/pay", pay))
	for _, ev := range expect("attempt answer final") {
		if ev.Generation != 2 || ev.Attempt != 2 { // attempts are counted across keys
			t.Errorf("generation %d, attempt %d; want 2 and 2", ev.Generation, ev.Attempt)
		}
	}
	if !strings.Contains(log.String(), "attempt=2") {
		t.Errorf("the log counts attempts in another way than events do:\n%s", log.String())
	}
}

// TestAnEventSaysWhenTheNextAttemptIsDue: at once is a time, too.
func TestAnEventSaysWhenTheNextAttemptIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l told
		n := 0
		e := start(t, dedup(t), nil, client.Options{Hooks: l.hooks(), Authorize: func(_ context.Context, r *http.Request) error {
			n++
			r.Header.Set("Authorization", fmt.Sprint("Bearer ", n))
			return nil
		}})
		e.srv.Script(clienttest.Answer(401, clienttest.JSON(), nil))
		res, err := e.do("inv-7", e.post("/pay", pay))
		e.state(res, err, keyring.StateDone)
		names, events := l.take()
		if names != "begun attempt answer waiting attempt answer final" {
			t.Fatalf("told %q", names)
		}
		if until := events[3].Until; !until.Equal(time.Now()) || events[3].Reason == "" {
			t.Errorf("until %v, because %q; want now", until, events[3].Reason)
		}
	})
}

// normal makes log records comparable: no times, no waits, and fingerprints by
// the order in which they come.
func normal(w *bytes.Buffer) slog.Handler {
	var prints []string
	return slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		switch a.Key {
		case slog.TimeKey:
			return slog.Attr{}
		case "wait":
			if a.Value.Duration() > 0 {
				return slog.String("wait", "some")
			}
		case "fingerprint":
			i := slices.Index(prints, a.Value.String())
			if i < 0 {
				i, prints = len(prints), append(prints, a.Value.String())
			}
			return slog.String("fingerprint", fmt.Sprint("f", i+1))
		}
		return a
	}})
}

// TestTheLogIsStable: programs alert and count by the names of records and
// attributes.
func TestTheLogIsStable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		e := start(t, withTerms(t, "POST /pay", keyring.Terms{Dedup: keyring.DedupKey, KeepsRefusals: true, MarksRunning: true, Retention: 24 * time.Hour}), nil,
			client.Options{Logger: slog.New(normal(&log))})
		for _, c := range []struct {
			name, path string
			faults     []clienttest.Fault
		}{
			{"done", "/pay", []clienttest.Fault{clienttest.LoseAnswer(), clienttest.Answer(503, clienttest.JSON(), nil)}},
			{"done", "/pay", nil},
			{"refused", "/pay", []clienttest.Fault{clienttest.Decide(402, clienttest.JSON(), []byte(`{"code":"declined"}`))}},
			{"look", "/unlisted", []clienttest.Fault{clienttest.LoseAnswer()}},
			{"sign-in", "/pay", []clienttest.Fault{clienttest.Answer(401, clienttest.JSON(), nil)}},
			{"later", "/pay", []clienttest.Fault{clienttest.Answer(429, http.Header{"Content-Type": {"application/json"}, "Retry-After": {"3600"}}, []byte(`{}`))}},
			{"later", "/pay", nil},
			{"conflict", "/pay", []clienttest.Fault{clienttest.Conflict()}},
		} {
			e.srv.Script(c.faults...)
			req := e.post(c.path, fmt.Sprintf(`{"for":%q}`, c.name))
			req.Header.Set("Idempotency-Key", "key-"+c.name)
			_, _ = e.do(c.name, req)
		}
		golden := filepath.Join("testdata", "log.golden")
		if *update {
			if err := os.WriteFile(golden, log.Bytes(), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Split(log.String(), "\n")
		lines := strings.Split(strings.ReplaceAll(string(want), "\r\n", "\n"), "\n")
		for i := range max(len(got), len(lines)) {
			g, w := "nothing", "nothing"
			if i < len(got) {
				g = got[i]
			}
			if i < len(lines) {
				w = lines[i]
			}
			if g != w {
				t.Errorf("record %d is\n%s\nwant\n%s", i+1, g, w)
			}
		}
	})
}

// TestNothingThatIsToldHoldsASecret: neither events, nor logs, nor errors, nor
// what results print as.
func TestNothingThatIsToldHoldsASecret(t *testing.T) {
	secretive := http.Header{
		"Content-Type": {"application/json"}, "Set-Cookie": {"session=SECRET"}, "X-Debug": {"SECRET"}, "Location": {"https://user:SECRET@elsewhere.test/a?token=SECRET"},
	}
	body := []byte(`{"message":"SECRET","error":{"message":"SECRET"}}`)
	page := http.Header{"Content-Type": {"text/html"}}
	for _, f := range []clienttest.Fault{
		clienttest.Normal(), clienttest.LoseAnswer(), clienttest.LoseRequest(), clienttest.RefuseConnection(), clienttest.CutAnswer(3),
		clienttest.Answer(200, page, []byte("<html>SECRET")), clienttest.Answer(302, secretive, body), clienttest.Answer(307, secretive, body),
		clienttest.Answer(400, secretive, body), clienttest.Answer(401, secretive, body), clienttest.Answer(409, secretive, body),
		clienttest.Answer(429, secretive, body), clienttest.Answer(500, secretive, body), clienttest.Answer(503, page, []byte("<html>SECRET")),
		clienttest.Conflict(), clienttest.Pending(409), clienttest.Decide(402, secretive, body),
	} {
		for _, path := range []string{"/pay", "/unlisted"} {
			t.Run(f.String()+path, func(t *testing.T) {
				var log bytes.Buffer
				var l told
				e := start(t, withTerms(t, "POST /pay", keyring.Terms{Dedup: keyring.DedupKey, MarksRunning: true, Retention: 24 * time.Hour}), nil, client.Options{
					Hooks: l.hooks(), Inspector: sees(keyring.Finding{Kind: keyring.FindingAbsent, Evidence: "seen"}),
					Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})),
					Authorize: func(_ context.Context, r *http.Request) error {
						r.Header.Set("Authorization", "Bearer SECRET")
						r.URL.RawQuery += "&signature=SECRET"
						return nil
					},
				})
				e.url = "http://user:SECRET@box.test"
				e.srv.Script(f)
				request := func(body string) *http.Request {
					r := e.post(path+"?note=SECRET&api_key=SECRET", body)
					r.Header.Set("X-Account", "SECRET")
					r.Header.Set("Cookie", "session=SECRET")
					return r
				}
				res, err := e.do("inv-7", request(`{"card":"SECRET"}`))
				_, differs := e.do("inv-7", request(`{"card":"SECRET2"}`))
				names, events := l.take()
				if names == "" || log.Len() == 0 || differs == nil {
					t.Fatalf("nothing was told: %q, %d bytes of log, %v", names, log.Len(), differs)
				}
				for what, text := range map[string]string{
					"an event":   fmt.Sprintf("%+v", events),
					"the log":    log.String(),
					"the error":  fmt.Sprintf("%v %+v", err, err),
					"ErrDiffers": fmt.Sprintf("%v %+v", differs, differs),
					"the result": fmt.Sprintf("%v %+v", res, res),
					"the intent": fmt.Sprintf("%v %+v %v", res.Intent, res.Intent, res.Intent.Request),
					"an answer":  fmt.Sprintf("%v", res.Answer),
				} {
					if strings.Contains(text, "SECRET") {
						t.Errorf("%s holds what must not be told: %s", what, text)
					}
				}
			})
		}
	}
}

func TestABudgetThatIsUsedUpDefers(t *testing.T) {
	const reason = "the budget for repeated attempts is used up"
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		var l told
		shared := &retry.Budget{Burst: 2, Share: 1}
		e := start(t, dedup(t), nil, client.Options{
			Retry: retry.Exponential{MaxAttempts: 5}, Budget: shared, Hooks: l.hooks(), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		e.srv.Script(clienttest.Answer(503, clienttest.JSON(), nil).Forever())
		res, err := e.do("inv-1", e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		if e.srv.Hits() != 3 || !res.Outcome.NotBefore.After(time.Now()) {
			t.Errorf("%d hits, not before %v; want one and two repeats, and a time to come back", e.srv.Hits(), res.Outcome.NotBefore)
		}
		names, events := l.take()
		last := events[len(events)-1]
		if !strings.HasSuffix(names, "waiting") || last.Reason != reason || !last.Until.Equal(res.Outcome.NotBefore) {
			t.Errorf("told %q, last until %v because %q", names, last.Until, last.Reason)
		}
		if !strings.Contains(log.String(), "next=defer") || !strings.Contains(log.String(), reason) {
			t.Errorf("the log does not say so:\n%s", log.String())
		}

		// Another client on the same budget: first attempts are free, repeats are not.
		other := client.New(e.store, e.profile, &e.opts)
		before := e.srv.Hits()
		res, err = other.Do(e.ctx, keyring.Ref{Name: "inv-2"}, e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		if hits := e.srv.Hits() - before; hits != 1 {
			t.Errorf("%d hits on a shared budget that is used up, want 1", hits)
		}
		own := e.opts
		own.Budget = nil
		before = e.srv.Hits()
		res, err = client.New(e.store, e.profile, &own).Do(e.ctx, keyring.Ref{Name: "inv-3"}, e.post("/pay", pay))
		e.state(res, err, keyring.StateUnknown)
		if hits := e.srv.Hits() - before; hits != 5 {
			t.Errorf("%d hits on a budget of its own, want 5", hits)
		}

		// What goes well gives back, for all who share.
		e.srv.Unscript()
		res, err = other.Do(e.ctx, keyring.Ref{Name: "inv-4"}, e.post("/pay", pay))
		e.state(res, err, keyring.StateDone)
		e.srv.Script(clienttest.Answer(503, clienttest.JSON(), nil))
		res, err = e.do("inv-5", e.post("/pay", pay))
		e.state(res, err, keyring.StateDone)
	})
}
