package behavior_test

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
)

// TestLegacyWireIsThePages: the key has the format of the SETNX page, so foreign clients can read it. Our companion
// keys, which they do not know, have a TTL.
func TestLegacyWireIsThePages(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t))
		for seconds, ttl := range map[int64]time.Duration{
			1: time.Millisecond, 2: 1001 * time.Millisecond, 3: 3 * time.Second, 3600: time.Hour - 999*time.Millisecond,
		} {
			for how, prepare := range map[string]func(){
				"free":    func() { require.NoError(t, s.Direct.FlushAll(t.Context()).Err()) },
				"expired": func() { setIn(t, s, "k", time.Now().Unix()-1) },
			} {
				prepare()
				before := time.Now()
				lock := mustLock(t, l, "k", redlatch.WithTTL(ttl))
				after := time.Now()
				stamp := stampIn(t, s, "k")
				require.GreaterOrEqual(t, stamp, before.Unix()+seconds+1, how)
				require.LessOrEqual(t, stamp, after.Unix()+seconds+1, how)
				require.Equal(t, map[string]string{
					"k": strconv.FormatInt(stamp, 10), "{k}:owner:k": lock.Token(), "{k}:stamp:k": strconv.FormatInt(stamp, 10),
				}, everything(t, s), how)
				require.Equal(t, time.Duration(-1), s.Direct.TTL(t.Context(), "k").Val(), how)
				for _, companion := range []string{"{k}:owner:k", "{k}:stamp:k"} {
					life := time.Duration(seconds+2) * time.Second
					require.InDelta(t, life, s.Direct.PTTL(t.Context(), companion).Val(), float64(time.Second), how)
				}
				trusted := time.Duration(seconds)*time.Second*99/100 - 2*time.Millisecond
				require.WithinRange(t, lock.Until(), before.Add(trusted), after.Add(trusted), how)
				require.NoError(t, lock.Unlock(t.Context()))
				require.Empty(t, everything(t, s), how)
			}
		}
	})
}

// TestLegacyLoserWritesNothing: a loser does not even write the value that the key already has.
func TestLegacyLoserWritesNothing(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		setIn(t, s, "foreign", time.Now().Unix()+100)
		mustLock(t, newLegacy(t, s.Client(t)), "ours")
		writes := func() string {
			all := fmt.Sprint(everything(t, s))
			info, err := s.Direct.InfoMap(t.Context(), "persistence").Result()
			if err != nil {
				return all // miniredis does not count
			}
			for _, line := range []string{"{ours}:owner:ours", "{ours}:stamp:ours"} { // miniredis computes these from the TTL
				all += fmt.Sprint(" ", s.Direct.PExpireTime(t.Context(), line).Val())
			}
			return all + " after " + info["Persistence"]["rdb_changes_since_last_save"]
		}
		before := writes()
		for _, ttl := range []time.Duration{time.Second, 10 * time.Second, time.Hour} {
			for _, key := range []string{"foreign", "ours"} {
				l := newLegacy(t, s.Client(t), redlatch.WithTTL(ttl))
				_, err := l.TryLock(t.Context(), key)
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				_, err = l.Inspect(t.Context(), key)
				require.NoError(t, err)
			}
		}
		require.Equal(t, before, writes())
	})
}

