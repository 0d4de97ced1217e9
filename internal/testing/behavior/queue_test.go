package behavior_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestFirstComeFirstServed: lines are served in the order of their arrival, whatever their
// processes are. Each grant has a higher fence than the one before. A release sets the key to the
// token of the next waiter, so nobody can overtake it.
func TestFirstComeFirstServed(t *testing.T) {
	onRedis(t, queues, func(t *testing.T, w *world) {
		lock := mustLock(t, w.locker(t), "k")
		shared := w.locker(t)
		var line []<-chan *redlatch.Lock
		for i := range 8 {
			l := shared // every other line is of one process
			if i%2 == 0 {
				l = w.locker(t)
			}
			line = append(line, waitInLine(t, l, "k", alone))
		}
		requireSoundFences(t, w.Direct)
		for i, got := range line {
			fence := lock.Fence()
			require.NoError(t, lock.Unlock(t.Context()))
			_, err := w.locker(t).TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired, "overtaken")
			lock = await(t, got, "its turn")
			for _, later := range line[i+1:] {
				require.Empty(t, later, "somebody was served before waiter %d", i)
			}
			require.Greater(t, lock.Fence(), fence)
		}
		require.NoError(t, lock.Unlock(t.Context()))
		onlyFences(t, w.Direct)
	})
}

// TestPlaceInTheQueueIsThatOfTheCall: a process without messages polls for a second before it
// queues. It gets the place of its arrival then, before a process that came later and queued at
// once.
func TestPlaceInTheQueueIsThatOfTheCall(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"a": s.Options.Addr}, Dialer: s.Options.Dialer})
		defer ring.Close()
		holder := mustLock(t, locktest.SetNXPX(t, s.Client(t)), "k")
		served := make(chan string, 2)
		var waiters sync.WaitGroup
		for name, client := range map[string]redis.UniversalClient{"first": ring, "second": s.Client(t)} {
			l, err := redlatch.NewSetNXPX(client)
			require.NoError(t, err)
			waiters.Go(func() {
				if name == "second" {
					time.Sleep(500 * time.Millisecond)
				}
				lock, err := l.Lock(t.Context(), "k")
				if assert.NoError(t, err) {
					served <- name
					assert.NoError(t, lock.Unlock(t.Context()))
				}
			})
		}
		time.Sleep(2 * time.Second)
		require.NoError(t, holder.Unlock(t.Context()))
		waiters.Wait()
		require.Equal(t, "first", <-served)
		require.Equal(t, "second", <-served)
	})
}

// deaf returns a client whose subscriptions lose all messages while the flag is set.
func (w *world) deaf(t *testing.T) (client *redis.Client, lost *atomic.Bool) {
	o := w.Options
	dial := o.Dialer
	if dial == nil {
		dial = redis.NewDialer(&o)
	}
	lost = new(atomic.Bool)
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &deafConn{Conn: c, lost: lost}, err
	}
	return locktest.NewSite(t, o).Direct, lost
}

// deafConn discards what it reads while lost is set, if it carries a subscription.
type deafConn struct {
	net.Conn
	lost       *atomic.Bool
	subscribed atomic.Bool
}

