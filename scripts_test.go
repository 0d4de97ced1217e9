package redlatch

import (
	"strconv"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/handoff"
)

// queueOn is a strategy with a queue on a server whose clock stands still.
type queueOn struct {
	*engine
	m      *miniredis.Miniredis
	now    int64 // the clock, in µs
	queue  string
	before string // each entry
}

// onEachQueue runs a test on each strategy with a queue.
func onEachQueue(t *testing.T, test func(t *testing.T, q *queueOn)) {
	for name, made := range map[string]func(client *redis.Client) (Locker, error){
		"SetNXPX":   func(client *redis.Client) (Locker, error) { return NewSetNXPX(client) },
		"Semaphore": func(client *redis.Client) (Locker, error) { return NewSemaphore(client, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			m, client, _ := oneNode(t)
			at := time.Date(2026, time.January, 1, 12, 0, 0, 123_456_000, time.UTC)
			m.SetTime(at)
			l, err := made(client)
			require.NoError(t, err)
			q := &queueOn{engine: l.(*engine), m: m, now: at.UnixMicro(), queue: queueOf("k")}
			if name == "Semaphore" {
				q.queue, q.before = "{k}:permits:k", "1 "
			}
			test(t, q)
		})
	}
}

// entry returns a fresh attempt whose process polls, so that it can be handed the lock without a message.
func (q *queueOn) entry(t *testing.T, waited time.Duration) *lease {
	t.Helper()
	a := newEntry(t, q.engine)
	a.entry = handoff.Entry(a.params.ttl, true, q.channel.Channel, a.params.token)
	a.params.entry, a.params.waited = a.entry, waited
	return a
}

// score returns the score of an entry.
func (q *queueOn) score(t *testing.T, a *lease) int64 {
	t.Helper()
	score, err := q.m.ZScore(q.queue, q.before+a.entry)
	require.NoError(t, err)
	return int64(score)
}

// TestBlockNeverEndsAboveTheClock: an acquire that asks for five fences gets as many as end at the clock at most, and at
// least one. The register is the last of them. If it was empty, the only one is at the clock.
func TestBlockNeverEndsAboveTheClock(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		for name, c := range map[string]struct{ register, fence, more int64 }{
			"lost":                  {0, q.now, 0},
			"far behind":            {q.now - 3_600_000_000, q.now - 4, 4},
			"just behind the slack": {q.now - 10_002, q.now - 4, 4},
			"within the slack":      {q.now - 5000, q.now - 4999, 4},
			"just below the clock":  {q.now - 3, q.now - 2, 2},
			"at the clock":          {q.now, q.now + 1, 0},
			"ahead of the clock":    {q.now + 100, q.now + 101, 0},
		} {
			q.m.Del("redlatch:fence")
			if c.register > 0 {
				require.NoError(t, q.m.Set("redlatch:fence", strconv.FormatInt(c.register, 10)))
			}
			a := q.entry(t, 0)
			a.params.entry, a.params.want = "", 5
			got, err := a.send(t, false)
			require.NoError(t, err)
			require.Equal(t, c.fence, int64(got.fence), name)
			require.Equal(t, int(c.more), got.more, name)
			register, err := q.m.Get("redlatch:fence")
			require.NoError(t, err)
			require.Equal(t, strconv.FormatInt(c.fence+c.more, 10), register, name)
			_, err = q.strategy.release(t.Context(), &releaseParams{target: a.params.target})
			require.NoError(t, err)
		}
	})
}

// TestPlaceIsThatOfTheArrival is rules 15 and 45: the score of an entry is the clock of Redis, or what is above the highest
// score, less how long the line has waited. It is above 0, the score of an entry that was handed the lock. The lowest is the
// first of the queue.
func TestPlaceIsThatOfTheArrival(t *testing.T) {
	const hour = time.Hour
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		holder := granted(t, q.engine)
		for _, c := range []struct {
			waited time.Duration
			score  int64
			first  bool
		}{
			{hour, q.now - hour.Microseconds(), true},
			{0, q.now, false},
			{0, q.now + 1, false},
			{hour / 2, q.now + 2 - (hour / 2).Microseconds(), false},
			{2 * hour, q.now + 2 - (2 * hour).Microseconds(), true},
			{time.Duration(q.now+5) * time.Microsecond, 1, true},
		} {
			a := q.entry(t, c.waited)
			got, err := a.send(t, false)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.Equal(t, c.score, q.score(t, a))
			require.Equal(t, c.first, got.First)
		}
		next := q.entry(t, 0)
		_, err := q.strategy.release(t.Context(), &releaseParams{target: holder.lease.params.target, next: next.entry, waited: hour / 4})
		require.NoError(t, err)
		require.Equal(t, q.now+2-(hour/4).Microseconds(), q.score(t, next))
	})
}

