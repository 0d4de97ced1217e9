package redlatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
	"github.com/redlatch/redlatch/internal/redistest"
)

// handOnFrom releases a lock on k while entries queue for it, the first with a score of 0. It subscribes to
// redlatch:there and redlatch:polls, and returns the new holder of the key, the remaining entries with their scores,
// and the channel of each message that was published.
func handOnFrom(t *testing.T, entries ...string) (holder string, queue map[string]float64, heard []string) {
	t.Helper()
	m, client, _ := oneNode(t)
	ps := client.Subscribe(t.Context(), "redlatch:there", "redlatch:polls")
	defer ps.Close()
	for range 2 {
		_, err := ps.Receive(t.Context())
		require.NoError(t, err)
	}
	l, err := NewSetNXPX(client)
	require.NoError(t, err)
	lock := granted(t, l)
	for i, entry := range entries {
		_, err := m.ZAdd("{k}:queue:k", float64(i), entry)
		require.NoError(t, err)
	}
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, client.Publish(t.Context(), "redlatch:there", "the end").Err())
	for message := range ps.Channel() {
		if message.Payload == "the end" {
			break
		}
		heard = append(heard, message.Channel)
	}
	if m.Exists("k") {
		holder, err = m.Get("k")
		require.NoError(t, err)
	}
	queue, _ = m.SortedSet("{k}:queue:k")
	return holder, queue, heard
}

// TestReleaseForgetsAFrozenProcess: a line was handed a lock that has expired unreleased. Its entry leaves the
// queue, though its process still listens. Other lines of that process keep their places.
func TestReleaseForgetsAFrozenProcess(t *testing.T) {
	next, last := "3000 redlatch:there b", "3000 redlatch:polls c"
	holder, queue, heard := handOnFrom(t, "1000 redlatch:there a", next, last)
	require.Equal(t, "b", holder)
	require.Equal(t, map[string]float64{next: 0, last: 2}, queue)
	require.Equal(t, []string{"redlatch:there"}, heard)
}

// TestReleaseHandsOnToAProcessThatPolls: a process that polls is handed the lock, whether it listens or
// not. Nothing is published to it.
func TestReleaseHandsOnToAProcessThatPolls(t *testing.T) {
	for name, listens := range map[string]string{"it listens": "redlatch:polls", "it does not": "redlatch:silent"} {
		t.Run(name, func(t *testing.T) {
			first, second := "3000 -"+listens+" b", "3000 redlatch:there c"
			holder, queue, heard := handOnFrom(t, "1000 redlatch:gone a", first, second)
			require.Equal(t, "b", holder)
			require.Equal(t, map[string]float64{first: 0, second: 2}, queue)
			require.Empty(t, heard)
		})
	}
}

