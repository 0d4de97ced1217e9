package field_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestCallersWhoComeTogetherLearnWhyTheirConnectionIsRefused: as a caller does who comes alone. go-redis then gives
// the reason to none of the commands of a pipeline. A mistake ends each call at once.
func TestCallersWhoComeTogetherLearnWhyTheirConnectionIsRefused(t *testing.T) {
	t.Parallel()
	s := redistest.StartTCP(t)
	for name, c := range map[string]struct {
		options func(t *testing.T) *redis.Options
		says    string
		mistake bool
	}{
		"database": {func(*testing.T) *redis.Options {
			o := s.Options()
			o.DB = 9999
			return o
		}, "ERR DB index is out of range", true},
		"right": {func(t *testing.T) *redis.Options {
			o := s.User(t, "allkeys", "allchannels", "+@all", "-select")
			o.DB = 1
			return o
		}, "NOPERM", true},
		"password": {func(t *testing.T) *redis.Options {
			o := s.User(t, "allkeys", "allchannels", "+@all")
			o.Password = "wrong"
			return o
		}, "WRONGPASS", false},
		"an answer to OnConnect": {func(*testing.T) *redis.Options {
			o := s.Options()
			o.OnConnect = func(ctx context.Context, cn *redis.Conn) error { return cn.Do(ctx, "lpush", "k").Err() }
			return o
		}, "ERR wrong number of arguments", true},
		"OnConnect": {func(*testing.T) *redis.Options {
			o := s.Options()
			o.OnConnect = func(context.Context, *redis.Conn) error { return errors.New("no tenant") }
			return o
		}, "no tenant", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := c.options(t)
			o.MaxRetries = -1
			timeout := time.Minute
			if !c.mistake {
				timeout = 3 * time.Second
			}
			l := locktest.SetNXPX(t, locktest.Closing(t, redis.NewClient(o)), redlatch.WithOpTimeout(timeout))
			errs := make([]error, 32)
			var all sync.WaitGroup
			for i := range errs {
				all.Go(func() { _, errs[i] = l.TryLock(t.Context(), string(rune('a'+i))) })
			}
			all.Wait()
			for _, err := range errs {
				require.ErrorContains(t, err, c.says)
				require.Equal(t, c.mistake, !errors.Is(err, redlatch.ErrUnavailable), err)
			}
		})
	}
}
