package system_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// plain is a lock client that others wrote. Its key exists while the lock is held, and its value is
// not a time. It sends what such clients send, command by command.
type plain struct {
	client *redis.Client
	value  string // what the key holds while it has the lock
	ttl    int    // what it asks Redis for, in seconds
	take   func(ctx context.Context, p *plain) (bool, error)
}

var setNXExpire = redis.NewScript(`
if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0`)

// plainClients are the kinds of such clients, by what they send.
var plainClients = map[string]func(client *redis.Client) *plain{
	"SETNX and EXPIRE in a script, DEL": func(client *redis.Client) *plain {
		return &plain{client: client, value: "locked", ttl: 1, take: func(ctx context.Context, p *plain) (bool, error) {
			return setNXExpire.Run(ctx, p.client, []string{"k"}, p.value, p.ttl).Bool()
		}}
	},
	"SET NX EX, GET and DEL": func(client *redis.Client) *plain {
		return &plain{client: client, value: uuid.NewString(), ttl: 1, take: func(ctx context.Context, p *plain) (bool, error) {
			err := p.client.Do(ctx, "SET", "k", p.value, "NX", "EX", p.ttl).Err()
			return err == nil, locktest.IgnoreNil(err)
		}}
	},
}

// tryLock makes one attempt.
func (p *plain) tryLock(t *testing.T) bool {
	t.Helper()
	ok, err := p.take(t.Context(), p)
	require.NoError(t, err)
	return ok
}

// del deletes whatever is there.
func (p *plain) del(t *testing.T) {
	t.Helper()
	require.NoError(t, p.client.Del(t.Context(), "k").Err())
}

// TestPlainClientsShareAKey: they exclude and are excluded. No message announces their DEL or their crash: a waiter notices
// a DEL within about a second, and a crash when the TTL has passed. A lock with a waiter is handed on and never free, so
// clients that poll get it only when none of our waiters queues.
func TestPlainClientsShareAKey(t *testing.T) {
	t.Parallel()
	for name, newPlain := range plainClients {
		t.Run(name, func(t *testing.T) {
			locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
				foreign, l := newPlain(s.Client(t)), locktest.SetNXPX(t, s.Client(t))
				for name, end := range map[string]func(){"released": func() { foreign.del(t) }, "crashed": func() {}} {
					require.True(t, foreign.tryLock(t), name)
					_, err := l.TryLock(t.Context(), "k")
					require.ErrorIs(t, err, redlatch.ErrNotAcquired)
					st, err := l.Inspect(t.Context(), "k")
					require.NoError(t, err)
					require.Equal(t, foreign.value, st.Token)
					got := locktest.WaitInLine(t, l, "k")
					end()
					begin := time.Now()
					lock := <-got
					require.NotNil(t, lock, name)
					require.Less(t, time.Since(begin), s.Within(1500*time.Millisecond), name)

					require.False(t, foreign.tryLock(t))
					got = locktest.WaitInLine(t, locktest.SetNXPX(t, s.Client(t)), "k")
					require.NoError(t, lock.Unlock(t.Context()))
					require.False(t, foreign.tryLock(t))
					lock = <-got
					require.NotNil(t, lock)
					require.NoError(t, lock.Unlock(t.Context()))
				}
			})
		})
	}
}

// TestPlainKeyWithoutATTLIsHeldForEver: a client that sends SETNX and EXPIRE one by one leaves such
// a key if it crashes in between. Inspect shows it. Only a DEL by hand frees it, or Adopt with its value, which is a
// token like any other and gets a fence.
func TestPlainKeyWithoutATTLIsHeldForEver(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		l := locktest.SetNXPX(t, s.Client(t))
		require.NoError(t, s.Direct.Do(t.Context(), "SETNX", "k", "locked").Err())
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		_, err := l.Lock(ctx, "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.True(t, st.Held)
		require.Negative(t, st.TTL)
		lock, err := l.Adopt(t.Context(), "k", st.Token)
		require.NoError(t, err)
		require.Positive(t, lock.Fence())
		require.NoError(t, lock.Unlock(t.Context()))
		require.NoError(t, locktest.MustLock(t, l, "k").Unlock(t.Context()))
	})
}
