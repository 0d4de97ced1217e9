package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
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
