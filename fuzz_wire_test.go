package redlatch

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// FuzzLegacyValue: any value that another program left in the key of a legacy lock is a time that has passed, a time
// that has not passed, or an error. Only a time that has passed is overwritten.
func FuzzLegacyValue(f *testing.F) {
	for _, value := range []string{
		"", "0", "1", "4102444800", "4102444800.75", "1.", "01", "-1", "1e3", "nan", "inf", "0x10", "1,5", "1\n", "\x00",
		strings.Repeat("9", 400), "0." + strings.Repeat("0", 100),
	} {
		f.Add(value)
	}
	number := regexp.MustCompile(`^[0-9]+\.?[0-9]*$`)
	// This needs real Redis: the Lua of miniredis accepts other numbers.
	client := redistest.Start(f).Client(f)
	l, err := NewLegacySetNX(client)
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, value string) {
		require.NoError(t, client.FlushAll(t.Context()).Err())
		require.NoError(t, client.Set(t.Context(), "k", value, 0).Err())
		till, _ := strconv.ParseFloat(value, 64)
		isTime := number.MatchString(value)
		if left := till - float64(time.Now().Unix()); isTime && -2 < left && left < 2 {
			t.Skip("its time passes about now")
		}
		passed := till < float64(time.Now().Unix())

		st, inspectErr := l.Inspect(t.Context(), "k")
		lock, err := l.TryLock(t.Context(), "k")
		requireOneLine(t, err)
		if isTime && passed {
			require.NoError(t, err)
			require.NoError(t, inspectErr)
			require.False(t, st.Held)
			require.NoError(t, lock.Unlock(t.Context()))
			require.Zero(t, client.DBSize(t.Context()).Val())
			return
		}
		require.Equal(t, value, client.Get(t.Context(), "k").Val(), "the value stays")
		require.Equal(t, int64(1), client.DBSize(t.Context()).Val())
		if isTime {
			require.ErrorIs(t, err, ErrNotAcquired)
			require.True(t, st.Held)
		} else {
			require.ErrorContains(t, err, "does not hold a timestamp")
			require.ErrorContains(t, inspectErr, "does not hold a timestamp")
		}
	})
}

// liar answers every command with a reply that a test makes up.
type liar struct{ reply func() (any, error) }

func (l liar) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		reply, err := l.reply()
		if c, ok := cmd.(interface{ SetVal(val any) }); ok && err == nil {
			c.SetVal(reply)
		}
		cmd.SetErr(err)
		return err
	}
}

// reading turns bytes into replies: the first byte is the kind of a reply, and those behind it are its content.
type reading struct{ text []byte }

func (r *reading) next() byte {
	if len(r.text) == 0 {
		return 0
	}
	b := r.text[0]
	r.text = r.text[1:]
	return b
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
		return string(r.take()), nil
	case 4:
		return "OK", nil
	case 5:
		return float64(r.next()) / 3, nil
	case 6:
		return r.next()%2 == 0, nil
	case 7:
		return nil, redisAnswer(r.take())
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

// take returns some of the bytes.
func (r *reading) take() []byte {
	n := min(int(r.next())%40, len(r.text))
	taken := r.text[:n]
	r.text = r.text[n:]
	return taken
}

// redisAnswer is an error reply of Redis.
type redisAnswer string

func (r redisAnswer) Error() string { return string(r) }

func (redisAnswer) RedisError() {}

// FuzzReplies: if a server answers nonsense, each call either fails or trusts the answer. No call panics, and no
// error has a line break.
func FuzzReplies(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{2, 1, 40, 1, 1, 1, 1})                             // granted, extended, released
	f.Add([]byte{9, 6, 1, 50, 3, 1, 'x', 1, 1, 1, 1, 1, 100, 1, 7}) // held, and a place in the queue
	f.Add([]byte{9, 4, 3, 1, 120, 1, 1, 3, 1, 55, 1, 0})            // inspected
	f.Add([]byte("\x07\x09WRONGTYPE\x07\x08NOSCRIPT\x07\x07LOADING"))
	f.Add([]byte{3, 30, 'r', 'u', 'n', '_', 'i', 'd', ':', 'a', '\r', '\n'})
	client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	f.Cleanup(func() { _ = client.Close() })
	answer := make(chan *reading, 1)
	answer <- new(reading)
	lies := liar{func() (any, error) {
		r := <-answer
		defer func() { answer <- r }()
		return r.reply(0)
	}}
	client.AddHook(redistest.OnProcess(lies.ProcessHook))
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
