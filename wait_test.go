package redlatch

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/node"
)

// TestPollingRidesTroubleOut is rule 16 for a waiter that polls.
func TestPollingRidesTroubleOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := []error{ErrNotAcquired, errors.New("connection reset"), ErrNotAcquired, errors.New("no route"), nil}
		s := &scripted{onAcquire: func(context.Context, *acquireParams) (acquireReply, error) {
			err := answers[0]
			answers = answers[1:]
			return acquireReply{}, err
		}}
		lock, err := scriptedLocker(t, s).Lock(t.Context(), "k")
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(t.Context()))

		trouble := errors.New("no route")
		s.onAcquire = func(context.Context, *acquireParams) (acquireReply, error) {
			if s.acquires.Load() == 6 {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{}, trouble
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = scriptedLocker(t, s).Lock(ctx, "k")
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, trouble)

		again, cancelAgain := context.WithTimeout(t.Context(), time.Second)
		defer cancelAgain()
		_, err = scriptedLocker(t, s).Lock(again, "k")
		require.Same(t, trouble, errors.Unwrap(err), "the error of the first attempt is returned")
	})
}

// TestLastAttemptDecidesTheError is rule 33: if the last attempt failed, or got no reply for more than a quarter of the op
// timeout, the error matches ErrUnavailable. If it had less time, the attempt before it decides. If there is none, the
// error matches ErrUnavailable.
func TestLastAttemptDecidesTheError(t *testing.T) {
	refuse := func(context.Context) (acquireReply, error) {
		return acquireReply{Refusal: handoff.Refusal{Left: time.Hour}}, ErrNotAcquired
	}
	silent := func(ctx context.Context) (acquireReply, error) {
		<-ctx.Done()
		return acquireReply{}, &node.CutShort{Ctx: ctx.Err(), Trouble: errors.New("no reply"), Silent: true}
	}
	behind := func(ctx context.Context) (acquireReply, error) { // others that hang
		got, err := silent(ctx)
		return got, &node.NotDone{Err: err}
	}
	dead := func(ctx context.Context) (acquireReply, error) {
		<-ctx.Done()
		return acquireReply{}, &node.NotDone{Err: &node.CutShort{Ctx: ctx.Err(), Trouble: errors.New("no route")}}
	}
	unsent := func(ctx context.Context) (acquireReply, error) {
		<-ctx.Done()
		return acquireReply{}, &node.NotDone{Err: ctx.Err()}
	}
	trouble := func(context.Context) (acquireReply, error) { return acquireReply{}, errors.New("no route") }
	type attempt = func(context.Context) (acquireReply, error)
	for name, c := range map[string]struct {
		attempts []attempt
		last     time.Duration // from the last attempt to the end of ctx
		held     bool
	}{
		"silence at first":                       {[]attempt{silent}, 10 * time.Millisecond, false},
		"silence":                                {[]attempt{refuse, silent}, 260 * time.Millisecond, false},
		"a moment of silence":                    {[]attempt{refuse, silent}, 240 * time.Millisecond, true},
		"not sent":                               {[]attempt{refuse, unsent}, 900 * time.Millisecond, true},
		"between attempts":                       {[]attempt{refuse, refuse}, 900 * time.Millisecond, true},
		"trouble, and then a moment of silence":  {[]attempt{refuse, trouble, silent}, 10 * time.Millisecond, false},
		"behind others at first":                 {[]attempt{behind}, 10 * time.Millisecond, false},
		"behind others for long":                 {[]attempt{refuse, behind}, 260 * time.Millisecond, false},
		"behind others for a moment":             {[]attempt{refuse, behind}, 240 * time.Millisecond, true},
		"a dead node":                            {[]attempt{refuse, dead}, 10 * time.Millisecond, false},
		"nothing is ever sent":                   {[]attempt{unsent}, 10 * time.Millisecond, false},
		"trouble that is over":                   {[]attempt{refuse, trouble, refuse}, 10 * time.Millisecond, true},
		"trouble, and then nothing that is sent": {[]attempt{refuse, trouble, unsent}, 10 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := 0
				s := &scripted{onAcquire: func(ctx context.Context, _ *acquireParams) (acquireReply, error) {
					n++
					return c.attempts[n-1](ctx)
				}}
				l := scriptedLocker(t, s, WithOpTimeout(time.Second), WithBackoff(func(int) time.Duration { return time.Minute }))
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(len(c.attempts)-1)*time.Minute+c.last)
				defer cancel()
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Equal(t, len(c.attempts), n)
				var held *HeldError
				require.Equal(t, c.held, errors.As(err, &held))
				require.Equal(t, c.held, errors.Is(err, ErrNotAcquired))
				require.Equal(t, !c.held, errors.Is(err, ErrUnavailable))
			})
		})
	}
}

// TestOutageIsNoticedByAllWhoPoll is rule 33: three waiters of a process were refused, and the one whose turn it is finds
// that Redis is gone. When ctx ends, the error of each of them matches ErrUnavailable.
func TestOutageIsNoticedByAllWhoPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{}
		s.onAcquire = func(context.Context, *acquireParams) (acquireReply, error) {
			if s.acquires.Load() <= 3 {
				return acquireReply{}, ErrNotAcquired
			}
			return acquireReply{}, errors.New("no route")
		}
		l := scriptedLocker(t, s)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, ErrUnavailable)
				require.NotErrorIs(t, err, ErrNotAcquired)
				require.ErrorContains(t, err, "no route")
			})
		}
		wg.Wait()
	})
}

