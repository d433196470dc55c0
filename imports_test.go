package samekey_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

const modulePath = "github.com/samekey/samekey"

// pictureRow is one package of the picture in CONTRIBUTING.md: what its files may
// import besides the standard library. Its tests may also import all that is
// below it, and testHelpers.
type pictureRow struct {
	inside  []string // packages of this module, by directory
	outside []string // modules or packages of others; what lies below them is meant too
	not     []string // packages that are ruled out although they would fit otherwise
	top     bool     // stands on top: any public package of this module, and any of others
	why     string   // ends the sentence "… because"
}

// picture says who may import whom. Arrows go down. Directories that do
// not exist yet have their row already; one without a row fails the test.
var picture = map[string]pictureRow{
	".": {
		why: "the root package is documentation; a program that imports it should link nothing",
	},
	"keyring": {
		inside:  []string{"internal/canon", "internal/clock"},
		outside: []string{"github.com/google/uuid", "golang.org/x/text/unicode/norm"},
		not:     []string{"net", "net/http", "database/sql"},
		why:     "the rules about keys know neither a network nor a database, so that every sender and every store shares them",
	},
	"keyring/keyringtest": {
		inside: []string{"keyring"},
		why:    "a store's author runs this suite and must not compile a database or a sender for it",
	},
	"retry": {
		outside: []string{"github.com/cenkalti/backoff/v4"},
		why:     "when an attempt is due is a pure function of numbers; whether it is permitted is decided elsewhere",
	},
	"provider": {
		inside: []string{"keyring"},
		why:    "a profile is data about a provider; it sends nothing and stores nothing",
	},
	"provider/providertest": {
		inside: []string{"keyring", "provider"},
		why:    "profiles are tested against recorded exchanges, without a sender",
	},
	"internal/wire": {
		why: "one attempt is one request of net/http; whatever wraps it could send a second one",
	},
	"internal/canon": {
		why: "what counts as the same request must not change with somebody else's release",
	},
	"internal/clock": {
		outside: []string{"github.com/google/uuid", "golang.org/x/sys/unix"},
		why:     "everything reads the time through it, so it can stand on nothing of ours",
	},
	"client": {
		inside:  []string{"internal/canon", "internal/clock", "internal/wire", "keyring", "provider", "retry"},
		outside: []string{"github.com/cenkalti/backoff/v4", "github.com/hashicorp/go-retryablehttp"},
		why:     "the sender works on any store; it must not know Badger or another database",
	},
	"client/clienttest": {
		not: []string{"testing"},
		why: "programs and examples run the fake provider too, and it must not share a mistake with the client it tests",
	},
	"badgerkeys": {
		inside: []string{"keyring"},
		outside: []string{
			"github.com/dgraph-io/badger/v4", "github.com/gofrs/flock", "github.com/google/uuid", "golang.org/x/sys",
			"google.golang.org/protobuf/proto", // the form of a checksum at the end of Badger's tables
		},
		why: "a store keeps bytes; what is sent, and to whom, is no business of it",
	},
	"examples/*": {
		top: true,
		why: "an example is what a reader copies, and a reader cannot import internal packages",
	},
	"cmd/*": {
		top: true,
		why: "the command line is a program like any other, and shows that the public surface suffices",
	},
}

// testHelpers are what the tests of every package may import.
var testHelpers = pictureRow{
	inside:  []string{"client/clienttest", "internal/clock", "keyring/keyringtest", "provider/providertest"},
	outside: []string{"go.uber.org/goleak", "golang.org/x/net"},
}

// TestNoArrowPointsUp compares the imports of all files, those for other
// platforms included, with the picture.
func TestNoArrowPointsUp(t *testing.T) {
	for _, problem := range wrongImports(moduleTree(t)) {
		t.Error(problem)
	}
}

func TestEveryRowOfThePictureStandsOnRows(t *testing.T) {
	for dir, r := range picture {
		for _, in := range append(slices.Clone(r.inside), testHelpers.inside...) {
			if _, ok := picture[in]; !ok {
				t.Errorf("the row of %s names %s, which has no row", dir, in)
			}
		}
	}
}

