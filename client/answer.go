package client

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strconv"

	"github.com/samekey/samekey/internal/canon"
	"github.com/samekey/samekey/keyring"
)

// answerFormat begins each stored answer.
const answerFormat = 1

// cutKept is how much is stored of an answer's body that was not read whole:
// enough to see what it was.
const cutKept = 64 << 10

// Answer is the provider's reply, as it was recorded. Headers that set or carry
// credentials are not recorded.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // whole, unless the outcome's verdict is Unreadable
}

// encode gives the form that is stored: format, status, headers, body, each
// after its length.
func (a *Answer) encode() []byte {
	b := make([]byte, 0, 512+len(a.Body))
	b = append(b, answerFormat)
	put := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.AppendUvarint(b, uint64(a.Status))
	kept := make([]string, 0, len(a.Header))
	for _, name := range slices.Sorted(maps.Keys(a.Header)) {
		if !canon.Credential(name) {
			kept = append(kept, name)
		}
	}
	b = binary.AppendUvarint(b, uint64(len(kept)))
	for _, name := range kept {
		put(name)
		b = binary.AppendUvarint(b, uint64(len(a.Header[name])))
		for _, v := range a.Header[name] {
			if name == "Location" || name == "Content-Location" {
				v = canon.Clean(v)
			}
			put(v)
		}
	}
	return append(b, a.Body...)
}

var errAnswer = errors.New("the stored answer cannot be read")

// ParseAnswer reads Intent.Answer. It returns nil without an error for an
// intent that has none.
func ParseAnswer(b []byte) (*Answer, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if b[0] != answerFormat {
		return nil, fmt.Errorf("%w: it has format %d, this version of samekey reads %d; update it", errAnswer, b[0], answerFormat)
	}
	b = b[1:]
	ok := true
	number := func() int {
		v, n := binary.Uvarint(b)
		if n <= 0 || v > uint64(max(len(b), 1000)) {
			ok, b = false, nil
			return 0
		}
		b = b[n:]
		return int(v)
	}
	text := func() string {
		n := number()
		if n > len(b) {
			ok, b = false, nil
			return ""
		}
		s := string(b[:n])
		b = b[n:]
		return s
	}
	a := &Answer{Status: number(), Header: http.Header{}}
	for range number() {
		if !ok {
			return nil, errAnswer
		}
		name := text()
		for range number() {
			if !ok {
				return nil, errAnswer
			}
			a.Header[name] = append(a.Header[name], text())
		}
	}
	if !ok {
		return nil, errAnswer
	}
	a.Body = bytes.Clone(b)
	return a, nil
}

// Result is what a call knows about its intent when it returns.
type Result struct {
	Intent  keyring.Intent
	Outcome keyring.Outcome
	// Answer is the recorded reply: of the attempt that took effect, if there is
	// one, else of the latest attempt that got any. Nil: there is none.
	Answer *Answer
}

// Response gives the answer as net/http would have, with a body of its own
// each time; nil where there is none. Its Request is nil.
func (r *Result) Response() *http.Response {
	if r == nil || r.Answer == nil {
		return nil
	}
	a := r.Answer
	return &http.Response{
		Status:        statusText(a.Status),
		StatusCode:    a.Status,
		Proto:         "HTTP/1.1",
		ProtoMajor:    1,
		ProtoMinor:    1,
		Header:        a.Header.Clone(),
		Body:          io.NopCloser(bytes.NewReader(a.Body)),
		ContentLength: int64(len(a.Body)),
	}
}

func statusText(status int) string {
	if text := http.StatusText(status); text != "" {
		return strconv.Itoa(status) + " " + text
	}
	return strconv.Itoa(status)
}

// String gives the status and the length of the body, and no more.
func (a *Answer) String() string {
	if a == nil {
		return "no answer"
	}
	return fmt.Sprintf("%s (%d bytes)", statusText(a.Status), len(a.Body))
}

// String names the intent and its outcome; it holds neither request nor answer.
func (r *Result) String() string {
	if r == nil {
		return "no result"
	}
	return r.Intent.String() + ", " + r.Answer.String()
}
