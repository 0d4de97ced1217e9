package proof

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
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
	renews bool
	line   *brokenLine // of those who wait in this process; nil: Unlock passes nothing on
}

type flaws struct {
	blindDelete  bool // Unlock deletes whatever is there
	countsLate   bool // the lease is counted from the reply
	neverLost    bool // the holder does not notice the end
	plainCounter bool // the fence is a counter that FLUSHALL sets back
	noTTL        bool // a lock that was not released stays
	lostDeletes  bool // Unlock of a lost handle deletes the lock of its adopter
	keepsToken   bool // a min hold is kept by the token

	// Of a line:
	lines      bool // no flaw: Unlock passes the lock on
	twoAtOnce  bool // a grant serves two
	passesLost bool // a lost lock is passed on, with a lease from then on
	oneFence   bool // all that a lock is passed on to have one fence

	// Of a semaphore:
	tooMany    bool // it admits one more
	earlyPurge bool // a permit counts as expired before its end
	noPurge    bool // a permit that was not released stays
	growing    bool // a command that needs memory renews permits
}

func (b broken) lock(ctx context.Context, key string, w wish) (handle, error) {
	var passed chan *brokenLock
	if b.line != nil && w.plain {
		passed = b.line.join(key)
	}
	for {
		h, err := b.tryLock(ctx, key, w)
		if err == nil {
			got := h.(*brokenLock)
			got.passes = passed != nil && b.line.leave(key, passed)
			if got.passes && b.flaws.twoAtOnce {
				got.pass(ctx, w.ttl)
			}
			if passed != nil && !got.passes {
				_ = b.remove(ctx, got) // if this fails, it ends with its TTL
				return <-passed, nil
			}
			return h, nil
		}
		select {
		case h := <-passed:
			return h, nil
		case <-ctx.Done():
			if passed != nil && !b.line.leave(key, passed) {
				return <-passed, nil
			}
			return nil, redlatch.ErrNotAcquired
		case <-time.After(3 * time.Millisecond):
		}
	}
}

// A brokenLine has those in one process who wait for keys.
type brokenLine struct {
	mu      sync.Mutex                    // guards waiting
	waiting map[string][]chan *brokenLock // by key, in the order of arrival
}

// join adds somebody, who is passed the lock by the channel that join returns.
func (l *brokenLine) join(key string) chan *brokenLock {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := make(chan *brokenLock, 1)
	l.waiting[key] = append(l.waiting[key], c)
	return c
}

// leave removes somebody. It reports false for those who were passed the lock.
func (l *brokenLine) leave(key string, c chan *brokenLock) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	i := slices.Index(l.waiting[key], c)
	if i >= 0 {
		l.waiting[key] = slices.Delete(l.waiting[key], i, i+1)
	}
	return i >= 0
}

// pass passes the lock on to the first who waits. It reports whether there was somebody. A fence is minted once its owner
// waits: those who come later get higher ones.
func (h *brokenLock) pass(ctx context.Context, ttl time.Duration) bool {
	h.line.mu.Lock()
	defer h.line.mu.Unlock()
	waiting := h.line.waiting[h.key]
	if len(waiting) == 0 {
		return false
	}
	fence := h.fence
	if fence > 0 && !h.flaws.oneFence {
		var err error
		if fence, err = h.client.Incr(ctx, h.key+":fence").Uint64(); err != nil || !time.Now().Before(h.Until()) {
			return false
		}
	}
	heir := &brokenLock{broken: h.broken, key: h.key, token: h.token, fence: fence, passes: true, until: h.Until()}
	if h.flaws.passesLost {
		heir.lasts(time.Now(), ttl)
	}
	waiting[0] <- heir
	h.line.waiting[h.key] = waiting[1:]
	return true
}

func (b broken) tryLock(ctx context.Context, key string, w wish) (handle, error) {
	h := &brokenLock{broken: b, key: key, token: uuid.NewString()}
	w.ttl = max(w.ttl, w.minHold)
	asked, ttl := time.Now(), w.ttl
	h.kept = asked.Add(w.minHold)
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
	h.lasts(asked, w.ttl)
	if h.Err() != nil {
		_ = b.remove(ctx, h) // if this fails, it ends with its TTL
		return nil, redlatch.ErrNotAcquired
	}
	if b.renews && w.renew {
		h.renew(w.ttl)
	}
	return h, nil
}

