package system_test

import (
	"context"
	"errors"
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
	key    string
	value  string // what the key holds while it has the lock
	ttl    int    // what it asks Redis for, in seconds
	take   func(ctx context.Context, p *plain) (bool, error)
	// owns is the check before DEL, in clients that have one.
	owns func(ctx context.Context, p *plain) (bool, error)
}

// shortTTL is the least that they can ask for, in seconds.
const shortTTL = 1

var setNXExpire = redis.NewScript(`
if redis.call('SETNX', KEYS[1], ARGV[1]) == 1 then
  redis.call('EXPIRE', KEYS[1], ARGV[2])
  return 1
end
return 0`)

// plainClients are the kinds of such clients, by what they send.
var plainClients = map[string]func(client *redis.Client, key string) *plain{
	// All holders write one value, and release by a DEL without a check.
	"SETNX and EXPIRE in a script, DEL": func(client *redis.Client, key string) *plain {
		return &plain{
			client: client, key: key, value: "locked", ttl: shortTTL,
			take: func(ctx context.Context, p *plain) (bool, error) {
				return setNXExpire.Run(ctx, p.client, []string{p.key}, p.value, p.ttl).Bool()
			},
			owns: func(context.Context, *plain) (bool, error) { return true, nil },
		}
	},
	// Each holder writes a value of its own, and checks it before DEL, in two commands.
	"SET NX EX, GET and DEL": func(client *redis.Client, key string) *plain {
		return &plain{
			client: client, key: key, value: uuid.NewString(), ttl: shortTTL,
			take: func(ctx context.Context, p *plain) (bool, error) {
				err := p.client.Do(ctx, "SET", p.key, p.value, "NX", "EX", p.ttl).Err()
				return err == nil, locktest.IgnoreNil(err)
			},
			owns: func(ctx context.Context, p *plain) (bool, error) {
				value, err := p.client.Get(ctx, p.key).Result()
				return value == p.value, locktest.IgnoreNil(err)
			},
		}
	},
}

// tryLock makes one attempt.
func (p *plain) tryLock(t *testing.T) bool {
	t.Helper()
	ok, err := p.take(t.Context(), p)
	require.NoError(t, err)
	return ok
}

// looks reports whether the client may delete the key, as far as it knows.
func (p *plain) looks(t *testing.T) bool {
	t.Helper()
	ok, err := p.owns(t.Context(), p)
	require.NoError(t, err)
	return ok
}

// del deletes whatever is there.
func (p *plain) del(t *testing.T) {
	t.Helper()
	require.NoError(t, p.client.Do(t.Context(), "DEL", p.key).Err())
}

// section polls until it has the lock, runs f, and releases as its kind does.
func (p *plain) section(ctx context.Context, f func()) error {
	for {
		ok, err := p.take(ctx, p)
		if err != nil {
			return err
		}
		if ok {
			break
		}
		<-time.After(time.Millisecond)
	}
	f()
	mine, err := p.owns(ctx, p)
	switch {
	case err != nil:
		return err
	case !mine:
		return errors.New("its lock was taken")
	}
	return p.client.Del(ctx, p.key).Err()
}

// withPlainClients runs a test with every kind of client, on miniredis and on real Redis.
func withPlainClients(t *testing.T, run func(t *testing.T, s *locktest.Site, foreign *plain, l redlatch.Locker)) {
	t.Parallel()
	for name, newPlain := range plainClients {
		t.Run(name, func(t *testing.T) {
			locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
				run(t, s, newPlain(s.Client(t), "k"), locktest.SetNXPX(t, s.Client(t)))
			})
		})
	}
}
