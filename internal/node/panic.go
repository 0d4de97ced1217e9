package node

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
)

// A panicError is the outcome of the commands that were under way when a hook, Limiter or OnConnect
// of the client's user panicked. They may have been carried out. It has one line, and does not wrap
// the value of the panic, which may be any error.
type panicError string

func (e panicError) Error() string { return string(e) }

// survive makes a panic of the client the outcome of b. The process lives, as it does when an HTTP
// handler panics, and the calls are sent again as after any unknown error.
func (n *Node) survive(b *batch, value any) {
	err := panicOf(value, func(text string) string { return n.hideWords(b, text) })
	for _, i := range b.items {
		i.cmd.SetErr(err)
		if i.then != nil {
			i.then.SetErr(err)
		}
	}
}

// Shield makes a call of a client that sends no token. A panic of the client is the error.
func Shield(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = panicOf(value, oneLine)
		}
	}()
	return call()
}

// Panicked reports whether err is a panic that was caught.
func Panicked(err error) bool { return errors.As(err, new(panicError)) }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// panicOf returns the error of a panic with a value, which line puts on one line.
func panicOf(value any, line func(string) string) error {
	return panicError("the client panicked: " + line(fmt.Sprint(value)) + " (at " + origin() + ")")
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
	return oneLine(text)
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

// origin returns where a panic began: the innermost functions, with their lines. It runs while the
// stack of the panic is there.
func origin() string {
	const shown, depth = 4, 64
	pcs := make([]uintptr, depth)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(1, pcs)])
	var at []string
	for {
		frame, more := frames.Next()
		name := frame.Function[strings.LastIndexByte(frame.Function, '/')+1:]
		if !more || name == "node.(*Node).exchange" || name == "node.Shield" {
			break
		}
		if at = append(at, fmt.Sprint(name, ":", frame.Line)); strings.HasPrefix(name, "runtime.") {
			at = at[:0] // what comes before is not the origin
		}
	}
	return strings.Join(at[:min(shown, len(at))], ", ")
}