// TestWrongImportsAreSeen shows that the check above can fail.
func TestWrongImportsAreSeen(t *testing.T) {
	for _, c := range []struct {
		name, file, imports string
		want                string // part of the only problem; empty: none
	}{
		{"the rules need no network", "keyring/a.go", "net/http", "keyring/a.go imports net/http"},
		{"the rules know no store", "keyring/a.go", modulePath + "/badgerkeys", "imports badgerkeys"},
		{"a store knows no sender", "badgerkeys/a.go", modulePath + "/client", "imports client"},
		{"a sender knows no store", "client/a.go", modulePath + "/badgerkeys", "imports badgerkeys"},
		{"nor in its tests", "client/a_test.go", modulePath + "/badgerkeys", "imports badgerkeys"},
		{"the fake provider runs outside tests", "client/clienttest/a.go", "testing", "imports testing"},
		{"a test helper stays out of the library", "client/a.go", modulePath + "/keyring/keyringtest", "imports keyring/keyringtest"},
		{"testing stays out of the library", "client/a.go", "testing", "imports testing"},
		{"another's module needs a line", "retry/a.go", "github.com/sethvargo/go-retry", "imports github.com/sethvargo/go-retry"},
		{"a longer name is another module", "badgerkeys/a.go", "github.com/dgraph-io/badger/v40", "imports github.com/dgraph-io/badger/v40"},
		{"a file for another platform counts", "keyring/a_windows.go", "golang.org/x/sys/windows", "imports golang.org/x/sys/windows"},
		{"an example can be copied", "examples/x/main.go", modulePath + "/internal/clock", "imports internal/clock"},
		{"no C compiler is needed", "badgerkeys/a.go", "C", "imports C"},
		{"a new package joins the picture", "ledger/a.go", "time", "ledger is not in the picture"},
		{"the root links nothing", "a.go", modulePath + "/client", "imports client"},

		{"below is allowed", "client/a.go", modulePath + "/internal/wire", ""},
		{"a package of an allowed module", "badgerkeys/a.go", "github.com/dgraph-io/badger/v4/options", ""},
		{"tests reach further down", "provider/a_test.go", modulePath + "/internal/canon", ""},
		{"tests use the helpers", "client/a_test.go", modulePath + "/keyring/keyringtest", ""},
		{"tests of the root use everything", "a_test.go", modulePath + "/badgerkeys", ""},
		{"an example uses what is public", "examples/x/main.go", modulePath + "/badgerkeys", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := fmt.Sprintf("package p\nimport _ %q\n", c.imports)
			files, err := parseTree(fstest.MapFS{c.file: {Data: []byte(src)}})
			if err != nil {
				t.Fatal(err)
			}
			got := wrongImports(files)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("refused: %q", got)
			case c.want != "" && (len(got) != 1 || !strings.Contains(got[0], c.want)):
				t.Errorf("got %q, want one problem with %q", got, c.want)
			}
		})
	}
}

// wrongImports names each import that the picture does not show, with the
// reason, and each directory that is not in it.
func wrongImports(files []goFile) []string {
	var problems []string
	missing := map[string]bool{}
	for _, f := range files {
		name, r, ok := rowOf(f.dir())
		if !ok {
			if !missing[f.dir()] {
				missing[f.dir()] = true
				problems = append(problems, fmt.Sprintf(
					"package %s is not in the picture: add it to the table in imports_test.go and to the drawing in CONTRIBUTING.md, with the reason for its imports", f.dir()))
			}
			continue
		}
		for _, spec := range f.ast.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", f.name, err))
				continue
			}
			if why := forbidden(name, r, f, imp); why != "" {
				problems = append(problems, fmt.Sprintf("%s imports %s, which the picture does not show: %s",
					f.name, strings.TrimPrefix(imp, modulePath+"/"), why))
			}
		}
	}
	return problems
}

