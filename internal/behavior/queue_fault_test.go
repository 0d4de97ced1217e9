package behavior_test

import (
	"context"
	"fmt"
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
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestCrashedHolderCostsItsTTL: the first waiter gets the lock within 300 ms after the lease has ended.
// The test has three tries, since an expired key goes to whoever looks first, and a busy machine looks late.
func TestCrashedHolderCostsItsTTL(t *testing.T) {
	t.Parallel()
	onQueues(t, testCrashedHolderCostsItsTTL)
}

func testCrashedHolderCostsItsTTL(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	s := redistest.Start(t)
	inTime := func() bool {
		crashed := mustLock(t, newLocker(t, s.Client(t)), "k", redlatch.WithoutRenewal(), redlatch.WithTTL(3*time.Second))
		first := waitInLine(t, newLocker(t, s.Client(t)), "k")
		second := waitInLine(t, newLocker(t, s.Client(t)), "k")
		next, last := first, second
		var lock *redlatch.Lock
		select {
		case lock = <-first:
		case lock = <-second:
			next, last = second, first
		}
		late := time.Since(crashed.Until())
		require.NotNil(t, lock)
		require.NoError(t, lock.Unlock(t.Context()))
		lock = <-last
		require.NotNil(t, lock)
		require.NoError(t, lock.Unlock(t.Context()))
		return next == first && late < 300*time.Millisecond
	}
	for range 3 {
		if inTime() {
			return
		}
	}
	require.Fail(t, "late or out of turn in all three tries")
}

// TestCrashedWaitersAreSkipped: five waiters whose processes have died cost almost no time, since
// PUBSUB NUMSUB says that nobody listens.
func TestCrashedWaitersAreSkipped(t *testing.T) {
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t))
	holder := mustLock(t, l, "k")
	for i := range 5 {
		require.NoError(t, s.Client(t).ZAdd(t.Context(), "{k}:queue:k", redis.Z{
			Score: float64(i+1) / 100, Member: fmt.Sprintf("10000 redlatch:gone-%d a-token-%d", i, i),
		}).Err())
	}
	got := waitInLine(t, l, "k")
	begin := time.Now()
	require.NoError(t, holder.Unlock(t.Context()))
	lock := <-got
	require.NotNil(t, lock)
	require.Less(t, time.Since(begin), 5*time.Second, "one dead entry would cost 10 s")
	require.NoError(t, lock.Unlock(t.Context()))
	onlyFences(t, s.Client(t))
}

// deafDialer makes connections that lose messages while deaf is set.
func deafDialer(deaf *atomic.Bool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return &deafConn{Conn: c, deaf: deaf}, err
	}
}

// deafConn is a connection that discards what it reads while deaf is set, if it carries a subscription.
type deafConn struct {
	net.Conn
	deaf       *atomic.Bool
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
		if err != nil || !c.deaf.Load() || !c.subscribed.Load() {
			return n, err
		}
	}
}

// TestLostMessageCostsASecond: the subscription loses all messages without an error. The
// waiter is still served, long before a TTL has passed. So is the next one, once messages arrive
// again.
func TestLostMessageCostsASecond(t *testing.T) {
	t.Parallel()
	onQueues(t, testLostMessageCostsASecond)
}

