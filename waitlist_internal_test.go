package redlatch

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// seatIn seats a waiter for key whose lease is a second.
func seatIn(b *waitlist, key, token string) *waiter {
	p := acquireParams{target: target{token: token}, ttl: time.Second}
	p.key = key
	return b.enter(&p, false, readClocks())
}

// roomOf returns the waitlist of a Locker whose subscription stands.
func roomOf(t *testing.T) *waitlist {
	t.Helper()
	_, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	b := made.(*engine).waitlist
	looked := make(chan struct{}, 1) // a look in the background would race with the test
	b.subscription.changed = func() { looked <- struct{}{} }
	b.subscription.join()
	t.Cleanup(b.subscription.leave)
	<-looked
	return b
}

// TestHandoverNamesItsKeyAndItsPlace: one that names another key, another number, another TTL or another process
// is nobody's, whatever its token is.
func TestHandoverNamesItsKeyAndItsPlace(t *testing.T) {
	b := roomOf(t)
	mine, beside, elsewhere := seatIn(b, "k", "job-7"), seatIn(b, "k", "job-7"), seatIn(b, "l", "job-7")
	tell := func(entry, key string) {
		b.subscription.received(&redis.Message{Payload: "1700000000 5 7 " + strconv.Itoa(len(entry)) + " " + entry + key})
	}
	heard := func() []int { return []int{len(mine.handed), len(beside.handed), len(elsewhere.handed)} }
	tell(mine.entry, "l")
	tell(mine.entry, "m")
	tell(elsewhere.entry, "k")
	tell("1000 "+b.subscription.channel+" 1 job-7", "k")
	tell("1000 redlatch:another"+strings.TrimPrefix(mine.entry, "1000 "+b.subscription.channel), "k")
	tell("9"+mine.entry, "k")
	require.Equal(t, []int{0, 0, 0}, heard())
	tell(beside.entry, "k")
	require.Equal(t, []int{0, 1, 0}, heard())
	tell(elsewhere.entry, "l")
	require.Equal(t, []int{0, 1, 1}, heard())
}

// TestWaitersOfALostQueueLookAtOnce is rule 25: a look finds that its entry had gone, so those of all waiters of
// the process have. They queue again, without their turns to look.
func TestWaitersOfALostQueueLookAtOnce(t *testing.T) {
	b := roomOf(t)
	first, second, newcomer := seatIn(b, "k", "1"), seatIn(b, "k", "2"), seatIn(b, "k", "3")
	for _, w := range []*waiter{first, second} {
		b.onReply(w, readClocks(), acquireReply{at: 1, fresh: true, holder: "h", left: time.Minute}, ErrNotAcquired)
	}
	require.Zero(t, second.lookAt)
	b.onReply(first, readClocks(), acquireReply{at: 2, fresh: true, holder: "h", left: time.Minute}, ErrNotAcquired)
	require.Zero(t, first.lookAt)
	require.NotZero(t, second.lookAt)
	require.LessOrEqual(t, time.Until(second.lookAt), time.Duration(0))
	require.Zero(t, newcomer.lookAt, "it has had no place")
}

// TestLooksComeAtIntervals is rule 27: the first of the queue polls where the lock changes hands past it, until it
// has been first of nobody; others look ever less often while the key stays with one holder.
func TestLooksComeAtIntervals(t *testing.T) {
	b := roomOf(t)
	cfg := defaults()
	cfg.backoff = func(attempt int) time.Duration { return time.Duration(attempt) * time.Millisecond }
	w := seatIn(b, "k", "1")
	const ours, others, theirs = "3f7c1a52-8a07-4a8e-9d6c-0f5f3a7e2b11", "9b1d4c60-1e0f-4f2a-8a55-6a4c0f3d7e22", "their-token"
	look := func(holder string, first bool) time.Duration {
		got := acquireReply{at: 1, holder: holder, first: first, left: time.Minute}
		b.onReply(w, readClocks(), got, ErrNotAcquired)
		return b.interval(w, &cfg, got)
	}
	between := func(least, d time.Duration) {
		t.Helper()
		require.GreaterOrEqual(t, d, least)
		require.Less(t, d, least+least/4)
	}
	between(time.Second, look(ours, false))
	between(2*time.Second, look(ours, false))
	between(4*time.Second, look(ours, false))
	between(4*time.Second, look(ours, false))
	between(time.Second, look(others, false))
	between(time.Second, look(others, true))
	between(time.Second, look(others, true))
	require.Equal(t, time.Millisecond, look(ours, true))
	require.Equal(t, 2*time.Millisecond, look(ours, true))

	b.leave(w)
	w = seatIn(b, "k", "2")
	between(250*time.Millisecond, look(theirs, true))
	require.Equal(t, time.Millisecond, look(ours, true))
}

