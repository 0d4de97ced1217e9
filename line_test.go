package redlatch

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
)

// onFake returns an engine on a fake, and a request for the key k.
func onFake(t *testing.T, h traits, opts ...Option) (*engine, *request) {
	f := &fake{
		limit: max(h.limit, 1), begin: time.Now(), random: rand.New(rand.NewPCG(1, 0)), holders: make(map[string]time.Time),
		asks: make(map[string]bool), given: make(map[string]bool), ended: make(map[string]bool),
	}
	l, err := newEngine(f, h, opts)
	require.NoError(t, err)
	e, r := l.(*engine), new(request)
	f.deliver = e.deliver
	require.NoError(t, e.check(t.Context(), r, "k", nil))
	return e, r
}

// TestACallForAPermitTriesAloneIfItOvertakesNobody: neither those who wait in this process, nor other processes to which this one
// leaves the key.
func TestACallForAPermitTriesAloneIfItOvertakesNobody(t *testing.T) {
	t.Parallel()
	e, r := onFake(t, traits{inbox: inbox.New(nil), limit: 2})
	require.True(t, e.triesAlone(r))
	own := new(request)
	require.NoError(t, e.check(t.Context(), own, "k", []Option{WithTTL(time.Minute)}))

	e.lines.shared[r.line(0)] = newLine(e, r, 0)
	require.False(t, e.triesAlone(r))
	require.True(t, e.triesAlone(own), "it is a line by itself")
	delete(e.lines.shared, r.line(0))

	e.yield("k", time.Hour)
	require.False(t, e.triesAlone(r))
	require.False(t, e.triesAlone(own))
}

// TestAnEarlierSendCountsForAsLongAsItsCallLasts: with WithReplicas that is the op timeout and that of WAIT.
func TestAnEarlierSendCountsForAsLongAsItsCallLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, r := onFake(t, traits{inbox: inbox.New(nil)}, WithOpTimeout(3*time.Second))
		cfg := *r.cfg
		cfg.replicaTimeout = time.Second
		r.cfg = &cfg
		a := e.newAttempt(r, nil)
		a.answered(reply{})
		require.Zero(t, a.id.resentUntil)
		a.answered(reply{resent: true})
		require.Equal(t, clock.MonoNow().Add(4*time.Second), a.id.resentUntil)
	})
}

// TestWhatHasEndedIsFreed at once: no timer keeps it, however long a lease or a pause between polls is.
func TestWhatHasEndedIsFreed(t *testing.T) {
	t.Parallel()
	e, r := onFake(t, traits{}, WithTTL(24*time.Hour), WithPollInterval(time.Hour, time.Hour))
	lock := func() *Lock {
		for {
			if k, err := e.TryLock(t.Context(), "k"); err == nil {
				return k
			}
		}
	}
	lineOf := func() weak.Pointer[keyLine] {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, err := e.Lock(ctx, "k")
			require.ErrorIs(t, err, context.Canceled)
		}()
		var w *keyLine
		soon(t, "it polls", func() bool {
			e.lines.mu.Lock()
			defer e.lines.mu.Unlock()
			w = e.lines.shared[r.line(0)]
			return w != nil && w.timer != nil
		})
		cancel()
		<-done
		return weak.Make(w)
	}
	k := lock()
	line, held := lineOf(), weak.Make(attemptOf(k.handle))
	require.NoError(t, k.Unlock(t.Context()))
	k = nil
	soon(t, "both are freed", func() bool { runtime.GC(); return line.Value() == nil && held.Value() == nil })
}

// soon waits until an event has come.
func soon(t *testing.T, what string, event func() bool) {
	t.Helper()
	for begin := time.Now(); !event(); time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(begin), time.Minute, "timed out waiting until %s", what)
	}
}
