package behavior_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestHolderIsNamed, on every strategy: after a refusal, and after a wait that ctx ended, HeldError has
// the owner and the remaining TTL, and the text names the owner. Inspect reports the owner too. With LegacySetNX,
// HeldError has no owner.
func TestHolderIsNamed(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			theirs, err := strategy(s.Client(t), longTTL, patience, redlatch.WithOwner("api-7/pid 12"), redlatch.WithoutRenewal())
			require.NoError(t, err)
			ours, err := strategy(s.Client(t), patience)
			require.NoError(t, err)
			lock := mustLock(t, theirs, "k")
			require.True(t, strings.HasPrefix(lock.Token(), "api-7/pid 12/"))

			_, refusal := ours.TryLock(t.Context(), "k")
			for _, err := range []error{refusal, locktest.WaitInVain(t, ours, "k")} {
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				require.NotErrorIs(t, err, redlatch.ErrUnavailable)
				require.NotContains(t, err.Error(), lock.Token())
				var held *redlatch.HeldError
				require.ErrorAs(t, err, &held)
				require.InDelta(t, time.Hour, held.TTL, float64(time.Minute))
				if name == "LegacySetNX" { // its key holds only a time
					require.Empty(t, held.Owner)
				} else {
					require.Equal(t, "api-7/pid 12", held.Owner)
					require.Contains(t, err.Error(), `held by "api-7/pid 12"`)
				}
			}
			st, err := ours.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, "api-7/pid 12", st.Owner)
			require.NoError(t, lock.Unlock(t.Context()))
			st, err = ours.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Empty(t, st.Owner)
		})
	}
}

// TestRefusedWaiterKnowsTheLease, on every strategy: each of several waiters in two processes knows what is
// left of the lease, wherever it is in the queue. When the key changes hands, the owner and the TTL are those of the last
// look. The text names the owner once.
func TestRefusedWaiterKnowsTheLease(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			direct := s.Client(t)
			holder, err := strategy(s.Client(t), longTTL, patience, redlatch.WithOwner("a"), redlatch.WithoutRenewal())
			require.NoError(t, err)
			token := mustLock(t, holder, "k").Token()
			refused := func(timeout time.Duration, owner string, ttl time.Duration, meanwhile func()) {
				var wg, waiting sync.WaitGroup
				for range 2 {
					l, err := strategy(s.Client(t), patience)
					require.NoError(t, err)
					for range 3 {
						waiting.Add(1)
						wg.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), timeout)
							defer cancel()
							_, err := l.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{Waiting: func(redlatch.Event) { waiting.Done() }}))
							held, ok := errors.AsType[*redlatch.HeldError](err)
							switch {
							case !ok || !errors.Is(err, redlatch.ErrNotAcquired):
								t.Error(err)
							case held.TTL <= 0 || held.TTL > ttl+2*time.Second: // LegacySetNX counts whole seconds
								t.Errorf("%v is left", held.TTL)
							case name != "LegacySetNX" && (held.Owner != owner || strings.Count(err.Error(), fmt.Sprintf("held by %q", owner)) != 1):
								t.Errorf("the owner is %q: %v", held.Owner, err)
							}
						})
					}
				}
				waiting.Wait()
				meanwhile()
				wg.Wait()
			}
			refused(time.Second, "a", time.Hour, func() {})
			refused(7*time.Second, "b", 30*time.Minute, func() { // waiters that are not first look every five seconds
				next := "b/" + uuid.NewString()
				_, err := direct.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
					switch ends := time.Now().Add(20 * time.Minute); name {
					case "Semaphore":
						p.ZRem(t.Context(), "k", token)
						p.ZAdd(t.Context(), "k", redis.Z{Score: float64(ends.UnixMicro()), Member: next})
					case "LegacySetNX":
						p.Set(t.Context(), "k", ends.Unix(), 0)
					default:
						p.Set(t.Context(), "k", next, 20*time.Minute)
					}
					return nil
				})
				require.NoError(t, err)
			})
		})
	}
}