// TestWaitInTheQueueNamesTheHolder: Waiting has the refusal also if the process has a subscription already, so
// that the first attempt queues.
func TestWaitInTheQueueNamesTheHolder(t *testing.T) {
	_, client, _ := oneNode(t)
	l, err := NewSetNXPX(client, WithOwner("api-7"))
	require.NoError(t, err)
	granted(t, l)
	listen(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var refusal error
	_, err = l.Lock(ctx, "k", WithHooks(Hooks{Waiting: func(e Event) { refusal = e.Err; cancel() }}))
	require.ErrorIs(t, err, context.Canceled)
	var held *HeldError
	require.ErrorAs(t, refusal, &held)
	require.Equal(t, "api-7", held.Owner)
}

// listen waits until the process of l is told of what it is handed. That lasts until the test ends.
func listen(t *testing.T, l Locker) {
	t.Helper()
	c := l.(*engine).channel
	c.Join()
	t.Cleanup(c.Leave)
	soon(t, "it listens", func() bool { return c.State().Ready })
}

// queueOf is where the line of a key waits.
func queueOf(key string) string { return "{" + key + "}:queue:" + key }

// newEntry returns an attempt of l on k with an entry for the queue.
func newEntry(t *testing.T, l Locker) *lease {
	t.Helper()
	e := l.(*engine)
	r, err := e.request(t.Context(), "k", nil)
	require.NoError(t, err)
	a, err := e.newAttempt(r, nil, "")
	require.NoError(t, err)
	a.entry = handoff.Entry(a.params.ttl, false, e.channel.Channel, a.params.token)
	a.params.entry = a.entry
	return a
}

// TestAdoptEndsTheTurnOfASemaphore: a semaphore with one permit passes it on, as a lock does. So Adopt by the same
// Locker keeps Unlock from passing it on.
func TestAdoptEndsTheTurnOfASemaphore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		l, err := NewSemaphore(client, 1)
		require.NoError(t, err)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		adopted, err := l.Adopt(t.Context(), "k", st.Token)
		require.NoError(t, err)
		require.True(t, lock.lease.pinned)
		require.NoError(t, adopted.Unlock(t.Context()))
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// send sends the acquire of a, which is in the queue already if queued is set.
func (a *lease) send(t *testing.T, queued bool) (acquireReply, error) {
	p := a.params
	p.queued = queued
	return a.engine.strategy.acquire(t.Context(), &p)
}

// TestHolderThatHandsOnIsKnownByItsToken: the token of such a holder is a UUID, alone or after an owner.
// Other holders may be clients that do not hand the lock on.
func TestHolderThatHandsOnIsKnownByItsToken(t *testing.T) {
	const id = "3f7c1a52-8a07-4a8e-9d6c-0f5f3a7e2b11"
	for holder, foreign := range map[string]bool{id: false, "api-7/" + id: false, "their-token": true, "x" + id: true, "": true} {
		got, ok := readRefusal([]any{int64(5), holder, int64(1), int64(1), int64(1), int64(1)})
		require.True(t, ok)
		require.Equal(t, foreign, got.Foreign, holder)
	}
}

// TestGrantTakesItsPlaceOut: a grant removes its entry from the queue, whether the lock was free or the token already
// held it.
func TestGrantTakesItsPlaceOut(t *testing.T) {
	for name, had := range map[string]bool{"free": false, "its own": true} {
		t.Run(name, func(t *testing.T) {
			m, client, _ := oneNode(t)
			l, err := NewSetNXPX(client)
			require.NoError(t, err)
			require.NoError(t, m.Set("k", "another's"))
			a := newEntry(t, l)
			_, err = a.send(t, false)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.True(t, m.Exists("{k}:queue:k"))
			m.Del("k")
			if had {
				require.NoError(t, m.Set("k", a.params.token))
			}
			got, err := a.send(t, true)
			require.NoError(t, err)
			require.Equal(t, had, got.alreadyHeld)
			require.False(t, m.Exists("{k}:queue:k"))
		})
	}
}

// TestEntryThatLostItsLockIsPlacedAnew: a waiter was handed the lock, but asks only when another owner has
// it. Its entry moves to the end of the queue, and the reply says that the entry is new.
func TestEntryThatLostItsLockIsPlacedAnew(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	granted(t, made)
	a := newEntry(t, made)
	ahead := float64(time.Now().Add(time.Hour).UnixMicro()) // the clock was set back
	for entry, score := range map[string]float64{a.entry: 0, "another's": ahead} {
		_, err := m.ZAdd("{k}:queue:k", score, entry)
		require.NoError(t, err)
	}
	got, err := a.send(t, true)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.True(t, got.Fresh)
	require.False(t, got.First)
	score, err := m.ZScore("{k}:queue:k", a.entry)
	require.NoError(t, err)
	require.Equal(t, ahead+1, score)
}

// TestUnlockOfALostHandedLockLeavesNoPlace: Unlock removes the entry of a handed lock even if its key was
// deleted. Otherwise the next release would take the process for frozen and remove the entries of its other waiters.
func TestUnlockOfALostHandedLockLeavesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		defer time.Sleep(10 * time.Second) // the subscription ends
		holder := granted(t, l)
		got := make(chan *Lock, 1)
		go func() { // ends with the lock
			lock, _ := l.Lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
			got <- lock
		}()
		time.Sleep(100 * time.Millisecond)
		_, err = m.ZAdd("{k}:queue:k", 1e16, "another")
		require.NoError(t, err)
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.NotNil(t, lock)
		members, err := m.ZMembers("{k}:queue:k")
		require.NoError(t, err)
		require.Len(t, members, 2, "the lock was handed over")
		m.Del("k") // the process has not noticed
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		members, err = m.ZMembers("{k}:queue:k")
		require.NoError(t, err)
		require.Equal(t, []string{"another"}, members)
	})
}

// TestHopelessGrantsAreNoLoop: a waiter whose TTL is shorter than the drift pauses between its attempts.
func TestHopelessGrantsAreNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		time.AfterFunc(100*time.Millisecond, func() { _ = holder.Unlock(context.Background()) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = l.Lock(ctx, "k", WithTTL(time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrLost)
		require.Less(t, m.CommandCount(), 3000)
		time.Sleep(10 * time.Second)
	})
}

