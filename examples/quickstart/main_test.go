package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// TestMain lets the test's own program be the second process.
func TestMain(m *testing.M) {
	if isChild() {
		main()
		return
	}
	os.Exit(m.Run())
}

func TestTheStoryEndsWell(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	if !strings.HasSuffix(out.String(), shown) {
		t.Errorf("the end is missing:\n%s", &out)
	}
}

func TestAWrongLineIsNamed(t *testing.T) {
	right := counts{outcome: "done", attempts: 1, effects: 1, keys: 1}
	twice := right
	twice.effects = 2
	for _, c := range []struct {
		claim string
		lines []line
		want  string // part of the error; empty: none
	}{
		{"all is right", []line{{what: "a", ref: "r", key: "k", seen: right, want: right}}, ""},
		{"a second effect", []line{{what: "a", ref: "r", key: "k", seen: twice, want: right}}, `line "a" is wrong: "done" after 1 attempts with 2 effects under 1 keys, want "done" after 1 attempts with 1 effects`},
		{"a second key under a ref", []line{
			{what: "a", ref: "r", key: "k", seen: right, want: right},
			{what: "b", ref: "r", key: "l", seen: right, want: right},
		}, `line "b" is wrong: the key of r was k and is l`},
		{"other refs have other keys", []line{
			{what: "a", ref: "r", key: "k", seen: right, want: right},
			{what: "b", ref: "s", key: "l", seen: right, want: right},
		}, ""},
	} {
		t.Run(c.claim, func(t *testing.T) {
			switch err := check(c.lines); {
			case err == nil && c.want != "":
				t.Error("nothing was reported")
			case err != nil && (c.want == "" || !strings.Contains(err.Error(), c.want)):
				t.Errorf("reported %v", err)
			}
		})
	}
}
