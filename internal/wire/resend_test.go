package wire

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"golang.org/x/net/http2"

	"github.com/samekey/samekey/client/clienttest"
)

// everyKind calls test for the requests that net/http would like to send
// again: with the key's header, by method, with a body and without.
func everyKind(t *testing.T, test func(t *testing.T, req Request)) {
	for _, method := range []string{"POST", "PUT", "PATCH", "DELETE", "GET", "HEAD", "OPTIONS"} {
		for _, body := range []string{"", "{}"} {
			t.Run(fmt.Sprintf("%s with %d bytes", method, len(body)), func(t *testing.T) {
				test(t, Request{Method: method, Header: keyed("X-Idempotency-Key", "k-1"), Body: []byte(body)})
			})
		}
	}
}

// C25, and for HTTP/2 a stream that is reset after the effect.
func TestNothingIsSentAgainWhenAnAnswerIsLostOnAWarmConnection(t *testing.T) {
	everyKind(t, func(t *testing.T, req Request) {
		onBoth(t, &clienttest.Options{NoDedup: true}, func(t *testing.T, s *clienttest.Server, url string, rt *http.Transport) {
			if warm := Send(within(t), rt, Request{Method: "GET", URL: url + "/warm"}, options); warm.Err != nil {
				t.Fatal(warm.Err)
			}
			s.On("/pay", clienttest.LoseAnswer())
			req.URL = url + "/pay"
			got := Send(within(t), rt, req, options)
			if got.Err == nil || got.Status != 0 || got.NotSent {
				t.Errorf("got %+v, want doubt", got)
			}
			if s.Hits("/pay") != 1 {
				t.Errorf("one attempt made %s", s)
			}
			if _, most := s.Connections(); most != 1 {
				t.Errorf("the connection was not warm: there were %d", most)
			}
		})
	})
}

// C25 for an HTTP/2 connection that dies as a whole.
func TestNothingIsSentAgainWhenAnHTTP2ConnectionDies(t *testing.T) {
	everyKind(t, func(t *testing.T, req Request) {
		f := newFrames(t)
		if warm := Send(within(t), f.rt, Request{Method: "GET", URL: f.url}, options); warm.Status != 200 {
			t.Fatalf("got %+v", warm)
		}
		f.mu.Lock()
		f.script = []action{hangUp}
		f.mu.Unlock()
		req.URL = f.url
		got := Send(within(t), f.rt, req, options)
		if got.Err == nil || got.NotSent {
			t.Errorf("got %+v, want doubt", got)
		}
		if conns, streams := f.counts(); conns != 1 || streams != 2 {
			t.Errorf("the warm request and one attempt made %d streams on %d connections", streams, conns)
		}
	})
}

// C31. It fails when net/http words its errors in another way: then
// unprocessedText must follow, or refused streams become doubt.
func TestOnlyAStreamTheServerDidNotProcessIsNotSent(t *testing.T) {
	cases := []struct {
		name    string
		do      action
		notSent bool
	}{
		{"REFUSED_STREAM", reset(http2.ErrCodeRefusedStream), true},
		{"GOAWAY below the stream", goAway(http2.ErrCodeNo), true},
		{"INTERNAL_ERROR", reset(http2.ErrCodeInternal), false},
		{"PROTOCOL_ERROR", reset(http2.ErrCodeProtocol), false},
		{"CANCEL", reset(http2.ErrCodeCancel), false},
		{"NO_ERROR", reset(http2.ErrCodeNo), false},
		{"GOAWAY with an error code on a new connection", goAway(http2.ErrCodeInternal), false},
		{"connection closed", hangUp, false},
	}
	for _, tc := range cases {
		t.Run(tc.name, func(t *testing.T) {
			everyKind(t, func(t *testing.T, req Request) {
				f := newFrames(t, tc.do)
				req.URL = f.url
				got := Send(within(t), f.rt, req, options)
				if got.Err == nil || got.Status != 0 || got.NotSent != tc.notSent {
					t.Errorf("got %+v, want NotSent %v", got, tc.notSent)
				} else if strings.Contains(got.Err.Error(), "SECRET") {
					t.Errorf("the error quotes the server: %v", got.Err)
				}
				if _, streams := f.counts(); streams != 1 {
					t.Errorf("one attempt made %d streams", streams)
				}
				// The next attempt is served.
				if got := Send(within(t), f.rt, req, options); got.Status != 200 {
					t.Errorf("the next attempt got %+v", got)
				}
				if _, streams := f.counts(); streams != 2 {
					t.Errorf("two attempts made %d streams", streams)
				}
			})
		})
	}
}

func TestAnUnprocessedStreamIsRecognisedByTheWholeText(t *testing.T) {
	refused := "http2: Transport: cannot retry err [stream error: stream ID 5; REFUSED_STREAM; received from peer] after Request.Body was written; define Request.GetBody to avoid this error"
	cases := map[string]bool{
		refused:                        true,
		`malformed: "` + refused + `"`: false,
		refused + ` (quoted)`:          false,
		strings.Replace(refused, "; received from peer", "", 1):                           false,
		strings.Replace(refused, "REFUSED_STREAM", "INTERNAL_ERROR", 1):                   false,
		`http2: server sent GOAWAY and closed the connection; LastStreamID=0, ` + refused: false,
	}
	for text, want := range cases {
		if got := unprocessed(fmt.Errorf("%s", text)); got != want {
			t.Errorf("%v for %s", got, text)
		}
	}
}
