package redlatch

import (
	"errors"
	"slices"

	"github.com/redlatch/redlatch/internal/rediserr"
)

// A FuncError is the error of a fn that was called by [Do], [TryDo], [DoAll], [TryDoAll] or [Lead] and
// returned Err, an error that matches [ErrNotAcquired], [ErrUnavailable], [ErrNoQuorum] or
// [ErrNotReplicated]. Such an error is about another lock, or about an Unlock in fn. Without a
// FuncError, it would say that fn was not called.
//
// A FuncError has the text of Err. It matches all that Err matches, except for these four. [errors.As]
// finds in it all that it finds in Err, except for a [HeldError], a [QuorumError] and an [Error]. To
// match these too, use Err.
type FuncError struct{ Err error }

func (e *FuncError) Error() string {
	if e.Err == nil { // a caller may make one
		return rediserr.Text(nil)
	}
	return e.Err.Error()
}

// Is reports whether Err matches target. It is false for the errors of a call that did not call fn.
func (e *FuncError) Is(target error) bool {
	return !slices.Contains(notCalled, target) && errors.Is(e.Err, target)
}

// As finds target in Err, except for a [HeldError], a [QuorumError] and an [Error].
func (e *FuncError) As(target any) bool {
	switch target.(type) {
	case **HeldError, **QuorumError, **Error:
		return false
	}
	return errors.As(e.Err, target)
}

// notCalled are the errors of a call that did not call fn.
var notCalled = []error{ErrNotAcquired, ErrUnavailable, ErrNoQuorum, ErrNotReplicated}

// ofFunc returns err, which fn returned, as an error that matches none of notCalled.
func ofFunc(err error) error {
	if slices.ContainsFunc(notCalled, func(target error) bool { return errors.Is(err, target) }) {
		return &FuncError{err}
	}
	return err
}
