package samekey_test

import (
	"fmt"
	"go/ast"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// A package is met through its comment, and an exported name through its own:
// what is promised stands there or nowhere.
func TestPackagesAndExportedNamesAreExplained(t *testing.T) {
	for _, problem := range unexplained(moduleTree(t)) {
		t.Error(problem)
	}
}

// What a library writes to the terminal belongs to the program that embeds
// it, and may hold what must not be there.
func TestLibrariesPrintNothing(t *testing.T) {
	for _, problem := range prints(moduleTree(t)) {
		t.Error(problem)
	}
}

// TestBadSourceIsSeen shows that the two checks above can fail.
func TestBadSourceIsSeen(t *testing.T) {
	const head = "// Package p does.\npackage p\n"
	for _, c := range []struct {
		name, file, src string
		want            string // part of the only problem; empty: none
	}{
		{"no package comment", "p/a.go", "package p", "package p (p) has no package comment"},
		{"a comment that is not about the package", "p/a.go", "// Copyright.\npackage p", `begins with "Package p "`},
		{"a program needs one too", "cmd/x/main.go", "package main", "has no package comment"},
		{"a program says what it likes", "cmd/x/main.go", "// The command x does.\npackage main", ""},
		{"a package of tests alone", "p/a_test.go", "package p_test", ""},

		{"a function", "p/a.go", head + "func F() {}", "p/a.go:3: F has no comment"},
		{"a method", "p/a.go", head + "type t int\n// T is.\ntype T = t\nfunc (*t) M() {}\nfunc (T) M() {}", "T.M has no comment"},
		{"a generic method", "p/a.go", head + "// T is.\ntype T[A any] struct{}\nfunc (*T[A]) M() {}", "T.M has no comment"},
		{"a type", "p/a.go", head + "type T int", "T has no comment"},
		{"one of several constants", "p/a.go", head + "const (\n\t// A is.\n\tA = 1\n\tB = 2\n)", "p/a.go:6: B has no comment"},
		{"a group under one comment", "p/a.go", head + "// The limits.\nconst (\n\tA = 1\n\tB = 2\n)", "A has no comment"},
		{"a variable with the comment behind it", "p/a.go", head + "var A = 1 // A is.", ""},
		{"an unexported name", "p/a.go", head + "func f() {}", ""},
		{"names in tests", "p/a_test.go", "package p\nfunc TestX() {}", ""},

		{"fmt", "p/a.go", head + "import \"fmt\"\nfunc f() { fmt.Println() }", "p/a.go:4: fmt.Println"},
		{"fmt under another name", "p/a.go", head + "import say \"fmt\"\nfunc f() { say.Printf(\"\") }", "fmt.Printf"},
		{"log", "p/a.go", head + "import \"log\"\nfunc f() { log.Print() }", "log.Print"},
		{"the default of slog", "p/a.go", head + "import \"log/slog\"\nvar l = slog.Default()", "log/slog.Default"},
		{"slog without a logger", "p/a.go", head + "import \"log/slog\"\nfunc f() { slog.Info(\"\") }", "log/slog.Info"},
		{"standard error", "p/a.go", head + "import \"os\"\nvar w = os.Stderr", "os.Stderr"},
		{"the builtin", "p/a.go", head + "func f() { println() }", "println"},
		{"a program prints", "examples/x/main.go", "// X does.\npackage main\nimport \"fmt\"\nfunc main() { fmt.Println() }", ""},
		{"a suite talks to its child", "keyring/keyringtest/a.go", head + "import \"os\"\nvar w = os.Stdout", ""},
		{"text that goes nowhere", "p/a.go", head + "import \"fmt\"\nvar s = fmt.Sprint()", ""},
		{"a logger that was given", "p/a.go", head + "import \"log/slog\"\nfunc f(l *slog.Logger) { l.Info(\"\") }", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			files, err := parseTree(fstest.MapFS{c.file: {Data: []byte(c.src)}})
			if err != nil {
				t.Fatal(err)
			}
			got := append(unexplained(files), prints(files)...)
			switch {
			case c.want == "" && len(got) > 0:
				t.Errorf("refused: %q", got)
			case c.want != "" && (len(got) == 0 || !strings.Contains(got[0], c.want)):
				t.Errorf("got %q, want a problem with %q", got, c.want)
			}
		})
	}
}

