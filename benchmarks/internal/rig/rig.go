// Package rig lets a program that is no test start the Redis servers and fault proxies of the
// tests.
package rig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
)

// Run calls f with a testing.TB for redistest and faultproxy. What they start with it ends when f
// returns. Their failures end f, and Run returns them.
func Run(f func(tb testing.TB) error) (err error) {
	s := new(stage)
	defer func() {
		// Also after a panic that is not ours, which goes on.
		for _, cleanup := range slices.Backward(s.cleanups) {
			cleanup()
		}
		err = errors.Join(err, s.failure)
	}()
	defer func() {
		if cause := recover(); cause != nil {
			failed, ours := cause.(failure)
			if !ours {
				panic(cause)
			}
			err = failed.error
		}
	}()
	return f(s)
}

// stage is as much of a testing.TB as redistest and faultproxy use. The rest is nil, and panics.
type stage struct {
	testing.TB
	cleanups []func()
	failure  error // reported by Errorf
}

// failure is the panic that ends f.
type failure struct{ error }

func (*stage) Helper() {}

// Context does not end: the cleanups end what was started.
func (*stage) Context() context.Context { return context.Background() }

func (s *stage) Cleanup(f func()) { s.cleanups = append(s.cleanups, f) }

func (*stage) Fatal(args ...any) { panic(failure{errors.New(fmt.Sprint(args...))}) }

// Skip is a failure too: nothing was measured.
func (s *stage) Skip(args ...any) { s.Fatal(args...) }

func (*stage) Fatalf(format string, args ...any) { panic(failure{fmt.Errorf(format, args...)}) }

func (s *stage) Errorf(format string, args ...any) {
	s.failure = errors.Join(s.failure, fmt.Errorf(format, args...))
}

// Logf writes to stderr.
func (*stage) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
