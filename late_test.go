package redlatch

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/node"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestAcquireThatRunsLastIsReleased: the client has given up the connection, so nobody learns when the
// acquire is carried out. Here that happens after the clean-up has found nothing.
func TestAcquireThatRunsLastIsReleased(t *testing.T) {
	t.Parallel()
	short := func(o *redis.Options) { o.ReadTimeout, o.WriteTimeout = time.Second, time.Second }
	bound := WithOpTimeout(time.Second)
	one := func(c *redis.Client) (Locker, error) { return NewSetNXPX(c, bound) }
	for name, c := range map[string]struct {
		options func(*redis.Options)
		locker  func(*redis.Client) (Locker, error)
		ends    bool // the ctx of the call can end
	}{
		"carried out by its caller": {short, one, false},
		"with a ctx that can end":   {short, one, true},
		"with deadlines from ctx":   {func(o *redis.Options) { o.ContextTimeoutEnabled = true }, one, true},
		"on a legacy key":           {short, func(c *redis.Client) (Locker, error) { return NewLegacySetNX(c, bound) }, true},
		"on a quorum": {
			short, func(c *redis.Client) (Locker, error) { return NewRedlock([]redis.UniversalClient{c}, bound) }, false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			o := s.Options()
			c.options(o)
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			on := &onItsWay{sent: make(chan []any, 1), cleaned: make(chan struct{}, 1)}
			client.AddHook(redistest.OnProcess(on.ProcessHook))
			l, err := c.locker(client)
			require.NoError(t, err)
			ctx := context.Background()
			if c.ends {
				ctx = t.Context()
			}
			_, err = l.TryLock(ctx, "k")
			require.Error(t, err)
			require.NotErrorIs(t, err, ErrNotAcquired)
			<-on.cleaned
			direct := s.Client(t)
			sent := <-on.sent
			for _, file := range []string{"acquire.lua", "quorum_acquire.lua", "legacy_acquire.lua"} {
				require.NoError(t, direct.ScriptLoad(t.Context(), source(file)).Err())
			}
			reply, err := direct.Do(t.Context(), sent...).Result()
			require.NoError(t, err)
			require.IsType(t, int64(0), reply, "it acquires the key")
			require.Eventually(t, func() bool { return direct.Exists(t.Context(), "k").Val() == 0 }, 10*time.Second, time.Millisecond)
		})
	}
}

// onItsWay does not send the first script. It reports the words of that script on sent, and fails when ctx ends. It
// reports on cleaned when the next script has been carried out.
type onItsWay struct {
	scripts atomic.Int64
	sent    chan []any
	cleaned chan struct{}
}

func (h *onItsWay) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() != "evalsha" {
			return next(ctx, cmd)
		}
		if h.scripts.Add(1) == 1 {
			words := make([]any, len(cmd.Args()))
			for i, word := range cmd.Args() {
				words[i] = word
				if s, ok := word.(*string); ok {
					words[i] = *s
				}
			}
			h.sent <- words
			<-ctx.Done()
			return os.ErrDeadlineExceeded
		}
		defer func() {
			select {
			case h.cleaned <- struct{}{}:
			default:
			}
		}()
		return next(ctx, cmd)
	}
}

// TestLateAcquireIsLeftToUnlock: while the lease lasts, the key that a late acquire took is left for Unlock
// to release. After the end of the lease, a clean-up releases the key, even if the acquire is carried out only then.
func TestLateAcquireIsLeftToUnlock(t *testing.T) {
	t.Parallel()
	m, late, state := lateAcquire(t, held)
	late(gaveUpReading)
	late(node.Reply{Value: int64(7), Overtaken: true})
	<-time.After(2 * firstLook)
	require.True(t, m.Exists("k"), "it is held")

	state.become(over)
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond)
	require.NoError(t, m.Set("k", "mine"))
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond)
}

// TestAcquireThatRunsAfterItsReleaseIsReleased: the release of an attempt finds nothing, because the
// acquire arrives only after it.
func TestAcquireThatRunsAfterItsReleaseIsReleased(t *testing.T) {
	t.Parallel()
	m, client, _ := oneNode(t)
	l, err := NewSetNXPX(client, WithTTL(time.Hour))
	require.NoError(t, err)
	require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
	var scripts atomic.Int64
	let, done := make(chan struct{}), make(chan struct{})
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() != "evalsha" || scripts.Add(1) != 1 {
				return next(ctx, cmd)
			}
			defer close(done)
			<-let
			return next(context.Background(), cmd) // go-redis ignores ctx once it has sent a command
		}
	}))
	_, err = l.TryLock(t.Context(), "k", WithOpTimeout(500*time.Millisecond))
	require.ErrorContains(t, err, "no reply within 500ms")
	require.False(t, m.Exists("k"))
	close(let)
	<-done
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond)
}

