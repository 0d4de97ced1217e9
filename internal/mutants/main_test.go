package main

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// root is the root of the module, relative to this package.
const root = "../.."

// TestTableFitsTheTree finds mutants that no longer fit the tree, without running them.
func TestTableFitsTheTree(t *testing.T) {
	tests, err := readAllTests(root)
	require.NoError(t, err)
	names := make(map[string]bool)
	for _, m := range mutants {
		t.Run(m.name, func(t *testing.T) {
			require.NotEmpty(t, m.name)
			require.NotEmpty(t, m.rule)
			require.False(t, names[m.name], "the name is taken")
			names[m.name] = true
			require.NotEqual(t, m.old, m.new)
			_, err := m.apply(root)
			require.NoError(t, err)
			for _, path := range alternatives(m.tests) {
				test, subtests, nested := strings.Cut(path, "/")
				in := tests.packages(test)
				require.NotEmpty(t, in, "no test matches %q", test)
				if nested {
					var words []string
					for _, name := range in {
						for _, f := range tests[name] {
							words = append(words, f.words...)
						}
					}
					for subtest := range strings.SplitSeq(subtests, "/") {
						requireMatch(t, subtest, words)
					}
				}
			}
		})
	}
}

// requireMatch fails unless match is a regexp that one of names matches.
func requireMatch(t *testing.T, match string, names []string) {
	t.Helper()
	re, err := regexp.Compile(match)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(names, re.MatchString), "nothing in the tests matches %q", match)
}

// TestApplyWantsItsTextOnce: a text that is missing, or occurs more than once, is an error.
func TestApplyWantsItsTextOnce(t *testing.T) {
	text, err := mutant{file: "go.mod", old: "module github.com", new: "module example.com"}.apply(root)
	require.NoError(t, err)
	require.True(t, strings.HasPrefix(text, "module example.com/redlatch/redlatch\n"))
	_, err = mutant{file: "go.mod", old: "no such text"}.apply(root)
	require.ErrorContains(t, err, "0 times")
	_, err = mutant{file: "go.mod", old: "github.com"}.apply(root)
	require.ErrorContains(t, err, "not once")
	_, err = mutant{file: "no such file"}.apply(root)
	require.Error(t, err)
}

// TestExternalTestsAreLeftOutWhereNoneMatches: the external test package is left out only if none
// of its tests matches.
func TestExternalTestsAreLeftOutWhereNoneMatches(t *testing.T) {
	tests := testFiles{
		".": {
			{name: "a", tests: []string{"TestInner"}},
			{name: "b", external: true, tests: []string{"TestOuter", "TestTable"}},
			{name: "c", external: true},
		},
		"below": {{name: "below/d", external: true, tests: []string{"TestBelow"}}},
	}
	require.Equal(t, []string{"b", "c"}, tests.needless(".", "TestInner"))
	require.Equal(t, []string{"b", "c"}, tests.needless(".", "TestInner/TestOuter"))
	require.Empty(t, tests.needless(".", "TestInner|TestTable/(one|two)"))
	require.Empty(t, tests.needless(".", "Outer"))
	require.Empty(t, tests.needless("below", "TestBelow"))
}

// TestEveryPackageWithATestRuns: the tests of a mutant run in each package that has one of them. Those of one package run
// at once, each named once.
func TestEveryPackageWithATestRuns(t *testing.T) {
	tests := testFiles{
		".":     {{tests: []string{"TestA"}}, {tests: []string{"TestB"}}},
		"below": {{tests: []string{"TestA", "TestC"}}},
	}
	require.Equal(t, []string{".", "below"}, tests.packages("TestA$/one"))
	require.Equal(t, []string{".", "below"}, tests.packages("TestB|TestC"))
	require.Equal(t, []string{"below"}, tests.packages("TestC"))
	require.Empty(t, tests.packages("TestD|TestAB"))
	require.Equal(t, map[string][]string{".": {"TestA", "TestB"}, "below": {"TestA", "TestC"}}, tests.byPackage([]mutant{
		{tests: "TestA"}, {tests: "TestC"}, {tests: "TestB"}, {tests: "TestA"},
	}))
}

// TestTestsOfTheTreeAreFound: those of the root, of a package below it, and of a module of its own.
func TestTestsOfTheTreeAreFound(t *testing.T) {
	tests, err := readAllTests(root)
	require.NoError(t, err)
	require.Equal(t, []string{"."}, tests.packages("^TestConformance$"))
	require.Equal(t, []string{"internal/mutants"}, tests.packages("^TestTestsOfTheTreeAreFound$"))
	require.Equal(t, []string{"gocron"}, tests.packages("^TestJobNameIsTheKey$"))
}

// TestJudge reads every end that a test run can have.
func TestJudge(t *testing.T) {
	for name, c := range map[string]struct {
		stdout string
		passed bool
		want   outcome
		by     []string
		output string
	}{
		"all pass": {
			stdout: `{"Action":"run","Test":"TestA"}{"Action":"pass","Test":"TestA"}{"Action":"pass"}`,
			passed: true, want: survived,
		},
		"nothing runs": {
			stdout: `{"Action":"output","Output":"ok [no tests to run]\n"}{"Action":"pass"}`,
			passed: true, want: stale, output: "no test matches\n",
		},
		"a subtest fails": {
			stdout: `{"Action":"run","Test":"TestA"}{"Action":"output","Test":"TestA/b/c","Output":"why\n"}` +
				`{"Action":"fail","Test":"TestA/b/c"}{"Action":"fail","Test":"TestA/b"}` +
				`{"Action":"fail","Test":"TestA"}{"Action":"fail","Test":"TestAB"}{"Action":"fail"}`,
			want: caught, by: []string{"TestA/b/c", "TestAB"}, output: "why\n",
		},
		"a test panics": {
			stdout: `{"Action":"run","Test":"TestA"}{"Action":"pass","Test":"TestA"}{"Action":"run","Test":"TestB"}` +
				`{"Action":"output","Test":"TestB","Output":"panic: close of closed channel\n"}{"Action":"fail"}`,
			want: panicked, by: []string{"TestB"}, output: "panic: close of closed channel\n",
		},
		"a test hangs": {
			stdout: `{"Action":"run","Test":"TestA"}{"Action":"output","Test":"TestA","Output":"panic: test timed out after 1m0s\n"}` +
				`{"Action":"fail","Test":"TestA"}{"Action":"fail"}`,
			want: timedOut, by: []string{"TestA"}, output: "panic: test timed out after 1m0s\n",
		},
		"it does not compile": {
			stdout: `{"Action":"build-output","Output":"syntax error\n"}{"Action":"build-fail"}{"Action":"fail","FailedBuild":"p"}`,
			want:   broken, output: "syntax error\n",
		},
		"it ends outside of a test": {
			stdout: `{"Action":"run","Test":"TestA"}{"Action":"pass","Test":"TestA"}{"Action":"output","Output":"exit status 3\n"}{"Action":"fail"}`,
			want:   broken, output: "exit status 3\n",
		},
		"the go command fails": {want: broken},
	} {
		t.Run(name, func(t *testing.T) {
			v := judge([]byte(c.stdout), c.passed)
			require.Equal(t, c.want, v.outcome)
			require.Equal(t, c.by, v.by)
			require.Equal(t, c.output, v.output)
		})
	}
	require.Equal(t, broken, judge([]byte("go: no such tool"), false).outcome)
}