// TestWaiterThatWasNeverQueuedSendsNothing: a waiter whose ctx has ended before it queues sends nothing.
// It has no place to give up.
func TestWaiterThatWasNeverQueuedSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		subscription := l.(*engine).channel
		subscription.Join()
		defer time.Sleep(10 * time.Second) // the subscription ends
		defer subscription.Leave()
		synctest.Wait()
		require.True(t, subscription.State().Ready)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := m.CommandCount()
		_, err = l.Lock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, before, m.CommandCount())
	})
}

// TestLockThatEndsByItselfLeavesNoNote: a process that is alive removes the entry of a handed lock when
// the lock expires. So its other waiters keep their places.
func TestLockThatEndsByItselfLeavesNoNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		time.AfterFunc(2*time.Second, func() { _ = holder.Unlock(context.Background()) })
		lock, err := l.Lock(t.Context(), "k", WithoutRenewal(), WithTTL(time.Second))
		require.NoError(t, err)
		require.True(t, m.Exists("{k}:queue:k"), "the lock was handed over")
		<-lock.Done()
		synctest.Wait()
		require.False(t, m.Exists("{k}:queue:k"))
		time.Sleep(time.Minute)
	})
}

// TestPlaceThatWasNotGivenUpIsReleased: everybody left a line while Redis refused all commands, so its entry
// stayed in the queue. A lock that is handed to the entry later is released.
func TestPlaceThatWasNotGivenUpIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		defer time.Sleep(time.Minute) // the subscription ends
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		var left sync.WaitGroup
		for range 3 {
			left.Go(func() {
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.Canceled)
			})
		}
		time.Sleep(time.Second)
		require.True(t, m.Exists(queueOf("k")))
		m.SetError("ERR away")
		cancel()
		left.Wait()
		time.Sleep(1500 * time.Millisecond) // releases are not tried again any more, and the process still listens
		m.SetError("")
		require.True(t, m.Exists(queueOf("k")))
		require.Len(t, m.PubSubChannels("redlatch:*"), 1)
		require.NoError(t, holder.Unlock(t.Context()))
		synctest.Wait()
		require.Equal(t, []string{"redlatch:fence"}, m.Keys())
		require.Empty(t, l.(*engine).lines.tokens)
	})
}

// TestKeptLockIsHandedOnThoughItHasExpired: the key may expire just before the minimum hold ends. The
// process still hands the lock on then. Any other release of an expired key is ErrLost.
func TestKeptLockIsHandedOnThoughItHasExpired(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	listen(t, made)
	holder, a := granted(t, made), newEntry(t, made)
	_, err = a.send(t, false)
	require.ErrorIs(t, err, ErrNotAcquired)
	m.Del("k")
	p := &releaseParams{target: &holder.lease.params.target}
	s := made.(*engine).strategy
	_, err = s.release(t.Context(), p)
	require.ErrorIs(t, err, ErrLost)
	require.False(t, m.Exists("k"))
	p.keeper = newKeeper()
	_, err = s.release(t.Context(), p)
	require.NoError(t, err)
	value, err := m.Get("k")
	require.NoError(t, err)
	require.Equal(t, a.params.token, value)
}

// countScripts counts the scripts that a client sends.
func countScripts(client *redis.Client) *atomic.Int64 {
	var n atomic.Int64
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				n.Add(1)
			}
			return next(ctx, cmd)
		}
	}))
	return &n
}

// A grantee is a caller that was granted the lock.
type grantee struct{ process, caller int }

