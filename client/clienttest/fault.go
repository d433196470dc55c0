package clienttest

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// Fault says what happens to one hit. The zero Fault is [Normal]: nothing goes
// wrong. Faults are values; the methods return a changed copy.
type Fault struct {
	kind    faultKind
	status  int
	header  http.Header
	body    []byte
	n       int
	work    time.Duration
	wait    time.Duration
	forever bool
	unread  bool
}

type faultKind uint8

const (
	normal faultKind = iota
	refuseConnection
	loseRequest
	loseAnswer
	cutAnswer
	stallBefore
	stallAfter
	stallBody
	answer
	actThenAnswer
	decide
)

// Normal lets the hit through: de-duplication, effect, answer.
func Normal() Fault { return Fault{} }

// RefuseConnection makes the connection fail, so that nothing of the request
// leaves the client. It is no hit. Over sockets the connection has been made
// by the time a request is seen; there it does what [LoseRequest] does.
func RefuseConnection() Fault { return Fault{kind: refuseConnection} }

// LoseRequest closes the connection after the request was read and before
// anything is done about it.
func LoseRequest() Fault { return Fault{kind: loseRequest} }

// LoseAnswer does everything as usual, then closes the connection instead of
// answering.
func LoseAnswer() Fault { return Fault{kind: loseAnswer} }

// CutAnswer does everything as usual and answers with the full Content-Length,
// but closes the connection after n bytes of the body.
func CutAnswer(n int) Fault { return Fault{kind: cutAnswer, n: n} }

// StallBefore waits before acting, with the key marked as running, until
// [Server.Release] or until the client goes away. Released, it goes on as
// usual; left, it does nothing and the key is free again.
func StallBefore() Fault { return Fault{kind: stallBefore} }

// StallAfter acts, then waits until [Server.Release] or until the client goes
// away. Released, it answers.
func StallAfter() Fault { return Fault{kind: stallAfter} }

// StallBody acts and answers with status, header and n bytes of the body; the
// rest waits until [Server.Release] or until the client goes away.
func StallBody(n int) Fault { return Fault{kind: stallBody, n: n} }

// Answer answers as given, before the de-duplication is looked up: no effect,
// and nothing is kept under the key. A nil header means none; a Content-Type
// is not added.
func Answer(status int, header http.Header, body []byte) Fault {
	return Fault{kind: answer, status: status, header: header.Clone(), body: slices.Clone(body)}
}

// ActThenAnswer does everything as usual, keeps the usual answer under the
// key, but sends this one: a gateway that gave up, say.
func ActThenAnswer(status int, header http.Header, body []byte) Fault {
	return Fault{kind: actThenAnswer, status: status, header: header.Clone(), body: slices.Clone(body)}
}

// Decide puts this answer in the place of what [Options.Act] would say. From
// status 400 on it is a refusal: no effect, kept under the key unless
// [Options.ForgetRefusals] is set.
func Decide(status int, header http.Header, body []byte) Fault {
	return Fault{kind: decide, status: status, header: header.Clone(), body: slices.Clone(body)}
}

// JSON is the header of most answers: Content-Type application/json.
func JSON() http.Header { return http.Header{"Content-Type": {"application/json"}} }

// Pending answers that an earlier request under the key is still running, with
// 409 or 202 and the code "in_progress", whatever is true.
func Pending(status int) Fault { return Answer(status, JSON(), []byte(`{"code":"in_progress"}`)) }

// Conflict answers 422 with the code "key_reused", whatever is true.
func Conflict() Fault {
	return Answer(http.StatusUnprocessableEntity, JSON(), []byte(`{"code":"key_reused"}`))
}

// Redirect answers with the status and a Location, without an effect.
func Redirect(status int, location string) Fault {
	return Answer(status, http.Header{"Location": {location}}, nil)
}

// Work puts a working time before the effect, with the key marked as running.
// It goes on when the client has left, and acts then: the server that was only
// slow.
func (f Fault) Work(d time.Duration) Fault { f.work = d; return f }

// Wait puts a waiting time before the answer, after the effect if there is
// one. It ends when the client leaves.
func (f Fault) Wait(d time.Duration) Fault { f.wait = d; return f }

// Forever makes the fault stay: what comes after it in a script is never
// reached.
func (f Fault) Forever() Fault { f.forever = true; return f }

// Unread leaves the request's body unread. It goes with [Answer] and its kin
// and with [LoseRequest]; others need the body, and ignore it.
func (f Fault) Unread() Fault { f.unread = true; return f }

// leavesBody says whether the body is not to be read.
func (f Fault) leavesBody() bool {
	return f.unread && (f.kind == answer || f.kind == loseRequest || f.kind == refuseConnection)
}

// String names the fault, for failure messages.
func (f Fault) String() string {
	names := [...]string{
		"normal", "refuse connection", "lose request", "lose answer", "cut answer", "stall before", "stall after",
		"stall body", "answer", "act then answer", "decide",
	}
	s := names[f.kind]
	if f.status != 0 {
		s = fmt.Sprintf("%s %d", s, f.status)
	}
	return s
}

// reply is what goes back to the client.
type reply struct {
	status int
	header http.Header
	body   []byte
	drop   bool // close the connection instead
	cut    bool // close the connection after n bytes of the body
	stall  bool // after n bytes of the body wait for release
	n      int
	resume <-chan struct{}
}

// head returns the reply's header with the request id added.
func (r reply) head(hit int) http.Header {
	h := r.header.Clone()
	if h == nil {
		h = http.Header{}
	}
	if h.Get("Request-Id") == "" {
		h.Set("Request-Id", fmt.Sprintf("req_%d", hit))
	}
	return h
}

// part returns how many bytes of the body go out before the cut or the stall.
func (r reply) part() int { return min(max(r.n, 0), len(r.body)) }
