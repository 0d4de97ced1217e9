package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestEachRuleHasATest: otherwise nothing shows that the rule holds.
func TestEachRuleHasATest(t *testing.T) {
	rules, err := readRules(root)
	require.NoError(t, err)
	tests, err := readTests(root)
	require.NoError(t, err)
	shown := make(map[int]bool)
	for _, test := range tests {
		for _, n := range test.rules {
			shown[n] = true
			require.True(t, n >= 1 && n <= len(rules), "%s names rule %d, which does not exist", test.place, n)
		}
	}
	for n := range rules {
		require.True(t, shown[n+1], "no test names rule %d in its doc comment", n+1)
	}
}

// TestEachMutantNamesARule that exists.
func TestEachMutantNamesARule(t *testing.T) {
	rules, err := readRules(root)
	require.NoError(t, err)
	tables, err := filepath.Glob(filepath.Join(root, "internal/mutants/table_*.go"))
	require.NoError(t, err)
	mutants := 0
	for _, table := range tables {
		text, err := os.ReadFile(table)
		require.NoError(t, err)
		for _, found := range strings.Split(string(text), ` rule: "`)[1:] {
			list, _, _ := strings.Cut(found, `"`)
			for _, digits := range number.FindAllString(list, -1) {
				n, err := strconv.Atoi(digits)
				require.NoError(t, err)
				require.True(t, n >= 1 && n <= len(rules), "%s names rule %d, which does not exist", table, n)
				mutants++
			}
		}
	}
	require.Positive(t, mutants)
}

func TestNamedRules(t *testing.T) {
	for comment, want := range map[string][]int{
		"TestX is rule 7: it holds.":                   {7},
		"It holds. Rules 4, 7 and 17.":                 {4, 7, 17},
		"TestX is rules 5, 8 and\n17, with 2 callers.": {5, 8, 17},
		"It is rule 8 and waits for 3 s, as rule 12.":  {8, 12},
		"TestX is rule 14, 100,000 times.":             {14},
		"It has 17 rules.":                             nil,
	} {
		require.Equal(t, want, named(comment), comment)
	}
}

// TestIndex prints what it finds in a tree.
func TestIndex(t *testing.T) {
	root := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(root, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(root, name), []byte(text), 0o600))
	}
	write("CONTRIBUTING.md", "# C\n\n1. No rule.\n\n## Rules\n\nA lock:\n\n1. It ends\n   at some time.\n2. Nobody sees it.\n\n## Style\n\n1. No rule.\n")
	write("a_test.go", "package a\n\n// TestEnd is rule 1: it ends. Not at once.\nfunc TestEnd() {}\n\nfunc TestBoth() {}\n")
	write("in/b_test.go", "package b\n\n// FuzzBoth: it is unseen. Rules 1 and 2.\nfunc FuzzBoth() {}\n\n// help is rule 1.\nfunc help() {}\n")
	write("in/b.go", "package b\n\n// TestNot is rule 1.\nfunc TestNot() {}\n")
	index := func(args ...string) string {
		var b strings.Builder
		require.NoError(t, run(&b, root, args))
		return b.String()
	}
	second := "2. Nobody sees it.\n\tin/b_test.go:4: FuzzBoth: it is unseen.\n"
	require.Equal(t, second, index("2"))
	require.Equal(t, "1. It ends at some time.\n\ta_test.go:4: TestEnd is rule 1: it ends.\n"+
		"\tin/b_test.go:4: FuzzBoth: it is unseen.\n"+second, index())
	for _, wrong := range []string{"0", "3", "x"} {
		require.ErrorContains(t, run(new(strings.Builder), root, []string{wrong}), "is not a rule: they are 1 to 2")
	}
	write("CONTRIBUTING.md", "\n## Rules\n\n1. One.\n3. Three.\n")
	require.ErrorContains(t, run(new(strings.Builder), root, nil), "rule 3 comes where rule 2 is expected")
}