// TestTurnsKeepTheOrderOfArrival: callers of four processes arrive in a random order, while another
// process holds the lock. If each holds it for longer than a turn may pass it on, they are served in that order. If they hold
// it for less, a turn serves all callers of the process whose caller has waited longest, and then the next process is served.
// Fences grow in both.
func TestTurnsKeepTheOrderOfArrival(t *testing.T) {
	for name, hold := range map[string]time.Duration{"short": 10 * time.Microsecond, "long": 10 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			bubbleQueues(t, func(t *testing.T, newLocker func(...Option) (*engine, *redis.Client), m *miniredis.Miniredis) {
				var lockers []*engine
				for range 4 {
					l, _ := newLocker()
					lockers = append(lockers, l)
				}
				other, _ := newLocker()
				holder := granted(t, other)
				var mu sync.Mutex // guards the fields below
				var served []grantee
				var fences []uint64
				var wg sync.WaitGroup
				var arrived []grantee
				for i := range 16 {
					g := grantee{i % 4, i}
					if i >= 4 {
						g.process = rand.N(4)
					}
					arrived = append(arrived, g)
					wg.Go(func() {
						lock, err := lockers[g.process].Lock(t.Context(), "k")
						require.NoError(t, err)
						mu.Lock()
						served, fences = append(served, g), append(fences, lock.Fence())
						mu.Unlock()
						time.Sleep(hold)
						require.NoError(t, lock.Unlock(t.Context()))
					})
					time.Sleep(rand.N(500*time.Millisecond) + time.Millisecond)
				}
				require.NoError(t, holder.Unlock(t.Context()))
				wg.Wait()
				want := arrived
				if name == "short" {
					want = nil
					for p := range 4 { // the processes arrived in this order
						for _, g := range arrived {
							if g.process == p {
								want = append(want, g)
							}
						}
					}
				}
				require.Equal(t, want, served)
				for i := 1; i < len(fences); i++ {
					require.Greater(t, fences[i], fences[i-1])
				}
				time.Sleep(time.Second)
				require.Equal(t, []string{"redlatch:fence"}, m.Keys())
			})
		})
	}
}

// TestWhoeverComesLaterWaitsForTheNextTurn: callers of two processes take the lock again and again. No turn
// of a process serves a caller twice, so both get the same number of grants.
func TestWhoeverComesLaterWaitsForTheNextTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // subscriptions end
		m, _ := bubbleRedis(t)
		var grants [2]atomic.Int64
		var wg sync.WaitGroup
		end := time.Now().Add(100 * time.Millisecond)
		many, err := NewSetNXPX(bubbleClient(t, m))
		require.NoError(t, err)
		one, err := NewSetNXPX(bubbleClient(t, m))
		require.NoError(t, err)
		run := func(l Locker, i int) {
			wg.Go(func() {
				for time.Now().Before(end) {
					lock, err := l.Lock(t.Context(), "k")
					require.NoError(t, err)
					grants[i].Add(1)
					time.Sleep(100 * time.Microsecond)
					require.NoError(t, lock.Unlock(t.Context()))
				}
			})
		}
		for range 8 {
			run(many, 0)
		}
		run(one, 1)
		wg.Wait()
		require.InDelta(t, 8, float64(grants[0].Load())/float64(grants[1].Load()), 0.8)
	})
}

// TestContendedGrantCostsOneCommand: the release that ends a turn queues the line, and hands the lock on. Neither the
// releaser nor the next owner sends anything else.
func TestContendedGrantCostsOneCommand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // subscriptions end
		m, _ := bubbleRedis(t)
		var sent []*atomic.Int64
		var wg sync.WaitGroup
		var grants atomic.Int64
		stop := make(chan struct{})
		for range 2 { // of two callers each, so that somebody of both processes always waits
			client := bubbleClient(t, m)
			l, err := NewSetNXPX(client)
			require.NoError(t, err)
			sent = append(sent, countScripts(client))
			for range 2 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
						}
						lock, err := l.Lock(t.Context(), "k")
						require.NoError(t, err)
						grants.Add(1)
						time.Sleep(10 * time.Millisecond) // too long for a pass
						require.NoError(t, lock.Unlock(t.Context()))
					}
				})
			}
		}
		time.Sleep(100 * time.Millisecond) // all queue
		total := func() int64 { return sent[0].Load() + sent[1].Load() }
		commands, before := total(), grants.Load()
		time.Sleep(500 * time.Millisecond)
		commands, before = total()-commands, grants.Load()-before
		close(stop)
		wg.Wait()
		require.InDelta(t, 50, before, 2)
		require.LessOrEqual(t, commands, before+1)
	})
}

// TestReleaseGrantsItsOwnLineByItsReply: no message reaches the process, and nobody else waits. The reply to the release
// grants the lock to the line of the releaser at once.
func TestReleaseGrantsItsOwnLineByItsReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // subscriptions end
		_, client := bubbleRedis(t)
		made, err := NewSetNXPX(client)
		require.NoError(t, err)
		l := made.(*engine)
		require.NoError(t, granted(t, l).Unlock(t.Context())) // the scripts are loaded
		sent := countScripts(client)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		got := make(chan *Lock, 1)
		go func() { // ends with the lock
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			got <- lock
		}()
		synctest.Wait()
		l.channel.Deliver = func(handoff.Grant) {} // messages are lost
		before := sent.Load()
		require.NoError(t, lock.Unlock(t.Context()))
		next := <-got
		require.Equal(t, before+1, sent.Load())
		require.Greater(t, next.Fence(), lock.Fence())
		require.NoError(t, next.Unlock(t.Context()))
	})
}

