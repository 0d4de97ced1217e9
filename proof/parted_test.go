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
)

// parted is how far the clocks of a Locker are from those of its machine.
type parted struct {
	mono, wall atomic.Int64 // nanoseconds
}

// part has a Locker read its clocks through p. No option does that, since no user should: it reaches
// for the fields by their names, and panics where they, or their types, have changed.
func part(l redlatch.Locker, p *parted) {
	field := reflect.ValueOf(l).Elem().FieldByName("now")
	hook := reflect.NewAt(field.Type(), field.Addr().UnsafePointer()).Elem()
	read := reflect.New(field.Type()).Elem()
	read.Set(hook)
	hook.Set(reflect.MakeFunc(field.Type(), func([]reflect.Value) []reflect.Value {
		at := reflect.New(field.Type().Out(0)).Elem()
		at.Set(read.Call(nil)[0])
		for name, d := range map[string]*atomic.Int64{"mono": &p.mono, "wall": &p.wall} {
			clock := at.FieldByName(name)
			switch t := reflect.NewAt(clock.Type(), clock.Addr().UnsafePointer()).Interface().(type) {
			case *time.Time:
				*t = t.Add(time.Duration(d.Load()))
			case *time.Duration:
				*t += time.Duration(d.Load())
			default:
				panic("a clock that the hand does not fit: " + name)
			}
		}
		return []reflect.Value{at}
	}))
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