// TestLateAcquireIsReleasedWhereNobodyWantsIt: a release follows the end of an attempt or a lease. So a
// late acquire needs another release only if that one overtook it. After a loss, the key is
// released only if the acquire is known to have taken it anew. A kept key stays. What was queued is undone in any case.
func TestLateAcquireIsReleasedWhereNobodyWantsIt(t *testing.T) {
	for name, c := range map[string]struct {
		states                       []int32
		err                          error
		alreadyHeld, overtaken, want bool
	}{
		"asked for, or held":                {states: []int32{asking, held}, overtaken: true},
		"ended, and overtaken":              {states: []int32{refused, releasing, over}, overtaken: true, want: true},
		"ended, overtaken, outcome unknown": {states: []int32{refused, releasing, over}, overtaken: true, err: io.EOF, want: true},
		"ended, and a release follows":      {states: []int32{refused, releasing, over}},
		"lost, and new":                     {states: []int32{lost}, want: true},
		"kept, and new":                     {states: []int32{kept}, overtaken: true},
		"lost or kept, and held before":     {states: []int32{lost, kept}, alreadyHeld: true, overtaken: true},
		"lost or kept, outcome unknown":     {states: []int32{lost, kept}, err: io.EOF, overtaken: true},
		"held, lost or kept, and queued":    {states: []int32{held, lost, kept}, err: errQueued, overtaken: true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, state := range c.states {
				var s lockState
				s.become(state)
				require.Equal(t, c.want, s.unwanted(acquireReply{alreadyHeld: c.alreadyHeld}, c.err, c.overtaken), "state %d", state)
			}
		})
	}
}

// TestLateReplySaysWhetherAnAdopterMayHaveTheLock: after a loss, a late acquire is released only if its
// reply says that the token did not hold the key before.
func TestLateReplySaysWhetherAnAdopterMayHaveTheLock(t *testing.T) {
	for name, c := range map[string]struct {
		read  func(node.Reply) (acquireReply, error)
		value int64
		fresh bool
	}{
		"granted":               {readAcquire, 7, true},
		"granted again":         {readAcquire, -7, false},
		"legacy, granted":       {readLegacyAcquire, 1, true},
		"legacy, taken over":    {readLegacyAcquire, 2, true},
		"legacy, granted again": {readLegacyAcquire, 3, false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.read(node.Reply{Value: c.value})
			require.NoError(t, err)
			require.Equal(t, c.fresh, !got.alreadyHeld)
		})
	}
}

// TestUnlockAfterACleanUpIsNoLoss: if a clean-up has just released a late acquire, the release of Unlock
// finds nothing. Unlock still succeeds.
func TestUnlockAfterACleanUpIsNoLoss(t *testing.T) {
	for _, cleanedUp := range []bool{true, false} {
		var state *lockState
		s := &scripted{
			onAcquire: func(_ context.Context, p *leaseParams) (acquireReply, error) {
				state = p.state
				return acquireReply{}, nil
			},
			onRelease: func(context.Context, *releaseParams) error {
				state.undone.Store(cleanedUp)
				return ErrLost
			},
		}
		err := granted(t, scriptedLocker(t, s)).Unlock(t.Context())
		if cleanedUp {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrLost)
		}
	}
}

// TestLateAcquireLeavesWhoeverHasItsToken: a lock is held, or is lost and may have been adopted, or Redis has not
// confirmed that its minimum hold is kept. A late reply may say that the acquire was queued. It may also be the reply to the
// send that was granted, if a resend found the key held by the token. The key stays.
func TestLateAcquireLeavesWhoeverHasItsToken(t *testing.T) {
	for name, state := range map[string]int32{"held": held, "lost": lost, "kept": kept} {
		for strategy, newLocker := range map[string]func(redis.UniversalClient) (Locker, error){
			"SetNXPX":   func(c redis.UniversalClient) (Locker, error) { return NewSetNXPX(c) },
			"Semaphore": func(c redis.UniversalClient) (Locker, error) { return NewSemaphore(c, 1) },
		} {
			t.Run(name+", "+strategy, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					_, client := bubbleRedis(t)
					l, err := newLocker(client)
					require.NoError(t, err)
					e := l.(*engine)
					r, err := e.request(t.Context(), "k", nil)
					require.NoError(t, err)
					a, err := e.newAttempt(r, nil, "")
					require.NoError(t, err)
					holder := granted(t, l)
					a.params.entry = "2000 redlatch:x " + a.params.token
					_, err = e.strategy.acquire(t.Context(), &a.params)
					require.ErrorIs(t, err, ErrNotAcquired)
					st, err := l.Inspect(t.Context(), "k")
					require.NoError(t, err)
					require.Equal(t, 1, st.Waiters)
					require.NoError(t, client.Del(t.Context(), "k").Err())
					a.params.entry = ""
					_, err = e.strategy.acquire(t.Context(), &a.params) // the token has the key
					require.NoError(t, err)
					a.params.entry = "2000 redlatch:x " + a.params.token

					a.state.become(state)
					a.state.again.Store(true)
					late := e.strategy.(interface {
						late(context.Context, *leaseParams, node.Reply)
					}).late
					late(t.Context(), &a.params, node.Reply{Value: []any{int64(5), "other", int64(1), int64(1), int64(1), int64(1)}, Overtaken: true})
					late(t.Context(), &a.params, node.Reply{Value: int64(7), Overtaken: true})
					synctest.Wait()
					st, err = l.Inspect(t.Context(), "k")
					require.NoError(t, err)
					require.Equal(t, a.params.token, st.Token)
					require.False(t, a.state.undone.Load())
					require.ErrorIs(t, holder.Unlock(t.Context()), ErrLost)
				})
			})
		}
	}
}