// forbidden says why f, a file of the package with row r, may not import imp.
// Empty means that it may.
func forbidden(name string, r pictureRow, f goFile, imp string) string {
	inside, ours := strings.CutPrefix(imp, modulePath+"/")
	if imp == modulePath {
		inside, ours = ".", true
	}
	switch {
	case imp == "C":
		return "samekey is built without a C compiler, for every platform from any other"
	case f.isTest() && (slices.Contains(testHelpers.inside, inside) || withinAny(testHelpers.outside, imp)):
		return ""
	case f.isTest() && name == ".":
		return "" // where everything meets: the stories of the promises
	case f.isTest() && inside == f.dir():
		return ""
	case ours && r.top:
		if strings.HasPrefix(inside, "internal/") {
			return r.why
		}
		return ""
	case ours && f.isTest():
		if !reachable(r)[inside] {
			return r.why
		}
		return ""
	case ours:
		if !slices.Contains(r.inside, inside) {
			return r.why
		}
		return ""
	case f.isTest() && isStd(imp):
		return ""
	case slices.Contains(r.not, imp):
		return r.why
	case imp == "testing" && !r.top && !strings.HasSuffix(name, "test"):
		return "a program that uses samekey must not link the testing package and its flags"
	case isStd(imp) || r.top || withinAny(r.outside, imp):
		return ""
	}
	return r.why
}

// reachable is everything that the package with row r can reach by its arrows.
func reachable(r pictureRow) map[string]bool {
	reached := map[string]bool{}
	var walk func(r pictureRow)
	walk = func(r pictureRow) {
		for _, in := range r.inside {
			if !reached[in] {
				reached[in] = true
				walk(picture[in])
			}
		}
	}
	walk(r)
	return reached
}

func rowOf(dir string) (string, pictureRow, bool) {
	if r, ok := picture[dir]; ok {
		return dir, r, true
	}
	for name, r := range picture {
		if ok, _ := path.Match(name, dir); ok { // the patterns are fixed and well formed
			return name, r, true
		}
	}
	return "", pictureRow{}, false
}

// isStd: only import paths of the standard library have no dot in their first
// element.
func isStd(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}

func withinAny(prefixes []string, imp string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		return imp == p || strings.HasPrefix(imp, p+"/")
	})
}

// goFile is one parsed Go file of the module.
type goFile struct {
	name string // slash-separated, from the module's root
	ast  *ast.File
	fset *token.FileSet
}

func (f goFile) dir() string  { return path.Dir(f.name) }
func (f goFile) isTest() bool { return strings.HasSuffix(f.name, "_test.go") }

// isProgram says whether f belongs to an example or a command: a program may
// print, and exports nothing.
func (f goFile) isProgram() bool {
	return strings.HasPrefix(f.name, "examples/") || strings.HasPrefix(f.name, "cmd/")
}

func (f goFile) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.name, f.fset.Position(n.Pos()).Line)
}

// moduleTree parses this module.
func moduleTree(t *testing.T) []goFile {
	t.Helper()
	files, err := parseTree(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	// Tests run in their package's directory, here the root of the module.
	// Elsewhere there would be nothing to check, and nothing would fail.
	if !slices.ContainsFunc(files, func(f goFile) bool { return f.dir() == "keyring" }) {
		t.Fatal("package keyring was not found: is this the root of the module?")
	}
	return files
}

// parseTree reads all Go files below fsys, whatever their build constraints,
// except those of nested modules and of directories that the go command
// leaves out as well.
func parseTree(fsys fs.FS) ([]goFile, error) {
	var files []goFile
	fset := token.NewFileSet()
	err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		base := path.Base(name)
		if d.IsDir() {
			if name == "." {
				return nil
			}
			if _, err := fs.Stat(fsys, path.Join(name, "go.mod")); err == nil {
				return fs.SkipDir
			}
			if base[0] == '.' || base[0] == '_' || base == "testdata" || base == "vendor" {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(base, ".go") || base[0] == '.' || base[0] == '_' {
			return nil
		}
		src, err := fs.ReadFile(fsys, name)
		if err != nil {
			return err
		}
		parsed, err := parser.ParseFile(fset, name, src, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		files = append(files, goFile{name, parsed, fset})
		return nil
	})
	return files, err
}