func (c *deafConn) Write(b []byte) (int, error) {
	if strings.Contains(strings.ToLower(string(b)), "\r\nsubscribe\r\n") {
		c.subscribed.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *deafConn) Read(b []byte) (int, error) {
	for {
		n, err := c.Conn.Read(b)
		if err != nil || !c.lost.Load() || !c.subscribed.Load() {
			return n, err
		}
	}
}

// TestLostMessageCostsASecond: the message of a hand-over is lost, or the reply to the release that
// sent it, or the queue. All in
// line are served even so, and the next line too, once messages arrive again.
func TestLostMessageCostsASecond(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		for name, c := range map[string]struct{ message, reply, queue bool }{
			"message": {message: true}, "reply": {reply: true}, "message and reply": {message: true, reply: true}, "queue": {queue: true},
		} {
			client, lost := w.deaf(t)
			l := w.over(t, client)
			holders, link := w.linked(t)
			require.NoError(t, mustLock(t, holders, "k").Unlock(t.Context()))
			lock := mustLock(t, holders, "k")
			const waiters = 6
			got := make(chan *redlatch.Lock)
			for range waiters {
				locking(t, got, l, "k")
			}
			time.Sleep(time.Second)
			lost.Store(c.message)
			if c.reply {
				link.lose(1)
			}
			if c.queue {
				w.Direct.FlushAll(t.Context())
				require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
				lock = mustLock(t, holders, "k")
				time.Sleep(5 * time.Second) // looks find that their entry was lost
			}
			begin := time.Now()
			require.NoError(t, lock.Unlock(t.Context()))
			for i := range waiters {
				lock = await(t, got, name)
				require.Less(t, time.Since(begin), 5*time.Second, name)
				if i < waiters-1 {
					require.NoError(t, lock.Unlock(t.Context()))
				}
			}
			lost.Store(false) // lost messages stay lost
			next := waitInLine(t, w.locker(t), "k")
			begin = time.Now()
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, await(t, next, name).Unlock(t.Context()))
			require.Less(t, time.Since(begin), 100*time.Millisecond, name)
			onlyFences(t, w.Direct)
		}
	})
}

// TestNextTurnComesWithoutTheRelease: Redis cannot be reached when a lock is released for the next
// caller of the same Locker. That one is served once Redis is back.
func TestNextTurnComesWithoutTheRelease(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		l, link := w.linked(t, redlatch.WithOpTimeout(time.Second))
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		got := make(chan *redlatch.Lock)
		locking(t, got, l, "k")
		time.Sleep(time.Second)
		link.refuse()
		requireOnly(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable)
		time.Sleep(10 * time.Second)
		link.heal()
		require.NoError(t, await(t, got, "it is served").Unlock(t.Context()))
		onlyFences(t, w.Direct)
	})
}

// TestForbiddenChannelsDegradeToPolling: a process that may not SUBSCRIBE or PUBLISH is served by
// polling, also while others hand the lock to each other all the time, and does not starve them.
// Hooks.Degraded reports that once for each Locker.
func TestForbiddenChannelsDegradeToPolling(t *testing.T) {
	t.Parallel()
	for _, forbidden := range []string{"subscribe", "publish"} {
		t.Run(forbidden, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			client := locktest.Closing(t, redis.NewClient(s.User(t, "~*", "&*", "+@all", "-"+forbidden)))
			var degraded heard
			limited, others := newLocker(t, client, redlatch.WithHooks(redlatch.Hooks{Degraded: degraded.add})), newLocker(t, s.Client(t))
			locktest.ServedUnderLoad(t, limited, []redlatch.Locker{others, newLocker(t, s.Client(t)), limited})
			locktest.ServedUnderLoad(t, others, []redlatch.Locker{limited})
			require.Len(t, degraded.all(), 1)
			if forbidden == "subscribe" {
				require.ErrorContains(t, degraded.all()[0].Err, "SECURITY.md has the rights")
			}
			onlyFences(t, s.Client(t))
		})
	}
}

// TestWithoutQueueLeavesNoEntry: such a waiter polls at the intervals of WithPollInterval, and
// leaves no entry while nobody queues. Its Unlock hands the lock on.
func TestWithoutQueueLeavesNoEntry(t *testing.T) {
	onEvery(t, map[string]maker{"SetNXPX": redlatch.NewSetNXPX}, func(t *testing.T, w *world) {
		holder := mustLock(t, w.locker(t, redlatch.WithoutQueue()), "k")
		var sent atomic.Int64
		client := w.Client(t)
		client.AddHook(locktest.Count(&sent))
		got := make(chan *redlatch.Lock)
		l := w.over(t, client, redlatch.WithoutQueue(), redlatch.WithPollInterval(time.Second, time.Second))
		locking(t, got, l, "k")
		time.Sleep(time.Minute)
		require.Greater(t, sent.Load(), int64(55))
		require.Less(t, sent.Load(), int64(130))
		require.Zero(t, w.Direct.Exists(t.Context(), "{k}:queue:k").Val())
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		next := waitInLine(t, w.locker(t), "k")
		begin := time.Now()
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, await(t, next, "handed on").Unlock(t.Context()))
		require.Less(t, time.Since(begin), 100*time.Millisecond)
	})
}

