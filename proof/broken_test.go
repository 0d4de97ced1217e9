package proof

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// broken is a locker as it is written in a hurry. Histories must expose each of its flaws.
type broken struct {
	client redis.UniversalClient
	flaws  flaws
	limit  int // of a semaphore; 0: it is a lock
}

type flaws struct {
	blindDelete  bool // Unlock deletes whatever is there
	countsLate   bool // the lease is counted from the reply
	neverLost    bool // the holder does not notice the end
	plainCounter bool // the fence is a counter that FLUSHALL sets back
	noTTL        bool // a lock that was not released stays

	// Of a semaphore:
	tooMany    bool // it admits one more
	earlyPurge bool // a permit counts as expired before its end
	noPurge    bool // a permit that was not released stays
}

func (b broken) lock(ctx context.Context, key string, w wish) (handle, error) {
	for {
		h, err := b.tryLock(ctx, key, w)
		if err == nil {
			return h, nil
		}
		select {
		case <-ctx.Done():
			return nil, redlatch.ErrNotAcquired
		case <-time.After(3 * time.Millisecond):
		}
	}
}

func (b broken) tryLock(ctx context.Context, key string, w wish) (handle, error) {
	h := &brokenLock{broken: b, key: key, token: uuid.NewString()}
	asked, ttl := time.Now(), w.ttl
	if b.flaws.noTTL {
		ttl = 0
	}
	if b.limit > 0 {
		if err := b.permit(ctx, h, ttl); err != nil {
			return nil, redlatch.ErrNotAcquired
		}
	} else if err := b.client.SetArgs(ctx, key, h.token, redis.SetArgs{Mode: "NX", TTL: ttl}).Err(); err != nil {
		return nil, redlatch.ErrNotAcquired
	}
	if b.flaws.plainCounter {
		fence, err := b.client.Incr(ctx, key+":fence").Result()
		if err != nil {
			return nil, redlatch.ErrNotAcquired // the lock ends with its TTL
		}
		h.fence = uint64(fence)
	}
	if b.flaws.countsLate {
		asked = time.Now()
	}
	h.until = asked.Add(w.ttl - w.ttl/50)
	if !time.Now().Before(h.until) {
		_ = b.remove(ctx, h) // if this fails, it ends with its TTL
		return nil, redlatch.ErrNotAcquired
	}
	return h, nil
}

// permit acquires a permit and its fence.
func (b broken) permit(ctx context.Context, h *brokenLock, ttl time.Duration) (err error) {
	limit, early := b.limit, time.Duration(0)
	if b.flaws.tooMany {
		limit++
	}
	if b.flaws.earlyPurge {
		early = ttl / 2
	}
	if b.flaws.noPurge {
		early = -time.Hour
	}
	h.fence, err = b.client.Eval(ctx, `
		local time = redis.call('TIME')
		local now = time[1] * 1000 + time[2] / 1000
		redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now + ARGV[3])
		if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[2]) then
			return false
		end
		redis.call('ZADD', KEYS[1], now + ARGV[4], ARGV[1])
		redis.call('PEXPIRE', KEYS[1], 3600000)
		local fence = redis.call('INCR', KEYS[2])
		redis.call('PEXPIRE', KEYS[2], 3600000)
		return fence`,
		[]string{h.key, h.key + ":fence"}, h.token, limit, early.Milliseconds(), ttl.Milliseconds()).Uint64()
	return err
}

