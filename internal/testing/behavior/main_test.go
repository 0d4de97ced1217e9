package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// These come from locktest, which the tests of the root and internal/field use too.
var (
	eventually   = locktest.Eventually
	mustLock     = locktest.MustLock
	newLocker    = locktest.SetNXPX
	newLegacy    = locktest.LegacySetNX
	newSemaphore = locktest.Semaphore
	waitInLine   = locktest.WaitInLine

	patience = locktest.Patience
	longTTL  = locktest.LongTTL

	// alone has a call stand in a line of its own, as each call does whose options differ from
	// those of the Locker.
	alone = redlatch.WithTTL(11 * time.Second)
)

// maker makes a Locker on one server.
type maker = func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error)

// made returns a Locker that can be made.
func made(l redlatch.Locker, err error) redlatch.Locker {
	if err != nil {
		panic(err)
	}
	return l
}

// granted returns a lock that was granted.
func granted(lock *redlatch.Lock, err error) *redlatch.Lock {
	if err != nil {
		panic(err)
	}
	return lock
}

// everyStrategy has all strategies, queues those whose waiters queue, and keeping those that can
// keep a key after Unlock.
var (
	everyStrategy = locktest.Strategies
	queues        = only("SetNXPX", "Semaphore", "Write")
	keeping       = only("SetNXPX", "Semaphore", "Write", "Redlock")
)

// only returns some strategies.
func only(names ...string) map[string]maker {
	some := maps.Clone(locktest.Strategies)
	maps.DeleteFunc(some, func(name string, _ maker) bool { return !slices.Contains(names, name) })
	return some
}

// everyLocker has every strategy and a migration.
func everyLocker() map[string]maker {
	lockers := maps.Clone(everyStrategy)
	lockers["Migration"] = func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
		from, err := redlatch.NewSetNXPX(c, opts...)
		if err != nil {
			return nil, err
		}
		to, err := redlatch.NewSetNXPX(c, append(opts, redlatch.WithKeyPrefix("v2:"))...)
		if err != nil {
			return nil, err
		}
		return redlatch.NewMigration(from, to)
	}
	return lockers
}

// world is one kind of Locker, on a server of its own.
type world struct {
	*locktest.Site
	name string
	make maker
}

// onEvery runs a test on each kind of Locker, with miniredis in a synctest bubble: its waits take
// no real time, and all goroutines must end.
func onEvery(t *testing.T, kinds map[string]maker, test func(t *testing.T, w *world)) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) { test(t, &world{s, name, kind}) })
		})
	}
}

// onRedis runs a test on each kind of Locker, with a real server.
func onRedis(t *testing.T, kinds map[string]maker, test func(t *testing.T, w *world)) {
	t.Parallel()
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, &world{locktest.NewSite(t, *redistest.Start(t).Options()), name, kind})
		})
	}
}

// over returns a Locker that sends its commands over client.
func (w *world) over(t *testing.T, client redis.UniversalClient, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	l, err := w.make(client, append([]redlatch.Option{patience}, opts...)...)
	require.NoError(t, err)
	return l
}

// locker returns a Locker with a client of its own, as another process would have.
func (w *world) locker(t *testing.T, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	return w.over(t, w.Client(t), opts...)
}

// linked returns a Locker whose commands go over a link.
func (w *world) linked(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, *link) {
	t.Helper()
	client := w.Client(t)
	return w.over(t, client, opts...), linkOf(t, client)
}

// gone waits until keys are not there.
func gone(t *testing.T, direct *redis.Client, keys ...string) {
	t.Helper()
	eventually(t, fmt.Sprint(keys, " are gone"), func() bool {
		return direct.Exists(context.WithoutCancel(t.Context()), keys...).Val() == 0
	})
}

// onlyFences waits until the servers hold nothing but registers and counters: a release may still
// be in flight.
func onlyFences(t *testing.T, servers ...*redis.Client) {
	t.Helper()
	eventually(t, "only fences are left", func() bool {
		for _, c := range servers {
			keys := c.Keys(context.WithoutCancel(t.Context()), "*").Val()
			if slices.ContainsFunc(keys, func(key string) bool { return !isFence(key) }) {
				return false
			}
		}
		return true
	})
}

// bounded returns a ctx with a deadline, so that a failing test does not wait forever.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// await receives from c, with a deadline that only a failure reaches.
func await[T any](t *testing.T, c <-chan T, what string) (it T) {
	t.Helper()
	select {
	case it = <-c:
	case <-time.After(time.Minute):
		require.Fail(t, "timed out waiting: "+what)
	}
	return it
}