// cleaned is a strategy whose key is cleaned up just before each release.
type cleaned struct {
	strategy
	cleanUp func(s strategy)
}

func (c cleaned) release(ctx context.Context, p *releaseParams) (releaseReply, error) {
	c.cleanUp(c.strategy)
	return c.strategy.release(ctx, p)
}

// TestUnlockBehindACleanUpIsNoLoss: a late acquire is released when Unlock has begun and has not sent its
// release yet.
func TestUnlockBehindACleanUpIsNoLoss(t *testing.T) {
	for name, c := range map[string]struct {
		made func(client *redis.Client) (Locker, error)
		late func(s strategy, p *leaseParams, r node.Reply)
	}{
		"SetNXPX": {
			func(c *redis.Client) (Locker, error) { return NewSetNXPX(c) },
			func(s strategy, p *leaseParams, r node.Reply) { s.(*setNXPX).late(context.Background(), p, r) },
		},
		"Redlock": {
			func(c *redis.Client) (Locker, error) { return NewRedlock([]redis.UniversalClient{c}) },
			func(s strategy, p *leaseParams, r node.Reply) {
				s.(*redlock).late(context.Background(), 0, p)(r)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				made, err := c.made(client)
				require.NoError(t, err)
				l := made.(*engine)
				lock := granted(t, l, WithoutRenewal())
				p := &lock.lease.params
				l.strategy = cleaned{l.strategy, func(s strategy) {
					require.True(t, p.state.is(releasing))
					c.late(s, p, node.Reply{Value: int64(7), Overtaken: true})
					synctest.Wait()
					require.False(t, m.Exists("k"))
				}}
				require.NoError(t, lock.Unlock(t.Context()))
			})
		})
	}
}

// TestCleanUpOfOneNodeHidesNoLoss: the lock was deleted on two nodes of three, and the third is cleaned up when
// Unlock has begun.
func TestCleanUpOfOneNodeHidesNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []*miniredis.Miniredis
		var clients []redis.UniversalClient
		for range 3 {
			m, client := bubbleRedis(t)
			servers, clients = append(servers, m), append(clients, client)
		}
		made, err := NewRedlock(clients)
		require.NoError(t, err)
		l := made.(*engine)
		lock := granted(t, l, WithoutRenewal())
		synctest.Wait()
		servers[0].Del("k")
		servers[1].Del("k")
		p := &lock.lease.params
		l.strategy = cleaned{l.strategy, func(s strategy) {
			require.True(t, p.state.is(releasing))
			s.(*redlock).late(context.Background(), 2, p)(node.Reply{Value: int64(7), Overtaken: true})
			synctest.Wait()
			require.False(t, servers[2].Exists("k"))
		}}
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
	})
}

// TestLateAcquireIsLookedForWhileTheServerIsSilent: the acquire may be carried out when the server
// continues. So redlatch looks for its key while the server is silent, but not forever.
func TestLateAcquireIsLookedForWhileTheServerIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		silent := make(chan struct{})
		defer close(silent)
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if cmd.Name() == "echo" {
					<-silent
				}
				return next(ctx, cmd)
			}
		}))
		n := node.New(client)
		require.Error(t, n.Do(t.Context(), timed(node.Command("echo", "x"))).Err)
		require.True(t, n.Silent())

		var s lockState
		s.become(refused)
		begin := time.Now()
		looks := make(chan time.Duration, 1000)
		s.reap(n, func() { looks <- time.Since(begin) })
		time.Sleep(lookFor - firstLook/2)
		require.Len(t, looks, int(lookFor/firstLook)-1)
		time.Sleep(5 * lastLook)
		require.Greater(t, len(looks), int(lookFor/firstLook))
		for len(looks) > 0 {
			<-looks
		}
		time.Sleep(time.Minute)
		require.Empty(t, looks)
	})
}

// TestLateAcquireIsNotReleasedBeforeUnlock: if the release of a late acquire overtook that of Unlock,
// Unlock would report a loss.
func TestLateAcquireIsNotReleasedBeforeUnlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := bubbleRedis(t)
		var s lockState
		releases := make(chan struct{}, 10)
		s.become(releasing)
		s.reap(node.New(client), func() { releases <- struct{}{} })
		time.Sleep(2 * firstLook)
		require.Empty(t, releases)
		s.become(over)
		<-releases
		time.Sleep(3 * lastLook)
	})
}

// TestReleaseIsSentThoughItsCtxHasEnded: an attempt acquired the lock, but its connection broke before the
// reply, and ctx ended before the resend. No late reply will come.
func TestReleaseIsSentThoughItsCtxHasEnded(t *testing.T) {
	for name, strategy := range map[string]func(c *redis.Client) (Locker, error){
		"SetNXPX":     func(c *redis.Client) (Locker, error) { return NewSetNXPX(c) },
		"LegacySetNX": func(c *redis.Client) (Locker, error) { return NewLegacySetNX(c) },
		"Redlock":     func(c *redis.Client) (Locker, error) { return NewRedlock([]redis.UniversalClient{c}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				l, err := strategy(client)
				require.NoError(t, err)
				require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
				ctx, cancel := context.WithCancel(t.Context())
				scripts := make(chan bool, 1)
				scripts <- true
				client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
					return func(c context.Context, cmd redis.Cmder) error {
						err := next(c, cmd)
						select {
						case <-scripts: // the first
							require.NoError(t, err)
							time.AfterFunc(time.Millisecond, cancel) // before the resend
							return io.EOF
						default:
							return err
						}
					}
				}))
				_, err = l.TryLock(ctx, "k")
				require.ErrorIs(t, err, context.Canceled)
				time.Sleep(time.Second)
				require.Empty(t, scripts)
				require.False(t, m.Exists("k"))
			})
		})
	}
}

