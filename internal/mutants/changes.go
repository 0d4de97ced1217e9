package main

import (
	"context"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// changes holds the lines of each file that are new or changed since some revision. The file's name is relative
// to the module's root.
type changes map[string][]lines

// lines is a range of lines of a file, counted from 1. The last one belongs to it.
type lines struct{ first, last int }

// changesSince asks git what has changed since a revision, committed or not.
func changesSince(ctx context.Context, root, revision string) (changes, error) {
	cmd := exec.CommandContext(ctx, "git", "diff", "--unified=0", "--no-color", "--no-ext-diff", "--relative", "--no-prefix", revision, "--")
	cmd.Dir = root
	diff, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git diff %s: %w", revision, err)
	}
	return readDiff(string(diff)), nil
}

// hunk matches the header of changed lines: how many there were, where they are now and how many.
var hunk = regexp.MustCompile(`^@@ -\d+(?:,(\d+))? \+(\d+)(?:,(\d+))? @@`)

// readDiff reads what git diff --unified=0 --no-prefix printed. If lines were only removed, the line before
// them counts as changed.
func readDiff(diff string) changes {
	c := make(changes)
	var file string
	body := 0 // lines that are left of a hunk
	for text := range strings.Lines(diff) {
		if body > 0 {
			body--
			continue
		}
		if name, ok := strings.CutPrefix(text, "+++ "); ok {
			file = strings.TrimSpace(name)
		}
		if m := hunk.FindStringSubmatch(text); m != nil {
			was, first, is := number(m[1], 1), number(m[2], 1), number(m[3], 1)
			c[file] = append(c[file], lines{first, first + max(is, 1) - 1})
			body = was + is
		}
	}
	return c
}

// number reads digits. It returns none if there are no digits.
func number(digits string, none int) int {
	if n, err := strconv.Atoi(digits); err == nil {
		return n
	}
	return none
}

// within reports whether a line of a range has changed.
func (c changes) within(file string, r lines) bool {
	return slices.ContainsFunc(c[file], func(changed lines) bool { return changed.first <= r.last && r.first <= changed.last })
}

// touch reports whether the changes can matter to a mutant: they are in its file, in a test function that is to
// catch it, or in its entry in the table.
func (c changes) touch(m mutant, entries map[string]passage, tests testFiles) bool {
	if entry := entries[m.name]; len(c[m.file]) > 0 || c.within(entry.file, entry.lines) {
		return true
	}
	for _, path := range alternatives(m.tests) {
		test, _, _ := strings.Cut(path, "/")
		re, err := regexp.Compile(test)
		if err != nil {
			return true // its run says what is wrong
		}
		for _, files := range tests {
			for _, f := range files {
				for name, where := range f.bodies {
					if re.MatchString(name) && c.within(where.file, where.lines) {
						return true
					}
				}
			}
		}
	}
	return false
}

// A passage is some lines of a file, named relative to the module's root.
type passage struct {
	file string
	lines
}

// tableEntries returns where each mutant stands, by its name.
func tableEntries(root string) (map[string]passage, error) {
	names, err := filepath.Glob(filepath.Join(root, "internal/mutants/table_*.go"))
	if err != nil {
		return nil, err
	}
	entries := make(map[string]passage)
	for _, name := range names {
		set := token.NewFileSet()
		tree, err := parser.ParseFile(set, name, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			if entry, ok := n.(*ast.CompositeLit); ok {
				for _, e := range entry.Elts {
					if field, ok := e.(*ast.KeyValueExpr); ok && fmt.Sprint(field.Key) == "name" {
						if lit, ok := field.Value.(*ast.BasicLit); ok {
							entries[unquote(lit)] = passageOf(root, set, entry)
						}
					}
				}
			}
			return true
		})
	}
	return entries, nil
}

// unquote returns the text of a string literal.
func unquote(lit *ast.BasicLit) string {
	text, _ := strconv.Unquote(lit.Value) // the parser has read it
	return text
}

// passageOf returns where a node of a syntax tree stands.
func passageOf(root string, set *token.FileSet, n ast.Node) passage {
	from, to := set.Position(n.Pos()), set.Position(n.End())
	file, err := filepath.Rel(root, from.Filename)
	if err != nil {
		file = from.Filename
	}
	return passage{filepath.ToSlash(file), lines{from.Line, to.Line}}
}

// touched returns the mutants that the changes since a revision can matter to.
func (l *lab) touched(ctx context.Context, all []mutant, revision string) (some []mutant, err error) {
	c, err := changesSince(ctx, l.root, revision)
	if err != nil {
		return nil, err
	}
	entries, err := tableEntries(l.root)
	if err != nil {
		return nil, err
	}
	for _, m := range all {
		if c.touch(m, entries, l.tests) {
			some = append(some, m)
		}
	}
	return some, nil
}
