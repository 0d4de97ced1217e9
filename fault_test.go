package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// behindProxy returns a real server, a proxy in front of it and a client that goes through it.
func behindProxy(t *testing.T) (direct *redis.Client, p *faultproxy.Proxy, client *redis.Client) {
	t.Helper()
	s := redistest.Start(t)
	p = faultproxy.New(t, s.Network(), s.Addr())
	client = redis.NewClient(p.Options())
	t.Cleanup(func() { _ = client.Close() })
	require.NoError(t, client.Ping(t.Context()).Err())
	return s.Client(t), p, client
}

func newLocker(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	l, err := redlatch.NewSetNXPX(client, opts...)
	require.NoError(t, err)
	return l
}

// longTTL leaves a key to those who clean up: it does not go by itself while a test waits.
var longTTL = redlatch.WithTTL(time.Hour)

// gone waits until key is not there.
func gone(t *testing.T, direct *redis.Client, key string) {
	t.Helper()
	eventually(t, key+" is gone", func() bool { return direct.Exists(t.Context(), key).Val() == 0 })
}

// TestLostReplyIsNotLostOwnership is rules 3 and 7: a command whose reply was lost ends as it
// would have, whether or not the client sends commands again by itself.
func TestLostReplyIsNotLostOwnership(t *testing.T) {
	for _, retries := range []int{0, -1} { // go-redis' default, and none
		for name, opts := range map[string][]redlatch.Option{"fenced": nil, "plain": {redlatch.WithoutFence()}} {
			t.Run(fmt.Sprintf("%s, MaxRetries %d", name, retries), func(t *testing.T) {
				direct, p, _ := behindProxy(t)
				o := p.Options()
				o.MaxRetries = retries
				client := redis.NewClient(o)
				t.Cleanup(func() { _ = client.Close() })
				l := newLocker(t, client, opts...)
				command := map[bool]string{true: "evalsha", false: "set"}[len(opts) == 0]
				warm := mustLock(t, l, "warm") // the scripts are loaded
				require.NoError(t, warm.Extend(t.Context(), time.Second))
				require.NoError(t, warm.Unlock(t.Context()))

				p.LoseReplies(1, command)
				lock, err := l.TryLock(t.Context(), "k")
				require.NoError(t, err)
				require.Equal(t, 1, p.Lost())
				require.Equal(t, lock.Token(), direct.Get(t.Context(), "k").Val())

				p.LoseReplies(1, "evalsha")
				require.NoError(t, lock.Extend(t.Context(), time.Hour))
				require.Equal(t, 2, p.Lost())

				p.LoseReplies(1, "evalsha")
				require.NoError(t, lock.Unlock(t.Context()))
				require.Equal(t, 3, p.Lost())
				require.Zero(t, direct.Exists(t.Context(), "k").Val())
			})
		}
	}
}

// TestUnknownOutcomeLeavesNoKey is rule 3: when every reply is lost, the attempt fails, and what
// it took is given back.
func TestUnknownOutcomeLeavesNoKey(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	l := newLocker(t, client, longTTL)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	p.LoseReplies(1000, "evalsha")
	_, err := l.TryLock(t.Context(), "k")
	require.Error(t, err)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	require.Positive(t, p.Lost())
	require.Positive(t, direct.Exists(t.Context(), "{k}:fence:k").Val(), "the attempt was carried out")
	gone(t, direct, "k")
}

// TestStragglerDoesNotTakeTheLock is rule 4: an acquire that Redis sees only after the attempt
// ended is followed by its release.
func TestStragglerDoesNotTakeTheLock(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{"fenced": nil, "plain": {redlatch.WithoutFence()}} {
		t.Run(name, func(t *testing.T) {
			direct, p, client := behindProxy(t)
			l := newLocker(t, client, append(opts, longTTL)...)
			require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
			sent := p.Requests()
			p.Silence()
			_, err := l.TryLock(t.Context(), "k", redlatch.WithOpTimeout(50*time.Millisecond))
			require.Error(t, err)
			require.ErrorContains(t, err, "no reply within 50ms")
			p.Heal()
			eventually(t, "acquire, release and release again", func() bool { return p.Requests() >= sent+3 })
			gone(t, direct, "k")
		})
	}
}

