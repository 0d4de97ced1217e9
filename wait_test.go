package redlatch

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
)

// onFake returns an engine on a fake, and a request for the key k.
func onFake(t *testing.T, h traits, opts ...Option) (*engine, *request) {
	f := newFake(1, max(h.limit, 1))
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

	for range 2 {
		soon(t, "all permits are held", func() bool { _, err := e.TryLock(t.Context(), "k"); return err == nil })
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		waits := new(waiter)
		require.NoError(t, e.check(ctx, &waits.request, "k", nil))
		e.join(ctx, waits)
		<-ctx.Done()
		_, _ = e.leave(ctx, waits)
	}()
	soon(t, "a call waits", func() bool { return !e.triesAlone(r) })
	require.True(t, e.triesAlone(own), "it is a line by itself")
	cancel()
	<-done
	soon(t, "none does", func() bool { return e.triesAlone(r) })

	e.lines.Yield("k", time.Hour)
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
		a := e.newAttempt(r, false)
		a.answered(reply{})
		require.Zero(t, a.id.resentUntil)
		a.answered(reply{resent: true})
		require.Equal(t, clock.MonoNow().Add(4*time.Second), a.id.resentUntil)
	})
}

// TestAnUnlockedLockIsFreed at once: no timer keeps it, however long a lease is.
func TestAnUnlockedLockIsFreed(t *testing.T) {
	t.Parallel()
	e, _ := onFake(t, traits{}, WithTTL(24*time.Hour))
	var held weak.Pointer[attempt]
	soon(t, "it is granted", func() bool {
		k, err := e.TryLock(t.Context(), "k")
		if err == nil {
			held = weak.Make(attemptOf(k.handle))
			require.NoError(t, k.Unlock(t.Context()))
		}
		return err == nil
	})
	soon(t, "it is freed", func() bool { runtime.GC(); return held.Value() == nil })
}

// TestAnUnlockedLockKeepsNoOther: its release has carried the acquire of the next one.
func TestAnUnlockedLockKeepsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _ := onFake(t, traits{inbox: inbox.New(nil), keeps: true}, WithMaxHold(time.Minute)) // so no turn is passed on
		k, err := e.Lock(t.Context(), "k")
		require.NoError(t, err)
		first := attemptOf(k.handle)
		waits := make(chan *Lock)
		go func() {
			next, err := e.Lock(t.Context(), "k")
			assert.NoError(t, err)
			waits <- next
		}()
		synctest.Wait()
		require.NoError(t, k.Unlock(t.Context()))
		require.NoError(t, (<-waits).Unlock(t.Context()))
		require.Nil(t, first.back)
	})
}

// soon waits until an event has come.
func soon(t *testing.T, what string, event func() bool) {
	t.Helper()
	for begin := time.Now(); !event(); time.Sleep(time.Millisecond) {
		require.Less(t, time.Since(begin), time.Minute, "timed out waiting until %s", what)
	}
}