// TestHandedLockWithoutRenewalHasItsTTLAtOnce, from the hand-over on, and only Extend moves its end.
func TestHandedLockWithoutRenewalHasItsTTLAtOnce(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		l := w.locker(t, redlatch.WithTTL(10*time.Second), redlatch.WithoutRenewal())
		holder := mustLock(t, w.locker(t), "k")
		got := waitInLine(t, l, "k")
		time.Sleep(time.Minute)
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		until := lock.Until()
		require.InDelta(t, 9.898, time.Until(until).Seconds(), 0.1, "the time since the last look counts a little")
		time.Sleep(5 * time.Second)
		require.Equal(t, until, lock.Until())
		require.NoError(t, lock.Extend(t.Context(), 10*time.Second))
		require.InDelta(t, 9.898, time.Until(lock.Until()).Seconds(), 0.001)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestHandedLockOutlastsAnOutage: a handed lock is kept if Redis stops for half of the TTL once its
// claim was extended, or if the link delays every reply by 300 ms.
func TestHandedLockOutlastsAnOutage(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		for _, slow := range []bool{false, true} {
			l, link := w.linked(t, redlatch.WithTTL(10*time.Second))
			holder := mustLock(t, w.locker(t), "k")
			got := waitInLine(t, l, "k")
			if slow {
				link.delay(300 * time.Millisecond)
			}
			require.NoError(t, holder.Unlock(t.Context()))
			lock := <-got
			time.Sleep(time.Second)
			require.InDelta(t, 9, time.Until(lock.Until()).Seconds(), 1.5, "the claim is extended")
			if !slow {
				link.hang()
				time.Sleep(5 * time.Second)
				link.heal()
			}
			time.Sleep(5 * time.Second)
			require.NoError(t, lock.Err())
			require.NoError(t, lock.Unlock(t.Context()))
		}
	})
}

// TestFullRedisLosesNoLock: on a Redis that is full, or accepts no writes for a moment, locks are
// renewed, extended, released and handed on. Nothing new is granted. A waiter whose message is lost
// finds its lock by asking.
func TestFullRedisLosesNoLock(t *testing.T) {
	onRedis(t, queues, func(t *testing.T, w *world) {
		renewed := make(chan redlatch.Event, 100)
		lock := mustLock(t, w.locker(t, redlatch.WithTTL(locktest.BriefTTL), redlatch.WithHooks(redlatch.Hooks{
			Renewed: func(_ context.Context, e redlatch.Event) { renewed <- e },
		})), "k")
		client, lost := w.deaf(t)
		first, second := waitInLine(t, w.over(t, client), "k"), waitInLine(t, w.locker(t), "k")
		set := func(name, value string) { require.NoError(t, w.Direct.ConfigSet(t.Context(), name, value).Err()) }
		set("maxmemory", "1")
		lost.Store(true)
		_, err := w.locker(t, redlatch.WithOpTimeout(200*time.Millisecond)).TryLock(t.Context(), "other")
		requireOnly(t, err, redlatch.ErrUnavailable)
		for range 3 { // until the lock would have expired
			select {
			case e := <-renewed:
				require.True(t, e.Renewal)
			case <-lock.Done():
				require.NoError(t, lock.Err())
			}
		}
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.NoError(t, lock.Unlock(t.Context()))
		// A busy machine may let the first find its lock too late, so that the second has it before.
		next := make(chan *redlatch.Lock)
		for _, waits := range []<-chan *redlatch.Lock{first, second} {
			go func() { next <- <-waits }() // ends with the test
		}
		lock = await(t, next, "it finds its lock")
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		require.NoError(t, lock.Unlock(t.Context()))
		lock = await(t, next, "handed on")
		set("maxmemory", "0")
		set("min-replicas-to-write", "1")
		time.AfterFunc(300*time.Millisecond, func() { w.Direct.ConfigSet(context.Background(), "min-replicas-to-write", "0") })
		require.NoError(t, lock.Unlock(t.Context()), "retried")
		onlyFences(t, w.Direct)
	})
}
