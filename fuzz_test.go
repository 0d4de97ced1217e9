package redlatch

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// newFuzzed returns a miniredis that all inputs of a fuzz target share.
func newFuzzed(f *testing.F) *miniredis.Miniredis {
	f.Helper()
	m := miniredis.NewMiniRedis()
	require.NoError(f, m.Start())
	f.Cleanup(m.Close)
	return m
}

func clientOf(tb testing.TB, s *miniredis.Miniredis) *redis.Client {
	tb.Helper()
	client := redis.NewClient(&redis.Options{Addr: s.Addr()})
	tb.Cleanup(func() { _ = client.Close() })
	return client
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

// requireTTLs fails unless every key other than except has a TTL.
func requireTTLs(t *testing.T, s *miniredis.Miniredis, except string) {
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

// FuzzOptions: options are either refused before anything is sent, or make a lock that is never
// trusted for longer than they say.
func FuzzOptions(f *testing.F) {
	f.Add(int64(time.Second), int64(0), int64(0), 0.01, "", "", byte(0))
	f.Add(int64(time.Millisecond), int64(time.Hour), int64(1), 0.0, "p:", "worker-1", byte(7))
	f.Add(int64(-1), int64(1), int64(-1), -0.5, "{", "}", byte(255))
	s := newFuzzed(f)
	f.Fuzz(func(t *testing.T, ttl, maxHold, opTimeout int64, drift float64, prefix, owner string, bits byte) {
		s.FlushAll()
		opts := []Option{WithTTL(time.Duration(ttl)), WithDrift(drift), WithKeyPrefix(prefix)}
		for i, opt := range []Option{
			WithoutRenewal(), WithMaxHold(time.Duration(maxHold)), WithOpTimeout(time.Duration(opTimeout)),
			WithOwner(owner), nil,
		} {
			if bits>>i&1 == 1 {
				opts = append(opts, opt)
			}
		}
		for i := range 3 {
			client := clientOf(t, s) // a new one, since the last may still send commands after a short op timeout
			sent := redistest.CountScripts(client)
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
				require.Equal(t, owner, ownerOf(lock.Token()))
			}
			requireTTLs(t, s, prefix+"k")
			require.NotErrorIs(t, lock.Unlock(t.Context()), ErrReleased)
			s.FlushAll()
		}
	})
}

// FuzzKeys: a key of any bytes is one lock, which no other key affects. The companions of the key
// are in its slot.
func FuzzKeys(f *testing.F) {
	for _, key := range []string{"k", "{k}", "a}b", "{}x", "{a}{b}", "{{a}}", "\x00\xff\r\n", " ", "{k}:fence:k", "redlatch:fence", "{k}:redlatch:fence", strings.Repeat("{", 100)} {
		f.Add(key, key+"}")
		f.Add(key, "{"+key+"}")
	}
	s := newFuzzed(f)
	lockers := lockersOf(f, clientOf(f, s))
	f.Fuzz(func(t *testing.T, key, other string) {
		if key != "" && cluster.check(key) == nil {
			s := &setNXPX{single: single{kind: cluster}}
			_, err := s.keyOf("", key)
			names := s.wordsOf("", key)
			require.Equal(t, key == names.fences, err != nil)
			for _, name := range []any{names.fences, names.others, companion("fence", key), companion("owner", key), companion("stamp", key)} {
				require.Equal(t, hashed(key), hashed(name.(string)))
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
			requireTTLs(t, s, except)

			related := strings.HasSuffix(other, ":"+key) || strings.HasSuffix(key, ":"+other)
			if other != "" && other != key && other != registerName && !related {
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

// tag is the part of a key that Redis Cluster hashes: the text between the first { and the first }
// to the right of it. If there is no such text, it hashes the whole key.
var tag = regexp.MustCompile(`^[^{]*\{([^}]+)\}`)

func hashed(key string) string {
	if found := tag.FindStringSubmatch(key); found != nil {
		return found[1]
	}
	return key
}

// reading turns bytes into replies: the first byte is the kind of a reply, and those behind it are
// its content.
type reading struct{ text []byte }

// take returns n of the bytes, or all that are left.
func (r *reading) take(n int) []byte {
	n = min(n, len(r.text))
	taken := r.text[:n]
	r.text = r.text[n:]
	return taken
}

func (r *reading) next() byte {
	for _, b := range r.take(1) {
		return b
	}
	return 0
}

func (r *reading) reply(depth int) (any, error) {
	switch kind := r.next(); kind % 12 {
	case 0:
		return nil, redis.Nil
	case 1:
		return int64(int8(r.next())), nil
	case 2:
		return int64(r.next()) << (r.next() % 64), nil
	case 3:
		return string(r.take(int(r.next()) % 40)), nil
	case 4:
		return "OK", nil
	case 5:
		return float64(r.next()) / 3, nil
	case 6:
		return r.next()%2 == 0, nil
	case 7:
		return nil, redisAnswer(r.take(int(r.next()) % 40))
	case 8:
		return map[any]any{"a": int64(r.next())}, nil
	default:
		list := []any{}
		for range r.next() % 9 {
			if depth > 3 {
				break
			}
			element, err := r.reply(depth + 1)
			if err != nil {
				element = err
			}
			list = append(list, element)
		}
		return list, nil
	}
}

// redisAnswer is an error reply of Redis.
type redisAnswer string

func (r redisAnswer) Error() string { return string(r) }

func (redisAnswer) RedisError() {}

// FuzzReplies: if a server answers nonsense, each call either fails or trusts the answer. No call
// panics, and no error has a line break.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 1, 40, 1, 1, 1, 1})                               // granted, extended, released
	f.Add([]byte{9, 6, 1, 50, 3, 1, 'x', 1, 1, 1, 1, 1, 100, 1, 7})   // held, and a place in the queue
	f.Add([]byte{9, 4, 3, 1, 120, 9, 2, 3, 1, 'x', 1, 5, 1, 7, 1, 1}) // inspected, with waiters
	f.Add([]byte(strings.Repeat("\x09\x02\x01\x05\x05\x03", 6)))      // refused, but the holder is a number
	f.Add([]byte("\x07\x09WRONGTYPE\x07\x08NOSCRIPT\x07\x07LOADING"))
	f.Add([]byte{3, 30, 'r', 'u', 'n', '_', 'i', 'd', ':', 'a', '\r', '\n'})
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	f.Cleanup(func() { _ = client.Close() })
	answer := make(chan *reading, 1)
	answer <- new(reading)
	client.AddHook(redistest.OnProcess(func(redis.ProcessHook) redis.ProcessHook {
		return func(_ context.Context, cmd redis.Cmder) error { // answers every command
			r := <-answer
			defer func() { answer <- r }()
			reply, err := r.reply(0)
			if c, ok := cmd.(interface{ SetVal(val any) }); ok && err == nil {
				c.SetVal(reply)
			}
			cmd.SetErr(err)
			return err
		}
	}))
	f.Fuzz(func(t *testing.T, replies []byte) {
		if len(replies) > 200 {
			t.Skip("more replies than calls")
		}
		for _, l := range lockersOf(t, client, WithOpTimeout(10*time.Millisecond), WithoutRenewal()) {
			<-answer
			answer <- &reading{replies}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
			_, err := l.Inspect(ctx, "k")
			requireOneLine(t, err)
			for _, ask := range []func() (*Lock, error){
				func() (*Lock, error) { return l.TryLock(ctx, "k") },
				func() (*Lock, error) { return l.Adopt(ctx, "k", "token") },
				func() (*Lock, error) { return l.Lock(ctx, "k") },
			} {
				lock, err := ask()
				require.Equal(t, err == nil, lock != nil)
				requireOneLine(t, err)
				if lock != nil {
					requireOneLine(t, lock.Extend(ctx, time.Second))
					requireOneLine(t, lock.Unlock(ctx))
					require.ErrorIs(t, lock.Unlock(ctx), ErrReleased)
				}
			}
			cancel()
		}
	})
}
