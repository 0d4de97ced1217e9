package scripttest

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// paths returns the path of each script and each text that scripts include, by its name.
func paths(t *testing.T) map[string]string {
	t.Helper()
	found, err := filepath.Glob("../../lua/*.lua")
	require.NoError(t, err)
	all := make(map[string]string)
	for _, path := range append(found, "../../../release.lua") {
		all[filepath.Base(path)] = path
	}
	return all
}

// source returns a script with what it includes, as the library does. If b is not nil, its branches
// are counted.
func source(t *testing.T, file string, b *branches) string {
	t.Helper()
	text, err := os.ReadFile(paths(t)[file])
	require.NoError(t, err)
	if b != nil {
		text = []byte(b.instrument(file, string(text)))
	}
	var all strings.Builder
	for line := range strings.Lines(string(text)) {
		if included, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include "); ok {
			line = source(t, included, b)
		}
		all.WriteString(line)
	}
	return all.String()
}

// branches counts how often the scripts reach each statement, each block and each second operand of
// "and" and "or".
//
// A script with counters calls reached(n), which returns true, there. A block or an operand has two
// branches: it must be reached, and less often than what comes right before the decision.
type branches struct {
	mu    sync.Mutex // guards the fields below
	all   []branch
	count []int
	done  map[string]string // the texts with counters, by file
}

type branch struct {
	where  string
	before int // the branch that comes right before the decision; -1: there is no decision
}

func (b *branches) reach(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.count[n]++
}

// missing returns the branches that were not reached.
func (b *branches) missing() (missing []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, br := range b.all {
		if b.count[n] == 0 {
			missing = append(missing, br.where+" is never reached")
		}
		if br.before >= 0 && b.count[n] >= b.count[br.before] {
			missing = append(missing, br.where+" is never skipped")
		}
	}
	return missing
}

// missingInAll returns the branches that are missing wherever their file was run.
func missingInAll(counted []*branches) (all []string) {
	runs, missing := make(map[string]int), make(map[string]int)
	for _, b := range counted {
		for file := range b.done {
			runs[file]++
		}
		for _, where := range b.missing() {
			missing[where]++
		}
	}
	for where, n := range missing {
		if file, _, _ := strings.Cut(where, ":"); n == runs[file] {
			all = append(all, where)
		}
	}
	return all
}

var token = regexp.MustCompile(`'[^']*'|--.*|\w+|\s+|.`)

// A nest is a pair of brackets in an expression, or what is outside of all.
type nest struct{ start, or, last int }

// instrument adds counters to the text of a file.
func (b *branches) instrument(file, text string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if done, ok := b.done[file]; ok {
		return done
	}
	var out strings.Builder
	line := 0
	nests := []nest{{}}
	first := len(b.all)
	add := func(what string, before int) int {
		b.all = append(b.all, branch{fmt.Sprintf("%s:%d: %s (%d)", file, line, what, len(b.all)-first), before})
		b.count = append(b.count, 0)
		return len(b.all) - 1
	}
	begin := func(n int) { nests[len(nests)-1] = nest{n, n, n} }
	for words := range strings.Lines(text) {
		line++
		loops, fresh := false, len(nests) == 1
		for _, word := range token.FindAllString(words, -1) {
			in := &nests[len(nests)-1]
			switch {
			case strings.TrimSpace(word) == "":
			case fresh && word != "end" && word != "else" && !strings.HasPrefix(word, "--"):
				n := add("statement", -1)
				begin(n)
				if loops = word == "for"; word == "while" {
					word = fmt.Sprintf("while reached(%d) and", n)
				} else {
					word = fmt.Sprintf("reached(%d) %s", n, word)
				}
				fallthrough
			default:
				fresh = false
			}
			switch word {
			case "then", "do":
				before := in.start
				if loops {
					before = -1
				}
				begin(add(word, before))
				word = fmt.Sprintf("%s reached(%d)", word, in.start)
			case "else":
				begin(add(word, -1))
				word = fmt.Sprintf("%s reached(%d)", word, in.start)
			case "and":
				in.last = add(word, in.last)
				word = fmt.Sprintf("and reached(%d) and", in.last)
			case "or":
				in.or = add(word, in.or)
				in.last = in.or
				word = fmt.Sprintf("or not reached(%d) or", in.or)
			case "(", "{", "[":
				nests = append(nests, nest{in.last, in.last, in.last})
			case ")", "}", "]":
				nests = nests[:len(nests)-1]
			case ",":
				in.or, in.last = in.start, in.start
			}
			out.WriteString(word)
		}
	}
	b.done[file] = out.String()
	return out.String()
}