// TestKeptLockIsLeftByALateAcquire: while the token may keep the key, a late acquire that held it before is not released. That ends
// with the reply to the release, or with the minimum hold if no reply comes. Then a second release hands on what was kept. If no
// reply came, a third one gives the token back.
func TestKeptLockIsLeftByALateAcquire(t *testing.T) {
	for name, reply := range map[string]error{"kept": nil, "lost": errNotOurs, "no reply": io.EOF} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var lock *Lock
				released := make(chan string, 10)
				s := &scripted{onRelease: func(_ context.Context, p *releaseParams) error {
					require.Equal(t, len(released) == 0, p.keep > 0)
					require.Equal(t, p.keep > 0, lock.lease.state.is(kept))
					released <- p.token
					return reply
				}}
				lock = granted(t, scriptedLocker(t, s), WithMinHold(time.Second))
				token := lock.lease.params.token
				require.ErrorIs(t, lock.Unlock(t.Context()), reply)
				require.Equal(t, name == "no reply", lock.lease.state.is(kept))
				require.Equal(t, name != "no reply", lock.lease.state.is(over))
				time.Sleep(2 * time.Second) // the bubble's time
				require.True(t, lock.lease.state.is(over))
				for _, want := range map[string][]string{
					"kept": {token, "~" + token}, "lost": {token}, "no reply": {token, "~" + token, token},
				}[name] {
					require.Equal(t, want, <-released)
				}
				require.Empty(t, released)
			})
		})
	}
}

// lateAcquire sets k to the token mine on an empty server. The lease of the token is in the given state. The
// function that lateAcquire returns handles a late reply to the acquire.
func lateAcquire(t *testing.T, state int32) (*miniredis.Miniredis, func(node.Reply), *lockState) {
	t.Helper()
	m, _, n := oneNode(t)
	require.NoError(t, m.Set("k", "mine"))
	s := &lockState{}
	s.become(state)
	p := &leaseParams{target: mine(), state: s}
	return m, func(r node.Reply) {
		got, err := readAcquire(r)
		p.late(n, r, got, err, func() { n.Post(context.Background(), releaseOn(&p.target)) })
	}, s
}

// gaveUpReading is the outcome of a command whose connection the client closed before a reply came.
var gaveUpReading = node.Reply{Err: os.ErrDeadlineExceeded}

// TestAdoptedLockOutlivesItsParent: after a lease is lost, somebody may have adopted its token. A late
// acquire is released only if it is known to have taken the key anew.
func TestAdoptedLockOutlivesItsParent(t *testing.T) {
	t.Parallel()
	m, late, _ := lateAcquire(t, lost)
	late(gaveUpReading)
	late(node.Reply{Value: int64(-7), Overtaken: true}) // the token held the key already
	late(node.Reply{Err: io.EOF, Overtaken: true})
	<-time.After(2 * firstLook)
	require.True(t, m.Exists("k"))
	late(node.Reply{Value: int64(7), Overtaken: true})
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond, "the late acquire is released")
}

// oneNode returns a node with an empty server behind it.
func oneNode(t *testing.T) (*miniredis.Miniredis, *redis.Client, *node.Node) {
	t.Helper()
	m := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return m, client, node.New(client)
}

// mine returns the lock on k with the token "mine".
func mine() target {
	at, _ := (&redlock{}).place("", "k")
	return target{place: at, token: "mine", timeout: time.Minute}
}

// TestHolderOfAQuorumIsThatOfMostNodes: another owner has the key on one node, which is left from a crash.
func TestHolderOfAQuorumIsThatOfMostNodes(t *testing.T) {
	of := func(holders ...string) (t tally[acquireReply]) {
		for _, holder := range holders {
			a := answer[acquireReply]{there: true, err: ErrNotAcquired}
			a.value.Holder = holder
			t.answers = append(t.answers, a)
		}
		return t
	}
	for want, t2 := range map[string]tally[acquireReply]{
		"":  of("", "", ""),
		"a": of("a", "", ""),
		"b": of("crashed", "b", "", "b"),
		"c": of("c", "crashed", "c"),
	} {
		require.Equal(t, want, holderIn(&t2))
	}
}

// TestRaiseNeedsTheLock: a node where the token does not hold the key refuses to raise its counter.
func TestRaiseNeedsTheLock(t *testing.T) {
	m, _, n := oneNode(t)
	raise := func(fence uint64) (uint64, error) {
		lock := mine()
		return readRaise(n.Do(t.Context(), timed(raiseCall(&lock, fence))))
	}
	for _, holder := range []string{"", "another"} {
		if holder != "" {
			require.NoError(t, m.Set("k", holder))
		}
		_, err := raise(70)
		require.ErrorIs(t, err, ErrLost)
		require.False(t, m.Exists("{k}:fence:k"))
	}
	require.NoError(t, m.Set("k", "mine"))
	for _, fence := range []uint64{70, 60} {
		counter, err := raise(fence)
		require.NoError(t, err)
		require.Equal(t, uint64(70), counter, "a higher counter is returned, and not lowered")
	}
}

