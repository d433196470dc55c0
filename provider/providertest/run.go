package providertest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/samekey/samekey/keyring"
	"github.com/samekey/samekey/provider"
)

// Run checks the profile against each exchange in fsys: the files that end in
// ".txt", not those in directories below. Each is a subtest with its file's
// name. No such file is a failure.
func Run(t *testing.T, p provider.Profile, fsys fs.FS) {
	t.Helper()
	if err := p.Err(); err != nil {
		t.Fatalf("the profile is not usable: %v", err)
	}
	names, err := files(fsys)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		t.Run(strings.TrimSuffix(name, ".txt"), func(t *testing.T) {
			content, err := fs.ReadFile(fsys, name)
			if err != nil {
				t.Fatal(err)
			}
			if err := check(p, string(content)); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}

func files(fsys fs.FS) ([]string, error) {
	names, err := fs.Glob(fsys, "*.txt")
	if err == nil && len(names) == 0 {
		err = errors.New("there is no file that ends in .txt, so that nothing would be checked")
	}
	return names, err
}

// check reports all that is wrong with one exchange. It reports errors instead
// of failing a test, so that the suite itself can be tried on wrong profiles.
func check(p provider.Profile, content string) error {
	f, err := parse(content)
	if err != nil {
		return err
	}
	x := f.exchange
	body := string(x.Body)
	v := p.Read(x)
	var problems []error
	report := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if again := p.Read(x); again != v {
		report("the same answer reads as %+v, and then as %+v", v, again)
	}
	if string(x.Body) != body {
		report("reading the answer changed its body")
	}
	got := verdict(v)
	got["terms"] = terms(p.TermsFor(x.Sent))
	if got["key"], err = place(p, x.Sent); err != nil {
		report("%w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(union(got, f.want))) {
		if got[name] != f.want[name] {
			report("%s: got %q, want %q", name, got[name], f.want[name])
		}
	}
	if len(problems) > 0 {
		report("the verdict's reason is %q; the exchange shows: %s", v.Why, f.claim)
	}
	return errors.Join(problems...)
}

func union(a, b map[string]string) map[string]string {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// verdict gives all of a verdict but its reason, status and date, which the
// answer has word for word.
func verdict(v keyring.Verdict) map[string]string {
	got := map[string]string{"verdict": v.Kind.String()}
	var flags []string
	for _, f := range []struct {
		set  bool
		name string
	}{{v.NoResend, "no resend"}, {v.Front, "front"}, {v.SignIn, "sign in"}, {v.Replayed, "replayed"}, {v.Unreadable, "unreadable"}} {
		if f.set {
			flags = append(flags, f.name)
		}
	}
	for name, value := range map[string]string{
		"flags": strings.Join(flags, ", "), "code": v.Code, "effect id": v.EffectID, "request id": v.RequestID,
	} {
		if value != "" {
			got[name] = value
		}
	}
	if v.RetryAfter != 0 {
		got["retry after"] = v.RetryAfter.String()
	}
	return got
}

// terms gives all of the terms but the profile's name.
func terms(t keyring.Terms) string {
	name := t.Profile
	if t == (keyring.Terms{Profile: name}) {
		return "none"
	}
	parts := []string{t.Dedup.String()}
	if t.KeepsRefusals {
		parts = append(parts, "keeps refusals")
	}
	if t.MarksRunning {
		parts = append(parts, "marks running")
	}
	switch t.Retention {
	case 0:
	case keyring.Forever:
		parts = append(parts, "retention forever")
	default:
		parts = append(parts, "retention "+t.Retention.String())
	}
	if t.Margin != 0 {
		parts = append(parts, "margin "+t.Margin.String())
	}
	if t.Spacing != 0 {
		parts = append(parts, "spacing "+t.Spacing.String())
	}
	if t.Settle != 0 {
		parts = append(parts, "settle "+t.Settle.String())
	}
	return strings.Join(parts, ", ")
}

// aKey has the form of those that package keyring makes.
const aKey = "6f1c1c7e-4d0b-4f7a-9a55-0d3f6a2b8c11"

// place puts a key into the request and gives the header it went into, or
// "none". The rest of the request must be as it was, and promised the same: the
// terms are taken again from what is stored, with the key in it.
func place(p provider.Profile, r keyring.Request) (string, error) {
	name := p.KeyHeader(r.Method, r.URL)
	put := p.Place(r.Method, r.URL)
	switch {
	case (name == "") != (put == nil):
		return "", fmt.Errorf("the key's header is %q, but there is a place for the key: %v", name, put != nil)
	case put == nil:
		return "none", nil
	}
	key, err := keyring.ParseKey(aKey)
	if err != nil {
		return "", err
	}
	placed, err := put(r, key)
	if err != nil {
		return "", fmt.Errorf("the key cannot be placed: %w", err)
	}
	where := name
	switch values := placed.Header[name]; {
	case slices.Equal(values, []string{aKey}):
	case slices.Equal(values, []string{`"` + aKey + `"`}):
		where = `"` + name + `"`
	default:
		return "", fmt.Errorf("with the key placed, the header %s has something else in it than the key", name)
	}
	if got, want := p.TermsFor(placed), p.TermsFor(r); got != want {
		return where, fmt.Errorf("with the key placed, the terms are %q, before %q", terms(got), terms(want))
	}
	placed.Header = maps.Clone(placed.Header)
	delete(placed.Header, name)
	if placed.Method != r.Method || placed.URL != r.URL || !bytes.Equal(placed.Body, r.Body) ||
		!maps.EqualFunc(placed.Header, r.Header, slices.Equal[[]string]) {
		return where, errors.New("placing the key changed something else in the request")
	}
	return where, nil
}