func testLostMessageCostsASecond(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	s := redistest.Start(t)
	var deaf atomic.Bool
	o := s.Options()
	o.Dialer = deafDialer(&deaf)
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	l := newLocker(t, client, redlatch.WithTTL(time.Minute))
	holder := mustLock(t, newLocker(t, s.Client(t)), "k")
	got := waitInLine(t, l, "k")
	deaf.Store(true)
	begin := time.Now()
	require.NoError(t, holder.Unlock(t.Context()))
	lock := <-got
	require.NotNil(t, lock)
	require.Less(t, time.Since(begin), 3*time.Second)

	next := waitInLine(t, l, "k", alone)
	deaf.Store(false) // lost messages stay lost
	require.NoError(t, lock.Unlock(t.Context()))
	lock = <-next
	require.NotNil(t, lock)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestLostQueueCostsASecond: Redis loses its data while twenty waiters of one process stand in line. A look
// finds the key free and the queue empty. Each waiter releases the lock at once.
func TestLostQueueCostsASecond(t *testing.T) {
	t.Parallel()
	onQueues(t, testLostQueueCostsASecond)
}

func testLostQueueCostsASecond(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	s := redistest.Start(t)
	holder := mustLock(t, newLocker(t, s.Client(t)), "k")
	l := newLocker(t, s.Client(t))
	const waiters = 20
	var got [waiters]<-chan *redlatch.Lock
	for i := range got {
		got[i] = joinLine(t, l, "k")
	}
	queued(t, l, "k", 1)
	require.NoError(t, s.Client(t).FlushAll(t.Context()).Err())
	begin := time.Now()
	var wg sync.WaitGroup
	for _, lock := range got {
		wg.Go(func() {
			if err := (<-lock).Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	require.Less(t, time.Since(begin), 3*time.Second)
	require.ErrorIs(t, holder.Unlock(t.Context()), redlatch.ErrLost)
}

// TestEverybodyIsServedWhateverHappens: everybody is served while subscriptions are
// killed, scripts are flushed or the queue is deleted 25 times a second.
func TestEverybodyIsServedWhateverHappens(t *testing.T) {
	t.Parallel()
	onQueues(t, testEverybodyIsServedWhateverHappens)
}

func testEverybodyIsServedWhateverHappens(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	for name, trouble := range map[string]func(s *redistest.Server, direct *redis.Client){
		"subscriptions are killed": func(_ *redistest.Server, direct *redis.Client) {
			_ = direct.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err()
		},
		"scripts are flushed": func(_ *redistest.Server, direct *redis.Client) {
			_ = direct.ScriptFlush(t.Context()).Err()
		},
		"the queue is lost": func(_ *redistest.Server, direct *redis.Client) {
			_ = direct.Del(t.Context(), "{k}:queue:k", "{k}:permits:k").Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			direct := s.Client(t)
			var lockers []redlatch.Locker
			for range 6 {
				lockers = append(lockers, newLocker(t, s.Client(t)))
			}
			stop := make(chan struct{})
			go func() {
				defer close(stop)
				tick := time.NewTicker(40 * time.Millisecond)
				defer tick.Stop()
				for range 75 {
					<-tick.C
					trouble(s, direct)
				}
			}()
			t.Logf("%d grants", locktest.Crowd(t, lockers, stop))
			onlyFences(t, direct)
		})
	}
}

// TestRestartDuringTheWaitIsRiddenOut: Redis restarts and loses the queue and the holder's
// key. All waiters are still served.
func TestRestartDuringTheWaitIsRiddenOut(t *testing.T) {
	t.Parallel()
	onQueues(t, testRestartDuringTheWaitIsRiddenOut)
}

func testRestartDuringTheWaitIsRiddenOut(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	s := redistest.Start(t)
	mustLock(t, newLocker(t, s.Client(t)), "k", redlatch.WithoutRenewal(), redlatch.WithTTL(time.Hour))
	var line []<-chan *redlatch.Lock
	for range 5 {
		line = append(line, waitInLine(t, newLocker(t, s.Client(t)), "k"))
	}
	s.Restart(t)
	var wg sync.WaitGroup
	for _, got := range line {
		wg.Go(func() {
			if lock := <-got; lock == nil || lock.Unlock(t.Context()) != nil {
				t.Error("not served")
			}
		})
	}
	wg.Wait()
	onlyFences(t, s.Client(t))
}

// TestWaiterDoesNotSpinWhenRedisIsSilent: a waiter pauses between its looks, as WithPollInterval says.
func TestWaiterDoesNotSpinWhenRedisIsSilent(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	mustLock(t, newLocker(t, direct), "k")
	var failed heard
	l := newLocker(t, client, redlatch.WithOpTimeout(100*time.Millisecond), redlatch.WithPollInterval(400*time.Millisecond, 400*time.Millisecond),
		redlatch.WithHooks(redlatch.Hooks{Waiting: func(redlatch.Event) { p.Silence() }, Trouble: failed.add}))
	locktest.LockSoon(t, l, "warm") // the first attempt below must be refused in time
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	_, err := l.Lock(ctx, "k")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotEmpty(t, failed.all())
	require.LessOrEqual(t, failed.all()[len(failed.all())-1].Attempts, 2+5000/(200+100), "half of a pause is random")
}

// TestForbiddenChannelsDegradeToPolling: if SUBSCRIBE or PUBLISH is forbidden, everybody is served by
// polling. Hooks.Degraded reports that at most once for each Locker.
func TestForbiddenChannelsDegradeToPolling(t *testing.T) {
	t.Parallel()
	for _, forbidden := range []string{"subscribe", "publish"} {
		t.Run(forbidden, func(t *testing.T) {
			s := redistest.Start(t)
			user := s.User(t, "~*", "&*", "+@all", "-"+forbidden)
			var degraded atomic.Int64
			var lockers []redlatch.Locker
			for range 6 {
				client := redis.NewClient(user)
				t.Cleanup(func() { _ = client.Close() })
				lockers = append(lockers, newLocker(t, client, redlatch.WithHooks(redlatch.Hooks{
					Degraded: func(e redlatch.Event) {
						if e.Err != nil {
							degraded.Add(1)
						}
						if forbidden == "subscribe" && !strings.Contains(e.Err.Error(), "SECURITY.md has the rights") {
							t.Error(e.Err)
						}
					},
				})))
			}
			stop := make(chan struct{})
			time.AfterFunc(2*time.Second, func() { close(stop) })
			grants := locktest.Crowd(t, lockers, stop)
			t.Logf("%d grants", grants)
			require.Greater(t, grants, 20)
			require.Positive(t, degraded.Load())
			require.LessOrEqual(t, degraded.Load(), int64(len(lockers)))
			onlyFences(t, s.Client(t))
		})
	}
}

// TestProcessWithoutPublishStarvesNobody: a process that may not PUBLISH deletes the key, and beside it the lines of another
// process find it free. Of a key that both want all the time, nobody waits for longer than 5 s.
func TestProcessWithoutPublishStarvesNobody(t *testing.T) {
	t.Parallel()
	const least = 30
	s := redistest.Start(t)
	client := redis.NewClient(s.User(t, "~*", "&*", "+@all", "-publish"))
	t.Cleanup(func() { _ = client.Close() })
	lockers := []redlatch.Locker{newLocker(t, s.Client(t)), newLocker(t, client)}
	grants := make([]atomic.Int64, len(lockers))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for i := range 8 {
		side := i % len(lockers)
		wg.Go(func() {
			for {
				begin := time.Now()
				lock, err := lockers[side].Lock(ctx, "k")
				if err != nil {
					assert.Error(t, ctx.Err(), err)
					return
				}
				assert.Less(t, time.Since(begin), 5*time.Second)
				<-time.After(2 * time.Millisecond) // what the lock is for
				assert.NoError(t, lock.Unlock(t.Context()))
				grants[side].Add(1)
				if min(grants[0].Load(), grants[1].Load()) >= least {
					cancel()
				}
			}
		})
	}
	wg.Wait()
	require.GreaterOrEqual(t, min(grants[0].Load(), grants[1].Load()), int64(least))
}

// TestForgedMessagesGrantNothing: a waiter ignores forged and malformed messages that others publish.
func TestForgedMessagesGrantNothing(t *testing.T) { onQueues(t, testForgedMessagesGrantNothing) }

func testForgedMessagesGrantNothing(t *testing.T, newLocker newLockerFunc) {
	s := redistest.Start(t)
	direct := s.Client(t)
	l := newLocker(t, s.Client(t))
	holder := mustLock(t, newLocker(t, s.Client(t)), "k")
	got := waitInLine(t, l, "k")
	channels := direct.PubSubChannels(t.Context(), "redlatch:*").Val()
	require.Len(t, channels, 1)
	now := time.Now().Unix()
	guessed := "10000 " + channels[0] + " " + holder.Token()
	for _, message := range []string{
		"", " ", "x", "1000", "1000 1 2 3 4 5", "-1 1 2 0 3 1 ak",
		fmt.Sprintf("%d 0 7 0 %d %sk", now, len(guessed), guessed),
		fmt.Sprintf("%d 0 7 0 99999 %sk", now, guessed),
		fmt.Sprintf("%d 0 7 0 0 %sk", now, guessed),
		fmt.Sprintf("%d 0 99999999999999999999 0 %d %sk", now, len(guessed), guessed),
	} {
		require.NoError(t, direct.Publish(t.Context(), channels[0], message).Err())
	}
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, 1, st.Waiters)
	require.Empty(t, got)
	require.NoError(t, holder.Unlock(t.Context()))
	lock := <-got
	require.NotNil(t, lock)
	require.NotEqual(t, uint64(7), lock.Fence(), "the fence of a forged message")
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestFrozenWaiterKnowsThatItsTurnHasPassed: a process is frozen when it is handed the lock, and loses
// it after its TTL. When the process continues, it does not trust the stale message.
func TestFrozenWaiterKnowsThatItsTurnHasPassed(t *testing.T) {
	t.Parallel()
	onQueues(t, testFrozenWaiterKnowsThatItsTurnHasPassed)
}

func testFrozenWaiterKnowsThatItsTurnHasPassed(t *testing.T, newLocker newLockerFunc) {
	t.Parallel()
	if addr := locktest.Part(); addr != "" {
		l := newLocker(t, redis.NewClient(&redis.Options{Network: "unix", Addr: addr}), redlatch.WithTTL(1500*time.Millisecond))
		lock, err := l.Lock(t.Context(), "k")
		locktest.Say("granted", err)
		if err == nil {
			locktest.Say("unlocked", lock.Unlock(t.Context()))
		}
		return
	}
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t))
	holder := mustLock(t, l, "k")
	child := locktest.Start(t, s.Addr())
	waiters := func() int {
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		return st.Waiters
	}
	eventually(t, "the child queues", func() bool { return waiters() == 1 })
	eventually(t, "the child listens", func() bool {
		return len(s.Client(t).PubSubChannels(t.Context(), "redlatch:*").Val()) == 1
	})

	child.Freeze(t)
	require.NoError(t, holder.Unlock(t.Context()))
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.True(t, st.Held, "handed to the frozen child")
	require.NotEqual(t, holder.Token(), st.Token)
	second, err := l.Lock(t.Context(), "k") // after the child's TTL
	require.NoError(t, err)
	child.Continue(t)
	eventually(t, "the child queues again", func() bool { return waiters() == 1 })
	require.Empty(t, child.Said, "the child trusted a stale message")
	require.NoError(t, second.Unlock(t.Context()))
	require.Equal(t, "granted <nil>", <-child.Said)
	require.Equal(t, "unlocked <nil>", <-child.Said)
	child.Wait(t)
}

// TestLostReplyOfTheReleaseCostsASecond: the reply to the release that queues the line and hands it the lock is
// lost, and perhaps the message too. The line is served even so, and nothing is left.
func TestLostReplyOfTheReleaseCostsASecond(t *testing.T) {
	t.Parallel()
	for name, loses := range map[string]bool{"the message comes": false, "the message is lost too": true} {
		t.Run(name, func(t *testing.T) {
			onQueues(t, func(t *testing.T, newLocker newLockerFunc) {
				t.Parallel()
				direct, p, _ := behindProxy(t)
				var deaf atomic.Bool
				o := p.Options()
				dial := o.Dialer
				if dial == nil {
					dial = new(net.Dialer).DialContext
				}
				o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
					c, err := dial(ctx, network, addr)
					return &deafConn{Conn: c, deaf: &deaf}, err
				}
				client := redis.NewClient(o)
				t.Cleanup(func() { _ = client.Close() })
				l := newLocker(t, client)
				require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
				lock, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				got := joinLine(t, l, "k")
				eventually(t, "the process listens", func() bool {
					return len(direct.PubSubChannels(t.Context(), "redlatch:*").Val()) == 1
				})
				deaf.Store(loses)
				p.LoseReplies(1, "evalsha")
				begin := time.Now()
				require.NoError(t, lock.Unlock(t.Context()))
				next := <-got
				require.NotNil(t, next)
				require.Less(t, time.Since(begin), 4*time.Second)
				require.Equal(t, 1, p.Lost())
				require.Greater(t, next.Fence(), lock.Fence())
				deaf.Store(false)
				require.NoError(t, next.Unlock(t.Context()))
				onlyFences(t, direct)
			})
		})
	}
}