// TestLocalWaiterWhoYieldsWasRefusedByNobody is rule 33: this process has released a key that others want, and ctx ends
// before it asks again. Nobody has shown it another owner.
func TestLocalWaiterWhoYieldsWasRefusedByNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := scriptedLocker(t, &scripted{onAcquire: func(ctx context.Context, _ *acquireParams) (acquireReply, error) {
			return acquireReply{}, &node.NotDone{Err: ctx.Err()}
		}})
		l.lines.rest("k")
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(longestPause/4, cancel)
		_, err := l.Lock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrNotAcquired)
	})
}

// TestTroubleIsNotForgottenWhileItIsUndone is rule 16: if ctx ends while a failed attempt is released,
// the error still reports that failure. So does the error of a waiter whose last attempt failed.
func TestTroubleIsNotForgottenWhileItIsUndone(t *testing.T) {
	trouble := errors.New("no route")
	slow := func(answers ...error) *scripted {
		return &scripted{
			onAcquire: func(context.Context, *acquireParams) (acquireReply, error) {
				err := answers[0]
				if len(answers) > 1 {
					answers = answers[1:]
				}
				return acquireReply{}, err
			},
			onRelease: func(context.Context, *releaseParams) error { time.Sleep(time.Minute); return trouble },
		}
	}
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(2 * time.Minute) // the clean-ups end
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := scriptedLocker(t, slow(trouble)).Lock(ctx, "k")
		require.ErrorIs(t, err, trouble)
		require.NotErrorIs(t, err, ErrNotAcquired)
		require.Error(t, ctx.Err(), "the caller waits for the clean-up")

		again, cancelAgain := context.WithTimeout(t.Context(), time.Second)
		defer cancelAgain()
		_, err = scriptedLocker(t, slow(ErrNotAcquired, trouble)).Lock(again, "k")
		require.ErrorIs(t, err, ErrUnavailable)
		require.NotErrorIs(t, err, ErrNotAcquired)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, trouble)

		third, cancelThird := context.WithTimeout(t.Context(), time.Second)
		defer cancelThird()
		m, err := NewMigration(scriptedLocker(t, slow(trouble, trouble)), scriptedLocker(t, &scripted{}))
		require.NoError(t, err)
		_, err = m.Lock(third, "k")
		require.ErrorIs(t, err, trouble)
		require.NotErrorIs(t, err, ErrNotAcquired)
	})
}

// TestHourOfWaiting is rules 15, 17 and 18 in a bubble: a waiter waits for an hour without a timeout,
// and is served soon after the holder releases the lock. A crashed holder costs what is left of its
// TTL. Then the subscription is closed, and no goroutine is left in the bubble.
func TestHourOfWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		got := make(chan *Lock, 1)
		wait := func() {
			lock, err := l.Lock(context.Background(), "k", WithoutRenewal())
			if err != nil {
				t.Error(err)
			}
			got <- lock
		}
		go wait()
		time.Sleep(time.Hour)
		require.Empty(t, got)
		released := time.Now()
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.Less(t, time.Since(released), 2*time.Second)

		go wait() // and the lock is never unlocked
		next := <-got
		require.Less(t, time.Since(lock.Until()), 250*time.Millisecond)
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.NoError(t, next.Unlock(t.Context()))
		time.Sleep(10 * time.Second)
	})
}

// TestLocalWaitersTakeTurns: the callers of a process stand in one line, which sends one attempt at a time. Rule 18.
func TestLocalWaitersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{onAcquire: func(context.Context, *acquireParams) (acquireReply, error) { return acquireReply{}, ErrNotAcquired }}
		l := scriptedLocker(t, s, WithBackoff(func(int) time.Duration { return time.Second }))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Second+500*time.Millisecond)
		defer cancel()
		var wg sync.WaitGroup
		for range 50 {
			wg.Go(func() {
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		require.Equal(t, int64(1+100), s.acquires.Load(), "a first look, then one a second")
	})
}

// TestPauseEndsWithTheHoldersLease is rule 15: a crashed holder costs what is left of its TTL.
func TestPauseEndsWithTheHoldersLease(t *testing.T) {
	slow := &config{backoff: func(int) time.Duration { return time.Hour }}
	require.Equal(t, time.Hour, slow.pause(1, 0))
	require.Equal(t, 51*time.Millisecond, slow.pause(1, 50*time.Millisecond))
	d := (&config{}).pause(1, clock.Longest)
	require.Positive(t, d)
	require.Less(t, d, shortestPause)
	hasty := &config{backoff: func(int) time.Duration { return -1 }}
	require.Equal(t, time.Millisecond, hasty.pause(1, 0))
	for attempt := 1; attempt < 100; attempt++ {
		d := (&config{}).pause(attempt, 0)
		require.GreaterOrEqual(t, d, shortestPause/2)
		require.Less(t, d, longestPause)
	}
}
