package behavior_test

import (
	"context"
	"errors"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
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
func lockersOf(tb testing.TB, client redis.UniversalClient, opts ...redlatch.Option) []redlatch.Locker {
	tb.Helper()
	one, err := redlatch.NewSetNXPX(client, opts...)
	require.NoError(tb, err)
	old, err := redlatch.NewLegacySetNX(client, opts...)
	require.NoError(tb, err)
	many, err := redlatch.NewRedlock([]redis.UniversalClient{client}, opts...)
	require.NoError(tb, err)
	return []redlatch.Locker{one, old, many}
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
	f.Add(int64(time.Second), int64(0), int64(0), int64(0), "", "", byte(0))
	f.Add(int64(time.Millisecond), int64(time.Hour), int64(1), int64(time.Second), "p:", "worker-1", byte(7))
	f.Add(int64(-1), int64(1), int64(-1), int64(-1), "{", "}", byte(255))
	s := newFuzzed(f)
	f.Fuzz(func(t *testing.T, ttl, maxHold, opTimeout, grace int64, prefix, owner string, bits byte) {
		s.FlushAll()
		opts := []redlatch.Option{
			redlatch.WithTTL(time.Duration(ttl)), redlatch.WithGrace(time.Duration(grace)), redlatch.WithKeyPrefix(prefix),
		}
		for i, opt := range []redlatch.Option{
			redlatch.WithoutRenewal(), redlatch.WithMaxHold(time.Duration(maxHold)),
			redlatch.WithOpTimeout(time.Duration(opTimeout)), redlatch.WithOwner(owner), nil,
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
			case errors.Is(err, redlatch.ErrInvalid):
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
			trusted -= time.Duration(grace)
			if bits>>1&1 == 1 {
				trusted = min(trusted, time.Duration(maxHold))
			}
			require.LessOrEqual(t, lock.Until().Sub(start), trusted+time.Since(start))
			if bits>>3&1 == 1 {
				require.Equal(t, owner, ownerIn(string(lock.Token())))
			}
			requireTTLs(t, s, prefix+"k")
			require.NotErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrReleased)
			s.FlushAll()
		}
	})
}

// unusualKeys are those that fuzzing begins with.
var unusualKeys = []string{
	"k", "{k}", "a}b", "{}x", "{a}{b}", "{{a}}", "\x00\xff\r\n", " ", "{k}:fence:k", fences, "{k}:" + fences,
	strings.Repeat("{", 100),
}

// ownerIn returns what stands before the UUID of a token and its slash.
func ownerIn(token string) string { return token[:max(strings.LastIndex(token, "/"), 0)] }

// fences is the name of the register of all fences, which is no key of a lock.
const fences = "redlatch:fence"

// FuzzKeys: a key of any bytes is one lock, which no other key affects.
func FuzzKeys(f *testing.F) {
	for _, key := range unusualKeys {
		f.Add(key, key+"}")
		f.Add(key, "{"+key+"}")
	}
	s := newFuzzed(f)
	lockers := lockersOf(f, clientOf(f, s))
	f.Fuzz(func(t *testing.T, key, other string) {
		for i, l := range lockers {
			s.FlushAll()
			lock, err := l.TryLock(t.Context(), key)
			if key == "" || i == 0 && key == fences {
				require.ErrorIs(t, err, redlatch.ErrInvalid)
				continue
			}
			require.NoError(t, err)
			require.Equal(t, key, lock.Key())
			_, err = l.TryLock(t.Context(), key)
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			requireOneLine(t, err)
			except := ""
			if i == 1 {
				except = key
			}
			requireTTLs(t, s, except)

			related := strings.HasSuffix(other, ":"+key) || strings.HasSuffix(key, ":"+other)
			if other != "" && other != key && other != fences && !related {
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

// scriptKeys has the keys of each script that a client sends.
type scriptKeys struct {
	mu  sync.Mutex // guards all
	all [][]string
}

// take returns what came since the last time.
func (s *scriptKeys) take() [][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// keysOf returns what a client sends from now on.
func keysOf(client redis.UniversalClient) *scriptKeys {
	var sent scriptKeys
	hook := redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if words := cmd.Args(); strings.HasPrefix(cmd.Name(), "eval") {
				var keys []string
				for _, key := range words[3 : 3+words[2].(int)] {
					keys = append(keys, key.(string))
				}
				sent.mu.Lock()
				sent.all = append(sent.all, keys)
				sent.mu.Unlock()
			}
			return next(ctx, cmd)
		}
	})
	if cluster, is := client.(*redis.ClusterClient); is {
		cluster.OnNewNode(func(server *redis.Client) { server.AddHook(hook) })
	} else {
		client.AddHook(hook)
	}
	return &sent
}

// FuzzKeysOfCluster: the companions of a key are other keys in its slot. A key for which that
// cannot be is refused.
func FuzzKeysOfCluster(f *testing.F) {
	for _, key := range unusualKeys {
		f.Add(key)
	}
	s := newFuzzed(f)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	f.Cleanup(func() { _ = client.Close() })
	lockers, sent := lockersOf(f, client), keysOf(client)
	f.Fuzz(func(t *testing.T, key string) {
		for i, l := range lockers {
			s.FlushAll()
			sent.take()
			lock, err := l.TryLock(t.Context(), key)
			register := i == 0 && key == "{"+hashed(key)+"}:"+fences
			if key == "" || strings.Contains(hashed(key), "}") || register {
				require.ErrorIs(t, err, redlatch.ErrInvalid)
				require.Empty(t, sent.take())
				continue
			}
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(t.Context()))
			scripts := sent.take()
			require.GreaterOrEqual(t, len(scripts), 2, "acquire and release")
			for _, keys := range scripts {
				require.Equal(t, key, keys[0])
				require.NotContains(t, keys[1:], key)
				for _, name := range keys {
					require.Equal(t, hashed(key), hashed(name), name)
				}
			}
		}
	})
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
		return nil, refusal(r.take(int(r.next()) % 40))
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
		for _, l := range lockersOf(t, client, redlatch.WithOpTimeout(10*time.Millisecond), redlatch.WithoutRenewal()) {
			<-answer
			answer <- &reading{replies}
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Millisecond)
			_, err := l.Inspect(ctx, "k")
			requireOneLine(t, err)
			for _, ask := range []func() (*redlatch.Lock, error){
				func() (*redlatch.Lock, error) { return l.TryLock(ctx, "k") },
				func() (*redlatch.Lock, error) { return l.Adopt(ctx, "k", "token") },
				func() (*redlatch.Lock, error) { return l.Lock(ctx, "k") },
			} {
				lock, err := ask()
				require.Equal(t, err == nil, lock != nil)
				requireOneLine(t, err)
				if lock != nil {
					requireOneLine(t, lock.Extend(ctx, time.Second))
					requireOneLine(t, lock.Unlock(ctx))
					require.ErrorIs(t, lock.Unlock(ctx), redlatch.ErrReleased)
				}
			}
			cancel()
		}
	})
}
