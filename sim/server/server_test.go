package server

import (
	"bufio"
	"context"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	miniredis "github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// serve runs a test with a client of a server.
func serve(t *testing.T, test func(t *testing.T, s *Server, eval func(script string) (any, error))) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		c := redis.NewClient(&redis.Options{
			Addr: "127.0.0.1:6379", DisableIdentity: true, MaxRetries: -1,
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				client, conn := net.Pipe()
				return client, s.Accept(conn)
			},
		})
		test(t, s, func(script string) (any, error) { return c.Eval(t.Context(), script, nil).Result() })
		require.NoError(t, c.Close())
		s.Close()
	})
}

const (
	set  = "redis.call('SET', 'k', 'v', 'PX', 1000) return redis.call('PTTL', 'k')"
	left = "return redis.call('PTTL', 'k')"
	now  = "return redis.call('TIME')[1]"
)

func TestServersLiveIn2027(t *testing.T) {
	serve(t, func(t *testing.T, s *Server, eval func(string) (any, error)) {
		before, err := eval(now)
		require.NoError(t, err)
		require.Equal(t, time.Date(2026, 12, 25, 0, 0, 0, 0, time.UTC).Unix(), s.clock.now().Unix())
		time.Sleep(7 * time.Second)
		after, err := eval(now)
		require.NoError(t, err)
		require.NotEqual(t, before, after)
	})
}

func TestKeysExpireByTheClockOfTheServer(t *testing.T) {
	for name, c := range map[string]struct {
		step time.Duration
		rate float64
		want int64
	}{
		"as it is":  {0, 1, 500},
		"back":      {-10 * time.Second, 1, 10500},
		"forward":   {400 * time.Millisecond, 1, 100},
		"too far":   {time.Second, 1, -2},
		"too fast":  {0, 1.2, 400},
		"too slow":  {0, 0.5, 750},
		"both ways": {-time.Second, 1.5, 1250},
	} {
		t.Run(name, func(t *testing.T) {
			serve(t, func(t *testing.T, s *Server, eval func(string) (any, error)) {
				_, err := eval(set)
				require.NoError(t, err)
				heal := s.Rate(c.rate)
				time.Sleep(500 * time.Millisecond)
				s.Step(c.step)
				ttl, err := eval(left)
				require.NoError(t, err)
				require.Equal(t, c.want, ttl)
				heal()
			})
		})
	}
}

func TestAnswersReplaceWhatTheyAreAbout(t *testing.T) {
	scripts := map[Kind]string{
		Scripts: "return 1", Writes: "return redis.call('ZREM', 'q', 'm')", Growth: "return redis.call('INCR', 'n')",
		Publish: "return redis.call('PUBLISH', 'c', 'm')",
	}
	for kind, script := range scripts {
		serve(t, func(t *testing.T, s *Server, eval func(string) (any, error)) {
			heal := s.Say(Answer{"ODD words", kind})
			_, err := eval(script)
			require.Error(t, err)
			require.True(t, strings.Contains(err.Error(), "ODD words"), err)
			for other, script := range scripts {
				if _, err := eval(script); kind != Scripts && other != kind && (kind != Writes || other != Growth) {
					require.NoError(t, err)
				}
			}
			heal()
			_, err = eval(script)
			require.NoError(t, err)
		})
	}
}

func TestAScriptThatHasWrittenWritesOn(t *testing.T) {
	serve(t, func(t *testing.T, s *Server, eval func(string) (any, error)) {
		defer s.Say(Answer{"OOM", Growth})()
		_, err := eval("redis.call('ZREM', 'q', 'm') return redis.call('INCR', 'n')")
		require.NoError(t, err)
		_, err = eval("return redis.call('INCR', 'n')")
		require.Error(t, err)
	})
}

func TestMutedMessageCountsAsHeard(t *testing.T) {
	serve(t, func(t *testing.T, s *Server, eval func(string) (any, error)) {
		publish := "return redis.call('PUBLISH', 'c', 'm')"
		heal := s.Mute()
		n, err := eval(publish)
		require.NoError(t, err)
		require.Equal(t, int64(1), n)
		heal()
		n, err = eval(publish)
		require.NoError(t, err)
		require.Equal(t, int64(0), n)
	})
}

func TestHoldersAreThoseWhoseTimeHasNotPassed(t *testing.T) {
	serve(t, func(t *testing.T, s *Server, eval func(string) (any, error)) {
		_, err := eval(`
			redis.call('SET', 'k', 'a')
			local t = redis.call('TIME')
			redis.call('ZADD', 'z', t[1] * 1000000 + t[2] + 1, 'b', t[1] * 1000000 + t[2] - 1, 'c')
			redis.call('ZADD', 'q', 1, '2000 c d', 2, '!', 3, '!2000 c d')
			redis.call('SET', 'l', t[1])
			redis.call('SET', '{l}:owner:l', 'd')
			redis.call('SET', '{m}l', t[1] - 1)
			redis.call('SET', '{m}:owner:{m}l', 'd')
			return 1`)
		require.NoError(t, err)
		require.Equal(t, []string{"a"}, s.Holders("k"))
		require.Equal(t, []string{"b"}, s.Holders("z"))
		require.Equal(t, []string{"d"}, s.Owner("l"))
		require.Empty(t, s.Owner("{m}l"))
		require.Len(t, s.Entries("q"), 1)
		s.Delete("k")
		require.Empty(t, s.Holders("k"))
		s.Flush()
		require.Empty(t, s.Keys())
	})
}

func TestCommandsAreCountedAndTheirLimitsNoted(t *testing.T) {
	serve(t, func(t *testing.T, s *Server, _ func(string) (any, error)) {
		at := func(d time.Duration) string { return strconv.FormatInt(s.clock.now().Add(d).UnixMicro(), 10) }
		run := func(script string, argv ...string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.tickLocked()
			args := slices.Concat([]string{"-- " + script, "3", "k", "f", "q"}, argv)
			s.lua.eval(miniredis.NewPeer(bufio.NewWriter(io.Discard)), "EVAL", args)
		}
		set, queue := "Sets it\nredis.call('SET', KEYS[1], ARGV[1])", "Queues it\nredis.call('ZADD', KEYS[3], 1, ARGV[3])"
		run(set, "A/1", at(time.Second))
		run(set, "A/2", at(-time.Second))
		run(set, "A/2", at(-2*time.Second)) // it was there
		run(set, "!B/3", at(-3*time.Second))
		run(queue, "!B/4", "-"+at(-4*time.Second), "2000 c !B/4")
		run("Looks at it\nreturn 1", "B/5", at(-time.Second))
		require.ElementsMatch(t, []Use{
			{Key: "k", Owner: "A", Ahead: time.Second, Late: []string{"1s"}, Sent: map[string]int{"Sets": 3}},
			{Key: "k", Owner: "B", Late: []string{"3s", "4s"}, Sent: map[string]int{"Sets": 1, "Queues": 1, "Looks": 1}},
		}, s.Uses())
	})
}
