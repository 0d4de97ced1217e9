package peers

import (
	"context"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
)

// Raw is the two commands that a program would write by hand, as a floor: SET NX PX and a script
// that compares and deletes. It asks once and does not wait.
func Raw() Peer {
	return Peer{
		Name:   "two raw commands",
		Direct: append([]string{"set"}, scripts...),
		Open: func(target Target) (Locker, error) {
			c, err := connect(target)
			return &rawLocker{c}, err
		},
	}
}

var compareAndDelete = redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)

type rawLocker struct{ client }

func (l *rawLocker) Lock(ctx context.Context, key string) (Lock, error) {
	k := &rawLock{l.UniversalClient, key, uuid.NewString()}
	if err := k.client.SetArgs(ctx, key, k.token, redis.SetArgs{Mode: "NX", TTL: TTL}).Err(); err != nil {
		return nil, err
	}
	return k, nil
}

type rawLock struct {
	client     redis.UniversalClient
	key, token string
}

func (k *rawLock) Unlock(ctx context.Context) error {
	return compareAndDelete.Run(ctx, k.client, []string{k.key}, k.token).Err()
}
