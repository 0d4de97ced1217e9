package redlatch

import (
	"context"
	"errors"
	"io"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
)

// handed returns a lock that was handed to a line of l, when its process learned of it. The line asked before for that long. Two
// more callers stand in it.
func handed(t *testing.T, l *engine, q *queueing, before time.Duration) (lock *Lock, behind []chan *Lock) {
	t.Helper()
	var token atomic.Pointer[string]
	q.reply(func(ctx context.Context, p *leaseParams) (acquireReply, error) {
		token.Store(&p.token)
		return refuse(ctx, p)
	}, nil)
	got, _ := standing(t.Context(), l)
	for range 2 {
		next, _ := standing(t.Context(), l)
		behind = append(behind, next)
	}
	queued := func() bool {
		l.lines.mu.Lock()
		defer l.lines.mu.Unlock()
		return l.lines.tokens[*token.Load()] != nil
	}
	for !queued() {
		time.Sleep(time.Millisecond) // the line polls, and queues
		synctest.Wait()
	}
	l.lines.mu.Lock()
	asked := l.byKey["k"].ask.at.Mono
	l.lines.mu.Unlock()
	time.Sleep(before - time.Since(asked))
	l.deliver(inbox.Grant{Token: *token.Load(), Tick: 7, At: time.Hour + before})
	q.reply(nil, nil)
	return <-got, behind
}

// A sentExtension is one that was sent.
type sentExtension struct {
	at           time.Time
	ttl, timeout time.Duration
}

// extensions returns those that q is sent from now on. The first ones fail.
func extensions(q *queueing, fail int64) <-chan sentExtension {
	sent := make(chan sentExtension, 1000)
	q.onExtend = func(_ context.Context, p *leaseParams) error {
		sent <- sentExtension{time.Now(), p.ttl, p.timeout}
		if q.extensions.Load() <= fail {
			return io.EOF
		}
		return nil
	}
	return sent
}

// served unlocks the locks of callers when they get them.
func served(t *testing.T, callers []chan *Lock) {
	t.Helper()
	for _, got := range callers {
		require.NoError(t, (<-got).Unlock(t.Context()))
	}
}

// TestClaimIsExtendedSoon: a lock that was handed over lasts for its claim, from when Redis granted it. 20 ms after the process
// learned of it, it is extended to the TTL, with what is left of the claim as the timeout. If that fails, it is tried again
// before the claim ends.
func TestClaimIsExtendedSoon(t *testing.T) {
	for name, fail := range map[string]int64{"at once": 0, "after a failure": 1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queueing{}
				l := queueingLocker(t, q, WithTTL(time.Minute), WithPollInterval(4*time.Second, 4*time.Second))
				sent := extensions(q, fail)
				const before = 500 * time.Millisecond
				lock, behind := handed(t, l, q, before)
				learned := time.Now()
				start := learned.Add(-before / 100) // the drift since the line asked
				end := start.Add(clock.Validity(inbox.Claim(true), 0.01))
				require.Equal(t, uint64(7*64), lock.Fence())
				require.Equal(t, end, lock.Until())

				at := learned.Add(20 * time.Millisecond)
				require.Equal(t, sentExtension{at, time.Minute, end.Sub(at)}, <-sent)
				if fail > 0 {
					synctest.Wait()
					require.Equal(t, end, lock.Until())
					again := <-sent
					require.LessOrEqual(t, again.at.Sub(at), 750*time.Millisecond)
					require.Equal(t, sentExtension{again.at, time.Minute, end.Sub(again.at)}, again)
					at = again.at
				}
				synctest.Wait()
				require.Equal(t, at.Add(clock.Validity(time.Minute, 0.01)), lock.Until())
				require.Equal(t, sentExtension{at.Add(20 * time.Second), time.Minute, time.Second}, <-sent, "a third of the TTL later")
				require.NoError(t, lock.Err())
				require.NoError(t, lock.Unlock(t.Context()))
				served(t, behind)
			})
		})
	}
}

// TestShortHoldOfAClaimSendsNothing: a lock that is unlocked within 20 ms is not extended, nor is one without renewal, which lasts
// for its TTL.
func TestShortHoldOfAClaimSendsNothing(t *testing.T) {
	for name, opts := range map[string][]Option{"a short hold": nil, "without renewal": {WithoutRenewal()}, "a TTL of 1 s": {WithTTL(time.Second)}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &queueing{}
				l := queueingLocker(t, q, append(opts, WithPollInterval(4*time.Second, 4*time.Second))...)
				lock, behind := handed(t, l, q, time.Millisecond)
				if opts == nil {
					time.Sleep(20*time.Millisecond - 1)
				} else {
					require.Greater(t, time.Until(lock.Until()), l.cfg.ttl*98/100)
					time.Sleep(l.cfg.ttl / 4)
				}
				require.NoError(t, lock.Unlock(t.Context()))
				served(t, behind)
				time.Sleep(time.Minute)
				require.Zero(t, q.extensions.Load())
			})
		})
	}
}