// TestQuorumNamesTheOwnerOfMostNodes: another owner has the key on one node, which is left from a crash.
func TestQuorumNamesTheOwnerOfMostNodes(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	require.NoError(t, n.direct[0].Set(t.Context(), "k", "crashed/"+uuid.NewString(), time.Hour).Err())
	mustLock(t, n.locker(t, true, redlatch.WithOwner("b")), "k")
	_, err := n.locker(t, true).TryLock(t.Context(), "k")
	held, ok := errors.AsType[*redlatch.HeldError](err)
	require.True(t, ok)
	require.Equal(t, "b", held.Owner)
}

// everyStrategy makes a Locker on one server.
var everyStrategy = map[string]func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error){
	"SetNXPX":     redlatch.NewSetNXPX,
	"LegacySetNX": redlatch.NewLegacySetNX,
	"Semaphore": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSemaphore(c, 1, opts...)
	},
	"Redlock": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewRedlock([]redis.UniversalClient{c}, opts...)
	},
}

// TestOwnerIsHandedOn: after a hand-over, Inspect reports the owner of the next waiter.
func TestOwnerIsHandedOn(t *testing.T) {
	s := redistest.Start(t)
	l := newLocker(t, s.Client(t), redlatch.WithOwner("first"))
	lock := mustLock(t, l, "k")
	next := waitInLine(t, l, "k", redlatch.WithOwner("second one"))
	require.NoError(t, lock.Unlock(t.Context()))
	second := <-next
	require.NotNil(t, second)
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.Equal(t, "second one", st.Owner)
	require.NoError(t, second.Unlock(t.Context()))
}

func TestOwnerFitsOnALine(t *testing.T) {
	client := redistest.Start(t).Client(t)
	for _, name := range []string{"", "two\nlines", strings.Repeat("x", 201), "\x7f"} {
		_, err := redlatch.NewSetNXPX(client, redlatch.WithOwner(name))
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
		require.ErrorContains(t, err, "WithOwner(")
	}
	require.NoError(t, mustLock(t, newLocker(t, client, redlatch.WithOwner("Zürich 7: "+strings.Repeat("x", 100))), "k").Unlock(t.Context()))
}

// TestUnavailableIsNoHolder, on every strategy: while Redis hangs or refuses connections, the error of
// each call matches ErrUnavailable and not ErrNotAcquired.
func TestUnavailableIsNoHolder(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, client := behindProxy(t)
			l, err := strategy(client, redlatch.WithOpTimeout(200*time.Millisecond), redlatch.WithoutRenewal(), longTTL)
			require.NoError(t, err)
			lock := locktest.LockSoon(t, l, "k")
			for fault, inject := range map[string]func(){"hung": p.Silence, "refused": p.Refuse} {
				inject()
				_, try := l.TryLock(t.Context(), "k2")
				ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
				_, wait := l.Lock(ctx, "k2")
				_, adopt := l.Adopt(t.Context(), "k2", "token")
				_, inspect := l.Inspect(t.Context(), "k2")
				for call, err := range map[string]error{
					"TryLock": try, "Lock": wait, "Adopt": adopt, "Inspect": inspect, "Extend": lock.Extend(t.Context(), 2*time.Hour),
				} {
					require.ErrorIs(t, err, redlatch.ErrUnavailable, "%s, %s", fault, call)
					require.NotErrorIs(t, err, redlatch.ErrNotAcquired, "%s, %s", fault, call)
					require.NotErrorIs(t, err, redlatch.ErrLost, "%s, %s", fault, call)
					require.NotContains(t, err.Error(), "\n")
				}
				cancel()
				p.Heal()
			}
			p.Refuse()
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable)
		})
	}
}