// TestStragglerWithAChosenTokenStays is rule 4: undoing it would delete the lock that the caller
// wants to recover.
func TestStragglerWithAChosenTokenStays(t *testing.T) {
	direct, p, client := behindProxy(t)
	l := newLocker(t, client)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	p.Silence()
	_, err := l.TryLock(t.Context(), "k", redlatch.WithToken("job-7"), redlatch.WithOpTimeout(50*time.Millisecond))
	require.Error(t, err)
	p.Heal()
	eventually(t, "the straggler", func() bool { return direct.Get(t.Context(), "k").Val() == "job-7" })
	lock := mustLock(t, l, "k", redlatch.WithToken("job-7"))
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestUnlockThatNeverLeftFindsTheLockLost is rule 7: only an Unlock that may have been carried out
// is a success when its retry finds nothing.
func TestUnlockThatNeverLeftFindsTheLockLost(t *testing.T) {
	s := redistest.Start(t)
	var failing atomic.Int64
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if failing.Add(-1) >= 0 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route")}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	o := s.Options()
	o.Dialer, o.DialerRetries, o.PoolSize = dial, 1, 1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	direct := s.Client(t)

	lock := mustLock(t, newLocker(t, client, redlatch.WithoutRenewal()), "k")
	require.NoError(t, direct.Del(t.Context(), "k").Err())
	require.NoError(t, direct.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Err())
	failing.Store(1)
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	require.Negative(t, failing.Load(), "the first dial failed")
}

// TestAttemptThatWasPerhapsSentIsUndone is rule 3: its reply was lost, and what was sent again never
// left.
func TestAttemptThatWasPerhapsSentIsUndone(t *testing.T) {
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	var failing atomic.Int64
	o := p.Options()
	o.DialerRetries = 1
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if failing.Add(-1) >= 0 {
			return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("no route")}
		}
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	l := newLocker(t, client, longTTL)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	p.LoseReplies(1, "evalsha")
	failing.Store(1000)
	time.AfterFunc(300*time.Millisecond, func() { failing.Store(0) })
	_, err := l.TryLock(t.Context(), "k", redlatch.WithOpTimeout(200*time.Millisecond))
	require.ErrorContains(t, err, "no route")
	require.Equal(t, 1, p.Lost())
	gone(t, s.Client(t), "k")
}

// refusal is an answer of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}

// refuser answers the next commands by itself.
type refuser struct{ left *atomic.Int64 }

func (r refuser) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if r.left.Add(-1) >= 0 {
			return refusal("LOADING Redis is loading the dataset in memory")
		}
		return next(ctx, cmd)
	}
}

// TestRefusedUnlockIsNoSuccess is rule 7: Redis said that it did not carry the release out, and then
// nothing was there.
func TestRefusedUnlockIsNoSuccess(t *testing.T) {
	s := redistest.Start(t)
	client := s.Client(t)
	var left atomic.Int64
	client.AddHook(redistest.OnProcess(refuser{&left}.ProcessHook))
	lock := mustLock(t, newLocker(t, client, redlatch.WithoutRenewal()), "k")
	require.NoError(t, s.Client(t).Del(t.Context(), "k").Err())
	left.Store(1)
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	require.Negative(t, left.Load())
}

// TestCtxEndsACallInMidCommand is rule 17, for a cancel and a deadline, and for clients that heed
// neither: nobody waits for the reply, and the grant that comes with it is given back.
func TestCtxEndsACallInMidCommand(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	pipelined, err := client.AutoPipeline()
	require.NoError(t, err)
	t.Cleanup(func() { _ = pipelined.Close() })
	for name, c := range map[string]redis.UniversalClient{"client": client, "autopipeline": pipelined} {
		for _, how := range []string{"cancel", "deadline"} {
			t.Run(name+" "+how, func(t *testing.T) {
				l := newLocker(t, c, longTTL)
				require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
				p.Delay(5 * time.Second)
				defer p.Heal()
				begin := time.Now()
				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				want := context.DeadlineExceeded
				if how == "cancel" {
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(100*time.Millisecond, cancel)
					want = context.Canceled
				}
				defer cancel()
				_, err := l.Lock(ctx, "k")
				took := time.Since(begin)
				require.ErrorIs(t, err, want)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.Less(t, took, 2*time.Second)
				require.Equal(t, int64(1), direct.Exists(t.Context(), "{k}:fence:k").Val(), "it was carried out")
				p.Heal()
				gone(t, direct, "k")
			})
		}
	}
}

// TestTroubleIsNoRefusal is rule 16: where the first attempt meets nothing but trouble until ctx
// ends, nobody was seen to have the key, and the error says what was met.
func TestTroubleIsNoRefusal(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, l redlatch.Locker){
		"at first": func(*testing.T, redlatch.Locker) {},
		"after a wait": func(t *testing.T, l redlatch.Locker) { // it has a subscription now
			holder := mustLock(t, l, "k")
			time.AfterFunc(100*time.Millisecond, func() { _ = holder.Unlock(context.Background()) })
			lock, err := l.Lock(t.Context(), "k")
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := redistest.Start(t).Client(t)
			l := newLocker(t, client)
			before(t, l)
			var left atomic.Int64
			left.Store(1 << 30)
			client.AddHook(redistest.OnProcess(refuser{&left}.ProcessHook))
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := l.Lock(ctx, "k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorContains(t, err, "LOADING")
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		})
	}
}

