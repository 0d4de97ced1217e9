package main

import (
	"regexp"
	"strings"
)

// luaWords are what a line in Lua consists of. Comments and strings are not changed.
var luaWords = regexp.MustCompile(`--.*|'[^']*'|"[^"]*"|\d[\w.]*|\w+|==|~=|<=|>=|\.\.|[^\s\w]`)

var luaSwaps = map[string][]string{"==": {"~="}, "~=": {"=="}, "and": {"or"}, "or": {"and"}}

// luaDropped is a line that is a whole statement: an assignment, a call, or a condition with what it guards.
var luaDropped = regexp.MustCompile(`^(if .* then .* end|[\w.]+\(.*\)|[\w.\[\]#, ]+ = .*)$`)

// luaKept is a line that cannot be dropped, since it declares what others use, or begins a block.
var luaKept = regexp.MustCompile(`^(local|for) `)

// luaMutants returns the mutants of a script, as goMutants does.
func luaMutants(file, source string) (found []mutant) {
	m := mutant{file: file, source: source}
	begin := 0
	lines := strings.SplitAfter(source, "\n")
	for i, line := range lines {
		m.line++
		if name, is := strings.CutPrefix(line, "local function "); is {
			m.function, _, _ = strings.Cut(name, "(")
		}
		add := func(from, to int, with string) {
			n := m
			n.from, n.to, n.with = begin+from, begin+to, with
			found = append(found, n)
		}
		words := luaWords.FindAllStringIndex(line, -1)
		word := func(i int) string {
			if i < 0 || i >= len(words) {
				return ""
			}
			return line[words[i][0]:words[i][1]]
		}
		code := len(line)
		for i := range words {
			from, to, is := words[i][0], words[i][1], word(i)
			switch {
			case strings.HasPrefix(is, "--"):
				code = from
			case is == "not":
				add(from, to+1, "")
			case is == "-" && !operand(word(i-1)): // it is a sign
			case luaSwaps[is] != nil:
				add(from, to, luaSwaps[is][0])
			case strings.ContainsAny(is[:1], "0123456789") && word(i-1) != "[":
				add(from, to, doubled(is))
			default:
				for _, other := range swaps[is] {
					add(from, to, other)
				}
			}
		}
		statement := strings.TrimSpace(line[:code])
		ends := whole(statement) && (i+1 == len(lines) || !continues(lines[i+1]))
		if ends && luaDropped.MatchString(statement) && !luaKept.MatchString(statement) {
			from := strings.Index(line, statement)
			add(from, from+len(statement), "")
		}
		if strings.TrimRight(line, "\n") == "end" {
			m.function = ""
		}
		begin += len(line)
	}
	return found
}

// operand reports whether a word can stand before an operator.
func operand(word string) bool {
	return word != "" && !map[string]bool{"and": true, "or": true, "not": true, "return": true}[word] &&
		!strings.ContainsAny(word[:1], "(=<>~,+-*/%^{") && word != ".."
}

// whole reports whether a line ends all that it begins.
func whole(line string) bool {
	for _, pair := range []string{"()", "{}", "[]"} {
		if strings.Count(line, pair[:1]) != strings.Count(line, pair[1:]) {
			return false
		}
	}
	return !strings.HasSuffix(line, "and") && !strings.HasSuffix(line, "or")
}

// continues reports whether a line goes on with the statement before it.
func continues(line string) bool {
	line = strings.TrimSpace(line)
	return strings.HasPrefix(line, "..") || strings.HasPrefix(line, "and ") || strings.HasPrefix(line, "or ")
}