// TestStatusCountsLines: the callers of one Locker count once. A call with options counts for itself.
func TestStatusCountsLines(t *testing.T) {
	bubbleQueues(t, func(t *testing.T, newLocker func(...Option) (*engine, *redis.Client), _ *miniredis.Miniredis) {
		holding, _ := newLocker()
		holder := granted(t, holding)
		var wg sync.WaitGroup
		wait := func(l Locker, opts ...Option) {
			wg.Go(func() {
				lock, err := l.Lock(t.Context(), "k", opts...)
				require.NoError(t, err)
				require.NoError(t, lock.Unlock(t.Context()))
			})
		}
		one, _ := newLocker()
		other, _ := newLocker()
		for range 5 {
			wait(one)
		}
		wait(one, WithTTL(time.Minute))
		wait(other)
		time.Sleep(time.Second)
		st, err := holding.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 3, st.Waiters)
		require.NoError(t, holder.Unlock(t.Context()))
		wg.Wait()
	})
}

// TestOrderSurvivesALostQueue: Redis loses the queue, but not the lock. Each line queues again, at the place that its
// head has earned by waiting.
func TestOrderSurvivesALostQueue(t *testing.T) {
	bubbleQueues(t, func(t *testing.T, newLocker func(...Option) (*engine, *redis.Client), m *miniredis.Miniredis) {
		holding, _ := newLocker(WithTTL(time.Hour))
		holder := granted(t, holding)
		order := make(chan int, 10)
		var wg sync.WaitGroup
		for i := range 8 {
			l, _ := newLocker()
			wg.Go(func() {
				lock, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				order <- i
				require.NoError(t, lock.Unlock(t.Context()))
			})
			time.Sleep(300 * time.Millisecond)
		}
		for _, key := range m.Keys() {
			if strings.HasPrefix(key, "{k}:") {
				m.Del(key)
			}
		}
		time.Sleep(5 * time.Second)
		st, err := holding.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, 8, st.Waiters)
		require.NoError(t, holder.Unlock(t.Context()))
		wg.Wait()
		for i := range 8 {
			require.Equal(t, i, <-order)
		}
	})
}

// TestBlocksOfFencesStayBelowTheClock: an acquire and a release issue blocks of up to 64 fences. Each block is above the one
// before, and none ends above the clock of Redis, or above the register where that is ahead. So fences grow even if the register
// is lost, or the whole data.
func TestBlocksOfFencesStayBelowTheClock(t *testing.T) {
	for name, strategy := range map[string]func(redis.UniversalClient, ...Option) (Locker, error){
		"SetNXPX":   NewSetNXPX,
		"Semaphore": func(c redis.UniversalClient, opts ...Option) (Locker, error) { return NewSemaphore(c, 1, opts...) },
	} {
		t.Run(name, func(t *testing.T) {
			m, client, _ := oneNode(t)
			made, err := strategy(client)
			require.NoError(t, err)
			l := made.(*engine)
			listen(t, l)
			now := time.Now()
			var last, issued uint64
			took := func(what string, fence uint64, more int) {
				end := fence + uint64(more)
				require.Greater(t, fence, last, what)
				require.LessOrEqual(t, more, 63, what)
				if more > 0 {
					require.LessOrEqual(t, int64(end), now.UnixMicro(), what)
				}
				last = end
				issued += uint64(more) + 1
			}
			for i := range 300 {
				now = now.Add(time.Duration(rand.N(200)+1) * time.Microsecond)
				if i%20 == 0 {
					now = now.Add(20 * time.Millisecond)
				}
				m.SetTime(now)
				what := fmt.Sprint("grant ", i)
				if int64(last) < now.UnixMicro() { // else a clock would have been set back
					switch rand.N(10) {
					case 0:
						m.FlushAll()
						what += " after FLUSHALL"
					case 1:
						m.Del("redlatch:fence")
						what += " without the register"
					}
				}
				a := newEntry(t, l)
				a.params.entry, a.params.want = "", 64
				got, err := a.send(t, false)
				require.NoError(t, err, what)
				took(what, got.fence, got.more)
				if rand.N(4) == 0 {
					fence, err := l.strategy.adopt(t.Context(), &a.params)
					require.NoError(t, err)
					took(what+", adopted", fence, 0)
				}
				now = now.Add(time.Duration(rand.N(100)) * time.Microsecond)
				m.SetTime(now)
				next := newEntry(t, l)
				reply, err := l.strategy.release(t.Context(), &releaseParams{target: &a.params.target, next: next.entry})
				require.NoError(t, err)
				require.True(t, reply.handed)
				took(what+", handed over", reply.fence, reply.more)
				_, err = l.strategy.release(t.Context(), &releaseParams{target: &next.params.target, entry: next.entry})
				require.NoError(t, err)
			}
			require.Greater(t, issued, uint64(2000), "blocks are issued")
		})
	}
}

