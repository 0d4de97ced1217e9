package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// testFile is a file of tests of a package.
type testFile struct {
	name     string
	external bool               // of the package with _test in its name
	tests    []string           // functions
	bodies   map[string]passage // where each of them stands
	words    []string           // all strings, which name the subtests
}

// testFiles has the test files of packages, by their directory relative to the module's root. That of the root is ".".
type testFiles map[string][]testFile

// readAllTests reads the test files of the module whose root it is given, and of the modules below it.
func readAllTests(root string) (testFiles, error) {
	tests := make(testFiles)
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || !d.IsDir():
			return err
		case path != root && (strings.HasPrefix(d.Name(), ".") || d.Name() == "testdata"):
			return fs.SkipDir
		}
		in, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		files, err := readTests(root, in)
		if len(files) > 0 {
			tests[filepath.ToSlash(in)] = files
		}
		return err
	})
	return tests, err
}

// packages returns the packages with a test that a -run regexp matches.
func (tests testFiles) packages(match string) []string {
	var in []string
	for name, files := range tests {
		if slices.ContainsFunc(files, func(f testFile) bool { return f.matches(match) }) {
			in = append(in, name)
		}
	}
	slices.Sort(in)
	return in
}

// matches reports whether a -run regexp matches a test of the file. One that is no regexp does, so that its run says what
// is wrong.
func (f testFile) matches(match string) bool {
	return slices.ContainsFunc(alternatives(match), func(path string) bool {
		test, _, _ := strings.Cut(path, "/")
		re, err := regexp.Compile(test)
		return err != nil || slices.ContainsFunc(f.tests, re.MatchString)
	})
}

// readTests reads the test files of the package in a directory below root.
func readTests(root, in string) ([]testFile, error) {
	names, err := filepath.Glob(filepath.Join(root, in, "*_test.go"))
	if err != nil {
		return nil, err
	}
	var files []testFile
	for _, name := range names {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		f := testFile{name: name, external: strings.HasSuffix(tree.Name.Name, "_test"), bodies: make(map[string]passage)}
		ast.Inspect(tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Recv == nil && strings.HasPrefix(n.Name.Name, "Test") {
					f.tests = append(f.tests, n.Name.Name)
					f.bodies[n.Name.Name] = passageOf(root, set, n)
				}
			case *ast.BasicLit:
				if n.Kind == token.STRING {
					f.words = append(f.words, unquote(n))
				}
			}
			return true
		})
		files = append(files, f)
	}
	return files, nil
}

// alternatives splits a -run regexp at the bars that stand outside of parentheses, as go test does.
func alternatives(match string) []string {
	var paths []string
	depth, from := 0, 0
	for i, r := range match {
		switch {
		case r == '(':
			depth++
		case r == ')':
			depth--
		case r == '|' && depth == 0:
			paths = append(paths, match[from:i])
			from = i + 1
		}
	}
	return append(paths, match[from:])
}
