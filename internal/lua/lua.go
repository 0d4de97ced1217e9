// Package lua has the scripts of the strategies. Only release.lua is in the root of the repository.
package lua

import (
	"embed"
	"strings"

	"github.com/redlatch/redlatch/internal/node"
)

//go:embed *.lua
var files embed.FS

// Script returns the script of a file in this directory.
func Script(file string) *node.Script { return ScriptOf(file, read(file)) }

// ScriptOf returns the script of a file elsewhere, which has text.
func ScriptOf(file, text string) *node.Script { return node.NewScript(expand(text), digests[file]) }

func read(file string) string {
	text, err := files.ReadFile(file)
	if err != nil {
		panic(err) // no script has this name
	}
	return string(text)
}

// expand replaces each line "-- include <file>" by the text of that file, without the comment at its
// top, which would be sent for nothing. So what several scripts do is written once. A function in Lua
// would make a lock and unlock 2 to 6 % slower.
func expand(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		if included, ok := strings.CutPrefix(strings.TrimSpace(line), "-- include "); ok {
			_, body, _ := strings.Cut(read(included), "\n\n")
			line = expand(body)
		}
		b.WriteString(line)
	}
	return b.String()
}
