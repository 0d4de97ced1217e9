package behavior_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// atOnce is less than any look takes.
const atOnce = 50 * time.Millisecond

// dies counts the scripts that are carried out from now on. If is is set, the first of them is the last.
func (l *link) dies(is bool) *atomic.Int64 {
	var done atomic.Int64
	l.set(func(ctx context.Context, cmd redis.Cmder, next redis.ProcessHook) error {
		if is && done.Load() > 0 {
			return &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
		}
		err := next(ctx, cmd)
		if strings.HasPrefix(cmd.Name(), "eval") && !redis.HasErrorPrefix(err, "NOSCRIPT") {
			done.Add(1)
		}
		return err
	})
	return &done
}

// joined waits until so many lines wait for k.
func joined(t *testing.T, l redlatch.Locker, lines int) {
	t.Helper()
	eventually(t, "all queue", func() bool { return inspected(t, l).Waiters == lines })
}

// TestReadersOfACrowdAreServedAtOnce: a script grants few permits, so others follow it: also if a
// writer leaves the queue and has kept the readers back. If their process dies, looks go on.
func TestReadersOfACrowdAreServedAtOnce(t *testing.T) {
	const readers = 300
	for name, within := range map[string]time.Duration{"unlocks": atOnce, "leaves": atOnce, "dies": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			onReadWrite(t, func(t *testing.T, s *locktest.Site, _ sides) {
				many, client := s.Client(t), s.Client(t)
				linkOf(t, many) // which sends the commands of a pipeline one by one
				read, _ := locktest.ReadWrite(t, many)
				_, write := locktest.ReadWrite(t, client)
				holder := mustLock(t, write, "k")
				leave := func() { require.NoError(t, holder.Unlock(t.Context())) }
				if name == "leaves" {
					leave()
					first := mustLock(t, read, "k")
					ctx, cancel := context.WithCancel(t.Context())
					left := make(chan error, 1)
					go func() { _, err := write.Lock(ctx, "k"); left <- err }() // ends with ctx
					joined(t, read, 1)
					leave = func() {
						cancel()
						requireOnly(t, <-left, redlatch.ErrNotAcquired)
						require.NoError(t, first.Unlock(t.Context()))
					}
				}
				got := make(chan *redlatch.Lock, readers)
				for range readers {
					locking(t, got, read, "k", alone)
				}
				joined(t, read, readers+map[bool]int{true: 1}[name == "leaves"])
				link := linkOf(t, client)
				done := link.dies(name == "dies")
				begin := time.Now()
				leave()
				for range readers {
					lock := await(t, got, "the writer has left")
					defer func() { require.NoError(t, lock.Unlock(t.Context())) }()
				}
				require.Less(t, time.Since(begin), within)
				require.Positive(t, done.Load())
				link.heal()
			})
		})
	}
}

// TestCrowdOfTheDeadDelaysNobody: a release skips few entries whose processes are gone, so others
// follow it. If its process dies, a look goes on.
func TestCrowdOfTheDeadDelaysNobody(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		queue := "{k}:queue:k"
		if w.name != "SetNXPX" {
			queue = "{k}:permits:k"
		}
		for _, name := range []string{"releases", "dies"} { // in this order: a link that heals brings a late release
			within := map[string]time.Duration{"releases": atOnce, "dies": 4 * time.Second}[name]
			l, link := w.linked(t)
			lock := mustLock(t, l, "k")
			dead := addDead(t, w.Direct, queue)
			first, second := make(chan *redlatch.Lock, 2), make(chan *redlatch.Lock, 2)
			if name == "dies" { // whoever looks first gets it
				second = first
			}
			locking(t, first, w.locker(t), "k")
			joined(t, l, dead+1)
			locking(t, second, w.locker(t), "k")
			joined(t, l, dead+2)
			link.dies(name == "dies")
			begin := time.Now()
			require.NoError(t, lock.Unlock(t.Context()))
			for _, next := range []chan *redlatch.Lock{first, second} {
				require.NoError(t, await(t, next, name).Unlock(t.Context()))
				require.Less(t, time.Since(begin), within, name)
			}
			link.heal()
			onlyFences(t, w.Direct)
		}
	})
}

// addDead adds entries of processes that are gone to a queue, and returns how many.
func addDead(t *testing.T, direct *redis.Client, queue string) int {
	t.Helper()
	var dead []redis.Z
	for i := range 500 {
		dead = append(dead, redis.Z{Score: 1, Member: fmt.Sprint("1000:1 redlatch:gone ", i)})
	}
	require.NoError(t, direct.ZAdd(t.Context(), queue, dead...).Err())
	return len(dead)
}

// TestCrowdOfTheDeadLetsNobodyOvertake: a call that finds the key free is refused while somebody waits
// behind them, and joins the queue there.
func TestCrowdOfTheDeadLetsNobodyOvertake(t *testing.T) {
	onEvery(t, queues, func(t *testing.T, w *world) {
		queue := "{k}:queue:k"
		if w.name != "SetNXPX" {
			queue = "{k}:permits:k"
		}
		for name, newcomer := range map[string]func(l redlatch.Locker) error{
			"TryLock": func(l redlatch.Locker) error {
				_, err := l.TryLock(t.Context(), "k")
				return err
			},
			"Lock": func(l redlatch.Locker) error {
				_, err := l.Lock(t.Context(), "k", redlatch.WithMaxWait(500*time.Millisecond))
				return err
			},
		} {
			l := w.locker(t)
			mustLock(t, l, "k", redlatch.WithoutRenewal())
			dead := addDead(t, w.Direct, queue)
			got := make(chan *redlatch.Lock, 1)
			locking(t, got, w.locker(t), "k")
			joined(t, l, dead+1)
			require.NoError(t, w.Direct.Del(t.Context(), "k").Err())
			require.ErrorIs(t, newcomer(w.locker(t)), redlatch.ErrNotAcquired, name)
			require.NoError(t, await(t, got, name).Unlock(t.Context()))
			onlyFences(t, w.Direct)
		}
	})
}

// TestCrowdOfTheDeadIsNoOwner: if it takes longer than the op timeout to remove them, nobody has the key. So
// TryLock is not refused, and Lock goes on.
func TestCrowdOfTheDeadIsNoOwner(t *testing.T) {
	t.Parallel()
	for queue, create := range map[string]func(c redis.UniversalClient) (redlatch.Locker, error){
		"{k}:queue:k":   func(c redis.UniversalClient) (redlatch.Locker, error) { return redlatch.NewSetNXPX(c) },
		"{k}:permits:k": func(c redis.UniversalClient) (redlatch.Locker, error) { return redlatch.NewSemaphore(c, 16) },
	} {
		t.Run(queue, func(t *testing.T) {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				client := s.Client(t)
				l := made(create(client))
				warm(t, l)
				link := linkOf(t, client)
				for _, trip := range []time.Duration{900 * time.Millisecond, 300 * time.Millisecond} {
					addDead(t, s.Direct, queue)
					link.delay(trip)
					begun := time.Now()
					_, err := l.TryLock(t.Context(), "k")
					require.ErrorIs(t, err, redlatch.ErrUnavailable)
					require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
					require.ErrorContains(t, err, "waiters that have ended")
					require.LessOrEqual(t, time.Since(begun), 2*time.Second, "twice the op timeout")
					require.Zero(t, s.Direct.Exists(t.Context(), "k").Val(), "nothing is left of it")
				}
				addDead(t, s.Direct, queue)
				require.NoError(t, granted(l.Lock(t.Context(), "k", redlatch.WithMaxWait(5*time.Second))).Unlock(t.Context()))
			})
		})
	}
}