// everyCall makes each call that acquires a lock.
var everyCall = map[string]func(ctx context.Context, l redlatch.Locker, key string) error{
	"TryLock": func(ctx context.Context, l redlatch.Locker, key string) error {
		_, err := l.TryLock(ctx, key)
		return err
	},
	"Lock": func(ctx context.Context, l redlatch.Locker, key string) error {
		_, err := l.Lock(ctx, key)
		return err
	},
	"Do": func(ctx context.Context, l redlatch.Locker, key string) error {
		return redlatch.Do(ctx, l, key, func(context.Context, *redlatch.Lock) error { return nil })
	},
	"TryDo": func(ctx context.Context, l redlatch.Locker, key string) error {
		return redlatch.TryDo(ctx, l, key, func(context.Context, *redlatch.Lock) error { return nil })
	},
	"DoAll": func(ctx context.Context, l redlatch.Locker, key string) error {
		return redlatch.DoAll(ctx, l, []string{key + "b", key}, func(context.Context, []*redlatch.Lock) error { return nil })
	},
	"TryDoAll": func(ctx context.Context, l redlatch.Locker, key string) error {
		return redlatch.TryDoAll(ctx, l, []string{key + "b", key}, func(context.Context, []*redlatch.Lock) error { return nil })
	},
	"Lead": func(ctx context.Context, l redlatch.Locker, key string) error {
		return redlatch.Lead(ctx, l, key, func(context.Context, *redlatch.Lock) error { return nil })
	},
}

// TestShortCallInAnOutageIsNoConflict, on every Locker: calls on keys that nobody ever held end with their ctx,
// before the op timeout. Most are still in the mailbox then, behind others. The error matches ErrUnavailable and not
// ErrNotAcquired, and its text has the last trouble of the node. If ctx had ended before the call, it matches neither.
func TestShortCallInAnOutageIsNoConflict(t *testing.T) {
	t.Parallel()
	for fault, c := range map[string]struct {
		warm   bool
		inject func(s *redistest.Server)
		text   string
	}{
		"no server": {false, (*redistest.Server).Kill, "connect: connection refused"},
		"killed":    {true, (*redistest.Server).Kill, "connect: connection refused"},
		"hung":      {true, (*redistest.Server).Pause, "no reply"},
	} {
		for name, made := range everyLocker() {
			t.Run(fault+", "+name, func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				l, err := made(s.Client(t), redlatch.WithOpTimeout(2*time.Second))
				require.NoError(t, err)
				if c.warm {
					require.NoError(t, locktest.LockSoon(t, l, "warm").Unlock(t.Context()))
				}
				ended, end := context.WithCancel(t.Context())
				end()
				c.inject(s)
				try := func(call, key string) error {
					ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
					defer cancel()
					return everyCall[call](ctx, l, key)
				}
				for _, known := range []bool{false, true} {
					var wg sync.WaitGroup
					for call, do := range everyCall {
						for i := range 12 {
							wg.Go(func() {
								key := fmt.Sprint(call, known, i)
								if err := try(call, key); !errors.Is(err, context.DeadlineExceeded) ||
									!errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrNotAcquired) {
									t.Errorf("%s: %v", call, err)
								} else if known && !strings.Contains(err.Error(), c.text) {
									t.Errorf("%s: does not say %q: %v", call, c.text, err)
								}
								if err := do(ended, l, key); !errors.Is(err, context.Canceled) ||
									errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrNotAcquired) {
									t.Errorf("%s after the end of ctx: %v", call, err)
								}
							})
						}
					}
					wg.Wait()
					eventually(t, "a dial has failed", func() bool { // go-redis tries for longer than one call lasts
						return strings.Contains(try("TryLock", "k").Error(), c.text)
					})
				}
			})
		}
	}
}

// TestOutageIsNoticedByAllWaiters: Redis becomes unreachable, and all waiters for a key notice it long
// before their lines would look again. The test has three tries, since a busy machine may be late.
func TestOutageIsNoticedByAllWaiters(t *testing.T) {
	t.Parallel()
	noticed := func() bool {
		direct, p, client := behindProxy(t)
		holder := newLocker(t, direct, longTTL)
		mustLock(t, holder, "k")
		waiting := make(chan redlatch.Event, 100)
		l := newLocker(t, client, redlatch.WithOpTimeout(200*time.Millisecond), redlatch.WithHooks(redlatch.Hooks{
			Waiting: func(e redlatch.Event) { waiting <- e },
		}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan error, 3)
		for _, opts := range [][]redlatch.Option{nil, nil, {alone}} { // two in one line, and another line
			go func() { // ends with ctx
				for {
					if _, err := l.Lock(ctx, "k", opts...); ctx.Err() != nil {
						got <- err
						return
					}
				}
			}()
			<-waiting // it was refused
		}
		queued(t, holder, "k", 2) // the other line queued with its first attempt, so no look is in flight
		p.Refuse()
		time.AfterFunc(700*time.Millisecond, cancel)
		all := true
		for range 3 {
			err := <-got
			require.ErrorIs(t, err, context.Canceled)
			all = all && errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrNotAcquired)
		}
		return all
	}
	for range 3 {
		if noticed() {
			return
		}
	}
	require.Fail(t, "not noticed in three tries")
}