// TestNodeRestoresALostLock: only if nobody has the key, and only for an extension that says so. The counter is raised to
// the fence of the lock and no further.
func TestNodeRestoresALostLock(t *testing.T) {
	m, _, n := oneNode(t)
	lock := mine()
	extend := func(more ...any) (uint64, error) {
		c := timed(node.Eval(quorumScripts.extend, 2, &lock.key, &lock.fences, &lock.token, 60_000))
		c.Append(more...)
		return readRenewal(n.Do(t.Context(), c))
	}
	for name, more := range map[string][]any{"a check": nil, "an adoption": {"mint"}} {
		_, err := extend(more...)
		require.ErrorIs(t, err, errDeleted, name)
	}
	require.Empty(t, m.Keys())
	for had, has := range map[string]string{"": "70", "60": "70", "70": "70", "80": "80"} {
		m.FlushAll()
		if had != "" {
			require.NoError(t, m.Set("{k}:fence:k", had))
		}
		_, err := extend(70, 90_000)
		require.ErrorIs(t, err, errRestored)
		m.CheckGet(t, "k", "mine")
		require.Equal(t, 90*time.Second, m.TTL("k"))
		m.CheckGet(t, "{k}:fence:k", has)
		require.Equal(t, time.Hour, m.TTL("{k}:fence:k"))
		_, err = extend(70, 90_000)
		require.NoError(t, err)
	}
	m.FlushAll()
	require.NoError(t, m.Set("k", "another"))
	_, err := extend(70, 90_000)
	require.ErrorIs(t, err, errTaken)
	m.FlushAll()
	_, err = m.Push("{k}:fence:k", "a list")
	require.NoError(t, err)
	_, err = extend(70, 90_000)
	require.ErrorContains(t, err, "the fence counter holds something else")
	require.NotErrorIs(t, err, ErrLost)
	require.False(t, m.Exists("k"))
}

// TestRestoredNodesDoNotCount, on a quorum: two nodes of three have lost the lock, so it is lost. What they have restored
// is released, whether they answer before or after the outcome is certain.
func TestRestoredNodesDoNotCount(t *testing.T) {
	for name, slow := range map[string]bool{"at once": false, "late": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, servers, clients := bubbleQuorum(t, 5, WithoutRenewal())
				lock := granted(t, l)
				synctest.Wait()
				for i, m := range servers[:4] {
					m.Del("k")
					m.Del("{k}:fence:k")
					if slow && i == 3 {
						scriptsSleep(clients[i], time.Second)
					}
				}
				require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
				time.Sleep(2 * time.Second)
				for _, m := range servers[:4] {
					require.True(t, m.Exists("{k}:fence:k"), "it was restored")
					require.False(t, m.Exists("k"))
				}
				require.True(t, servers[4].Exists("k"), "it may have been adopted")
				require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
				synctest.Wait()
				require.False(t, servers[4].Exists("k"))
			})
		})
	}
}

// TestRestoredVoteOfALostLockStays, on a quorum: a slow node restores the lock after an extension that was done. The lease
// ends before the node answers. An adopter may rely on that vote.
func TestRestoredVoteOfALostLockStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, servers, clients := bubbleQuorum(t, 3, WithoutRenewal())
		lock := granted(t, l, WithTTL(2*time.Second))
		synctest.Wait()
		servers[0].Del("k")
		scriptsSleep(clients[0], 3*time.Second)
		require.NoError(t, lock.Extend(t.Context(), time.Second))
		<-lock.Done()
		time.Sleep(2 * time.Second)
		require.True(t, servers[0].Exists("k"))
	})
}

// TestRestoreBehindUnlockIsReleased, on a quorum: an extension is sent after the release of Unlock.
func TestRestoreBehindUnlockIsReleased(t *testing.T) {
	for name, pause := range map[string]time.Duration{"at once": 0, "late": time.Second} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, servers, clients := bubbleQuorum(t, 3)
				lock := granted(t, l)
				p := lock.lease.params
				p.fence, p.restoreMS = lock.Fence(), time.Hour.Milliseconds()
				require.NoError(t, lock.Unlock(t.Context()))
				synctest.Wait()
				for i, m := range servers {
					require.True(t, m.Del("{k}:fence:k"))
					scriptsSleep(clients[i], pause)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				defer cancel()
				require.Error(t, l.(*engine).strategy.extend(ctx, &p))
				time.Sleep(2 * time.Second)
				for _, m := range servers {
					require.True(t, m.Exists("{k}:fence:k"), "it was restored")
					require.False(t, m.Exists("k"))
				}
			})
		})
	}
}

