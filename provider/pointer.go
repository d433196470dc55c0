package provider

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
)

// pointer is a parsed JSON pointer (RFC 6901): the members to go through.
type pointer []string

// maxPointer limits the members of a pointer, and with them how deep a body is
// looked into.
const maxPointer = 16

func parsePointer(field, s string) (pointer, error) {
	if !strings.HasPrefix(s, "/") {
		return nil, invalid("%s: a JSON pointer begins with /; %q does not", field, s)
	}
	parts := strings.Split(s[1:], "/")
	if len(parts) > maxPointer {
		return nil, invalid("%s: %q goes deeper than %d members", field, s, maxPointer)
	}
	for i, part := range parts {
		plain := strings.ReplaceAll(strings.ReplaceAll(part, "~1", ""), "~0", "")
		if strings.Contains(plain, "~") {
			return nil, invalid("%s: in %q a ~ must be written ~0, a / ~1", field, s)
		}
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

func pointers(field string, in []string) ([]pointer, error) {
	var out []pointer
	for _, s := range in {
		p, err := parsePointer(field, s)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// document is what a JSON body has at some pointers. The nil document has
// nothing. It is a tree of the places looked for, so that a large body is
// passed through once and little of it is kept.
type document struct {
	members map[string]*document
	seen    int    // how often the place came: more than once is no answer
	scalar  string // a string or number in short form, else ""
	there   bool   // something other than null, false and ""
}

// look reads a body at the given pointers. It returns nil for one that is not
// a single JSON value. What is nested deeper than the pointers go is skipped
// without recursion; encoding/json itself refuses more than 10,000 levels.
func look(body []byte, at ...[]pointer) *document {
	if !json.Valid(body) {
		return nil
	}
	root := &document{}
	for _, list := range at {
		for _, p := range list {
			root.add(p)
		}
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber() // a number is kept as it is written, however large
	if !root.read(dec) {
		return nil
	}
	return root
}

// lookCut reads the beginning of a body that was cut short, up to its last
// comma, so that nothing is taken for whole that may go on. Two effects under
// one key can show in it.
func lookCut(body []byte, at []pointer) *document {
	end := bytes.LastIndexByte(body, ',')
	if end < 0 {
		return nil
	}
	root := &document{}
	for _, p := range at {
		root.add(p)
	}
	dec := json.NewDecoder(bytes.NewReader(body[:end]))
	dec.UseNumber()
	root.read(dec) // it ends in an error, as the body does
	return root
}

func (d *document) add(p pointer) {
	for _, name := range p {
		next := d.members[name]
		if next == nil {
			if next = (&document{}); d.members == nil {
				d.members = map[string]*document{}
			}
			d.members[name] = next
		}
		d = next
	}
}

// read takes one value off the decoder. d nil: nobody asks for it.
func (d *document) read(dec *json.Decoder) bool {
	tok, err := dec.Token()
	if err != nil {
		return false
	}
	if d != nil {
		d.seen++
	}
	delim, container := tok.(json.Delim)
	if !container {
		if d != nil {
			d.set(tok)
		}
		return true
	}
	if d == nil || len(d.members) == 0 {
		if d != nil {
			d.there = true
		}
		return skip(dec)
	}
	d.there = true
	for i := 0; dec.More(); i++ {
		name := ""
		if delim == '[' {
			name = strconv.Itoa(i)
		} else {
			tok, err := dec.Token()
			if err != nil {
				return false
			}
			name, _ = tok.(string)
		}
		if !d.members[name].read(dec) {
			return false
		}
	}
	_, err = dec.Token()
	return err == nil
}

func (d *document) set(tok json.Token) {
	switch v := tok.(type) {
	case string:
		d.scalar, d.there = v, v != ""
	case json.Number:
		d.scalar, d.there = v.String(), true
	case bool:
		d.there = v
	}
	if len(d.scalar) > 1024 { // a URI in place of a code may be longer than an id
		d.scalar = ""
	}
}

// skip takes the rest of a container off the decoder, without recursion.
func skip(dec *json.Decoder) bool {
	for depth := 1; depth > 0; {
		tok, err := dec.Token()
		if err != nil {
			return false
		}
		switch tok {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
	}
	return true
}

// at returns the place of p, or nil if it is not there, or if it or a member
// on the way there is repeated: then two readers may see different values.
func (d *document) at(p pointer) *document {
	for _, name := range p {
		if d == nil {
			return nil
		}
		if d = d.members[name]; d == nil || d.seen != 1 {
			return nil
		}
	}
	return d
}

// has says whether there is something at p other than null, false and "".
func (d *document) has(p pointer) bool {
	place := d.at(p)
	return place != nil && place.there
}

// text returns the string or number at p, or "".
func (d *document) text(p pointer) string {
	if place := d.at(p); place != nil {
		return place.scalar
	}
	return ""
}

// id returns the first id at one of the pointers, or "".
func (d *document) id(at []pointer) string {
	for _, p := range at {
		if s := visible(d.text(p)); s != "" {
			return s
		}
	}
	return ""
}