// TestFencesGrowOverTurns: three processes pass the lock on and hand it over, while the register, or all data of Redis, is lost
// between the grants.
func TestFencesGrowOverTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(time.Minute) // subscriptions end
		m, _ := bubbleRedis(t)
		var mu sync.Mutex // guards the fields below
		var last uint64
		var grants, lost int
		grew := func(fence uint64) {
			mu.Lock()
			defer mu.Unlock()
			require.Greater(t, fence, last)
			last = fence
			grants++
		}
		var wg sync.WaitGroup
		end := time.Now().Add(3 * time.Second)
		for range 3 {
			l, err := NewSetNXPX(bubbleClient(t, m))
			require.NoError(t, err)
			for range 4 {
				wg.Go(func() {
					for time.Now().Before(end) {
						lock, err := l.Lock(t.Context(), "k")
						require.NoError(t, err)
						grew(lock.Fence())
						time.Sleep(rand.N(3 * time.Millisecond))
						switch rand.N(50) {
						case 0:
							m.Del("redlatch:fence")
						case 1:
							adopted, err := l.Adopt(t.Context(), "k", lock.Token())
							require.NoError(t, err)
							grew(adopted.Fence())
						case 2:
							m.FlushAll()
							mu.Lock()
							lost++
							mu.Unlock()
							require.ErrorIs(t, lock.Extend(t.Context(), time.Second), ErrLost)
						}
						if err := lock.Unlock(context.Background()); err != nil {
							require.ErrorIs(t, err, ErrLost)
						}
					}
				})
			}
		}
		wg.Wait()
		t.Logf("%d grants, %d times all data were lost", grants, lost)
	})
}

// queueOn is a strategy with a queue on a server whose clock stands still.
type queueOn struct {
	*engine
	m      *miniredis.Miniredis
	now    int64 // the clock, in µs
	queue  string
	before string // each entry
}

// onEachQueue runs a test on each strategy with a queue.
func onEachQueue(t *testing.T, test func(t *testing.T, q *queueOn)) {
	for name, made := range map[string]func(client *redis.Client) (Locker, error){
		"SetNXPX":   func(client *redis.Client) (Locker, error) { return NewSetNXPX(client) },
		"Semaphore": func(client *redis.Client) (Locker, error) { return NewSemaphore(client, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			m, client, _ := oneNode(t)
			at := time.Date(2026, time.January, 1, 12, 0, 0, 123_456_000, time.UTC)
			m.SetTime(at)
			l, err := made(client)
			require.NoError(t, err)
			q := &queueOn{engine: l.(*engine), m: m, now: at.UnixMicro(), queue: queueOf("k")}
			if name == "Semaphore" {
				q.queue, q.before = "{k}:permits:k", "1 "
			}
			test(t, q)
		})
	}
}

// entry returns a fresh attempt whose process polls, so that it can be handed the lock without a message.
func (q *queueOn) entry(t *testing.T, waited time.Duration) *lease {
	t.Helper()
	a := newEntry(t, q.engine)
	a.entry = handoff.Entry(a.params.ttl, true, q.channel.Channel, a.params.token)
	a.params.entry, a.params.waited = a.entry, waited
	return a
}

// score returns the score of an entry.
func (q *queueOn) score(t *testing.T, a *lease) int64 {
	t.Helper()
	score, err := q.m.ZScore(q.queue, q.before+a.entry)
	require.NoError(t, err)
	return int64(score)
}