// TestRestoreThatIsOvertakenIsReleased, on a quorum: Unlock waits no longer than half of its timeout for an extension on a
// slow node. There that is carried out after the release, and in time.
func TestRestoreThatIsOvertakenIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, servers, clients := bubbleQuorum(t, 3)
		lock := granted(t, l)
		synctest.Wait()
		servers[0].Del("k")
		require.True(t, servers[0].Del("{k}:fence:k"))
		scriptsSleep(clients[0], 3*time.Second)
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(5 * time.Second)
		require.True(t, servers[0].Exists("{k}:fence:k"), "it was restored")
		require.False(t, servers[0].Exists("k"))
	})
}

// TestRestoreThatRunsLastIsReleased, on a quorum: the client has given up the connection, so nobody learns when the
// extension is carried out. Here that happens after the release of Unlock has found nothing.
func TestRestoreThatRunsLastIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, servers, clients := bubbleQuorum(t, 3)
		lock := granted(t, l)
		synctest.Wait()
		servers[0].Del("k")
		on := &onItsWay{sent: make(chan []any, 1), cleaned: make(chan struct{}, 1)}
		clients[0].AddHook(redistest.OnProcess(on.ProcessHook))
		require.NoError(t, lock.Extend(t.Context(), time.Hour))
		require.NoError(t, lock.Unlock(t.Context()))
		<-on.cleaned
		time.Sleep(5 * time.Second)
		require.NoError(t, bubbleClient(t, servers[0]).Do(t.Context(), <-on.sent...).Err())
		require.True(t, servers[0].Exists("k"), "it is restored")
		time.Sleep(10 * time.Second)
		require.False(t, servers[0].Exists("k"))
	})
}

// scriptsSleep has the scripts that client sends from now on sleep before they are sent, each for the next of pauses.
func scriptsSleep(client redis.UniversalClient, pauses ...time.Duration) {
	var scripts atomic.Int64
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() == "evalsha" {
				if i := int(scripts.Add(1)) - 1; i < len(pauses) {
					time.Sleep(pauses[i]) // of the bubble
				}
			}
			return next(context.WithoutCancel(ctx), cmd)
		}
	}))
}

// bubbleQuorum returns a Redlock on n nodes, which have its scripts.
func bubbleQuorum(t *testing.T, n int, opts ...Option) (l Locker, servers []*miniredis.Miniredis, clients []redis.UniversalClient) {
	t.Helper()
	for range n {
		m, client := bubbleRedis(t)
		servers, clients = append(servers, m), append(clients, client)
	}
	l, err := NewRedlock(clients, append([]Option{WithTTL(time.Hour), WithOpTimeout(4 * time.Second)}, opts...)...)
	require.NoError(t, err)
	warm := granted(t, l)
	require.NoError(t, warm.Extend(t.Context(), time.Hour))
	require.NoError(t, warm.Unlock(t.Context()))
	_, err = l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	synctest.Wait()
	return l, servers, clients
}

// TestAcquireThatIsOvertakenIsReleased, on a quorum: TryLock is refused, and waits for the release of its vote on
// node 0. Meanwhile an acquire on node 4 is carried out after its release.
func TestAcquireThatIsOvertakenIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, servers, clients := bubbleQuorum(t, 5)
		scriptsSleep(clients[0], 0, 3500*time.Millisecond)
		for i := 1; i <= 3; i++ { // they answer after node 0
			require.NoError(t, servers[i].Set("k", "another"))
			scriptsSleep(clients[i], time.Millisecond)
		}
		scriptsSleep(clients[4], 3*time.Second)
		require.True(t, servers[4].Del("{k}:fence:k"))
		refused := make(chan error, 1)
		go func() {
			_, err := l.TryLock(t.Context(), "k")
			refused <- err
		}()
		time.Sleep(3100 * time.Millisecond)
		synctest.Wait()
		minted, left, returned := servers[4].Exists("{k}:fence:k"), servers[4].Exists("k"), len(refused)
		require.ErrorIs(t, <-refused, ErrNotAcquired)
		require.True(t, minted, "the acquire has run")
		require.Zero(t, returned, "TryLock still waited")
		require.False(t, left)
	})
}

// TestRefusedResendIsNoCertainRefusal: the server is silent, so an acquire is sent again, and refused. Then the key
// becomes free, and the first send is carried out.
func TestRefusedResendIsNoCertainRefusal(t *testing.T) {
	const silence = 30 * time.Second // of the server, until the client gets another connection
	t.Run("TryLock", func(t *testing.T) {
		s := &scripted{onAcquire: func(context.Context, *leaseParams) (acquireReply, error) {
			return acquireReply{resent: true}, ErrNotAcquired
		}}
		_, err := scriptedLocker(t, s).TryLock(t.Context(), "k")
		require.ErrorIs(t, err, ErrNotAcquired)
		require.Equal(t, int64(1), s.releases.Load())
	})
	t.Run("Redlock", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			l, servers, clients := bubbleQuorum(t, 3)
			scriptsSleep(clients[0], silence, 2*time.Second)
			scriptsSleep(clients[2], 0, 3*time.Second)
			time.Sleep(time.Second) // since the last answer
			_, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			time.Sleep(5 * time.Second) // node 0 counts as silent
			require.NoError(t, servers[0].Set("k", "another"))
			require.NoError(t, servers[2].Set("k", "another"))
			time.AfterFunc(1500*time.Millisecond, func() { servers[0].Del("k") })
			_, err = l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, ErrNotAcquired)
			time.Sleep(silence)
			require.False(t, servers[0].Exists("k"))
		})
	})
	t.Run("SetNXPX", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			m, client := bubbleRedis(t)
			l, err := NewSetNXPX(client, WithTTL(time.Hour), WithOpTimeout(4*time.Second), WithoutQueue(),
				WithPollInterval(time.Hour, time.Hour))
			require.NoError(t, err)
			require.NoError(t, granted(t, l).Unlock(t.Context()))
			_, err = l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			scriptsSleep(client, silence, 2*time.Second)
			time.Sleep(time.Second) // since the last answer
			_, err = l.Inspect(t.Context(), "k")
			require.ErrorIs(t, err, ErrUnavailable)
			require.NoError(t, m.Set("k", "another"))
			time.AfterFunc(1500*time.Millisecond, func() { m.Del("k") })
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			defer cancel()
			_, err = l.Lock(ctx, "k")
			require.ErrorIs(t, err, ErrNotAcquired)
			time.Sleep(silence)
			require.False(t, m.Exists("k"))
		})
	})
}

