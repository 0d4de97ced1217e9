package main

import (
	"fmt"
	"strings"
)

// A change names a mutant without its line: see mutant.what.
type change struct{ file, function, before, after string }

func (c change) String() string {
	return fmt.Sprintf("%s %s\n- %s\n+ %s", c.file, c.function, c.before, c.after)
}

// parseEquivalents reads equivalents.txt: mutants that no test can tell from the code, or that cost only what
// nobody promised. Each has a line with the file and the function, one with a minus and the first line that is
// changed, one with a plus and that line then, and the reason. Between two is an empty line.
func parseEquivalents(text string) (map[change]bool, error) {
	all := make(map[change]bool)
	for entry := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		if entry == "" {
			continue
		}
		lines := strings.Split(strings.TrimSpace(entry), "\n")
		if len(lines) < 4 || !strings.HasPrefix(lines[1], "-") || !strings.HasPrefix(lines[2], "+") {
			return nil, fmt.Errorf("not a file and a function, a line with -, a line with +, and a reason:\n%s", entry)
		}
		file, function, _ := strings.Cut(lines[0], " ")
		all[change{file, function, strings.TrimSpace(lines[1][1:]), strings.TrimSpace(lines[2][1:])}] = true
	}
	return all, nil
}