// TestReleaseThatFindsNothingQueuesNothing is rule 7: a release whose token does not hold the lock leaves all as it is. So a
// resend does not queue the line of the releaser again.
func TestReleaseThatFindsNothingQueuesNothing(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		holder, lost := granted(t, q.engine), q.entry(t, 0)
		_, err := q.strategy.release(t.Context(), &releaseParams{target: lost.params.target, next: q.entry(t, 0).entry})
		require.ErrorIs(t, err, ErrLost)
		require.False(t, q.m.Exists(q.queue))
		require.NoError(t, holder.Unlock(t.Context()))
	})
}

// TestReleaseSaysThatItHandsTheLockToItsLine is rule 45, with the fences of the grant.
func TestReleaseSaysThatItHandsTheLockToItsLine(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		holder := granted(t, q.engine)
		earlier, next := q.entry(t, time.Minute), q.entry(t, 0)
		_, err := earlier.send(t, false)
		require.ErrorIs(t, err, ErrNotAcquired)
		require.NoError(t, q.m.Set("redlatch:fence", strconv.FormatInt(q.now-1000, 10)))
		got, err := q.strategy.release(t.Context(), &releaseParams{target: holder.lease.params.target, next: next.entry})
		require.NoError(t, err)
		require.Equal(t, releaseReply{at: time.Duration(q.now) * time.Microsecond}, got)
		got, err = q.strategy.release(t.Context(), &releaseParams{target: earlier.params.target, entry: earlier.entry})
		require.NoError(t, err)
		require.Equal(t, releaseReply{}, got)
		last := q.entry(t, time.Hour)
		require.NoError(t, q.m.Set("redlatch:fence", strconv.FormatInt(q.now-1000, 10)))
		got, err = q.strategy.release(t.Context(), &releaseParams{
			target: next.params.target, entry: next.entry, next: last.entry, waited: time.Hour,
		})
		require.NoError(t, err)
		require.Equal(t, releaseReply{
			at: time.Duration(q.now) * time.Microsecond, handed: true, fence: uint64(q.now - 999), more: 63,
		}, got)
	})
}

// TestLostPlaceIsTakenAgain is rule 15: the queue is lost, and a look adds the entry again, by the time of its arrival.
func TestLostPlaceIsTakenAgain(t *testing.T) {
	onEachQueue(t, func(t *testing.T, q *queueOn) {
		granted(t, q.engine)
		a := q.entry(t, time.Minute)
		for range 2 {
			got, err := a.send(t, true)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.True(t, got.Fresh)
			require.Equal(t, q.now-time.Minute.Microseconds(), q.score(t, a))
			got, err = a.send(t, true)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.False(t, got.Fresh)
			q.m.Del(q.queue)
		}
	})
}

// TestRefusalSaysWhetherTheQueueHandedTheLock is rule 27: only the first of the queue is told, and only if the holder is the
// one that was handed the lock.
func TestRefusalSaysWhetherTheQueueHandedTheLock(t *testing.T) {
	m, client, _ := oneNode(t)
	l, err := NewSetNXPX(client)
	require.NoError(t, err)
	require.NoError(t, m.Set("k", "a token"))
	_, err = m.ZAdd(queueOf("k"), 0, "10000 redlatch:x a token")
	require.NoError(t, err)
	first, second := newEntry(t, l), newEntry(t, l)
	handed := func(a *lease, queued bool) bool {
		got, err := a.send(t, queued)
		require.ErrorIs(t, err, ErrNotAcquired)
		return got.Handed
	}
	require.False(t, handed(first, false), "it may have come later")
	require.True(t, handed(first, true))
	require.False(t, handed(second, false))
	require.False(t, handed(second, true), "it is not the first")
	require.NoError(t, m.Set("k", "another"))
	require.False(t, handed(first, true), "the lock that was handed over has expired")
}

// TestLineThatWasPassedPollsOn is rule 27: the key has changed hands past a line, which then acquired it. Its next entry polls
// from the start. A line that was handed the lock does not.
func TestLineThatWasPassedPollsOn(t *testing.T) {
	for handed, polls := range map[bool]bool{false: true, true: false} {
		var w handoff.Watch
		for _, holder := range []string{"one", "another"} {
			w.Refused(clock.Now(), handoff.Refusal{At: time.Hour, Holder: holder, First: true})
		}
		require.True(t, w.Polls())
		next := w.Next(handed)
		require.Equal(t, polls, next.Polls())
	}
	var w handoff.Watch
	next := w.Next(false)
	require.False(t, next.Polls())
}

// TestOneOfSeveralPermitsHasOneFence is rules 18 and 44: an acquire of a semaphore of two that asks for five fences gets one.
func TestOneOfSeveralPermitsHasOneFence(t *testing.T) {
	m, client, _ := oneNode(t)
	at := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)
	m.SetTime(at)
	require.NoError(t, m.Set("redlatch:fence", strconv.FormatInt(at.UnixMicro()-5000, 10)))
	l, err := NewSemaphore(client, 2)
	require.NoError(t, err)
	a := newEntry(t, l)
	a.params.entry, a.params.want = "", 5
	got, err := a.send(t, false)
	require.NoError(t, err)
	require.Equal(t, uint64(at.UnixMicro()-4999), got.fence)
	require.Zero(t, got.more)
}