// TestClaimThatIsNotExtendedEnds: the extension gets no answer. The lock is lost with its claim, before Redis gives it away.
func TestClaimThatIsNotExtendedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{}
		l := queueingLocker(t, q, WithTTL(time.Hour), WithPollInterval(4*time.Second, 4*time.Second))
		extensions(q, math.MaxInt64)
		lock, behind := handed(t, l, q, time.Millisecond)
		learned := time.Now()
		<-lock.Done()
		require.Less(t, time.Since(learned), 2*time.Second)
		require.ErrorIs(t, lock.Err(), ErrLost)
		require.ErrorContains(t, lock.Err(), "not extended")
		require.Greater(t, q.extensions.Load(), int64(1))
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		served(t, behind)
	})
}

// TestClaimIsExtendedOnceUnderAMaxHold: the limit of WithMaxHold is below the TTL, so the extension is not to the TTL.
func TestClaimIsExtendedOnceUnderAMaxHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{}
		l := queueingLocker(t, q, WithTTL(10*time.Second), WithMaxHold(5*time.Second))
		var timeout atomic.Int64
		q.onExtend = func(_ context.Context, p *leaseParams) error {
			timeout.Store(int64(p.timeout))
			time.Sleep(time.Millisecond)
			return nil
		}
		lock, behind := handed(t, l, q, time.Millisecond)
		begin := time.Now()
		<-lock.Done()
		require.InDelta(t, 5, time.Since(begin).Seconds(), 0.01)
		require.ErrorIs(t, lock.Err(), ErrMaxHold)
		require.LessOrEqual(t, q.extensions.Load(), int64(2))
		require.Less(t, time.Duration(timeout.Load()), time.Second, "only the extension of a claim gets all that is left")
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrMaxHold)
		served(t, behind)
	})
}

// TestUnlockAfterPassesNothingOn: the release keeps everybody out, also those who stand in line. Without a time it is Unlock.
func TestUnlockAfterPassesNothingOn(t *testing.T) {
	for after, passes := range map[time.Duration]bool{0: true, time.Millisecond: false} {
		synctest.Test(t, func(t *testing.T) {
			kept := make(chan time.Duration, 10)
			s := &scripted{passes: true, keeps: true, onRelease: func(_ context.Context, p *releaseParams) error {
				kept <- p.keep
				return nil
			}}
			u := newTurnOf(t, s, 2)
			keeps, lease := u.lock, u.lock.lease
			require.NoError(t, keeps.UnlockAfter(t.Context(), after))
			require.ErrorIs(t, keeps.Err(), ErrReleased)
			require.Equal(t, !passes, len(kept) > 0)
			if !passes {
				require.Equal(t, after, <-kept)
			}
			next := <-u.next[0]
			require.Equal(t, passes, next.lease == lease)
			require.ErrorIs(t, keeps.UnlockAfter(t.Context(), after), ErrReleased)
			require.NoError(t, next.Unlock(t.Context()))
			time.Sleep(time.Minute)
		})
	}
}

// TestUnlockAfterIsRefusedBeforeAnythingIsSent: a negative time, and a strategy whose keys have no room for it. The lock goes on.
func TestUnlockAfterIsRefusedBeforeAnythingIsSent(t *testing.T) {
	s := &scripted{}
	lock := granted(t, scriptedLocker(t, s))
	require.ErrorIs(t, lock.UnlockAfter(t.Context(), -1), ErrInvalidOption)
	require.ErrorIs(t, lock.UnlockAfter(t.Context(), 1), errors.ErrUnsupported)
	require.NoError(t, lock.Err())
	require.Zero(t, s.releases.Load())
	require.NoError(t, lock.UnlockAfter(t.Context(), 0))
	require.Equal(t, int64(1), s.releases.Load())
}

// TestHandedLockIsPassedOnThoughItsLineAskedLongAgo: the lease begins earlier then, by the drift since.
func TestHandedLockIsPassedOnThoughItsLineAskedLongAgo(t *testing.T) {
	for _, before := range []time.Duration{time.Millisecond, 10 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			q := &queueing{passes: true}
			l := queueingLocker(t, q)
			lock, behind := handed(t, l, q, before)
			lease := lock.lease
			for _, got := range behind {
				time.Sleep(time.Millisecond)
				require.NoError(t, lock.Unlock(t.Context()))
				lock = <-got
				require.Same(t, lease, lock.lease)
			}
			require.NoError(t, lock.Unlock(t.Context()))
			require.Equal(t, int64(1), q.releases.Load())
		})
	}
}