// TestSilentQuorumIsNoHolder: the nodes of a quorum fall silent while a waiter asks them.
func TestSilentQuorumIsNoHolder(t *testing.T) {
	t.Parallel()
	direct, p, client := behindProxy(t)
	holder, err := everyStrategy["Redlock"](direct, longTTL)
	require.NoError(t, err)
	mustLock(t, holder, "k")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l, err := everyStrategy["Redlock"](client, redlatch.WithOpTimeout(time.Second),
		redlatch.WithHooks(redlatch.Hooks{Waiting: func(redlatch.Event) {
			p.Silence()
			time.AfterFunc(1500*time.Millisecond, cancel)
		}}))
	require.NoError(t, err)
	_, err = l.Lock(ctx, "k")
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
}

// TestSilenceUntilAnEarlyEndIsNoHolder, on every strategy: Redis is silent, and ctx ends before the op
// timeout.
func TestSilenceUntilAnEarlyEndIsNoHolder(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, client := behindProxy(t)
			l, err := strategy(client, patience)
			require.NoError(t, err)
			require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context()))
			p.Silence()
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond) // less than a quarter of the op timeout
			defer cancel()
			_, err = l.Lock(ctx, "k")
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
		})
	}
}

// TestUnreachableRedisCostsOneOpTimeout: an attempt that cannot connect takes the op timeout once, and not
// twice.
func TestUnreachableRedisCostsOneOpTimeout(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
			t.Cleanup(func() { _ = client.Close() })
			l, err := strategy(client, redlatch.WithOpTimeout(2*time.Second))
			require.NoError(t, err)
			begin := time.Now()
			_, err = l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrUnavailable)
			require.Less(t, time.Since(begin), 3500*time.Millisecond)
		})
	}
}

// TestLossSaysWhy, on every strategy: .
func TestLossSaysWhy(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		for loss, c := range map[string]struct {
			opts   []redlatch.Option
			inject func(t *testing.T, direct *redis.Client, silence func())
			want   string
		}{
			"deleted": {
				inject: func(t *testing.T, direct *redis.Client, _ func()) {
					require.NoError(t, direct.Del(t.Context(), "k").Err())
				},
				want: "lock lost.*the key is gone",
			},
			"taken": {
				inject: func(t *testing.T, direct *redis.Client, _ func()) {
					require.NoError(t, direct.Set(t.Context(), "k", "4102444800", 0).Err())
				},
				want: "another owner has|the key holds something else",
			},
			"silence": {
				inject: func(_ *testing.T, _ *redis.Client, silence func()) { silence() },
				want:   `lock lost: expired: not extended since \d\d:\d\d:\d\d\.\d{3}: .*no reply within`,
			},
			"a fixed lease": {
				opts:   []redlatch.Option{redlatch.WithoutRenewal()},
				inject: func(*testing.T, *redis.Client, func()) {},
				want:   `lock lost: expired$`,
			},
		} {
			t.Run(name+", "+loss, func(t *testing.T) {
				t.Parallel()
				direct, p, client := behindProxy(t)
				ttl := time.Second
				if name == "LegacySetNX" { // it counts whole seconds
					ttl = 3 * time.Second
				}
				l, err := strategy(client, append(c.opts, redlatch.WithTTL(ttl), redlatch.WithOpTimeout(time.Second))...)
				require.NoError(t, err)
				lock := locktest.LockSoon(t, l, "k")
				c.inject(t, direct, p.Silence)
				<-lock.Done()
				require.ErrorIs(t, lock.Err(), redlatch.ErrLost)
				require.NotErrorIs(t, lock.Err(), redlatch.ErrUnavailable)
				require.Regexp(t, regexp.MustCompile(c.want), lock.Err().Error())
				require.Same(t, lock.Err(), lock.Err(), "Err always returns the same error")
				p.Heal()
				require.Contains(t, lock.Unlock(t.Context()).Error(), strings.TrimPrefix(lock.Err().Error(), "redlatch: "))
			})
		}
	}
}