// TestCleanUpEndsWithCtx, on a quorum: the grant was slow, and its release hangs. The caller does not wait for it
// any longer than ctx lasts.
func TestCleanUpEndsWithCtx(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, _, clients := bubbleQuorum(t, 3, WithTTL(300*time.Millisecond))
		for _, client := range clients {
			scriptsSleep(client, 400*time.Millisecond, 3*time.Second)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		_, err := l.TryLock(ctx, "k")
		require.ErrorIs(t, err, ErrLost)
		require.Equal(t, time.Second, time.Since(begin))
		time.Sleep(time.Minute)
	})
}

// timed returns c with a timeout.
func timed(c *node.Call) *node.Call {
	c.Timeout = time.Minute
	return c
}

// TestReleaseFollowsItsAcquireOnAQuorum: a failed attempt is released only after its acquire has returned.
// If the acquire ran after the release, nobody would release its vote.
func TestReleaseFollowsItsAcquireOnAQuorum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewRedlock([]redis.UniversalClient{client}, WithOpTimeout(time.Minute))
		require.NoError(t, err)
		require.NoError(t, granted(t, l).Unlock(t.Context()), "the scripts are loaded")
		var scripts atomic.Int64
		underWay, goesOn := make(chan struct{}), make(chan struct{})
		client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
			return func(ctx context.Context, cmd redis.Cmder) error {
				if scripts.Add(1) == 1 {
					close(underWay)
					<-goesOn
				}
				return next(context.WithoutCancel(ctx), cmd)
			}
		}))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { <-underWay; cancel() }()
		_, err = l.TryLock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		close(goesOn)
		synctest.Wait()
		require.True(t, m.Exists("{k}:fence:k"), "the acquire has run")
		require.False(t, m.Exists("k"))
	})
}

// TestLateVoteOfALostLockIsReleased: an acquire that nobody waited for runs only after the lease has
// ended. Its vote is released.
func TestLateVoteOfALostLockIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var servers []*miniredis.Miniredis
		var clients []redis.UniversalClient
		goesOn := make(chan struct{})
		for i := range 3 {
			m, client := bubbleRedis(t)
			servers, clients = append(servers, m), append(clients, client)
			if i == 2 {
				var commands atomic.Int64
				client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
					return func(ctx context.Context, cmd redis.Cmder) error {
						if cmd.Name() == "evalsha" && commands.Add(1) == 1 {
							<-goesOn
						}
						return next(ctx, cmd)
					}
				}))
			}
		}
		l, err := NewRedlock(clients, WithOpTimeout(time.Hour), WithTTL(time.Hour), WithoutRenewal())
		require.NoError(t, err)
		lock := granted(t, l)
		for _, m := range servers[:2] {
			m.Del("k")
		}
		require.ErrorIs(t, lock.Extend(t.Context(), time.Hour), ErrLost)
		require.False(t, servers[2].Exists("k"))
		close(goesOn)
		synctest.Wait()
		require.True(t, servers[2].Exists("{k}:fence:k"), "the acquire has run")
		require.False(t, servers[2].Exists("k"))
	})
}

