package redlatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/line"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestRefusedPublishLeavesTheLockFree: nobody would look soon. The answer says so, also to the line of the releaser. An entry
// with a dash is handed the lock all the same, since its line polls.
func TestRefusedPublishLeavesTheLockFree(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		q.m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			switch cmd {
			case "PUBLISH":
				c.WriteError("NOPERM this user has no permissions to run the 'publish' command")
			case "PUBSUB":
				c.WriteError("NOPERM this user has no permissions to run the 'pubsub' command")
			default:
				return false
			}
			return true
		})
		var told []error
		q.channel.Degraded = func(err error) { told = append(told, err) }
		for i, dash := range []bool{false, true} {
			holder, first, last := granted(t, q.engine), q.entry(t, time.Minute), q.entry(t, 0)
			if !dash {
				first = newEntry(t, q.engine)
				first.params.waited = time.Minute
			}
			_, err := first.post(t, false)
			require.ErrorIs(t, err, ErrNotAcquired)
			got, err := give(t, q.strategy, &releaseParams{target: &holder.lease.params.target, next: last.entry})
			require.NoError(t, err)
			require.Equal(t, releaseReply{wanted: !dash, at: time.Duration(q.now) * time.Microsecond}, got)
			require.Len(t, told, 1, i)
			require.ErrorContains(t, told[0], "PUBLISH is forbidden")
			require.False(t, q.channel.State() != line.Closed)
			st, err := q.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, dash, st.Held)
			if dash {
				require.Equal(t, first.params.token, st.Token)
				require.Equal(t, 1, st.Waiters)
			}
			q.m.FlushAll()
		}
	})
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
	soon(t, "it listens", func() bool { return c.State() == line.Open })
}

// newEntry returns an attempt of l on k with an entry for the queue.
func newEntry(t *testing.T, l Locker) *lease {
	t.Helper()
	e := l.(*engine)
	r, err := e.request(t.Context(), "k", nil)
	require.NoError(t, err)
	a, err := e.newAttempt(r, nil, "")
	require.NoError(t, err)
	a.claim = r.claim(inbox.Claim(false))
	a.entry = inbox.Entry(a.claim, false, e.channel.Channel, a.params.token)
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
		require.False(t, lock.lease.core.Young())
		require.NoError(t, adopted.Unlock(t.Context()))
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// post sends the acquire of a, which is in the queue already if queued is set.
func (l *lease) post(t *testing.T, queued bool) (acquireReply, error) {
	p := l.params
	p.queued = queued
	return outcomeOf(func(done func(acquireReply, error)) { l.engine.strategy.acquire(t.Context(), &p, done) })
}

// give sends the release p to a strategy.
func give(t *testing.T, s strategy, p *releaseParams) (releaseReply, error) {
	return outcomeOf(func(done func(releaseReply, error)) { s.release(t.Context(), p, done) })
}

// outcomeOf waits for the outcome of an operation.
func outcomeOf[T any](op func(done func(T, error))) (T, error) {
	w := new(waits[T]).get()
	op(w.done)
	o := <-w.outcome
	return o.value, o.err
}

// TestHolderThatHandsOnIsKnownByItsToken: the token of such a holder is a UUID, alone or after an owner, and after a tilde if it
// keeps others out. Other holders may be clients that do not hand the lock on.
func TestHolderThatHandsOnIsKnownByItsToken(t *testing.T) {
	const id = "3f7c1a52-8a07-4a8e-9d6c-0f5f3a7e2b11"
	for holder, want := range map[string]bool{
		id: true, "api-7/" + id: true, "~" + id: true, "~api-7/" + id: true,
		"their-token": false, "~their-token": false, "x" + id: false, "": false, "~": false,
	} {
		require.Equal(t, want, handsOn(holder), holder)
	}
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
		require.True(t, subscription.State() == line.Open)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := m.CommandCount()
		_, err = l.Lock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, before, m.CommandCount())
	})
}

// TestKeptLockIsHandedOnByItsSecondRelease: the first release keeps others out for some time, and 100 ms longer, so that the
// second one finds the key. Nobody can acquire, adopt or extend it meanwhile, nor release it by the token. The second release,
// by the value in the key, hands the lock on.
func TestKeptLockIsHandedOnByItsSecondRelease(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		holder, next := granted(t, q.engine), q.entry(t, 0)
		p := &holder.lease.params
		for range 2 { // also if it is sent again
			got, err := give(t, q.strategy, &releaseParams{target: &p.target, keep: time.Minute})
			require.NoError(t, err)
			require.Equal(t, releaseReply{}, got)
		}
		st, err := q.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, Status{Held: true, TTL: time.Minute + 100*time.Millisecond, Holders: 1}, st)

		_, err = next.post(t, false)
		require.ErrorIs(t, err, ErrNotAcquired)
		_, err = outcomeOf(func(done func(acquireReply, error)) { q.strategy.acquire(t.Context(), p, done) })
		require.ErrorIs(t, err, ErrNotAcquired)
		_, err = outcomeOf(func(done func(struct{}, error)) { q.strategy.extend(t.Context(), p, done) })
		require.ErrorIs(t, err, ErrLost)
		_, err = outcomeOf(func(done func(uint64, error)) { q.strategy.adopt(t.Context(), p, done) })
		require.ErrorIs(t, err, ErrLost)
		_, err = give(t, q.strategy, &releaseParams{target: &p.target})
		require.ErrorIs(t, err, ErrLost)
		_, err = q.Adopt(t.Context(), "k", "~"+p.token)
		require.ErrorIs(t, err, ErrLost)

		keeper := p.target
		keeper.token = "~" + p.token
		_, err = give(t, q.strategy, &releaseParams{target: &keeper})
		require.NoError(t, err)
		st, err = q.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, next.params.token, st.Token)
		_, err = give(t, q.strategy, &releaseParams{target: &keeper})
		require.ErrorIs(t, err, ErrLost, "it is over")
	})
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
			sent = append(sent, redistest.CountScripts(client))
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
		sent := redistest.CountScripts(client)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		got := make(chan *Lock, 1)
		go func() { // ends with the lock
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			got <- lock
		}()
		synctest.Wait()
		l.channel.Deliver = func(inbox.Grant) {} // messages are lost
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

