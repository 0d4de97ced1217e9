package redlatch

import (
	"context"
	"errors"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A turn of a test has the callers of one line. The first of them has been granted the key. It is used in a bubble.
type turn struct {
	*engine
	strategy *scripted
	lock     *Lock        // of the caller that holds the key
	next     []chan *Lock // of those that stood in line when the turn began
}

// newTurn begins a turn with n callers, whose first fence is 100 and which may pass the lock on more times.
func newTurn(t *testing.T, n, more int, opts ...Option) *turn {
	t.Helper()
	s := &scripted{}
	s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
		if s.acquires.Load() == 1 {
			time.Sleep(time.Millisecond) // the others join
			return acquireReply{fence: 100, more: more}, nil
		}
		return acquireReply{fence: 1000, more: more}, nil
	}
	u := &turn{engine: scriptedLocker(t, s, opts...), strategy: s}
	for range n {
		u.join(t)
	}
	u.lock = <-u.next[0]
	u.next = u.next[1:]
	return u
}

// join has another caller join the line.
func (u *turn) join(t *testing.T, opts ...Option) {
	t.Helper()
	got := make(chan *Lock, 1)
	go func() { // ends with the lock
		lock, err := u.Lock(context.Background(), "k", opts...)
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	synctest.Wait()
	u.next = append(u.next, got)
}

// pass unlocks and fails unless that has passed the lock on to the next caller, at once and without a command.
func (u *turn) pass(t *testing.T) {
	t.Helper()
	before, sent := u.lock, u.strategy.acquires.Load()+u.strategy.releases.Load()
	require.NoError(t, before.Unlock(t.Context()))
	synctest.Wait()
	require.Len(t, u.next[0], 1, "not passed on")
	u.lock = <-u.next[0]
	u.next = u.next[1:]
	require.Equal(t, sent, u.strategy.acquires.Load()+u.strategy.releases.Load())
	require.Same(t, before.lease, u.lock.lease, "the timer goes on")
	require.Greater(t, u.lock.Fence(), before.Fence())
}

// end unlocks and fails unless that ends the turn with a release. The rest of the line is served later.
func (u *turn) end(t *testing.T) {
	t.Helper()
	releases := u.strategy.releases.Load()
	require.NoError(t, u.lock.Unlock(t.Context()))
	require.Equal(t, releases+1, u.strategy.releases.Load(), "passed on")
	u.finish(t)
}

// finish waits until everybody was served.
func (u *turn) finish(t *testing.T) {
	t.Helper()
	for _, got := range u.next {
		lock := <-got
		require.NotNil(t, lock)
		require.NoError(t, lock.Unlock(t.Context()))
	}
	synctest.Wait()
	require.Empty(t, u.lines.byKey)
}

// TestTurnServesWhoeverStoodInLine is rule 18: a turn passes the lock on to each caller that was in line when it began, in
// order, without a command. Whoever comes later waits for the next turn, also a caller that was served before.
func TestTurnServesWhoeverStoodInLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 5, 63)
		u.join(t)
		for i := range 4 {
			u.pass(t)
			require.Equal(t, uint64(101+i), u.lock.Fence())
			u.join(t)
		}
		last := u.lock
		u.end(t)
		require.Equal(t, uint64(104), last.Fence())
		require.Equal(t, int64(2), u.strategy.acquires.Load(), "one for each turn")
		require.Equal(t, int64(2), u.strategy.releases.Load())
	})
}

// TestTurnServesAtMost64 is rule 18, also if there are more fences. If there are fewer, they end the turn.
func TestTurnServesAtMost64(t *testing.T) {
	for more, served := range map[int]int{200: 64, 63: 64, 2: 3, 0: 1} {
		synctest.Test(t, func(t *testing.T) {
			u := newTurn(t, 70, more)
			for range served - 1 {
				u.pass(t)
			}
			u.end(t)
		})
	}
}

// TestPassedHandleHasEnded is rule 11: a pass ends one handle with ErrReleased and begins another.
func TestPassedHandleHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 3, 63, WithOwner("api-7"))
		old := u.lock
		done, ctx := old.Done(), old.Context(t.Context())
		u.pass(t)
		heldCtx, heldDone := u.lock.Context(t.Context()), u.lock.Done()

		require.ErrorIs(t, old.Err(), ErrReleased)
		<-done
		<-old.Done()
		require.ErrorIs(t, context.Cause(ctx), ErrReleased)
		require.ErrorIs(t, context.Cause(old.Context(t.Context())), ErrReleased)
		require.ErrorIs(t, old.Extend(t.Context(), time.Hour), ErrReleased)
		require.ErrorIs(t, old.Unlock(t.Context()), ErrReleased)
		require.Equal(t, uint64(100), old.Fence())
		require.Zero(t, u.strategy.extensions.Load())

		token := old.Token()
		require.NotEqual(t, u.lock.lease.params.token, token, "it owns nothing")
		require.Equal(t, token, old.Token())
		require.Equal(t, "api-7", ownerOf(token))
		require.NoError(t, u.lock.Err())
		require.NoError(t, heldCtx.Err())
		select {
		case <-heldDone:
			require.Fail(t, "the handle of another caller has ended")
		default:
		}
		before := u.lock
		u.pass(t)
		require.NotEqual(t, token, before.Token(), "each handle has another one")
		require.Len(t, before.lease.contexts, 0)
		u.end(t)
	})
}