// TestLegacyOnlyWhatIsExactlyOursIsTouched: a release, an extension and an adoption need three proofs: the companion
// names our token, the key holds the value that we wrote last, and its time has not passed. If one is missing, the lock
// is lost and its keys stay as they are.
func TestLegacyOnlyWhatIsExactlyOursIsTouched(t *testing.T) {
	const key, owner, stamp = "k", "{k}:owner:k", "{k}:stamp:k"
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		past := func(t *testing.T) {
			setIn(t, s, key, time.Now().Unix()-1)
			setIn(t, s, stamp, time.Now().Unix()-1)
		}
		l := newLegacy(t, s.Client(t))
		for _, mischief := range []struct {
			name string
			does func(t *testing.T)
		}{
			{"another token holds it", func(t *testing.T) { setIn(t, s, owner, "another") }},
			{"the owner is deleted", func(t *testing.T) { s.Direct.Del(t.Context(), owner) }},
			{"a longer time", func(t *testing.T) { setIn(t, s, key, stampIn(t, s, key)+1) }},
			{"a shorter time", func(t *testing.T) { setIn(t, s, key, stampIn(t, s, key)-1) }},
			{"the stamp is deleted", func(t *testing.T) { s.Direct.Del(t.Context(), stamp) }},
			{"its time has passed", past},
			{"the key is deleted", func(t *testing.T) { s.Direct.Del(t.Context(), key) }},
			{"only the owner is left", func(t *testing.T) { s.Direct.Del(t.Context(), key, stamp) }},
			{"all is deleted", func(t *testing.T) { s.Direct.Del(t.Context(), key, owner, stamp) }},
		} {
			for name, op := range map[string]func(lock *redlatch.Lock) error{
				"unlock": func(lock *redlatch.Lock) error { return lock.Unlock(t.Context()) },
				"extend": func(lock *redlatch.Lock) error { return lock.Extend(t.Context(), time.Hour) },
				"adopt":  func(lock *redlatch.Lock) error { _, err := l.Adopt(t.Context(), key, lock.Token()); return err },
			} {
				t.Run(mischief.name+", "+name, func(t *testing.T) {
					require.NoError(t, s.Direct.FlushAll(t.Context()).Err())
					lock := mustLock(t, l, key)
					mischief.does(t)
					left := everything(t, s)
					require.ErrorIs(t, op(lock), redlatch.ErrLost)
					require.Equal(t, left, everything(t, s))
				})
			}
		}
	})
}

// TestLegacyLeaseIsNeverShortened, on the wire: neither an extension nor an adoption shortens the lease.
func TestLegacyLeaseIsNeverShortened(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t))
		lock := mustLock(t, l, "k")
		adopt := func(ttl time.Duration) {
			_, err := l.Adopt(t.Context(), "k", lock.Token(), redlatch.WithTTL(ttl))
			require.NoError(t, err)
		}
		short := stampIn(t, s, "k")
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		longer := stampIn(t, s, "k")
		require.Greater(t, longer, short+40)
		for _, companion := range []string{"{k}:owner:k", "{k}:stamp:k"} {
			require.Greater(t, s.Direct.TTL(t.Context(), companion).Val(), 60*time.Second)
		}
		adopt(time.Hour)
		longest := stampIn(t, s, "k")
		require.Greater(t, longest, longer+3000)
		for range 2 {
			require.NoError(t, lock.Extend(t.Context(), time.Second))
			adopt(time.Second)
		}
		require.Equal(t, longest, stampIn(t, s, "k"))
		for _, companion := range []string{"{k}:owner:k", "{k}:stamp:k"} {
			require.Greater(t, s.Direct.TTL(t.Context(), companion).Val(), time.Hour)
		}
		require.NoError(t, lock.Unlock(t.Context()))
		require.Empty(t, everything(t, s))
	})
}

// TestLegacyNeedsNoClockHere: only the clock of Redis decides, however wrong the clock of this machine is.
func TestLegacyNeedsNoClockHere(t *testing.T) {
	t.Parallel()
	for name, there := range map[string]time.Time{
		"this machine is years behind":   time.Date(2100, 1, 1, 0, 0, 0, 999e6, time.UTC),
		"this machine is years ahead":    time.Date(2001, 1, 1, 0, 0, 0, 999e6, time.UTC),
		"this machine is a minute ahead": time.Now().Add(-time.Minute),
	} {
		t.Run(name, func(t *testing.T) {
			m := miniredis.RunT(t)
			s := locktest.NewSite(t, redis.Options{Addr: m.Addr()})
			m.SetTime(there)
			l := newLegacy(t, s.Client(t))
			get := func() string { v, _ := m.Get("k"); return v }

			first := mustLock(t, l, "k")
			value := strconv.FormatInt(there.Unix()+11, 10)
			require.Equal(t, value, get())
			for range 2 {
				_, err := l.TryLock(t.Context(), "k")
				require.ErrorIs(t, err, redlatch.ErrNotAcquired)
				st, err := l.Inspect(t.Context(), "k")
				require.NoError(t, err)
				require.True(t, st.Held)
				require.Equal(t, first.Token(), st.Token)
				require.Positive(t, st.TTL)
				require.LessOrEqual(t, st.TTL, 12*time.Second)
				require.NoError(t, first.Extend(t.Context(), 10*time.Second))
				there = there.Truncate(time.Second)
				m.SetTime(there.Add(11 * time.Second)) // the last second of the first value
			}
			require.Equal(t, strconv.FormatInt(there.Unix()+22, 10), get())

			m.SetTime(there.Add(23 * time.Second))
			st, err := l.Inspect(t.Context(), "k")
			require.NoError(t, err)
			require.Equal(t, redlatch.Status{}, st)
			require.ErrorIs(t, first.Extend(t.Context(), time.Hour), redlatch.ErrLost)
			second := mustLock(t, l, "k")
			require.Equal(t, strconv.FormatInt(there.Unix()+34, 10), get())
			require.ErrorIs(t, first.Unlock(t.Context()), redlatch.ErrLost)
			require.Equal(t, strconv.FormatInt(there.Unix()+34, 10), get())
			m.SetTime(there.Add(35 * time.Second))
			require.ErrorIs(t, second.Unlock(t.Context()), redlatch.ErrLost)
			require.Equal(t, strconv.FormatInt(there.Unix()+34, 10), get())
			third := mustLock(t, l, "k")
			require.NoError(t, third.Unlock(t.Context()))
			require.Empty(t, m.Keys())
		})
	}
}

