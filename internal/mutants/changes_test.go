package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestReadDiff: the text of a change is not read as a header.
func TestReadDiff(t *testing.T) {
	require.Equal(t, changes{
		"a.go":     {{3, 4}, {9, 9}},
		"dir/b.go": {{1, 1}, {7, 7}},
	}, readDiff(`diff --git a.go a.go
--- a.go
+++ a.go
@@ -3 +3,2 @@ func one() {
-gone
+++ new.go
+@@ -1 +1 @@
@@ -8,0 +9 @@
+new
diff --git dir/b.go dir/b.go
--- dir/b.go
+++ dir/b.go
@@ -1 +1 @@
-old
+new
@@ -8,2 +7,0 @@
-gone
-gone too
`))
}

// TestTouched: a change affects the mutants of its file, the mutants that a changed test function must catch,
// and a mutant whose entry has changed.
func TestTouched(t *testing.T) {
	entries := map[string]passage{
		"first":  {"table.go", lines{10, 15}},
		"second": {"table.go", lines{16, 20}},
	}
	tests := testFiles{
		".": {{bodies: map[string]passage{
			"TestA":  {"a_test.go", lines{5, 20}},
			"TestAB": {"a_test.go", lines{22, 30}},
		}}},
		"below": {{bodies: map[string]passage{"TestC": {"below/c_test.go", lines{5, 20}}}}},
	}
	first := mutant{name: "first", file: "a.go", tests: "TestA$/one|TestC"}
	for name, c := range map[string]struct {
		changes changes
		want    bool
	}{
		"nothing":           {changes{}, false},
		"its file":          {changes{"a.go": {{1, 1}}}, true},
		"another file":      {changes{"b.go": {{1, 100}}}, false},
		"its entry":         {changes{"table.go": {{15, 15}}}, true},
		"another entry":     {changes{"table.go": {{1, 9}, {16, 16}}}, false},
		"its test":          {changes{"a_test.go": {{1, 5}}}, true},
		"between the tests": {changes{"a_test.go": {{21, 21}}}, false},
		"another test":      {changes{"a_test.go": {{25, 25}}}, false},
		"a test elsewhere":  {changes{"below/c_test.go": {{5, 5}}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, c.changes.touch(first, entries, tests))
		})
	}
}

// TestEveryMutantHasAPlace: a change of the entry of any mutant is noticed, and so is a change of any test.
func TestEveryMutantHasAPlace(t *testing.T) {
	entries, err := tableEntries(root)
	require.NoError(t, err)
	for _, m := range mutants {
		at := entries[m.name]
		require.Contains(t, at.file, "internal/mutants/table_", m.name)
		require.Greater(t, at.last, at.first, m.name)
	}
	files, err := readTests(root, "internal/mutants")
	require.NoError(t, err)
	for _, f := range files {
		for _, test := range f.tests {
			require.Contains(t, f.bodies[test].file, "internal/mutants/", test)
		}
	}
}