// TestTicksGrowWithEveryGrant: an acquire, an adoption and a hand-over take one tick each. Each is above the one before. None is
// above the clock of Redis, or above the register where that is ahead. So fences grow even if the register is lost, or the whole
// data.
func TestTicksGrowWithEveryGrant(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		now := time.UnixMicro(q.now)
		var last uint64
		took := func(what string, tick uint64) {
			require.Greater(t, tick, last, what)
			require.LessOrEqual(t, tick, max(q.tick(now), last+1), what)
			require.GreaterOrEqual(t, tick+2500, q.tick(now), what)
			last = tick
		}
		for i := range 300 {
			now = now.Add(time.Duration(rand.N(20)+1) * time.Microsecond)
			if i%20 == 0 {
				now = now.Add(20 * time.Millisecond)
			}
			q.m.SetTime(now)
			what := fmt.Sprint("grant ", i)
			if last < q.tick(now) { // else a clock would have been set back
				switch rand.N(10) {
				case 0:
					q.m.FlushAll()
					what += " after FLUSHALL"
				case 1:
					q.m.Del("redlatch:fence")
					what += " without the register"
				}
			}
			a, next := q.entry(t, 0), q.entry(t, 0)
			a.params.entry = ""
			got, err := a.post(t, false)
			require.NoError(t, err, what)
			require.Zero(t, got.fence%64, what)
			took(what, got.fence/64)
			got, err = a.post(t, false)
			require.NoError(t, err, what)
			took(what+", resent", got.fence/64)
			if rand.N(4) == 0 {
				fence, err := outcomeOf(func(done func(uint64, error)) { q.strategy.adopt(t.Context(), &a.params, done) })
				require.NoError(t, err)
				require.Zero(t, fence%64, what)
				took(what+", adopted", fence/64)
			}
			reply, err := give(t, q.strategy, &releaseParams{target: &a.params.target, next: next.entry})
			require.NoError(t, err)
			took(what+", handed over", reply.tick)
			_, err = give(t, q.strategy, &releaseParams{target: &next.params.target})
			require.NoError(t, err)
		}
	})
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
	m   *miniredis.Miniredis
	now int64 // the clock, in µs
}

// tick returns the tick of a time.
func (q *queueOn) tick(at time.Time) uint64 {
	return uint64(at.Sub(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC)) / (4 * time.Microsecond))
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
			test(t, &queueOn{engine: l.(*engine), m: m, now: at.UnixMicro()})
		})
	}
}

// entry returns a fresh attempt whose entry has a dash, so that it can be handed the lock though nobody listens.
func (q *queueOn) entry(t *testing.T, waited time.Duration) *lease {
	t.Helper()
	a := newEntry(t, q.engine)
	a.entry = inbox.Entry(a.r.claim(inbox.Claim(false)), true, q.channel.Channel, a.params.token)
	a.params.entry, a.params.waited = a.entry, waited
	return a
}

// TestOnlyTheLastPermitIsPassedOn: a turn passes on a lock, and the permit of a semaphore of one. Of several permits, each grant
// has a tick of its own.
func TestOnlyTheLastPermitIsPassedOn(t *testing.T) {
	for limit, passes := range map[int]bool{1: true, 2: false} {
		synctest.Test(t, func(t *testing.T) {
			defer time.Sleep(time.Minute) // the subscription ends
			_, client := bubbleRedis(t)
			l, err := NewSemaphore(client, limit)
			require.NoError(t, err)
			var held []*Lock
			for range limit {
				lock, err := l.Lock(t.Context(), "k")
				require.NoError(t, err)
				held = append(held, lock)
			}
			first, _ := standing(t.Context(), l)
			second, _ := standing(t.Context(), l)
			time.Sleep(time.Second)
			require.NoError(t, held[0].Unlock(t.Context()))
			lock := <-first
			require.NoError(t, lock.Unlock(t.Context()))
			next := <-second
			require.Equal(t, passes, next.lease == lock.lease)
			require.Equal(t, passes, next.Fence() == lock.Fence()+1)
			require.Equal(t, !passes, next.Fence()%64 == 0)
			require.Greater(t, next.Fence(), lock.Fence())
			require.NoError(t, next.Unlock(t.Context()))
			for _, lock := range held[1:] {
				require.NoError(t, lock.Unlock(t.Context()))
			}
		})
	}
}

// TestSubscriptionEndsSoonAfterTheLastWaiter: so leak checkers and shutdowns need not wait for long.
func TestSubscriptionEndsSoonAfterTheLastWaiter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		got, _ := standing(t.Context(), l)
		time.Sleep(1300 * time.Millisecond)
		require.Len(t, m.PubSubChannels("redlatch:*"), 1)
		require.NoError(t, holder.Unlock(t.Context()))
		require.NoError(t, (<-got).Unlock(t.Context()))
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Empty(t, m.PubSubChannels("redlatch:*"))
	})
}