// heard collects events.
type heard struct {
	mu     sync.Mutex
	events []redlatch.Event
}

func (h *heard) add(e redlatch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *heard) all() []redlatch.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]redlatch.Event(nil), h.events...)
}

// TestWaitThroughAnOutageIsReported, on every strategy: while Lock waits through an outage, Hooks.Trouble
// reports the cause at most once a second.
func TestWaitThroughAnOutageIsReported(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			direct, p, client := behindProxy(t)
			holder, err := strategy(direct, longTTL, patience)
			require.NoError(t, err)
			lock := mustLock(t, holder, "k")
			var h heard
			l, err := strategy(client, redlatch.WithOpTimeout(200*time.Millisecond), redlatch.WithHooks(redlatch.Hooks{
				Trouble: func(e redlatch.Event) {
					if e.Node == "" { // other tests check the errors of nodes
						h.add(e)
					}
				},
			}))
			require.NoError(t, err)
			waiting := make(chan struct{})
			var once sync.Once
			got := make(chan error, 1)
			go func() { // ends with its lock
				err := redlatch.ErrUnavailable
				for errors.Is(err, redlatch.ErrUnavailable) { // the first attempt may be late on a busy machine
					_, err = l.Lock(context.Background(), "k", redlatch.WithHooks(redlatch.Hooks{
						Waiting: func(redlatch.Event) { once.Do(func() { close(waiting) }) },
					}))
				}
				got <- err
			}()
			<-waiting
			p.Silence()
			begin := time.Now()
			cause := "timeout"
			if name == "Redlock" {
				cause = "quorum"
			}
			eventually(t, "three errors are reported", func() bool { return len(h.all()) >= 3 })
			require.Greater(t, time.Since(begin), 1500*time.Millisecond, "at most once a second")
			for _, e := range h.all() {
				require.ErrorIs(t, e.Err, redlatch.ErrUnavailable)
				require.Equal(t, cause, e.Cause)
				require.Equal(t, strings.ToLower(name), e.Strategy)
				require.Equal(t, "k", e.Key)
			}
			p.Heal()
			require.NoError(t, lock.Unlock(t.Context()))
			require.NoError(t, <-got)
		})
	}
}

// TestReturnedTroubleIsReported, on every strategy: Hooks.Trouble reports a call that fails because of Redis
// although the call returns the error. One cause is reported once a second.
func TestReturnedTroubleIsReported(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		for call, attempt := range map[string]func(l redlatch.Locker) error{
			"TryLock": func(l redlatch.Locker) error { _, err := l.TryLock(t.Context(), "k"); return err },
			"Lock":    func(l redlatch.Locker) error { _, err := l.Lock(t.Context(), "k"); return err },
			"Adopt":   func(l redlatch.Locker) error { _, err := l.Adopt(t.Context(), "k", "token"); return err },
		} {
			t.Run(name+"/"+call, func(t *testing.T) {
				t.Parallel()
				_, p, client := behindProxy(t)
				var h heard
				l, err := strategy(client, redlatch.WithOwner("api-7"), redlatch.WithOpTimeout(200*time.Millisecond), redlatch.WithHooks(redlatch.Hooks{
					Trouble: func(e redlatch.Event) {
						if e.Node == "" {
							h.add(e)
						}
					},
				}))
				require.NoError(t, err)
				causes := []string{"timeout", "connection"} // go-redis dials for longer than the op timeout
				if name == "Redlock" {
					causes = []string{"quorum"}
				}
				p.Refuse()
				begin := time.Now()
				for range 3 {
					require.ErrorIs(t, attempt(l), redlatch.ErrUnavailable)
				}
				reported := h.all()
				require.NotEmpty(t, reported)
				require.LessOrEqual(t, len(reported), len(causes)*(1+int(time.Since(begin)/time.Second)))
				for _, e := range reported {
					require.ErrorIs(t, e.Err, redlatch.ErrUnavailable)
					require.Contains(t, causes, e.Cause)
					require.Equal(t, "k", e.Key)
					require.Equal(t, "api-7", e.Owner)
				}
			})
		}
	}
}