// TestPlaceThatWasNotGivenUpIsReleased is rule 26: its waiter left while Redis refused everything. What is handed to
// the place later is given back.
func TestPlaceThatWasNotGivenUpIsReleased(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	holder, a, w := queueing(t, made)
	m.SetError("ERR away")
	made.(*engine).waitlist.leave(w)
	a.leaveQueue(context.Background(), w.entry)
	m.SetError("")
	require.True(t, m.Exists("{k}:queue:k"))
	require.NoError(t, holder.Unlock(t.Context()))
	require.Eventually(t, func() bool { return !m.Exists("k") }, 5*time.Second, time.Millisecond)
	require.False(t, m.Exists("{k}:queue:k"))
}

// TestMessageThatCameIsNotMissed is rule 30: it came while the look was under way that found the lock.
func TestMessageThatCameIsNotMissed(t *testing.T) {
	b := roomOf(t)
	w := seatIn(b, "k", "1")
	b.onReply(w, readClocks(), acquireReply{at: 1, fresh: true, holder: "h", left: time.Minute}, ErrNotAcquired)
	b.deliver(handover{key: "k", entry: w.entry, ttl: time.Second, fence: 1, at: 1})
	b.found(w, true)
	require.Empty(t, b.missing)
	<-w.handed
	b.found(w, true)
	require.Equal(t, w.entry, b.missing)
	b.deliver(handover{key: "k", entry: w.entry, ttl: time.Second, fence: 1, at: 1})
	require.Empty(t, b.missing, "it came a little later")
}

// TestNextWaiterLooksAfterAnExpiredHandover is rule 25: a process that was frozen finds the lock free which it was handed.
// Its other entries may have left the queue, so the next waiter looks at once.
func TestNextWaiterLooksAfterAnExpiredHandover(t *testing.T) {
	b := roomOf(t)
	w, next := seatIn(b, "k", "1"), seatIn(b, "k", "2")
	b.onReply(w, readClocks(), acquireReply{at: 1, fresh: true, holder: "h", left: time.Minute}, ErrNotAcquired)
	b.deliver(handover{key: "k", entry: w.entry, ttl: time.Second, fence: 1, at: 1})
	b.found(w, false)
	require.Zero(t, next.lookAt)
	b.leave(w)
	require.LessOrEqual(t, time.Until(next.lookAt), time.Duration(0))
	require.NotZero(t, next.lookAt)
}

// TestKeptLockIsHandedOnThoughItHasExpired is rule 37: the key may expire a moment before the process hands it on. A
// release of any other kind finds nothing then.
func TestKeptLockIsHandedOnThoughItHasExpired(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	holder, _, w := queueing(t, made)
	m.Del("k")
	p := &releaseParams{target: holder.lease.params.target}
	s := made.(*engine).strategy
	_, err = s.release(t.Context(), p)
	require.ErrorIs(t, err, ErrLost)
	require.False(t, m.Exists("k"))
	p.ended = true
	_, err = s.release(t.Context(), p)
	require.NoError(t, err)
	value, err := m.Get("k")
	require.NoError(t, err)
	require.Equal(t, w.token, value)
}
