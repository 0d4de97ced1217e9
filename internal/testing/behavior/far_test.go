package behavior_test

import (
	"context"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/pipe"
)

// far returns a client whose connections open after the time of a trip to the server and back, and take that
// time for each command.
func (w *world) far(t *testing.T, trip time.Duration) *redis.Client {
	o := w.Options
	// Else go-redis sets a connection up under a mutex, which keeps the time of a bubble from going on.
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
		time.Sleep(trip) // of the bubble
		conn, err := w.Options.Dialer(ctx, network, addr)
		if p, is := conn.(*pipe.Conn); is {
			p.Delay = func() time.Duration { return trip }
		}
		return conn, err
	}
	return locktest.Closing(t, redis.NewClient(&o))
}

// TestLockWaitsForTheFirstConnection: Redis is so far away that the first call ends before a connection is open. Lock
// goes on, since its ctx lets it. TryLock says what to do.
func TestLockWaitsForTheFirstConnection(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		for _, trip := range []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond} {
			began := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			lock, err := made(w.make(w.far(t, trip))).Lock(ctx, "k")
			cancel()
			require.NoError(t, err, trip)
			t.Log(w.name, trip, time.Since(began))
			require.Less(t, time.Since(began), 5*time.Second, trip)
			require.NoError(t, lock.Unlock(t.Context()), trip)
		}
		_, err := made(w.make(w.far(t, 300*time.Millisecond))).TryLock(t.Context(), "k")
		requireOnly(t, err, redlatch.ErrUnavailable)
		require.ErrorContains(t, err, "raise WithOpTimeout, or Ping first")
		time.Sleep(time.Minute)
		onlyFences(t, w.Direct)
	})
}

// TestLockDoesNotWaitLongerThanADialForTheFirstConnection: a server that hangs looks as if it were far away. One that
// refuses connections does not. ctx and WithMaxWait end the wait sooner.
func TestLockDoesNotWaitLongerThanADialForTheFirstConnection(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		for name, c := range map[string]struct {
			fails func(*link)
			opts  []redlatch.Option
			most  time.Duration
		}{
			"hung":        {(*link).hang, nil, 5 * time.Second}, // the DialTimeout
			"hung, bound": {(*link).hang, []redlatch.Option{redlatch.WithMaxWait(2500 * time.Millisecond)}, 2500 * time.Millisecond},
			"refused":     {(*link).refuse, nil, time.Second},
		} {
			client := w.Client(t)
			link := linkOf(t, client)
			c.fails(link)
			l, began := made(w.make(client, c.opts...)), time.Now()
			_, err := l.Lock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrUnavailable, name)
			took := time.Since(began)
			require.Greater(t, took, c.most-500*time.Millisecond, name)
			require.LessOrEqual(t, took, c.most+2*time.Second, "%s: and a release", name)

			began = time.Now()
			_, err = l.Lock(t.Context(), "k")
			requireOnly(t, err, redlatch.ErrUnavailable, name)
			require.Less(t, time.Since(began)-took, 500*time.Millisecond, "%s: not later than the first", name)
			link.heal()
		}
	})
}

// TestSlowFirstConnectionChangesNoOrder: those who wait while it opens keep their places, and hear of one holder once.
func TestSlowFirstConnectionChangesNoOrder(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		holder := mustLock(t, w.locker(t), "k", redlatch.WithTTL(time.Minute))
		l := made(w.make(w.far(t, 300*time.Millisecond)))
		var told, moved atomic.Int64
		served := make(chan int, 5)
		for i := range cap(served) {
			go func() {
				lock, err := l.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{
					Waiting: func(context.Context, redlatch.Event) { told.Add(1) },
					Moved:   func(context.Context, redlatch.Event) { moved.Add(1) },
				}))
				if assert.NoError(t, err) {
					served <- i
					assert.NoError(t, lock.Unlock(t.Context()))
				}
			}()
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(6 * time.Second)
		require.Zero(t, moved.Load(), "one has the key")
		shared := len(served) == cap(served) // readers
		require.True(t, shared || told.Load() == int64(cap(served)), "told %d", told.Load())
		require.NoError(t, holder.Unlock(t.Context()))
		for i := range cap(served) {
			got := await(t, served, "served")
			require.True(t, got == i || shared || !slices.Contains(inOneLine, w.name), "%d is served as number %d", got, i)
		}
	})
}

// inOneLine are the kinds whose callers stand in one line of their Locker.
var inOneLine = []string{"SetNXPX", "Redlock", "LegacySetNX", "Write"}