// TestSendThatArrivesAfterUnlockLeavesNoKey: a call to a silent server is stuck on one connection, and is
// sent again on another, which works. The lock is unlocked. Only then the first send is carried out.
func TestSendThatArrivesAfterUnlockLeavesNoKey(t *testing.T) {
	t.Parallel()
	calls := map[string]func(t *testing.T, f *stuck, l Locker, silence func()) *Lock{
		"acquire": func(t *testing.T, _ *stuck, l Locker, silence func()) *Lock {
			silence()
			return granted(t, l)
		},
		"extension": func(t *testing.T, f *stuck, l Locker, silence func()) *Lock {
			lock := granted(t, l)
			f.have(t, len(f.direct))
			silence()
			require.NoError(t, lock.Extend(t.Context(), 2*time.Hour))
			return lock
		},
		"extension that restores": func(t *testing.T, f *stuck, l Locker, silence func()) *Lock {
			lock := granted(t, l)
			f.have(t, len(f.direct))
			if f.sick < len(f.direct)/2+1 {
				require.NoError(t, f.direct[0].Del(t.Context(), "k").Err())
			}
			silence()
			require.NoError(t, lock.Extend(t.Context(), 2*time.Hour))
			return lock
		},
	}
	strategies := map[string]struct {
		nodes, sick int
		made        func(clients []redis.UniversalClient, opts ...Option) (Locker, error)
	}{
		"SetNXPX": {1, 1, func(c []redis.UniversalClient, opts ...Option) (Locker, error) { return NewSetNXPX(c[0], opts...) }},
		"Semaphore": {1, 1, func(c []redis.UniversalClient, opts ...Option) (Locker, error) {
			return NewSemaphore(c[0], 1, opts...)
		}},
		"LegacySetNX": {1, 1, func(c []redis.UniversalClient, opts ...Option) (Locker, error) {
			return NewLegacySetNX(c[0], opts...)
		}},
		"Redlock on one node":                 {1, 1, NewRedlock},
		"Redlock on five, one of them sick":   {5, 1, NewRedlock},
		"Redlock on five, all of them silent": {5, 5, NewRedlock},
	}
	for name, s := range strategies {
		for what, call := range calls {
			t.Run(name+", "+what, func(t *testing.T) {
				t.Parallel()
				f := newStuck(t, s.nodes, s.sick)
				l, err := s.made(f.clients, WithTTL(time.Hour), WithoutRenewal(), WithOpTimeout(4*time.Second))
				require.NoError(t, err)
				f.arrivesAfterUnlock(t, l.(*engine), func(silence func()) *Lock { return call(t, f, l, silence) })
			})
		}
	}
}

// stuck are servers whose clients have idle connections. The first ones are sick: their connections can go silent.
type stuck struct {
	sick    int
	direct  []*redis.Client
	proxies []*faultproxy.Proxy
	clients []redis.UniversalClient // through the proxies
}

func newStuck(t *testing.T, nodes, sick int) *stuck {
	t.Helper()
	f := &stuck{sick: sick}
	for i := range nodes {
		s := redistest.Start(t)
		f.direct = append(f.direct, s.Client(t))
		f.proxies = append(f.proxies, faultproxy.New(t, s.Network(), s.Addr()))
		f.clients = append(f.clients, f.proxies[i].Client(t))
	}
	return f
}

// arrivesAfterUnlock makes a call that is sent to sick servers when silence has been called, and whose first send to each
// of them is stuck. It unlocks the lock that the call returns, and lets the stuck sends arrive.
func (f *stuck) arrivesAfterUnlock(t *testing.T, l *engine, call func(silence func()) *Lock) {
	t.Helper()
	warm := granted(t, l) // the scripts are loaded
	require.NoError(t, warm.Extend(t.Context(), 2*time.Hour))
	f.have(t, len(f.direct))
	require.NoError(t, warm.Unlock(t.Context()))
	f.have(t, 0)

	lock := call(func() { f.silence(t, l) })
	f.have(t, len(f.direct))
	require.NoError(t, lock.Unlock(t.Context()))
	f.have(t, 0)
	for i, p := range f.proxies[:f.sick] {
		before := f.scriptsRun(t, i)
		p.Heal()
		soon(t, "the stuck send arrives", func() bool { return f.scriptsRun(t, i) > before })
	}
	f.have(t, 0)
}

// silence leaves two idle connections to each sick server, and makes them silent. The node notices that on the first.
func (f *stuck) silence(t *testing.T, l *engine) {
	t.Helper()
	for i, p := range f.proxies[:f.sick] {
		conns := []*redis.Conn{f.clients[i].(*redis.Client).Conn(), f.clients[i].(*redis.Client).Conn()}
		for _, c := range conns {
			require.NoError(t, c.Ping(t.Context()).Err())
		}
		for _, c := range conns {
			require.NoError(t, c.Close())
		}
		p.SilenceOpen()
		n := nodesOf(l)[i]
		ping := node.Command("ping")
		ping.Timeout = 50 * time.Millisecond
		require.Error(t, n.Do(t.Context(), ping).Err)
		require.True(t, n.Silent())
	}
}

func nodesOf(l *engine) []*node.Node {
	switch s := l.strategy.(type) {
	case *setNXPX:
		return []*node.Node{s.node}
	case *semaphore:
		return []*node.Node{s.node}
	case *legacySetNX:
		return []*node.Node{s.node}
	}
	return l.strategy.(*redlock).nodes
}

// have waits until the key is on that many nodes.
func (f *stuck) have(t *testing.T, nodes int) {
	t.Helper()
	soon(t, fmt.Sprint("the key is on ", nodes, " nodes"), func() bool {
		have := 0
		for _, c := range f.direct {
			have += int(c.Exists(t.Context(), "k").Val())
		}
		return have == nodes
	})
}

// scriptsRun returns how many scripts a server has run by their SHA-1.
func (f *stuck) scriptsRun(t *testing.T, i int) (n int) {
	t.Helper()
	_, stats, _ := strings.Cut(f.direct[i].Info(t.Context(), "commandstats").Val(), "cmdstat_evalsha:")
	_, _ = fmt.Sscanf(stats, "calls=%d", &n)
	return n
}

func soon(t *testing.T, what string, f func() bool) {
	t.Helper()
	require.Eventually(t, f, 10*time.Second, time.Millisecond, what)
}
