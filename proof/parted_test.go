package proof

import (
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/clock"
)

// parted is how far the clocks of a Locker are from those of its machine.
type parted struct {
	mono, wall atomic.Int64 // nanoseconds
}

// part makes a Locker read its clocks through p. No option does that, since no user should. So part finds the field
// by its name, and panics if the field has another type.
func part(l redlatch.Locker, p *parted) {
	field := reflect.ValueOf(l).Elem().FieldByName("now")
	now := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Interface().(*func() clock.Instant)
	read := *now
	*now = func() clock.Instant {
		i := read()
		i.Mono = i.Mono.Add(time.Duration(p.mono.Load()))
		i.Wall += time.Duration(p.wall.Load())
		return i
	}
}

// TestClocksCanBeParted: a history with parted clocks would prove nothing if they were not.
func TestClocksCanBeParted(t *testing.T) {
	for _, clock := range []string{"mono", "wall"} {
		client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
		defer client.Close()
		l, err := redlatch.NewSetNXPX(client)
		require.NoError(t, err)
		var p parted
		part(l, &p)
		lock, err := l.TryLock(t.Context(), "k", redlatch.WithTTL(time.Minute))
		require.NoError(t, err)
		require.NoError(t, lock.Err())
		hand := map[string]*atomic.Int64{"mono": &p.mono, "wall": &p.wall}[clock]
		hand.Store(int64(-time.Hour))
		require.NoError(t, lock.Err(), "a clock that stands still, or is set back, ends nothing")
		hand.Store(int64(2 * time.Minute))
		require.ErrorIs(t, lock.Err(), redlatch.ErrLost, "by the %s clock", clock)
	}
}
