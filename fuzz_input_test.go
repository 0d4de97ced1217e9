package redlatch

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// fuzzed is a miniredis that all inputs of a fuzz target share.
type fuzzed struct{ *miniredis.Miniredis }

func newFuzzed(f *testing.F) *fuzzed {
	f.Helper()
	m := miniredis.NewMiniRedis()
	require.NoError(f, m.Start())
	f.Cleanup(m.Close)
	return &fuzzed{m}
}

// client returns a client that counts what it sends.
func (s *fuzzed) client(tb testing.TB) (client *redis.Client, sent *atomic.Int64) {
	tb.Helper()
	client, sent = redis.NewClient(&redis.Options{Addr: s.Addr()}), new(atomic.Int64)
	client.AddHook(redistest.OnProcess(counting{sent}.ProcessHook))
	tb.Cleanup(func() { _ = client.Close() })
	return client, sent
}

// lockersOf returns a Locker of each strategy: SetNXPX, LegacySetNX and Redlock.
func lockersOf(tb testing.TB, client *redis.Client, opts ...Option) []Locker {
	tb.Helper()
	one, err := NewSetNXPX(client, opts...)
	require.NoError(tb, err)
	old, err := NewLegacySetNX(client, opts...)
	require.NoError(tb, err)
	many, err := NewRedlock([]redis.UniversalClient{client}, opts...)
	require.NoError(tb, err)
	return []Locker{one, old, many}
}

// counting counts the commands of a client.
type counting struct{ n *atomic.Int64 }

func (c counting) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		c.n.Add(1)
		return next(ctx, cmd)
	}
}

// requireTTLs fails unless every key other than except has a TTL.
func (s *fuzzed) requireTTLs(t *testing.T, except string) {
	t.Helper()
	for _, key := range s.Keys() {
		if key != except {
			require.Positive(t, s.TTL(key), "%q", key)
		}
	}
}

// requireOneLine fails for an error whose text has a line break.
func requireOneLine(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		require.NotContains(t, err.Error(), "\n")
	}
}

// FuzzOptions: options are either refused before anything is sent, or make a lock that is never trusted for longer
// than they say.
func FuzzOptions(f *testing.F) {
	f.Add(int64(time.Second), int64(0), int64(0), 0.01, "", "", byte(0))
	f.Add(int64(time.Millisecond), int64(time.Hour), int64(1), 0.0, "p:", "worker-1", byte(7))
	f.Add(int64(-1), int64(1), int64(-1), -0.5, "{", "}", byte(255))
	s := newFuzzed(f)
	f.Fuzz(func(t *testing.T, ttl, maxHold, opTimeout int64, drift float64, prefix, token string, bits byte) {
		s.FlushAll()
		opts := []Option{WithTTL(time.Duration(ttl)), WithDrift(drift), WithKeyPrefix(prefix)}
		for i, opt := range []Option{
			WithoutRenewal(), WithMaxHold(time.Duration(maxHold)), WithOpTimeout(time.Duration(opTimeout)),
			WithToken(token), WithServerTime(), nil,
		} {
			if bits>>i&1 == 1 {
				opts = append(opts, opt)
			}
		}
		for i := range 3 {
			client, sent := s.client(t) // a new one, since the last may still send commands after a short op timeout
			l, start := lockersOf(t, client)[i], time.Now()
			lock, err := l.TryLock(t.Context(), "k", opts...)
			requireOneLine(t, err)
			switch {
			case errors.Is(err, ErrInvalidOption):
				require.Zero(t, sent.Load(), "refused, but something was sent")
				continue
			case err != nil:
				require.Nil(t, lock)
				continue
			}
			trusted := time.Duration(ttl)
			if i == 1 {
				trusted = max(trusted, trusted.Truncate(time.Second)+time.Second) // whole seconds, rounded up
			}
			if bits>>1&1 == 1 {
				trusted = min(trusted, time.Duration(maxHold))
			}
			require.LessOrEqual(t, lock.Until().Sub(start), trusted+time.Since(start))
			if bits>>3&1 == 1 {
				require.Equal(t, token, lock.Token())
			}
			s.requireTTLs(t, prefix+"k")
			require.NotErrorIs(t, lock.Unlock(t.Context()), ErrReleased)
			s.FlushAll()
		}
	})
}

// FuzzKeys: a key of any bytes is one lock, which no other key affects. The companions of the key are in its slot.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"k", "{k}", "a}b", "{}x", "{a}{b}", "{{a}}", "\x00\xff\r\n", " ", "{k}:fence:k", "redlatch:fence", "{k}:redlatch:fence", strings.Repeat("{", 100)} {
		f.Add(key, key+"}")
		f.Add(key, "{"+key+"}")
	}
	s := newFuzzed(f)
	client, _ := s.client(f)
	lockers := lockersOf(f, client)
	f.Fuzz(func(t *testing.T, key, other string) {
		if key != "" && hasCompanions(key) {
			at, err := (&setNXPX{kind: cluster}).place("", key)
			require.Equal(t, key == at.fences, err != nil)
			for _, name := range []string{at.fences, at.queue, companion("fence", key), companion("owner", key), companion("stamp", key)} {
				require.Equal(t, hashed(key), hashed(name))
			}
		}
		for i, l := range lockers {
			s.FlushAll()
			lock, err := l.TryLock(t.Context(), key)
			if key == "" || i == 0 && key == registerName {
				require.ErrorIs(t, err, ErrInvalidOption)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, key, lock.Key())
			_, err = l.TryLock(t.Context(), key)
			require.ErrorIs(t, err, ErrNotAcquired)
			requireOneLine(t, err)
			except := ""
			if i == 1 {
				except = key
			}
			s.requireTTLs(t, except)

			if other != "" && other != key && other != registerName && !related(key, other) && !related(other, key) {
				second, err := l.TryLock(t.Context(), other)
				require.NoError(t, err, "%q and %q are two locks", key, other)
				require.NoError(t, second.Unlock(t.Context()))
			}
			st, err := l.Inspect(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, lock.Token(), st.Token)
			require.NoError(t, lock.Unlock(t.Context()))
			require.False(t, s.Exists(key))
		}
	})
}

// related reports whether other is the name of a companion of key.
func related(key, other string) bool {
	for _, kind := range []string{"fence", "queue", "owner", "stamp"} {
		if companion(kind, key) == other {
			return true
		}
	}
	return false
}

// hashed returns the part of a key that Redis Cluster hashes. By its specification, that is the text between the
// first { and the first } to the right of it, or the whole key if there is no such text.
func hashed(key string) string {
	for i := range len(key) {
		if key[i] != '{' {
			continue
		}
		for j := i + 1; j < len(key); j++ {
			if key[j] == '}' {
				if j > i+1 {
					return key[i+1 : j]
				}
				return key
			}
		}
		return key
	}
	return key
}