// TestLegacyTimeEndsWithItsSecond: for every operation, a time has passed if now > value, in whole seconds. That is
// step 2 of the page.
func TestLegacyTimeEndsWithItsSecond(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		const last = 2999 * time.Millisecond // of a TTL of 1 s
		l := newLegacy(t, s.Client(t))
		lock := mustLock(t, l, "k", redlatch.WithTTL(time.Second))
		late := mustLock(t, l, "late", redlatch.WithTTL(time.Second))
		f := &foreign{client: s.Client(t), key: "k"}
		time.Sleep(last)
		_, err := l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		ok, err := f.tryLock(t.Context())
		require.NoError(t, err)
		require.False(t, ok)
		st, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, redlatch.Status{Held: true, Token: lock.Token(), TTL: time.Millisecond, Holders: 1}, st)
		require.ErrorIs(t, late.Unlock(t.Context()), redlatch.ErrLost, "the lease has ended")
		require.Zero(t, s.Direct.Exists(t.Context(), "late").Val(), "but the key is deleted")
		_, err = l.Adopt(t.Context(), "k", lock.Token(), redlatch.WithTTL(time.Second))
		require.NoError(t, err)
		require.Equal(t, time.Now().Unix()+2, stampIn(t, s, "k"))

		time.Sleep(last - 998*time.Millisecond)
		st, err = l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, redlatch.Status{}, st)
		_, err = l.Adopt(t.Context(), "k", lock.Token())
		require.ErrorIs(t, err, redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		mustLock(t, l, "k")
	})
}

// TestLegacyCallIsOneRoundTrip: all steps of a call are one script.
func TestLegacyCallIsOneRoundTrip(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		var sent atomic.Int64
		client := s.Client(t)
		l := newLegacy(t, client)
		try := func() error { return mustLock(t, l, "k").Unlock(t.Context()) }
		require.NoError(t, try()) // the connection is made, and the scripts are loaded
		_, err := l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		_, err = l.Adopt(t.Context(), "k", "nobody")
		require.ErrorIs(t, err, redlatch.ErrLost)
		client.AddHook(locktest.Count(&sent))

		require.NoError(t, try())
		require.Equal(t, int64(2), sent.Swap(0), "a free key and its release")
		setIn(t, s, "k", "1")
		require.NoError(t, try())
		require.Equal(t, int64(2), sent.Swap(0), "an expired key and its release")
		setIn(t, s, "k", "4102444800")
		_, err = l.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.Equal(t, int64(1), sent.Swap(0), "a held key")
		_, err = l.Inspect(t.Context(), "k")
		require.NoError(t, err)
		require.Equal(t, int64(1), sent.Swap(0), "Inspect")

		lock := mustLock(t, l, "mine")
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		adopted, err := l.Adopt(t.Context(), "mine", lock.Token())
		require.NoError(t, err)
		require.NoError(t, adopted.Unlock(t.Context()))
		require.Equal(t, int64(4), sent.Swap(0), "Lock, Extend, Adopt, Unlock")
	})
}