// TestWhatIsNotPassedOn is rule 18.
func TestWhatIsNotPassedOn(t *testing.T) {
	rest := func(d time.Duration) func(*testing.T, *turn) {
		return func(*testing.T, *turn) { time.Sleep(d) }
	}
	for name, c := range map[string]struct {
		opts   []Option
		do     func(t *testing.T, u *turn)
		passes bool
	}{
		"a young turn":                     {passes: true},
		"almost too old":                   {do: rest(5*time.Millisecond - time.Microsecond), passes: true},
		"too old":                          {do: rest(5 * time.Millisecond)},
		"almost too old for its TTL":       {opts: []Option{WithTTL(100 * time.Millisecond)}, do: rest(990 * time.Microsecond), passes: true},
		"too old for its TTL":              {opts: []Option{WithTTL(100 * time.Millisecond)}, do: rest(time.Millisecond)},
		"before half of the time to renew": {opts: []Option{WithDrift(0.985), WithTTL(time.Second)}, do: rest(2 * time.Millisecond), passes: true},
		"half of the time to renew":        {opts: []Option{WithDrift(0.985), WithTTL(time.Second)}, do: rest(3 * time.Millisecond)},
		"Token":                            {do: func(_ *testing.T, u *turn) { _ = u.lock.Token() }},
		"Extend":                           {do: func(t *testing.T, u *turn) { require.NoError(t, u.lock.Extend(t.Context(), time.Hour)) }},
		"Adopt of the token that Inspect shows": {do: func(t *testing.T, u *turn) {
			_, err := u.Adopt(t.Context(), "k", u.lock.lease.params.token)
			require.NoError(t, err)
		}},
		"Adopt of another token": {do: func(t *testing.T, u *turn) {
			_, err := u.Adopt(t.Context(), "k", "another")
			require.NoError(t, err)
		}, passes: true},
		"Adopt of another key": {do: func(t *testing.T, u *turn) {
			_, err := u.Adopt(t.Context(), "other", u.lock.lease.params.token)
			require.NoError(t, err)
		}, passes: true},
		"Inspect, Until, Done and Context": {do: func(t *testing.T, u *turn) {
			_, err := u.Inspect(t.Context(), "k")
			require.NoError(t, err)
			_, _, _ = u.lock.Until(), u.lock.Done(), u.lock.Context(t.Context())
		}, passes: true},
		"WithMaxHold":    {opts: []Option{WithMaxHold(time.Minute)}},
		"WithMinHold":    {opts: []Option{WithMinHold(time.Second)}},
		"WithReplicas":   {opts: []Option{WithReplicas(1, time.Second)}},
		"WithoutRenewal": {opts: []Option{WithoutRenewal()}, passes: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				defer time.Sleep(time.Minute) // a handle that was adopted is dropped
				u := newTurn(t, 2, 63, c.opts...)
				if c.do != nil {
					c.do(t, u)
				}
				if c.passes {
					u.pass(t)
				}
				u.end(t)
			})
		})
	}
}

// TestCallsWithOptionsStandAlone is rule 18: they are passed nothing, and pass nothing on.
func TestCallsWithOptionsStandAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		var free atomic.Bool
		s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
			if !free.CompareAndSwap(true, false) {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{fence: 1, more: 63}, nil
		}
		s.onRelease = func(context.Context, *releaseParams) error { free.Store(true); return nil }
		u := &turn{engine: scriptedLocker(t, s), strategy: s}
		for range 3 {
			u.join(t, WithTTL(11*time.Second))
		}
		require.Empty(t, u.lines.byKey)
		free.Store(true)
		for range 3 {
			var lock *Lock
			select {
			case lock = <-u.next[0]:
			case lock = <-u.next[1]:
			case lock = <-u.next[2]:
			}
			require.NotNil(t, lock)
			require.NoError(t, lock.Unlock(t.Context()))
		}
		require.Equal(t, int64(3), s.releases.Load())
	})
}

// TestPassAllocatesOnlyTheHandle is rule 18.
func TestPassAllocatesOnlyTheHandle(t *testing.T) {
	const passes = 60
	l := scriptedLocker(t, &scripted{}, WithTTL(time.Hour))
	lock, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	w := lock.lease.line
	l.lines.mu.Lock()
	for range passes {
		w.Join(&(&request{key: "k", cfg: l.cfg}).spot)
	}
	for p := range w.All() {
		p.Of = &request{key: "k", cfg: l.cfg}
	}
	first := &request{key: "k", cfg: l.cfg}
	first.spot.Of = first
	turn, _ := w.Begin(mostPasses)
	lock.lease.turn = turn
	l.lines.mu.Unlock()

	allocations := testing.AllocsPerRun(passes-5, func() {
		lock.lease.taken = time.Now()
		if err := lock.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
		lock = lock.lease.strong
	})
	require.Equal(t, 1.0, allocations)
}