// waitBriefly returns the error of a wait that ends once it was refused.
func waitBriefly(t *testing.T, l redlatch.Locker, key string) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := l.Lock(ctx, key, redlatch.WithHooks(redlatch.Hooks{Waiting: func(redlatch.Event) { cancel() }}))
	require.ErrorIs(t, err, context.Canceled)
	return err
}

// TestOtherErrorsAreNoTrouble, on every strategy: a refusal, a token that does not hold the key, a ctx that has
// ended and an invalid option are not failures of Redis.
func TestOtherErrorsAreNoTrouble(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var h heard
			l, err := strategy(redistest.Start(t).Client(t), patience, redlatch.WithHooks(redlatch.Hooks{Trouble: h.add}))
			require.NoError(t, err)
			mustLock(t, l, "k")
			_, err = l.TryLock(t.Context(), "k")
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.ErrorIs(t, waitBriefly(t, l, "k"), redlatch.ErrNotAcquired)
			_, err = l.Adopt(t.Context(), "k", "token")
			require.ErrorIs(t, err, redlatch.ErrLost)
			_, err = l.TryLock(t.Context(), "")
			require.ErrorIs(t, err, redlatch.ErrInvalidOption)
			ended, end := context.WithCancel(t.Context())
			end()
			_, err = l.TryLock(ended, "k2")
			require.ErrorIs(t, err, context.Canceled)
			require.Empty(t, h.all())
		})
	}
}

// TestLogsSayHowALockWasReleased: a release that Redis did not confirm is logged at Warn, and one that it
// confirmed at Debug.
func TestLogsSayHowALockWasReleased(t *testing.T) {
	var log bytes.Buffer
	_, p, client := behindProxy(t)
	l := newLocker(t, client, redlatch.WithOpTimeout(200*time.Millisecond), redlatch.WithoutRenewal(),
		redlatch.WithHooks(redlatch.SlogHooks(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))))
	confirmed, unconfirmed := mustLock(t, l, "a"), mustLock(t, l, "b")
	require.NoError(t, confirmed.Unlock(t.Context()))
	p.Refuse()
	require.ErrorIs(t, unconfirmed.Unlock(t.Context()), redlatch.ErrUnavailable)
	require.Regexp(t, `level=DEBUG msg="lock released" strategy=setnxpx key=a `, log.String())
	require.Regexp(t, `level=WARN msg="lock release not confirmed" strategy=setnxpx key=b .*error=".+"`, log.String())
	require.Equal(t, 1, strings.Count(log.String(), "lock released"))
}

// TestLogsNameTheHolder, on every strategy: the line of a call that starts to wait has the holder's name, if it
// is known. No line has an attribute without a value.
func TestLogsNameTheHolder(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t).Client(t)
			theirs, err := strategy(client, redlatch.WithOwner("api-7"))
			require.NoError(t, err)
			lock := mustLock(t, theirs, "k")
			defer func() { require.NoError(t, lock.Unlock(t.Context())) }()
			for _, owner := range [][]redlatch.Option{nil, {redlatch.WithOwner("api-8")}} {
				var log bytes.Buffer
				ours, err := strategy(client, append(owner, patience, redlatch.WithHooks(redlatch.SlogHooks(
					slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})))))...)
				require.NoError(t, err)
				require.ErrorIs(t, waitBriefly(t, ours, "k"), redlatch.ErrNotAcquired)
				want := ` key=k `
				if owner != nil {
					want += `owner=api-8 `
				}
				want += `attempts=1 elapsed=\S+`
				if name != "LegacySetNX" { // its key holds only a time
					want += ` holder=api-7`
				}
				require.Regexp(t, `^\S+ level=DEBUG msg="waiting for lock" strategy=[a-z]+`+want+`\n$`, log.String())
			}
		})
	}
}