// adopt extends a lock for another handle.
func (b broken) adopt(ctx context.Context, key, token string, w wish) (handle, error) {
	h := &brokenLock{broken: b, key: key, token: token}
	asked := time.Now()
	var err error
	if h.fence, err = b.prolong(ctx, h, w.ttl); err != nil {
		return nil, err
	}
	h.lasts(asked, w.ttl)
	if b.renews && w.renew {
		h.renew(w.ttl)
	}
	return h, nil
}

// prolong lets a lock last for ttl, and mints a fence of a semaphore.
func (b broken) prolong(ctx context.Context, h *brokenLock, ttl time.Duration) (fence uint64, err error) {
	source := `
		if redis.call('GET', KEYS[1]) ~= ARGV[1] then
			return false
		end
		if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then
			redis.call('PEXPIRE', KEYS[1], ARGV[2])
		end
		return 0`
	if b.limit > 0 {
		source = `
			local time = redis.call('TIME')
			local now = time[1] * 1000 + time[2] / 1000
			local ends = redis.call('ZSCORE', KEYS[1], ARGV[1])
			if not ends or tonumber(ends) <= now then
				return false
			end
			if ARGV[3] == '0' then
				redis.call('PEXPIRE', KEYS[1], 3600000) -- behind a write, Redis refuses nothing
			end
			redis.call('ZADD', KEYS[1], math.max(ends, now + ARGV[2]), ARGV[1])
			return redis.call('INCR', KEYS[2])`
	}
	growing := 0
	if b.flaws.growing {
		growing = 1
	}
	return b.client.Eval(ctx, source, []string{h.key, h.key + ":fence"}, h.token, ttl.Milliseconds(), growing).Uint64()
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

// remove deletes the lock, or keeps the key for what is left of the min hold. If it finds nothing, it does not know
// why.
func (b broken) remove(ctx context.Context, h *brokenLock) error {
	source := `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('DEL', KEYS[1]) or 0`
	left := time.Until(h.kept)
	switch {
	case b.flaws.blindDelete:
		source = `return redis.call('DEL', KEYS[1])`
	case b.limit > 0:
		source = `return redis.call('ZREM', KEYS[1], ARGV[1])`
	case left > 0 && b.flaws.keepsToken:
		source = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('PEXPIRE', KEYS[1], ARGV[2]) or 0`
	case left > 0:
		source = `return redis.call('GET', KEYS[1]) == ARGV[1] and redis.call('SET', KEYS[1], 'kept', 'PX', ARGV[2]) and 1 or 0`
	}
	n, err := b.client.Eval(ctx, source, []string{h.key}, h.token, left.Milliseconds()+1).Int()
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
	kept       time.Time // when the min hold ends
	passes     bool      // Unlock may pass the lock on
	shared     atomic.Bool
	released   atomic.Bool

	mu    sync.Mutex // guards the fields below
	until time.Time
}

func (h *brokenLock) Token() string {
	h.shared.Store(true)
	return h.token
}

func (h *brokenLock) Fence() uint64 { return h.fence }

func (h *brokenLock) Until() time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.until
}

// lasts lets the lease last for ttl since it was asked for, and never shortens it.
func (h *brokenLock) lasts(asked time.Time, ttl time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if until := asked.Add(trusted(ttl)); until.After(h.until) {
		h.until = until
	}
}

// renew extends the lock in the background, until it has ended.
func (h *brokenLock) renew(ttl time.Duration) {
	time.AfterFunc(ttl/3, func() {
		if h.Err() == nil {
			_ = h.Extend(context.Background(), ttl) // the next one may succeed
			h.renew(ttl)
		}
	})
}

func (h *brokenLock) Err() error {
	switch {
	case h.released.Load():
		return redlatch.ErrReleased
	case !h.flaws.neverLost && !time.Now().Before(h.Until()):
		return redlatch.ErrLost
	}
	return nil
}

func (h *brokenLock) Extend(ctx context.Context, ttl time.Duration) error {
	asked := time.Now()
	_, err := h.prolong(ctx, h, ttl)
	if err == nil {
		h.lasts(asked, ttl)
	}
	return err
}

func (h *brokenLock) Unlock(ctx context.Context) error {
	lost := h.Err()
	h.released.Store(true)
	if h.passes && !h.shared.Load() && (lost == nil || h.flaws.passesLost) && h.pass(ctx, brokenTTL) {
		return lost
	}
	if lost != nil && !h.flaws.lostDeletes && !h.flaws.blindDelete {
		return lost
	}
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
		"a lost handle that deletes":            {flaws{lostDeletes: true}, false, []string{"breaks the rules"}},
		"a min hold that keeps the token":       {flaws{keepsToken: true}, false, []string{"breaks the rules"}},
		"a line that serves two at once":        {flaws{lines: true, twoAtOnce: true}, false, []string{"breaks the rules"}},
		"a line that passes on a lost lock":     {flaws{lines: true, passesLost: true}, false, []string{"breaks the rules"}},
		"nothing":                               {},
		"nothing, with lines":                   {flaws: flaws{lines: true}},
	})
}

// TestBrokenSemaphoresAreCaught: they also expose each flaw of a semaphore.
func TestBrokenSemaphoresAreCaught(t *testing.T) {
	catch(t, 2, map[string]mistake{
		"one permit too many":               {flaws{tooMany: true}, false, []string{"breaks the rules", "more than 2 times at the end"}},
		"a purge that removes live permits": {flaws{earlyPurge: true}, false, []string{"breaks the rules"}},
		"permits that are not purged":       {flaws{noPurge: true}, false, []string{"of 2 times at the end"}},
		"a line that serves two at once":    {flaws{lines: true, twoAtOnce: true}, false, []string{"breaks the rules"}},
		"a line with one fence":             {flaws{lines: true, oneFence: true}, false, []string{"breaks the rules"}},
		"nothing":                           {},
		"nothing, with lines":               {flaws: flaws{lines: true}},
	})
}

// catch plays histories of broken lockers until one shows the mistake. limit is that of a semaphore.
func catch(t *testing.T, limit int, mistakes map[string]mistake) {
	for name, mistake := range mistakes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := brokenStrategy(name, mistake.flaws, limit)
			s.fenced = s.fenced || mistake.forget
			w, from := newWorld(t, s), seed(t)
			caught(t, mistake.shown, func(round int) error {
				e := w.newEpisode(from+uint64(round), !mistake.forget, round)
				e.pictures = t.TempDir()
				if mistake.flaws.noTTL || mistake.flaws.noPurge {
					e.limit, e.bound = e.length, 2*time.Second // it comes to a standstill
				}
				err := e.run()
				t.Log(e.summary())
				return err
			})
		})
	}
}

// brokenTTL is the default TTL of broken lockers.
const brokenTTL = 50 * time.Millisecond

// brokenStrategy is a strategy of broken lockers.
func brokenStrategy(name string, f flaws, limit int) strategy {
	s := strategy{
		name: name, servers: 1, ttl: brokenTTL, keys: 8, overstays: 10, crowded: 50,
		fenced: limit > 0, holders: limit, keeps: limit == 0,
		make: func(clients []redis.UniversalClient, _ wish) (locker, error) {
			b := broken{client: clients[0], flaws: f, limit: limit}
			if f.lines {
				b.line = &brokenLine{waiting: make(map[string][]chan *brokenLock)}
			}
			return b, nil
		},
	}
	if limit > 0 {
		s.keys = 1 // for more workers than permits
	}
	return s
}

// caught plays rounds until one fails with all of the texts. If there are none, the first round must pass.
func caught(t *testing.T, shown []string, play func(round int) error) {
	t.Helper()
	const rounds = 15 // enough for a flaw that one history in two exposes
	for round := range rounds {
		err := play(round)
		if shown == nil {
			require.NoError(t, err)
			return
		}
		if err != nil && !slices.ContainsFunc(shown, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
			return
		}
	}
	t.Errorf("%d histories did not show it", rounds)
}
