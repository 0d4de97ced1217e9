package behavior_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/ahead"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// everything returns all keys and values.
func everything(t *testing.T, s *locktest.Site) map[string]string {
	all := make(map[string]string)
	for _, key := range s.Direct.Keys(t.Context(), "*").Val() {
		all[key] = s.Direct.Get(t.Context(), key).Val()
	}
	return all
}

// setIn makes key hold value.
func setIn(t *testing.T, s *locktest.Site, key string, value any) {
	t.Helper()
	require.NoError(t, s.Direct.Set(t.Context(), key, value, 0).Err())
}

// stampIn returns the time in key.
func stampIn(t *testing.T, s *locktest.Site, key string) int64 {
	t.Helper()
	n, err := s.Direct.Get(t.Context(), key).Int64()
	require.NoError(t, err)
	return n
}

// TestLegacyWireIsThePages: the key has the format of the SETNX page, so foreign clients can read
// it. It says whole seconds, so a TTL is rounded up to them.
func TestLegacyWireIsThePages(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t))
		for seconds, ttl := range map[int64]time.Duration{1: 3 * time.Millisecond, 2: 1001 * time.Millisecond, 3600: time.Hour - 999*time.Millisecond} {
			there, before := ahead.Now(), time.Now()
			lock := mustLock(t, l, "k", redlatch.WithTTL(ttl))
			after := time.Now()
			stamp := stampIn(t, s, "k")
			require.GreaterOrEqual(t, stamp, there.Unix()+seconds+1)
			require.LessOrEqual(t, stamp, ahead.Now().Unix()+seconds+1)
			require.Equal(t, map[string]string{
				"k": strconv.FormatInt(stamp, 10), "{k}:owner:k": string(lock.Token()), "{k}:stamp:k": strconv.FormatInt(stamp, 10),
			}, everything(t, s))
			require.Equal(t, time.Duration(-1), s.Direct.TTL(t.Context(), "k").Val())
			trusted := time.Duration(seconds)*time.Second*99/100 - 2*time.Millisecond
			require.WithinRange(t, lock.Until(), before.Add(trusted), after.Add(trusted))
			require.NoError(t, lock.Unlock(t.Context()))
			require.Empty(t, everything(t, s))
		}
	})
}

// TestLegacyNeedsNoClockHere: only the clock of Redis decides, whether the clock of this machine is
// years behind or a minute ahead.
func TestLegacyNeedsNoClockHere(t *testing.T) {
	t.Parallel()
	for _, there := range []time.Time{time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC), time.Now().Add(-time.Minute).Truncate(time.Second)} {
		m := miniredis.RunT(t)
		s := locktest.NewSite(t, redis.Options{Addr: m.Addr()})
		m.SetTime(there)
		l := newLegacy(t, s.Client(t))
		first := mustLock(t, l, "k")
		require.Equal(t, there.Unix()+11, stampIn(t, s, "k"))
		m.SetTime(there.Add(11*time.Second + 999*time.Millisecond)) // the last second of that value
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, time.Millisecond, st.TTL)
		require.NoError(t, first.Extend(t.Context(), 10*time.Second))

		m.SetTime(there.Add(23 * time.Second))
		second := mustLock(t, l, "k")
		require.ErrorIs(t, first.Unlock(t.Context()), redlatch.ErrLost)
		require.NoError(t, second.Unlock(t.Context()))
		require.Empty(t, m.Keys())
	}
}

// TestLegacyLeavesOtherDataAlone: a value that is no time is an error, and stays.
func TestLegacyLeavesOtherDataAlone(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t))
		for _, value := range []string{"", "hello", "nan", "0x10", "1e3", " 1", "-1", "1.2.3", "1\n"} {
			setIn(t, s, "k", value)
			_, lock := l.Lock(t.Context(), "k")
			_, inspect := l.Inspect(t.Context(), "k")
			for _, err := range []error{lock, inspect} {
				require.ErrorContains(t, err, "does not hold a timestamp", "%q", value)
				require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
			}
			require.Equal(t, map[string]string{"k": value}, everything(t, s))
		}
	})
}

// TestLegacyRefusalNamesTheHolderOfItsLine: the key has no room for the name. Inspect knows who holds it.
func TestLegacyRefusalNamesTheHolderOfItsLine(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		l := made(redlatch.NewLegacySetNX(s.Client(t), redlatch.WithOwner("bob")))
		ownerIn := func(key string) string {
			_, err := l.Lock(t.Context(), key, redlatch.WithMaxWait(time.Second))
			var held *redlatch.HeldError
			require.ErrorAs(t, err, &held)
			status, err := l.Inspect(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, "bob", status.Owner)
			return held.Owner
		}
		waited, tried := granted(l.Lock(t.Context(), "waited")), mustLock(t, l, "tried")
		require.Equal(t, "bob", ownerIn("waited"))
		require.Empty(t, ownerIn("tried"))
		require.NoError(t, waited.Unlock(t.Context()))
		require.NoError(t, tried.Unlock(t.Context()))
	})
}