// locking starts a Lock call, which must succeed, and sends its lock to got.
func locking(t *testing.T, got chan<- *redlatch.Lock, l redlatch.Locker, key string, opts ...redlatch.Option) {
	go func() { // ends with the lock, or with the test
		lock, err := l.Lock(t.Context(), key, opts...)
		if t.Context().Err() == nil { // else the test has failed, and says why
			assert.NoError(t, err)
		}
		select {
		case got <- lock:
		case <-t.Context().Done():
		}
	}()
}

// heard collects events.
type heard struct {
	mu     sync.Mutex // guards events
	events []redlatch.Event
}

func (h *heard) add(_ context.Context, e redlatch.Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
}

func (h *heard) all() []redlatch.Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// fault decides what becomes of a command that next would send.
type fault func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error

// link is the network between a client and its server.
type link struct {
	fault  atomic.Pointer[fault]
	healed atomic.Pointer[chan struct{}] // closed by heal
}

// linkOf returns the link of client, which works until it is told otherwise.
func linkOf(t *testing.T, client interface{ AddHook(redis.Hook) }) *link {
	l := &link{}
	l.set(nil)
	client.AddHook(linkHook{redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			// go-redis opens connections under a mutex. A mutex keeps the time of a bubble from
			// going on.
			if f := l.fault.Load(); *f != nil && cmd.Name() != "hello" && cmd.Name() != "client" {
				return (*f)(ctx, cmd, next)
			}
			return next(ctx, cmd)
		}
	}), l})
	t.Cleanup(l.heal)
	return l
}

// linkHook applies the faults of a link to commands and to new connections.
type linkHook struct {
	redistest.OnProcess
	link *link
}

func (h linkHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (conn net.Conn, err error) {
		dial := func(ctx context.Context, _ redis.Cmder) error { conn, err = next(ctx, network, addr); return err }
		if f := h.link.fault.Load(); *f != nil {
			return conn, (*f)(ctx, redis.NewCmd(ctx, "dial"), dial)
		}
		return next(ctx, network, addr)
	}
}

func (l *link) set(f fault) {
	healed := make(chan struct{})
	l.fault.Store(&f)
	if before := l.healed.Swap(&healed); before != nil {
		close(*before)
	}
}

// heal ends a fault. Commands that hang are sent then.
func (l *link) heal() { l.set(nil) }

// hang holds commands back until heal, or until the client gives them up.
func (l *link) hang() {
	l.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		select {
		case <-*l.healed.Load():
			return next(ctx, cmd)
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// refuse has nobody listen at the server's address.
func (l *link) refuse() {
	l.set(func(context.Context, redis.Cmder, redis.ProcessHook) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	})
}

// answer has the server refuse commands with an error.
func (l *link) answer(text refusal) {
	l.set(func(context.Context, redis.Cmder, redis.ProcessHook) error { return text })
}

// delay holds each command back for half of d, and its reply too, even if the client has given the
// command up.
func (l *link) delay(d time.Duration) {
	l.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		time.Sleep(d / 2)
		defer time.Sleep(d / 2)
		return next(context.WithoutCancel(ctx), cmd)
	})
}

// lose lets scripts be carried out, and loses the replies to the next n of them.
func (l *link) lose(n int64) (lost *atomic.Int64) {
	lost = new(atomic.Int64)
	l.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && !redis.HasErrorPrefix(err, "NOSCRIPT") && lost.Load() < n {
			lost.Add(1)
			cmd.SetErr(io.EOF)
			return io.EOF
		}
		return err
	})
	return lost
}

// refusal is an error reply of Redis.
type refusal string

func (r refusal) Error() string { return string(r) }

func (refusal) RedisError() {}

// requireOnly requires that err matches the first of the errors that a caller tells apart, and none
// of the others.
func requireOnly(t *testing.T, err, want error, msg ...any) {
	t.Helper()
	require.ErrorIs(t, err, want, msg...)
	require.NotContains(t, err.Error(), "\n", msg...)
	for _, other := range []error{redlatch.ErrUnavailable, redlatch.ErrNotAcquired, redlatch.ErrLost, redlatch.ErrInvalid} {
		if !errors.Is(want, other) {
			require.NotErrorIs(t, err, other, msg...)
		}
	}
}