// TestUnlockIsBoundedBySilence is rule 8.
func TestUnlockIsBoundedBySilence(t *testing.T) {
	_, p, client := behindProxy(t)
	lock := mustLock(t, newLocker(t, client, redlatch.WithOpTimeout(500*time.Millisecond)), "k")
	p.Silence()
	begin := time.Now()
	err := lock.Unlock(t.Context())
	require.Less(t, time.Since(begin), 2*time.Second)
	var timeout net.Error
	require.ErrorContains(t, err, "no reply within 500ms")
	require.NotErrorIs(t, err, redlatch.ErrLost)
	require.ErrorAs(t, err, &timeout)
	require.True(t, timeout.Timeout())
	require.ErrorIs(t, lock.Err(), redlatch.ErrReleased)
}

// TestHolderKnowsBeforeTheNextOwner is rule 9: whatever happens to the network, and whenever.
func TestHolderKnowsBeforeTheNextOwner(t *testing.T) {
	const runs = 34 // for each of three moments
	for _, moment := range []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond} {
		t.Run(moment.String(), func(t *testing.T) {
			t.Parallel()
			direct, p, client := behindProxy(t)
			holders := newLocker(t, client, redlatch.WithTTL(time.Second))
			others := newLocker(t, direct)
			var locks []*redlatch.Lock
			for i := range runs {
				locks = append(locks, mustLock(t, holders, fmt.Sprint("k", i)))
			}
			<-time.After(moment)
			p.Silence()
			var wg sync.WaitGroup
			var late atomic.Int64
			for _, lock := range locks {
				wg.Go(func() {
					next, err := others.Lock(t.Context(), lock.Key())
					select {
					case <-lock.Done():
					default:
						late.Add(1)
					}
					if err != nil || !errors.Is(lock.Err(), redlatch.ErrLost) || next.Err() != nil {
						late.Add(1)
					}
				})
			}
			wg.Wait()
			require.Zero(t, late.Load(), "two owners who both believed")
		})
	}
}

// TestCutConnectionsLoseNothing is rule 12.
func TestCutConnectionsLoseNothing(t *testing.T) {
	t.Parallel()
	_, p, client := behindProxy(t)
	var renewed atomic.Int64
	l := newLocker(t, client, redlatch.WithTTL(time.Second), redlatch.WithOpTimeout(5*time.Second), redlatch.WithHooks(redlatch.Hooks{
		Renewed: func(redlatch.Event) { renewed.Add(1) },
	}))
	lock := mustLock(t, l, "k")
	cut := time.NewTicker(200 * time.Millisecond)
	defer cut.Stop()
	for range 15 {
		<-cut.C
		p.Cut()
	}
	require.NoError(t, lock.Err())
	require.Greater(t, renewed.Load(), int64(3))
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestOutageIsRiddenOut is rule 12: an unclear failure keeps the lease and is tried again.
func TestOutageIsRiddenOut(t *testing.T) {
	t.Parallel()
	_, p, client := behindProxy(t)
	failed := make(chan redlatch.Event, 1000)
	lock := mustLock(t, newLocker(t, client), "k", redlatch.WithTTL(2*time.Second), redlatch.WithHooks(redlatch.Hooks{
		RenewFailed: func(e redlatch.Event) { failed <- e },
	}))
	until := lock.Until()
	p.Silence()
	require.ErrorContains(t, (<-failed).Err, "no reply within 200ms")
	require.Equal(t, until, lock.Until())
	require.NoError(t, lock.Err())
	p.Heal()
	eventually(t, "renewed", func() bool { return lock.Until().After(until) })
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestFlushedLockIsLost is rule 12: a definite answer ends the lock within a renewal interval.
func TestFlushedLockIsLost(t *testing.T) {
	t.Parallel()
	direct, _, client := behindProxy(t)
	lock := mustLock(t, newLocker(t, client), "k", redlatch.WithTTL(3*time.Second))
	ctx := lock.Context(t.Context())
	require.NoError(t, direct.FlushAll(t.Context()).Err())
	select {
	case <-ctx.Done():
	case <-time.After(2 * time.Second):
		require.Fail(t, "not noticed")
	}
	require.ErrorIs(t, context.Cause(ctx), redlatch.ErrLost)
	runtime.KeepAlive(lock) // one that is forgotten is renewed no more
}

// TestFirstAttemptReportsTroubleAndAWaitRidesItOut is rule 16.
func TestFirstAttemptReportsTroubleAndAWaitRidesItOut(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t), redlatch.WithTTL(2*time.Second))
	mustLock(t, newLocker(t, s.Client(t)), "k")
	waiting := make(chan redlatch.Event, 1)
	got := make(chan error, 1)
	go func() {
		lock, err := l.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{
			Waiting: func(e redlatch.Event) { waiting <- e },
		}))
		if err == nil {
			err = lock.Unlock(context.WithoutCancel(t.Context()))
		}
		got <- err
	}()
	<-waiting
	s.Kill()

	dead := newLocker(t, s.Client(t))
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, err := dead.Lock(ctx, "k")
	require.Error(t, err)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	_, err = dead.TryLock(t.Context(), "k")
	require.Error(t, err)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)

	s.Restart(t) // without its data, so that the key is free
	require.NoError(t, <-got)
}