// TestSilentMinorityIsReported: two of five nodes are dead, and locks are still granted. Hooks.Trouble
// names both nodes. If a third node is dead, the error of an attempt names the first two as well.
func TestSilentMinorityIsReported(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	var h heard
	l := n.locker(t, true, redlatch.WithHooks(redlatch.Hooks{Trouble: h.add}))
	dead := make(map[string]bool)
	for _, p := range n.proxies[:2] {
		p.Refuse()
		dead[p.Options().Addr] = true
	}
	eventually(t, "both nodes are named", func() bool {
		lock, err := l.TryLock(t.Context(), "k")
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		named := make(map[string]bool)
		for _, e := range h.all() {
			named[e.Node] = true
		}
		return err == nil && len(named) == 2
	})
	for _, e := range h.all() {
		require.True(t, dead[e.Node], e.Node)
		require.Equal(t, "connection", e.Cause)
	}
	for _, p := range n.proxies[2:3] {
		p.Refuse()
	}
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	for addr := range dead {
		require.ErrorContains(t, err, addr)
	}
}

// TestNodeThatRefusesIsReported: one of five nodes is out of memory. Hooks.Trouble reports the node and its
// answer.
func TestNodeThatRefusesIsReported(t *testing.T) {
	t.Parallel()
	n := newCluster(t)
	var h heard
	l := n.locker(t, true, redlatch.WithHooks(redlatch.Hooks{Trouble: h.add}))
	require.NoError(t, n.direct[3].ConfigSet(t.Context(), "maxmemory", "1").Err())
	eventually(t, "the node is named", func() bool {
		require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
		return len(h.all()) > 0
	})
	for _, e := range h.all() {
		require.Equal(t, n.proxies[3].Options().Addr, e.Node)
		require.Equal(t, "OOM", e.Cause)
		require.Equal(t, "redlock", e.Strategy)
		require.ErrorIs(t, e.Err, redlatch.ErrUnavailable)
	}
}

// TestHooksAndLogsHoldNoToken: a token leaves a handle only by Lock.Token.
func TestHooksAndLogsHoldNoToken(t *testing.T) {
	var log bytes.Buffer
	var h heard
	hooks := redlatch.JoinHooks(redlatch.SlogHooks(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))),
		redlatch.Hooks{Acquired: h.add, Renewed: h.add, Released: h.add, Lost: h.add})
	client := redistest.Start(t).Client(t)
	l := newLocker(t, client, redlatch.WithOwner("api-7"), redlatch.WithHooks(hooks))
	released, lost := mustLock(t, l, "k"), mustLock(t, l, "k2")
	require.NoError(t, released.Extend(t.Context(), time.Hour))
	require.NoError(t, released.Unlock(t.Context()))
	require.NoError(t, client.Del(t.Context(), "k2").Err())
	require.ErrorIs(t, lost.Unlock(t.Context()), redlatch.ErrLost)
	for _, message := range []string{"lock acquired", "lock renewed", "lock released", "lock lost"} {
		require.Contains(t, log.String(), message)
	}
	require.Contains(t, log.String(), "owner=api-7")
	for _, e := range h.all() {
		require.Equal(t, "api-7", e.Owner)
	}
	for _, lock := range []*redlatch.Lock{released, lost} {
		secret := strings.TrimPrefix(lock.Token(), "api-7/")
		require.NotContains(t, log.String(), secret)
		require.NotContains(t, fmt.Sprintf("%+v", h.all()), secret)
	}
}

// TestHooksOfACallAreAddedToTheLockers: a call with its own hooks also runs those of the Locker, such as metrics.
func TestHooksOfACallAreAddedToTheLockers(t *testing.T) {
	var lockers, call heard
	l := newLocker(t, redistest.Start(t).Client(t), redlatch.WithHooks(redlatch.Hooks{Acquired: lockers.add}))
	require.NoError(t, mustLock(t, l, "k", redlatch.WithHooks(redlatch.Hooks{Acquired: call.add})).Unlock(t.Context()))
	require.NoError(t, mustLock(t, l, "k").Unlock(t.Context()))
	require.Len(t, lockers.all(), 2)
	require.Len(t, call.all(), 1)
}

