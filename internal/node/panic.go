package node

import (
	"strings"

	"github.com/redlatch/redlatch/internal/rediserr"
)

// survive makes a panic of the client the outcome of b. The process lives, as it does when an HTTP
// handler panics, and the calls are sent again as after any unknown error.
func (n *Node) survive(b *batch, value any) {
	err := rediserr.PanicOf(value, func(text string) string { return n.hideWords(b, text) })
	for _, i := range b.items {
		i.cmd.SetErr(err)
		if i.then != nil {
			i.then.SetErr(err)
		}
	}
}

// shownWord is the length of the longest word of a command that an error shows. Tokens are longer.
const shownWord = 35

// hideWords puts the text of a panic on one line, and removes the long words of the calls in b from
// it, since they may be tokens.
func (n *Node) hideWords(b *batch, text string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, i := range b.items {
		for _, word := range i.call.words {
			for part := range strings.FieldsSeq(textOf(word)) {
				if len(part) > shownWord {
					text = strings.ReplaceAll(text, part, "…")
				}
			}
		}
	}
	return rediserr.OneLine(text)
}

// textOf returns a word of a command if it is a string.
func textOf(word any) string {
	switch word := word.(type) {
	case string:
		return word
	case *string:
		return *word
	}
	return ""
}
