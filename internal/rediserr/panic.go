package rediserr

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

// Shield makes a call of a client that sends no token. A panic of the client is the error.
func Shield(call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			err = PanicOf(value, OneLine)
		}
	}()
	return call()
}

// Panicked reports whether err is a panic that was caught.
func Panicked(err error) bool { return errors.As(err, new(panicError)) }

// OneLine returns text with single spaces in place of line breaks.
func OneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// PanicOf returns the error of a panic with a value, which line puts on one line.
func PanicOf(value any, line func(string) string) error {
	return panicError("the client panicked: " + line(fmt.Sprint(value)) + " (at " + origin() + ")")
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
		if !more || name == "node.(*Node).exchange" || name == "rediserr.Shield" {
			break
		}
		if at = append(at, fmt.Sprint(name, ":", frame.Line)); strings.HasPrefix(name, "runtime.") {
			at = at[:0] // what comes before is not the origin
		}
	}
	return strings.Join(at[:min(shown, len(at))], ", ")
}