// unexplained names the packages without a comment and the exported names
// without one. A comment on a group of constants or variables stands for the
// group; each name in it has its own limits and needs its own.
func unexplained(files []goFile) []string {
	var problems []string
	explained := map[string]bool{} // by directory
	var dirs []string
	for _, f := range files {
		if f.isTest() {
			continue
		}
		if !slices.Contains(dirs, f.dir()) {
			dirs = append(dirs, f.dir())
		}
		if name := f.ast.Name.Name; f.ast.Doc != nil {
			if name != "main" && !strings.HasPrefix(f.ast.Doc.Text(), "Package "+name+" ") {
				problems = append(problems, fmt.Sprintf("%s: a package comment begins with \"Package %s \"; other comments keep an empty line below them", f.name, name))
			}
			explained[f.dir()] = true
		}
		if f.isProgram() {
			continue
		}
		for _, decl := range f.ast.Decls {
			problems = append(problems, uncommented(f, decl)...)
		}
	}
	for _, dir := range dirs {
		if !explained[dir] {
			problems = append(problems, fmt.Sprintf("package %s (%s) has no package comment: say what it promises and where to start", path.Base(dir), dir))
		}
	}
	return problems
}

func uncommented(f goFile, decl ast.Decl) []string {
	var problems []string
	report := func(n ast.Node, name string) {
		problems = append(problems, fmt.Sprintf("%s: %s has no comment: say what it promises, its units, zero value and errors", f.at(n), name))
	}
	switch d := decl.(type) {
	case *ast.FuncDecl:
		name := d.Name.Name
		if d.Recv != nil && len(d.Recv.List) == 1 {
			recv := receiver(d.Recv.List[0].Type)
			if !ast.IsExported(recv) {
				break
			}
			name = recv + "." + name
		}
		if d.Name.IsExported() && d.Doc == nil {
			report(d, name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				if s.Name.IsExported() && s.Doc == nil && (d.Lparen.IsValid() || d.Doc == nil) {
					report(s, s.Name.Name)
				}
			case *ast.ValueSpec:
				if s.Doc != nil || s.Comment != nil || (!d.Lparen.IsValid() && d.Doc != nil) {
					continue
				}
				for _, name := range s.Names {
					if name.IsExported() {
						report(name, name.Name)
					}
				}
			}
		}
	}
	return problems
}

// receiver is the name of a method's type, without its star and parameters.
func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.IndexListExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// writers are the names by which each package reaches the terminal without
// having been handed a writer or a logger. A final * stands for the rest of
// a name.
var writers = map[string][]string{
	"fmt": {"Print*"},
	"log": {"Print*", "Fatal*", "Panic*", "Output", "Default"},
	"log/slog": {
		"Default", "Log", "LogAttrs", "Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error", "ErrorContext",
	},
	"os": {"Stdout", "Stderr"},
}

// pipes are the packages whose standard output is a pipe that they made
// themselves.
var pipes = map[string]string{
	"keyring/keyringtest": "the suite runs itself as a child that is killed, and the child tells its parent what was acknowledged",
}

// prints names each place outside tests and programs that reaches for the
// terminal.
func prints(files []goFile) []string {
	var problems []string
	for _, f := range files {
		if f.isTest() || f.isProgram() || pipes[f.dir()] != "" {
			continue
		}
		imported := map[string]string{} // import path by the name it has in f
		for _, spec := range f.ast.Imports {
			imp, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				problems = append(problems, fmt.Sprintf("%s: %v", f.name, err))
				continue
			}
			name := path.Base(imp)
			if spec.Name != nil {
				name = spec.Name.Name
			}
			imported[name] = imp
		}
		report := func(n ast.Node, what string) {
			problems = append(problems, fmt.Sprintf("%s: %s writes to the terminal of the program that embeds us: use the logger or the hooks it gave", f.at(n), what))
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.SelectorExpr:
				x, ok := n.X.(*ast.Ident)
				if !ok {
					break
				}
				imp := imported[x.Name]
				for _, pattern := range writers[imp] {
					if ok, _ := path.Match(pattern, n.Sel.Name); ok { // the patterns are fixed and well formed
						report(n, imp+"."+n.Sel.Name)
					}
				}
			case *ast.CallExpr:
				if fun, ok := n.Fun.(*ast.Ident); ok && (fun.Name == "print" || fun.Name == "println") {
					report(n, fun.Name)
				}
			}
			return true
		})
	}
	return problems
}