// remove deletes the lock. If it finds nothing, it does not know why.
func (b broken) remove(ctx context.Context, h *brokenLock) error {
	source := `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
	if b.flaws.blindDelete {
		source = `return redis.call('DEL', KEYS[1])`
	}
	if b.limit > 0 {
		source = `return redis.call('ZREM', KEYS[1], ARGV[1])`
	}
	n, err := b.client.Eval(ctx, source, []string{h.key}, h.token).Int()
	if err == nil && n == 0 {
		return errors.New("not there")
	}
	return err
}

// brokenLock is a handle of a broken locker.
type brokenLock struct {
	broken
	key, token string
	fence      uint64
	until      time.Time
	released   atomic.Bool
}

func (h *brokenLock) Token() string         { return h.token }
func (h *brokenLock) Fence() uint64         { return h.fence }
func (h *brokenLock) Until() time.Time      { return h.until }
func (h *brokenLock) Done() <-chan struct{} { return nil }

func (h *brokenLock) Err() error {
	switch {
	case h.released.Load():
		return redlatch.ErrReleased
	case !h.flaws.neverLost && !time.Now().Before(h.until):
		return redlatch.ErrLost
	}
	return nil
}

func (h *brokenLock) Extend(context.Context, time.Duration) error { return errors.ErrUnsupported }

func (h *brokenLock) Unlock(ctx context.Context) error {
	lost := h.Err()
	h.released.Store(true)
	if err := h.remove(ctx, h); lost == nil {
		return err
	}
	return lost
}

// mistake is a flaw of a broken locker, and the texts that must be in the error of a history.
type mistake struct {
	flaws  flaws
	forget bool
	shown  []string
}

// TestBrokenLockersAreCaught: the histories, the faults and the rules of the other tests expose each
// flaw of a lock.
func TestBrokenLockersAreCaught(t *testing.T) {
	catch(t, 0, map[string]mistake{
		"DEL without compare":                   {flaws{blindDelete: true}, false, []string{"breaks the rules"}},
		"a lease counted from the reply":        {flaws{countsLate: true}, false, []string{"breaks the rules"}},
		"a holder that does not notice the end": {flaws{neverLost: true}, false, []string{"breaks the rules"}},
		"a fence that is only a counter":        {flaws{plainCounter: true}, true, []string{"breaks the rules"}},
		"a lock that has no TTL":                {flaws{noTTL: true}, false, []string{"without a TTL", "waited for"}},
		"nothing":                               {},
	})
}

// TestBrokenSemaphoresAreCaught: they also expose each flaw of a semaphore.
func TestBrokenSemaphoresAreCaught(t *testing.T) {
	catch(t, 2, map[string]mistake{
		"one permit too many":               {flaws{tooMany: true}, false, []string{"breaks the rules", "more than 2 times at the end"}},
		"a purge that removes live permits": {flaws{earlyPurge: true}, false, []string{"breaks the rules"}},
		"permits that are not purged":       {flaws{noPurge: true}, false, []string{"of 2 times at the end"}},
		"nothing":                           {},
	})
}

// catch plays histories of broken lockers until one shows the mistake. limit is that of a semaphore.
func catch(t *testing.T, limit int, mistakes map[string]mistake) {
	const rounds = 15 // enough for a flaw that one history in two exposes
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := strategy{
				name: name, servers: 1, ttl: 50 * time.Millisecond, keys: 8, overstays: 10,
				fenced: mistake.forget || limit > 0, holders: limit,
			}
			if limit > 0 {
				s.keys = 1 // for more workers than permits
			}
			s.make = func(clients []redis.UniversalClient) (locker, error) {
				return broken{clients[0], mistake.flaws, limit}, nil
			}
			w, from := newWorld(t, s), seed(t)
			for round := range rounds {
				e := w.newEpisode(from+uint64(round), !mistake.forget, round)
				e.pictures = t.TempDir()
				if mistake.flaws.noTTL || mistake.flaws.noPurge {
					e.limit, e.bound = e.length, 2*time.Second // it comes to a standstill
				}
				err := e.run()
				t.Log(e.summary())
				if mistake.shown == nil {
					require.NoError(t, err)
					return
				}
				if err != nil && !slices.ContainsFunc(mistake.shown, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
					return
				}
			}
			t.Errorf("%d histories did not show it", rounds)
		})
	}
}
