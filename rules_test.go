package redlatch_test

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestRulesThatAreNamedAreWrittenDown: what tests and mutants call rule 7 can be looked up in
// CONTRIBUTING.md, whose rules are numbered without a gap.
func TestRulesThatAreNamedAreWrittenDown(t *testing.T) {
	_, rules, found := strings.Cut(mustRead(t, "CONTRIBUTING.md"), "\n## Rules\n")
	require.True(t, found)
	rules, _, _ = strings.Cut(rules, "\n## ")
	written := make(map[string]bool)
	for i, rule := range regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(rules, -1) {
		require.Equal(t, strconv.Itoa(i+1), rule[1])
		written[rule[1]] = true
	}

	named := 0
	files, err := filepath.Glob("*_test.go")
	require.NoError(t, err)
	tables, err := filepath.Glob("internal/mutants/table_*.go")
	require.NoError(t, err)
	require.NotEmpty(t, tables)
	for _, file := range append(files, tables...) {
		for _, list := range regexp.MustCompile(`\brules? (\d+(?: and \d+)*)|rule: "(\d[^"]*)"`).FindAllStringSubmatch(mustRead(t, file), -1) {
			for _, number := range regexp.MustCompile(`\d+`).FindAllString(list[1]+list[2], -1) {
				require.True(t, written[number], "%s names rule %s", file, number)
				named++
			}
		}
	}
	require.Positive(t, named)
}
