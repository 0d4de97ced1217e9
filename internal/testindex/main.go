// Testindex prints which tests show the rules of CONTRIBUTING.md:
//
//	go run ./internal/testindex [rule number ...]
//
// It is run in the root of the repository. A test shows a rule if its doc comment names it, as in "rule 17" or
// "rules 4, 7 and 17". Each test is printed with its place and the first sentence of its comment.
package main

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(os.Stdout, ".", os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "testindex:", err)
		os.Exit(1)
	}
}

// run prints the rules that args name, or all, with their tests. root is the root of the repository.
func run(w io.Writer, root string, args []string) error {
	rules, err := readRules(root)
	if err != nil {
		return err
	}
	tests, err := readTests(root)
	if err != nil {
		return err
	}
	numbers := make([]int, 0, len(rules))
	for _, arg := range args {
		n, err := strconv.Atoi(arg)
		if err != nil || n < 1 || n > len(rules) {
			return fmt.Errorf("%q is not a rule: they are 1 to %d", arg, len(rules))
		}
		numbers = append(numbers, n)
	}
	for n := 1; n <= len(rules) && len(args) == 0; n++ {
		numbers = append(numbers, n)
	}
	for _, n := range numbers {
		fmt.Fprintf(w, "%d. %s\n", n, rules[n-1])
		for _, t := range tests {
			if slices.Contains(t.rules, n) {
				fmt.Fprintf(w, "\t%s: %s\n", t.place, t.sentence)
			}
		}
	}
	return nil
}

var rule = regexp.MustCompile(`(?m)^(\d+)\. (.*(?:\n +.*)*)`)

// readRules returns the rules of CONTRIBUTING.md. It fails unless they are numbered from 1 without a gap.
func readRules(root string) ([]string, error) {
	text, err := os.ReadFile(filepath.Join(root, "CONTRIBUTING.md"))
	if err != nil {
		return nil, err
	}
	_, section, _ := strings.Cut(string(text), "\n## Rules\n")
	section, _, _ = strings.Cut(section, "\n## ")
	var rules []string
	for _, found := range rule.FindAllStringSubmatch(section, -1) {
		rules = append(rules, strings.Join(strings.Fields(found[2]), " "))
		if want := strconv.Itoa(len(rules)); found[1] != want {
			return nil, fmt.Errorf("CONTRIBUTING.md: rule %s comes where rule %s is expected", found[1], want)
		}
	}
	if rules == nil {
		return nil, fmt.Errorf("CONTRIBUTING.md has no rules")
	}
	return rules, nil
}

// test is a function of a test file.
type test struct {
	place    string // file:line
	sentence string // the first of the doc comment
	rules    []int  // that the comment names
}

// readTests returns the tests of all modules below root.
func readTests(root string) ([]test, error) {
	var tests []test
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, path, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !strings.HasPrefix(f.Name.Name, "Test") && !strings.HasPrefix(f.Name.Name, "Fuzz") {
				continue
			}
			tests = append(tests, test{
				place:    fmt.Sprintf("%s:%d", filepath.ToSlash(name), set.Position(f.Pos()).Line),
				sentence: new(doc.Package).Synopsis(f.Doc.Text()),
				rules:    named(f.Doc.Text()),
			})
		}
		return err
	})
	return tests, err
}

var (
	list   = regexp.MustCompile(`\b[Rr]ules?\s+(\d+(?:(?:,\s+\d+)*\s+and\s+\d+)?)`)
	number = regexp.MustCompile(`\d+`)
)

// named returns the numbers of the rules that a comment names.
func named(comment string) []int {
	var rules []int
	for _, found := range list.FindAllStringSubmatch(comment, -1) {
		for _, digits := range number.FindAllString(found[1], -1) {
			n, _ := strconv.Atoi(digits) // a number that is too large is no rule either
			rules = append(rules, n)
		}
	}
	return rules
}