// TestLegacyLeavesOtherDataAlone: data of another kind under any of the three keys is
// an error, and stays.
func TestLegacyLeavesOtherDataAlone(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t))
		for _, value := range []string{"", "hello", "nan", "inf", "0x10", "1e3", " 1", "1 ", "-1", ".5", "1.2.3", "1\n", "5f0c7e9a", "1,5"} {
			setIn(t, s, "k", value)
			for name, ask := range map[string]func() error{
				"TryLock": func() error { _, err := l.TryLock(t.Context(), "k"); return err },
				"Lock":    func() error { _, err := l.Lock(t.Context(), "k"); return err },
				"Inspect": func() error { _, err := l.Inspect(t.Context(), "k"); return err },
			} {
				err := ask()
				require.ErrorContains(t, err, "does not hold a timestamp", "%q, %s", value, name)
				require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
			}
			_, err := l.Adopt(t.Context(), "k", "token")
			require.ErrorIs(t, err, redlatch.ErrLost)
			require.Equal(t, map[string]string{"k": value}, everything(t, s))
		}
		for _, state := range []string{"free", "held", "expired"} {
			for _, companion := range []string{"{k}:owner:k", "{k}:stamp:k"} {
				require.NoError(t, s.Direct.FlushAll(t.Context()).Err())
				require.NoError(t, s.Direct.RPush(t.Context(), companion, "a", "b").Err())
				switch state {
				case "held":
					setIn(t, s, "k", "4102444800")
				case "expired":
					setIn(t, s, "k", "1")
				}
				value := s.Direct.Get(t.Context(), "k").Val()
				_, err := l.TryLock(t.Context(), "k")
				require.ErrorContains(t, err, "WRONGTYPE", state)
				require.NotContains(t, err.Error(), "\n")
				require.Equal(t, []string{"a", "b"}, s.Direct.LRange(t.Context(), companion, 0, -1).Val())
				require.Equal(t, value, s.Direct.Get(t.Context(), "k").Val())
			}
		}
	})
}

// TestLegacyInspectDeletesNothing: Inspect reports a key in every state and changes nothing.
func TestLegacyInspectDeletesNothing(t *testing.T) {
	locktest.OnBoth(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t))
		lock := mustLock(t, l, "ours", longTTL)
		token := lock.Token()
		mustLock(t, l, "overwritten")
		setIn(t, s, "overwritten", time.Now().Unix()+3600)
		setIn(t, s, "foreign", time.Now().Unix()+3600)
		setIn(t, s, "expired", time.Now().Unix()-1)
		setIn(t, s, "forever", "9999999999999999")
		before := everything(t, s)
		for key, want := range map[string]redlatch.Status{
			"ours":        {Held: true, Token: token, TTL: time.Hour + 2*time.Second, Holders: 1},
			"overwritten": {Held: true, TTL: time.Hour + time.Second, Holders: 1},
			"foreign":     {Held: true, TTL: time.Hour + time.Second, Holders: 1},
			"forever":     {Held: true, TTL: time.Duration(9e12) * time.Millisecond, Holders: 1},
			"expired":     {},
			"free":        {},
		} {
			st, err := l.Inspect(t.Context(), key)
			require.NoError(t, err, key)
			require.InDelta(t, want.TTL, st.TTL, float64(time.Minute), key)
			st.TTL = want.TTL
			require.Equal(t, want, st, key)
		}
		require.Equal(t, before, everything(t, s))
	})
}

// TestLegacyWaiterLooksWhenTheTimeHasPassed: a waiter polls when the holder's time has passed, however long its pauses are.
func TestLegacyWaiterLooksWhenTheTimeHasPassed(t *testing.T) {
	locktest.OnBothInTime(t, func(t *testing.T, s *locktest.Site) {
		l := newLegacy(t, s.Client(t), redlatch.WithPollInterval(time.Hour, time.Hour))
		<-time.After(time.Until(time.Now().Truncate(time.Second).Add(1500 * time.Millisecond)))
		ends := time.Now().Truncate(time.Second).Add(time.Second)
		setIn(t, s, "k", ends.Unix()-1)
		_, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		require.Less(t, time.Since(ends), s.Within(100*time.Millisecond))
	})
}

// TestLegacyKeyWithoutASlotForItsOwner: on a Cluster, a key whose companions cannot be in its slot is refused before
// anything is sent.
func TestLegacyKeyWithoutASlotForItsOwner(t *testing.T) {
	t.Parallel()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{"127.0.0.1:1"}})
	t.Cleanup(func() { _ = client.Close() })
	l := newLegacy(t, client)
	for _, key := range []string{"a}b", "{}x"} {
		_, err := l.TryLock(t.Context(), key)
		require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := l.TryLock(ctx, "a{b}c")
	require.NotErrorIs(t, err, redlatch.ErrInvalidOption)
}