// TestWaitTellsWhatTroubledIt is rule 16: ctx's error carries the last one.
func TestWaitTellsWhatTroubledIt(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	mustLock(t, newLocker(t, direct), "k")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var attempts atomic.Int64
	l := newLocker(t, client, redlatch.WithOpTimeout(300*time.Millisecond), redlatch.WithBackoff(func(attempt int) time.Duration {
		attempts.Store(int64(attempt))
		return time.Millisecond
	}), redlatch.WithHooks(redlatch.Hooks{Waiting: func(redlatch.Event) { p.Silence() }}))
	go func() {
		for attempts.Load() < 4 {
			<-time.After(time.Millisecond)
		}
		cancel()
	}()
	_, err := l.Lock(ctx, "k")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "no reply within 300ms")
}

// TestGivingUpLeavesNoGoroutineAndNoKey is rule 17: 300 calls end at random moments over a slow
// network.
func TestGivingUpLeavesNoGoroutineAndNoKey(t *testing.T) {
	direct, p, client := behindProxy(t)
	l := newLocker(t, client, longTTL)
	require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
	before := runtime.NumGoroutine()
	p.DelayFunc(func() time.Duration { return rand.N(5 * time.Millisecond) })
	var wg sync.WaitGroup
	var failures atomic.Int64
	for range 20 {
		wg.Go(func() {
			for i := range 15 {
				ctx, cancel := context.WithTimeout(t.Context(), rand.N(12*time.Millisecond))
				lock, err := l.Lock(ctx, fmt.Sprint("k", i%3))
				if err == nil {
					err = lock.Unlock(ctx)
				} else if errors.Is(err, redlatch.ErrNotAcquired) && errors.Is(err, ctx.Err()) {
					err = nil
				}
				if err != nil {
					failures.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	require.Zero(t, failures.Load())
	p.Heal()
	for i := range 3 {
		gone(t, direct, fmt.Sprint("k", i))
	}
	require.NoError(t, client.Close())
	eventually(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// TestForgottenLockEndsWithItsTTL is rule 13.
func TestForgottenLockEndsWithItsTTL(t *testing.T) {
	direct, _, client := behindProxy(t)
	lost := make(chan redlatch.Event, 1)
	mustLock(t, newLocker(t, client), "k", redlatch.WithTTL(300*time.Millisecond), redlatch.WithHooks(redlatch.Hooks{
		Lost: func(e redlatch.Event) { lost <- e },
	}))
	eventually(t, "the key is gone", func() bool {
		runtime.GC()
		return direct.Exists(t.Context(), "k").Val() == 0
	})
	require.ErrorIs(t, (<-lost).Err, redlatch.ErrLost)
}

// TestPairAllocatesLittle holds the cost of a lock and its unlock, renewal and fence included, to
// 8 allocations more than the two commands cost that a program would write by hand.
func TestPairAllocatesLittle(t *testing.T) {
	if raceDetector() {
		t.Skip("the race detector allocates too")
	}
	client := redistest.Shared(t).Client(t)
	ctx := context.Background()
	key := t.Name()
	l := newLocker(t, client)
	compareAndDelete := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	raw := testing.AllocsPerRun(2000, func() {
		token := uuid.NewString()
		_ = client.SetNX(ctx, key, token, 10*time.Second).Err()
		_ = compareAndDelete.Run(ctx, client, []string{key}, token).Err()
	})
	ours := testing.AllocsPerRun(2000, func() {
		lock, err := l.TryLock(ctx, key)
		if err == nil {
			err = lock.Unlock(ctx)
		}
		if err != nil {
			t.Error(err)
		}
	})
	require.LessOrEqual(t, ours, raw+8)
}

// raceDetector reports whether this binary was built with -race.
func raceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if ok && s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