// TestHooksRunOnceForEachHandle is rule 34.
func TestHooksRunOnceForEachHandle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []string
		note := func(what string) func(Event) {
			return func(e Event) {
				require.Equal(t, "k", e.Key)
				if e.Fence > 0 {
					what := what + " " + strconv.FormatUint(e.Fence, 10)
					heard = append(heard, what)
					if what == "released 101" {
						require.Equal(t, time.Millisecond, e.Elapsed, "of the handle, not of the turn")
					}
				} else {
					heard = append(heard, what)
				}
			}
		}
		u := newTurn(t, 3, 63, WithHooks(Hooks{
			Acquired: note("acquired"), Waiting: note("waiting"), Renewed: note("renewed"),
			RenewFailed: note("renew failed"), Lost: note("lost"), Released: note("released"),
		}))
		u.pass(t)
		time.Sleep(time.Millisecond)
		u.pass(t)
		u.join(t)
		u.strategy.onRelease = func(context.Context, *releaseParams) error { return ErrLost }
		require.ErrorIs(t, u.lock.Unlock(t.Context()), ErrLost)
		u.strategy.onRelease = nil
		u.finish(t)
		require.Equal(t, []string{
			"acquired 100", "released 100", "acquired 101", "released 101", "acquired 102",
			"waiting", "lost 102", "acquired 1000", "released 1000",
		}, heard)
	})
}

// TestLossEndsTheTurn is rule 7: a lease that is lost ends the handle that holds the lock, and passes nothing on. The line
// asks again.
func TestLossEndsTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 4, 63, WithoutRenewal())
		old := u.lock
		u.pass(t)
		<-u.lock.Done()
		require.ErrorIs(t, u.lock.Err(), ErrLost)
		require.ErrorIs(t, old.Err(), ErrReleased, "it ended before")
		u.finish(t)
		require.ErrorIs(t, u.lock.Unlock(t.Context()), ErrLost)
		require.ErrorIs(t, old.Unlock(t.Context()), ErrReleased)
	})
}

// TestPassedLockIsRenewed is rule 12: as long as its handle is kept.
func TestPassedLockIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		u := newTurn(t, 3, 63)
		u.pass(t)
		u.pass(t)
		time.Sleep(time.Hour)
		require.NoError(t, u.lock.Err())
		require.Greater(t, u.strategy.extensions.Load(), int64(1000))
		u.end(t)
	})
}

// TestDroppedPassedLockIsNotRenewed is rule 13: a handle that a pass has begun is collected, and then not renewed.
func TestDroppedPassedLockIsNotRenewed(t *testing.T) {
	t.Parallel()
	lost := make(chan Event, 1)
	var began atomic.Bool
	s := &scripted{}
	joined := make(chan struct{})
	s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
		<-joined
		return acquireReply{fence: 100, more: 63}, nil
	}
	l := scriptedLocker(t, s, WithTTL(2*time.Second), WithHooks(Hooks{Lost: func(e Event) { lost <- e }}))
	served := make(chan struct{})
	for range 2 {
		go func() { // ends with the lock
			lock, err := l.Lock(context.Background(), "k")
			if err == nil && began.CompareAndSwap(false, true) {
				lock.lease.taken = time.Now().Add(time.Minute) // however busy the machine is
				err = lock.Unlock(context.Background())
			} else {
				close(served) // and the lock is dropped
			}
			if err != nil {
				t.Error(err)
			}
		}()
	}
	soon(t, "both stand in line", func() bool { return inLine(l, "k") == 2 })
	close(joined)
	<-served
	require.Equal(t, int64(1), s.acquires.Load(), "it was passed on")
	soon(t, "the lock is lost", func() bool {
		runtime.GC()
		return len(lost) == 1
	})
	e := <-lost
	require.Equal(t, uint64(101), e.Fence)
	require.ErrorIs(t, e.Err, ErrLost)
}

// TestCtxThatEndsAsTheLockIsPassedOn is rule 17: a caller that was served before it could leave has the lock.
func TestCtxThatEndsAsTheLockIsPassedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			s := &scripted{}
			joined := make(chan struct{})
			s.onAcquire = func(context.Context, *leaseParams) (acquireReply, error) {
				<-joined
				return acquireReply{fence: 100, more: 63}, nil
			}
			u := &turn{engine: scriptedLocker(t, s), strategy: s}
			u.join(t)
			ctx, cancel := context.WithCancel(t.Context())
			var second *Lock
			var err error
			ended := make(chan struct{})
			go func() { // ends with ctx
				defer close(ended)
				second, err = u.Lock(ctx, "k")
			}()
			synctest.Wait()
			u.join(t)
			close(joined)
			first := <-u.next[0]
			go cancel()
			require.NoError(t, first.Unlock(t.Context()))
			<-ended
			if err == nil {
				require.Empty(t, u.next[1])
				require.NoError(t, second.Err())
				require.NoError(t, second.Unlock(t.Context()))
			} else {
				require.True(t, errors.Is(err, context.Canceled) && second == nil)
			}
			u.next = u.next[1:]
			u.finish(t)
		}
	})
}