// TestUnknownCommandShowsNoToken, on every strategy: a server without EVALSHA answers with the arguments of the
// command. Neither errors nor hooks have the token then.
func TestUnknownCommandShowsNoToken(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := redistest.Start(t, "--rename-command", "EVALSHA", "", "--rename-command", "EVAL", "").Client(t)
			var h heard
			l, err := strategy(client, redlatch.WithHooks(redlatch.Hooks{Trouble: h.add, Degraded: h.add}))
			require.NoError(t, err)
			const token = "e6d1f9c2"
			_, try := l.TryLock(t.Context(), "k")
			_, adopt := l.Adopt(t.Context(), "k", token)
			for _, err := range []error{try, adopt} {
				require.ErrorContains(t, err, "unknown command")
				for _, text := range everyText(err) {
					require.NotContains(t, text, token)
					require.NotRegexp(t, "[0-9a-f]{8}-", text, "a part of a UUID")
				}
			}
			if name == "Redlock" {
				eventually(t, "the node is reported", func() bool { return len(h.all()) > 0 })
			}
			for _, e := range h.all() {
				for _, text := range everyText(e.Err) {
					require.NotContains(t, text, token)
					require.NotRegexp(t, "[0-9a-f]{8}-", text, "a part of a UUID")
				}
			}
		})
	}
}

// everyText returns the texts of err and of all errors that it wraps or has.
func everyText(err error) []string {
	texts := []string{err.Error()}
	var inside []error
	switch err := err.(type) { //nolint:errorlint // each error of the chain in turn
	case *redlatch.QuorumError:
		inside = append([]error{err.Unwrap()}, err.Nodes...)
	case interface{ Unwrap() []error }:
		inside = err.Unwrap()
	case interface{ Unwrap() error }:
		inside = []error{err.Unwrap()}
	}
	for _, err := range inside {
		if err != nil {
			texts = append(texts, everyText(err)...)
		}
	}
	return texts
}

// TestCallerThatLeavesEarlyIsNoTrouble: a ctx that ends before Redis had time to answer says nothing of Redis.
func TestCallerThatLeavesEarlyIsNoTrouble(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, p, client := behindProxy(t)
			var h heard
			l, err := strategy(client, redlatch.WithOpTimeout(time.Minute), redlatch.WithHooks(redlatch.Hooks{Trouble: h.add}))
			require.NoError(t, err)
			p.Silence()
			for range 3 {
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
				_, err = l.TryLock(ctx, "k")
				require.ErrorIs(t, err, redlatch.ErrUnavailable)
				_, err = l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.DeadlineExceeded)
				cancel()
			}
			require.Empty(t, h.all())
			p.Heal()
		})
	}
}

// TestClosedClientEndsWaits, on every strategy: a closed client stays closed, so nobody waits on it, and Lead returns.
func TestClosedClientEndsWaits(t *testing.T) {
	t.Parallel()
	for name, strategy := range everyStrategy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			holder, err := strategy(s.Client(t), patience)
			require.NoError(t, err)
			client := redis.NewClient(s.Options())
			l, err := strategy(client, patience)
			require.NoError(t, err)
			lock := mustLock(t, holder, "k")
			ended, waiting := make(chan error), make(chan redlatch.Event, 100)
			for range 20 {
				go func() { // the test waits for its error
					_, err := l.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{Waiting: func(e redlatch.Event) { waiting <- e }}))
					ended <- err
				}()
			}
			for range 20 {
				<-waiting
			}
			require.NoError(t, client.Close())
			for range 20 {
				select {
				case err := <-ended:
					require.ErrorContains(t, err, "client is closed")
				case <-time.After(20 * time.Second):
					require.Fail(t, "a caller waits on a closed client")
				}
			}
			require.ErrorContains(t, redlatch.Lead(t.Context(), l, "k", never[*redlatch.Lock](t)), "client is closed")
			require.NoError(t, lock.Unlock(t.Context()))
		})
	}
}
