package redlatch

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/node"
)

// TestRepliesAreReadStrictly: a reader accepts what the scripts answer, and nothing else.
func TestRepliesAreReadStrictly(t *testing.T) {
	type list = []any
	n := func(n int64) any { return n }
	const at = 3*time.Second + 4*time.Microsecond
	read := func(got any, err error) list { return list{got, err} }
	handOn := func(value any) list {
		got, untold, err := readHandOn(node.Reply{Value: value})
		return list{got, untold, err}
	}
	for _, value := range []any{nil, "1", list{}, list{n(1)}, list{n(1), n(3)}, list{n(1), "3", n(4)}, list{n(1), n(3), n(4), n(5), n(6)}, list{n(1), n(-3), n(4)}, list{n(1), n(3), n(4), n(-5)}, 1.5} {
		require.Equal(t, list{releaseReply{}, false, oddReply(value)}, handOn(value), value)
	}
	require.Equal(t, list{releaseReply{}, false, nil}, handOn(n(1)))
	require.Equal(t, list{releaseReply{}, false, errNotOurs}, handOn(n(0)))
	require.Equal(t, list{releaseReply{}, true, nil}, handOn(n(-1)))
	require.Equal(t, list{releaseReply{wanted: true}, true, nil}, handOn(n(-2)))
	require.Equal(t, list{releaseReply{at: at}, false, nil}, handOn(list{n(1), n(3), n(4)}))
	require.Equal(t, list{releaseReply{at: at}, true, nil}, handOn(list{n(-1), n(3), n(4)}))
	require.Equal(t, list{releaseReply{wanted: true, at: at}, true, nil}, handOn(list{n(-2), n(3), n(4)}))
	require.Equal(t, list{releaseReply{at: at, tick: 5}, false, nil}, handOn(list{n(1), n(3), n(4), n(5)}))
	require.Equal(t, list{releaseReply{at: at, tick: 5}, true, nil}, handOn(list{n(-1), n(3), n(4), n(5)}))

	acquire := func(value any) list { got, err := readAcquire(node.Reply{Value: value}); return read(got, err) }
	held := inbox.Refusal{Left: clock.Milliseconds(50), Holder: "a"}
	require.Equal(t, list{acquireReply{fence: 7}, nil}, acquire(n(7)))
	require.Equal(t, list{acquireReply{Refusal: held}, ErrNotAcquired}, acquire(list{n(50), "a"}))
	held.Fresh, held.First, held.At = true, false, at
	require.Equal(t, list{acquireReply{Refusal: held}, ErrNotAcquired}, acquire(list{n(50), "a", n(1), n(0), n(3), n(4)}))
	held.Fresh, held.First = false, true
	require.Equal(t, list{acquireReply{Refusal: held}, ErrNotAcquired}, acquire(list{n(50), "a", n(0), n(1), n(3), n(4)}))
	held.Left, held.Holder = 0, ""
	require.Equal(t, list{acquireReply{Refusal: held}, ErrNotAcquired}, acquire(list{n(-1), nil, n(0), n(1), n(3), n(4)}))
	for _, value := range []any{nil, "7", list{}, list{"50", "a"}, list{n(50), n(1)}, list{n(50), "a", n(1)}, list{n(50), "a", n(1), n(0), n(3)}, list{n(50), "a", n(1), n(0), n(3), n(4), n(0)}, list{n(7), n(63)}} {
		require.Equal(t, list{acquireReply{}, oddReply(value)}, acquire(value), value)
	}

	extend := func(value any) list { got, err := readExtend(node.Reply{Value: value}); return read(got, err) }
	require.Equal(t, list{uint64(1), nil}, extend(n(1)))
	require.Equal(t, list{uint64(0), errDeleted}, extend(n(0)))
	require.Equal(t, list{uint64(0), errTaken}, extend(n(-1)))
	require.Equal(t, list{uint64(0), oddReply("1")}, extend("1"))
}

// TestServerThatCannotWriteIsNotBelieved: a replica that was a primary answers reads, from stale data. A script that does not find
// its token there fails with READONLY, and says neither that the lock is lost nor who has it.
func TestServerThatCannotWriteIsNotBelieved(t *testing.T) {
	for name, made := range map[string]func(client redis.UniversalClient) (Locker, error){
		"SetNXPX":   func(c redis.UniversalClient) (Locker, error) { return NewSetNXPX(c) },
		"Semaphore": func(c redis.UniversalClient) (Locker, error) { return NewSemaphore(c, 1) },
		"Redlock":   func(c redis.UniversalClient) (Locker, error) { return NewRedlock([]redis.UniversalClient{c}) },
	} {
		for what, holder := range map[string]bool{"nobody holds the key": false, "another holds the key": true} {
			t.Run(name+", "+what, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					m, client := bubbleRedis(t)
					l, err := made(client)
					require.NoError(t, err)
					lock := granted(t, l, WithoutRenewal())
					m.Del("k")
					if holder {
						granted(t, l, WithoutRenewal())
					}
					m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
						switch cmd {
						case "SET", "DEL", "PEXPIRE", "INCR", "ZADD", "ZREM", "ZREMRANGEBYSCORE":
							c.WriteError("READONLY You can't write against a read only replica.")
							return true
						}
						return false
					})
					before := m.Dump()
					for what, err := range map[string]error{
						"extend": lock.Extend(t.Context(), time.Hour),
						"adopt":  second(l.Adopt(t.Context(), "k", lock.Token())),
						"try":    second(l.TryLock(t.Context(), "k")),
						"unlock": lock.Unlock(t.Context()),
					} {
						require.ErrorContains(t, err, "READONLY", what)
						require.NotErrorIs(t, err, ErrLost, what)
						require.NotErrorIs(t, err, ErrNotAcquired, what)
					}
					require.Equal(t, before, m.Dump())
				})
			})
		}
	}
}

func second(_ *Lock, err error) error { return err }