// TestBlockNeverEndsAboveTheClock: an acquire that asks for five fences gets as many as end at the clock at most, and at
// least one. The register is the last of them. If it was empty, the only one is at the clock.
func TestBlockNeverEndsAboveTheClock(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		for name, c := range map[string]struct{ register, fence, more int64 }{
			"lost":                  {0, q.now, 0},
			"far behind":            {q.now - 3_600_000_000, q.now - 4, 4},
			"just behind the slack": {q.now - 10_002, q.now - 4, 4},
			"within the slack":      {q.now - 5000, q.now - 4999, 4},
			"just below the clock":  {q.now - 3, q.now - 2, 2},
			"at the clock":          {q.now, q.now + 1, 0},
			"ahead of the clock":    {q.now + 100, q.now + 101, 0},
		} {
			q.m.Del("redlatch:fence")
			if c.register > 0 {
				require.NoError(t, q.m.Set("redlatch:fence", strconv.FormatInt(c.register, 10)))
			}
			a := q.entry(t, 0)
			a.params.entry, a.params.want = "", 5
			got, err := a.send(t, false)
			require.NoError(t, err)
			require.Equal(t, c.fence, int64(got.fence), name)
			require.Equal(t, int(c.more), got.more, name)
			register, err := q.m.Get("redlatch:fence")
			require.NoError(t, err)
			require.Equal(t, strconv.FormatInt(c.fence+c.more, 10), register, name)
			_, err = q.strategy.release(t.Context(), &releaseParams{target: &a.params.target})
			require.NoError(t, err)
		}
	})
}

// TestPlaceIsThatOfTheArrival: the score of an entry is the clock of Redis, or what is above the highest
// score, less how long the line has waited. It is above 0, the score of an entry that was handed the lock. The lowest is the
// first of the queue.
func TestPlaceIsThatOfTheArrival(t *testing.T) {
	const hour = time.Hour
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		holder := granted(t, q.engine)
		for _, c := range []struct {
			waited time.Duration
			score  int64
			first  bool
		}{
			{hour, q.now - hour.Microseconds(), true},
			{0, q.now, false},
			{0, q.now + 1, false},
			{hour / 2, q.now + 2 - (hour / 2).Microseconds(), false},
			{2 * hour, q.now + 2 - (2 * hour).Microseconds(), true},
			{time.Duration(q.now+5) * time.Microsecond, 1, true},
		} {
			a := q.entry(t, c.waited)
			got, err := a.send(t, false)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.Equal(t, c.score, q.score(t, a))
			require.Equal(t, c.first, got.First)
		}
		next := q.entry(t, 0)
		_, err := q.strategy.release(t.Context(), &releaseParams{target: &holder.lease.params.target, next: next.entry, waited: hour / 4})
		require.NoError(t, err)
		require.Equal(t, q.now+2-(hour/4).Microseconds(), q.score(t, next))
	})
}

// TestReleaseThatFindsNothingQueuesNothing: a release whose token does not hold the lock leaves all as it is. So a
// resend does not queue the line of the releaser again.
func TestReleaseThatFindsNothingQueuesNothing(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		holder, lost := granted(t, q.engine), q.entry(t, 0)
		_, err := q.strategy.release(t.Context(), &releaseParams{target: &lost.params.target, next: q.entry(t, 0).entry})
		require.ErrorIs(t, err, ErrLost)
		require.False(t, q.m.Exists(q.queue))
		require.NoError(t, holder.Unlock(t.Context()))
	})
}

// TestReleaseSaysThatItHandsTheLockToItsLine: with the fences of the grant.
func TestReleaseSaysThatItHandsTheLockToItsLine(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		holder := granted(t, q.engine)
		earlier, next := q.entry(t, time.Minute), q.entry(t, 0)
		_, err := earlier.send(t, false)
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NoError(t, q.m.Set("redlatch:fence", strconv.FormatInt(q.now-1000, 10)))
		got, err := q.strategy.release(t.Context(), &releaseParams{target: &holder.lease.params.target, next: next.entry})
		require.NoError(t, err)
		require.Equal(t, releaseReply{at: time.Duration(q.now) * time.Microsecond}, got)
		got, err = q.strategy.release(t.Context(), &releaseParams{target: &earlier.params.target, entry: earlier.entry})
		require.NoError(t, err)
		require.Equal(t, releaseReply{}, got)
		last := q.entry(t, time.Hour)
		require.NoError(t, q.m.Set("redlatch:fence", strconv.FormatInt(q.now-1000, 10)))
		got, err = q.strategy.release(t.Context(), &releaseParams{
			target: &next.params.target, entry: next.entry, next: last.entry, waited: time.Hour,
		})
		require.NoError(t, err)
		require.Equal(t, releaseReply{
			at: time.Duration(q.now) * time.Microsecond, handed: true, fence: uint64(q.now - 999), more: 63,
		}, got)
	})
}

