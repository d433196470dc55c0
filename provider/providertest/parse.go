package providertest

import (
	"fmt"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

// file is one exchange, with what is wanted of the profile.
type file struct {
	claim    string // the heading's first line
	exchange provider.Exchange
	want     map[string]string
}

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// parts are the lines that begin a part, in the order in which they must come.
var parts = []string{"-- request --\n", "-- answer --\n", "-- want --\n"}

func parse(content string) (file, error) {
	content = strings.ReplaceAll(content, "\r\n", "\n")
	if !strings.HasSuffix(content, "\n") {
		content += "\n"
	}
	var texts []string
	rest := "\n" + content // so that each part begins after a line's end
	for _, mark := range parts {
		before, after, ok := strings.Cut(rest, "\n"+mark)
		if !ok {
			return file{}, fmt.Errorf("the line %q is missing, or does not come in its place", strings.TrimSpace(mark))
		}
		texts = append(texts, before)
		rest = "\n" + after
	}
	texts = append(texts, rest)
	f := file{exchange: provider.Exchange{Attempt: 1, Now: noon}}
	var err error
	if f.claim, err = heading(texts[0]); err != nil {
		return file{}, err
	}
	if f.exchange.Sent, err = request(texts[1]); err != nil {
		return file{}, fmt.Errorf("request: %w", err)
	}
	f.exchange.Method, f.exchange.URL = f.exchange.Sent.Method, f.exchange.Sent.URL
	if err := answer(&f.exchange, texts[2]); err != nil {
		return file{}, fmt.Errorf("answer: %w", err)
	}
	if f.want, err = wanted(texts[3]); err != nil {
		return file{}, fmt.Errorf("want: %w", err)
	}
	return f, nil
}

// heading returns the claim. An exchange without a source proves nothing.
func heading(text string) (string, error) {
	claim, rest, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if claim == "" {
		return "", fmt.Errorf("the heading does not say what the exchange shows")
	}
	for line := range strings.Lines(rest) {
		if source, ok := strings.CutPrefix(line, "Source:"); ok && strings.TrimSpace(source) != "" {
			return claim, nil
		}
	}
	return "", fmt.Errorf(`no line of the heading begins with "Source:" and names one`)
}

func request(text string) (keyring.Request, error) {
	first, header, body, err := message(text)
	if err != nil {
		return keyring.Request{}, err
	}
	method, url, ok := strings.Cut(first, " ")
	if !ok || !strings.Contains(url, "://") {
		return keyring.Request{}, fmt.Errorf("the first line must be a method and a whole URL, not %q", first)
	}
	return keyring.Request{Method: method, URL: url, Header: header, Body: body}, nil
}

func answer(x *provider.Exchange, text string) error {
	first, header, body, err := message(text)
	if err != nil {
		return err
	}
	status, cut := strings.CutSuffix(first, " cut")
	switch {
	case first == "none", first == "not sent":
		if len(header) > 0 || len(body) > 0 {
			return fmt.Errorf("where there is none, it has no header and no body")
		}
		x.NotSent = first == "not sent"
		return nil
	case len(status) != 3:
		return fmt.Errorf(`the first line must be a status, "none" or "not sent", not %q`, first)
	}
	n, err := strconv.ParseUint(status, 10, 16)
	if err != nil {
		return fmt.Errorf("%q is no status", status)
	}
	x.Status, x.Header, x.Body, x.Cut = int(n), header, body, cut
	return nil
}

// message takes a part to its first line, header and body.
func message(text string) (first string, header map[string][]string, body []byte, err error) {
	head, rest, found := strings.Cut(strings.TrimPrefix(text, "\n"), "\n\n")
	if found {
		body = []byte(rest)
	}
	first, lines, _ := strings.Cut(strings.TrimSuffix(head, "\n"), "\n")
	header = map[string][]string{}
	for line := range strings.Lines(lines) {
		name, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
		if !ok || name == "" || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c > '~' || strings.ContainsRune(`"{}[]`, c) }) {
			return "", nil, nil, fmt.Errorf("%q is not a header; an empty line comes before the body", strings.TrimSpace(line))
		}
		name = textproto.CanonicalMIMEHeaderKey(name)
		header[name] = append(header[name], strings.TrimSpace(value))
	}
	return first, header, body, nil
}

// wanted reads the lines "name: value" of the last part.
func wanted(text string) (map[string]string, error) {
	want := map[string]string{}
	for line := range strings.Lines(strings.TrimSpace(text)) {
		name, value, ok := strings.Cut(strings.TrimSpace(line), ":")
		value = strings.TrimSpace(value)
		switch {
		case !ok || value == "":
			return nil, fmt.Errorf(`%q must be like "code: card_declined"; what is not wanted is left out`, strings.TrimSpace(line))
		case want[name] != "":
			return nil, fmt.Errorf("%q is there twice", name)
		}
		want[name] = value
	}
	for _, name := range []string{"verdict", "terms", "key"} {
		if want[name] == "" {
			return nil, fmt.Errorf("%q is missing", name)
		}
	}
	return want, nil
}
