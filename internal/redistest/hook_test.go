package redistest

import (
	"context"
	"errors"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestOnProcessWrapsEachCommandOfAPipeline: an error of one command leaves the others alone.
func TestOnProcessWrapsEachCommandOfAPipeline(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	refused := errors.New("refused")
	client.AddHook(OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() == "del" {
				return refused
			}
			return next(ctx, cmd)
		}
	}))
	pipe := client.Pipeline()
	set, del := pipe.Set(t.Context(), "k", "v", 0), pipe.Del(t.Context(), "k")
	list, get := pipe.LPush(t.Context(), "k", "v"), pipe.Get(t.Context(), "k")
	_, err := pipe.Exec(t.Context())
	require.ErrorIs(t, err, refused, "the first error")
	require.NoError(t, set.Err())
	require.ErrorIs(t, del.Err(), refused)
	require.ErrorContains(t, list.Err(), "WRONGTYPE")
	require.Equal(t, "v", get.Val())
}