// TestLostPlaceIsTakenAgain: the queue is lost, and a look adds the entry again, by the time of its arrival.
func TestLostPlaceIsTakenAgain(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		granted(t, q.engine)
		a := q.entry(t, time.Minute)
		for range 2 {
			got, err := a.send(t, true)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.True(t, got.Fresh)
			require.Equal(t, q.now-time.Minute.Microseconds(), q.score(t, a))
			got, err = a.send(t, true)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.False(t, got.Fresh)
			q.m.Del(q.queue)
		}
	})
}

// TestRefusalSaysWhetherTheQueueHandedTheLock: only the first of the queue is told, and only if the holder is the
// one that was handed the lock.
func TestRefusalSaysWhetherTheQueueHandedTheLock(t *testing.T) {
	m, client, _ := oneNode(t)
	l, err := NewSetNXPX(client)
	require.NoError(t, err)
	require.NoError(t, m.Set("k", "a token"))
	_, err = m.ZAdd(queueOf("k"), 0, "10000 redlatch:x a token")
	require.NoError(t, err)
	first, second := newEntry(t, l), newEntry(t, l)
	handed := func(a *lease, queued bool) bool {
		got, err := a.send(t, queued)
		require.ErrorIs(t, err, ErrNotAcquired)
		return got.Handed
	}
	require.False(t, handed(first, false), "it may have come later")
	require.True(t, handed(first, true))
	require.False(t, handed(second, false))
	require.False(t, handed(second, true), "it is not the first")
	require.NoError(t, m.Set("k", "another"))
	require.False(t, handed(first, true), "the lock that was handed over has expired")
}

// passedOn reports whether the next entry of a line polls although its process gets messages.
func passedOn(w *waiters) bool {
	w.engine.lines.mu.Lock()
	defer w.engine.lines.mu.Unlock()
	next := w.watch.Next(false)
	return next.Polls()
}

// TestLineThatFindsTheKeyFreePollsOn: a line is in the queue, and its acquire is granted. If the key was free,
// nobody hands it on. If the line already held it, somebody has, and only the message is missing.
func TestLineThatFindsTheKeyFreePollsOn(t *testing.T) {
	for _, held := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			q := &queueing{}
			l := queueingLocker(t, q)
			q.reply(refuse, nil)
			first, _ := standing(t.Context(), l)
			second, _ := standing(t.Context(), l)
			time.Sleep(time.Minute) // the line queues
			q.reply(func(context.Context, *leaseParams) (acquireReply, error) {
				return acquireReply{fence: 1, alreadyHeld: held}, nil
			}, nil)
			lock := <-first
			require.Equal(t, !held, passedOn(l.lines.byKey["k"]))
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, (<-second).Unlock(t.Context()))
		})
	}
}

// TestOnlyTheMessageOfAnotherProcessEndsPolling: a message announces a lock to a line past which the key has changed
// hands. If a release of this process has handed it on, that says nothing about the others.
func TestOnlyTheMessageOfAnotherProcessEndsPolling(t *testing.T) {
	for _, own := range []bool{false, true} {
		l := queueingLocker(t, &queueing{})
		a := newEntry(t, l)
		a.carried = own
		w := &waiters{engine: l, attempt: a, asking: true}
		a.line = w
		l.lines.rememberLocked(a)
		for _, holder := range []string{"one", "another"} {
			w.watch.Refused(clock.Now(), handoff.Refusal{At: time.Hour, Holder: holder, First: true})
		}
		require.True(t, passedOn(w))
		l.deliver(handoff.Grant{Token: a.params.token})
		require.Equal(t, own, passedOn(w))
	}
}

// TestOneOfSeveralPermitsHasOneFence: an acquire of a semaphore of two that asks for five fences gets one.
func TestOneOfSeveralPermitsHasOneFence(t *testing.T) {
	m, client, _ := oneNode(t)
	at := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	m.SetTime(at)
	require.NoError(t, m.Set("redlatch:fence", strconv.FormatInt(at.UnixMicro()-5000, 10)))
	l, err := NewSemaphore(client, 2)
	require.NoError(t, err)
	a := newEntry(t, l)
	a.params.entry, a.params.want = "", 5
	got, err := a.send(t, false)
	require.NoError(t, err)
	require.Equal(t, uint64(at.UnixMicro()-4999), got.fence)
	require.Zero(t, got.more)
}
