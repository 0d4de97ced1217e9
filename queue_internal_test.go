package redlatch

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/quick"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestHandedLeaseNeverBeginsAfterRedisGranted holds the start formula to its promise: whatever the
// offset between the clocks, their drift, how long the news took and how far Redis's clock was set
// back meanwhile, a lease that was handed over is not trusted for longer than Redis keeps the key.
// Where that clock was set forward, the error is the delay of the news, since no lease begins
// after it arrived.
func TestHandedLeaseNeverBeginsAfterRedisGranted(t *testing.T) {
	const factor = 0.01
	scale := func(n uint32, most time.Duration) time.Duration {
		return time.Duration(float64(most) * float64(n) / math.MaxUint32)
	}
	base := readClocks()
	here := func(d time.Duration) instant {
		return instant{mono: base.mono.Add(d), wall: base.wall + d}
	}
	property := func(asked, told, granted, arrived, drift, offset, stepped uint32) bool {
		// In true time, in order: the question leaves, Redis is asked, grants, the news arrives.
		t0 := scale(asked, time.Second)
		s0 := t0 + scale(told, time.Second)
		s1 := s0 + scale(granted, 20*time.Second)
		end := s1 + scale(arrived, 5*time.Second)
		rate := 1 + factor*(2*float64(drift)/math.MaxUint32-1)*0.99 // of Redis's clock
		there := func(d time.Duration) time.Duration {
			return scale(offset, 1000*time.Hour) + time.Duration(float64(d)*rate)
		}
		at := there(s1)
		back := scale(stepped, time.Hour)
		for _, at := range []time.Duration{at, at - min(back, at-1)} { // also with a clock set back
			start := handedAt(here(end), here(t0), there(s0), at, factor)
			if start.mono.Sub(base.mono) > s1+time.Microsecond || start.mono.Sub(base.mono) > end {
				return false
			}
		}
		unasked := handedAt(here(end), here(t0), 0, at, factor)
		return unasked.mono.Sub(base.mono) <= s1
	}
	require.NoError(t, quick.Check(property, &quick.Config{MaxCount: 200_000}))
}

// TestHandedLeaseKeepsMostOfItsTTL: the formula must not be so careful that nothing is left. A
// second after the last look, on clocks of one rate, it takes no more than the two trips and the
// drift of that second.
func TestHandedLeaseKeepsMostOfItsTTL(t *testing.T) {
	base := readClocks()
	arrived := instant{mono: base.mono.Add(1002 * time.Millisecond), wall: base.wall + 1002*time.Millisecond}
	start := handedAt(arrived, base, time.Hour, time.Hour+time.Second, 0.01)
	require.Equal(t, 12*time.Millisecond, arrived.since(start))
}

// TestSleptOverItsTurn: the wall clock alone ran on while the machine slept.
func TestSleptOverItsTurn(t *testing.T) {
	base := readClocks()
	arrived := instant{mono: base.mono.Add(time.Millisecond), wall: base.wall + time.Minute}
	start := handedAt(arrived, base, time.Hour, time.Hour+500*time.Microsecond, 0.01)
	require.Greater(t, arrived.since(start), 59*time.Second)
}

// TestHandoverIsReadStrictly: what release.lua publishes is read, and nothing else.
func TestHandoverIsReadStrictly(t *testing.T) {
	h, ok := parseHandover("1700000000 999999 1700000000000123 24 250 redlatch:1 2 a token the key")
	require.True(t, ok)
	require.Equal(t, handover{
		key: " the key", entry: "250 redlatch:1 2 a token", fence: 1700000000000123, ttl: 250 * time.Millisecond,
		at: 1700000000*time.Second + 999999*time.Microsecond,
	}, h)
	for _, bad := range []string{
		"", "1 2 3 4", "1 1 1 3 0 xk", "1 1 1 1 xk", "1 1000000 1 3 1 xk", "99999999999 1 1 3 1 xk",
		"1 1 1 9 1 xk", "1 1 -1 3 1 xk", "1 1 1 5 1e3 xk", "1 1 1 0 k", strings.Repeat("9", 400),
	} {
		_, ok := parseHandover(bad)
		require.False(t, ok, bad)
	}
}

// FuzzHandover: no message makes the parser panic, and what it accepts is within bounds.
func FuzzHandover(f *testing.F) {
	f.Add("1700000000 999999 1700000000000123 24 250 redlatch:1 2 a token the key")
	f.Add("1 1 1 1 5")
	f.Fuzz(func(t *testing.T, message string) {
		h, ok := parseHandover(message)
		if ok && (h.ttl <= 0 || !strings.HasSuffix(message, h.entry+h.key)) {
			t.Errorf("%q was read as %+v", message, h)
		}
	})
}

// handOnFrom has a lock on k released while entries queue for it, the one with a score of 0 first. It returns
// whose the key is then, what still queues with its scores, and what was published to redlatch:there and
// redlatch:polls, which both listen.
func handOnFrom(t *testing.T, entries ...string) (holder string, queue map[string]float64, heard []string) {
	t.Helper()
	m, client, _ := oneNode(t)
	ps := client.Subscribe(t.Context(), "redlatch:there", "redlatch:polls")
	defer ps.Close()
	for range 2 {
		_, err := ps.Receive(t.Context())
		require.NoError(t, err)
	}
	l, err := NewSetNXPX(client)
	require.NoError(t, err)
	lock := granted(t, l)
	for i, entry := range entries {
		_, err := m.ZAdd("{k}:queue:k", float64(i), entry)
		require.NoError(t, err)
	}
	require.NoError(t, lock.Unlock(t.Context()))
	require.NoError(t, client.Publish(t.Context(), "redlatch:there", "the end").Err())
	for message := range ps.Channel() {
		if message.Payload == "the end" {
			break
		}
		heard = append(heard, message.Channel)
	}
	if m.Exists("k") {
		holder, err = m.Get("k")
		require.NoError(t, err)
	}
	queue, _ = m.SortedSet("{k}:queue:k")
	return holder, queue, heard
}

// TestReleaseForgetsAFrozenProcess is rule 25: it was handed a lock that has expired unreleased, and it listens.
// None of its entries stays.
func TestReleaseForgetsAFrozenProcess(t *testing.T) {
	next := "3000 redlatch:polls 4 d"
	holder, queue, heard := handOnFrom(t, "1000 redlatch:there 1 a", "1000 redlatch:there 2 b", "1000 -redlatch:there 3 c", next)
	require.Equal(t, "d", holder)
	require.Equal(t, map[string]float64{next: 0}, queue)
	require.Equal(t, []string{"redlatch:polls"}, heard)
}

// TestReleaseHandsOnToAProcessThatPolls is rule 28: nothing is published to it, for it may not listen, or may
// not be told.
func TestReleaseHandsOnToAProcessThatPolls(t *testing.T) {
	for name, listens := range map[string]string{"it listens": "redlatch:polls", "it does not": "redlatch:silent"} {
		t.Run(name, func(t *testing.T) {
			first, second := "3000 -"+listens+" 2 b", "3000 redlatch:there 3 c"
			holder, queue, heard := handOnFrom(t, "1000 redlatch:gone 1 a", first, second)
			require.Equal(t, "b", holder)
			require.Equal(t, map[string]float64{first: 0, second: 2}, queue)
			require.Empty(t, heard)
		})
	}
}

// seated returns an attempt of l's on k, and the waiter that makes it.
func seated(t *testing.T, l Locker, opts ...Option) (*attempt, *waiter) {
	t.Helper()
	e := l.(*engine)
	r, err := e.request(t.Context(), "k", opts)
	require.NoError(t, err)
	a, err := e.newAttempt(r)
	require.NoError(t, err)
	return a, e.waitlist.enter(&a.params, false, e.now())
}

// queueing returns an attempt that has a place in the queue of a key, behind a holder, in a process that listens.
func queueing(t *testing.T, l Locker, opts ...Option) (holder *Lock, a *attempt, w *waiter) {
	t.Helper()
	s := l.(*engine).waitlist.subscription
	ready := s.join()
	t.Cleanup(s.leave)
	<-ready
	holder = granted(t, l)
	a, w = seated(t, l, opts...)
	_, _, err := a.ask(t.Context(), w.entry, false)
	require.ErrorIs(t, err, ErrNotAcquired)
	return holder, a, w
}

// TestGrantTakesItsPlaceOut: whether the lock was free, or the token had it already.
func TestGrantTakesItsPlaceOut(t *testing.T) {
	for name, had := range map[string]bool{"free": false, "its own": true} {
		t.Run(name, func(t *testing.T) {
			m, client, _ := oneNode(t)
			l, err := NewSetNXPX(client)
			require.NoError(t, err)
			require.NoError(t, m.Set("k", "another's"))
			a, w := seated(t, l, WithToken("job-7"))
			_, _, err = a.ask(t.Context(), w.entry, false)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.True(t, m.Exists("{k}:queue:k"))
			m.Del("k")
			if had {
				require.NoError(t, m.Set("k", "job-7"))
			}
			lock, got, err := a.ask(t.Context(), w.entry, true)
			require.NoError(t, err)
			require.Equal(t, had, got.alreadyHeld)
			require.False(t, m.Exists("{k}:queue:k"))
			require.NoError(t, lock.Unlock(t.Context()))
			require.False(t, m.Exists("k"))
		})
	}
}

// TestEntryThatLostItsLockIsPlacedAnew is rule 25: its waiter was handed the lock, and comes when another has it.
// It goes to the end, and is told that its place is new.
func TestEntryThatLostItsLockIsPlacedAnew(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	granted(t, made)
	a, w := seated(t, made)
	for entry, score := range map[string]float64{w.entry: 0, "another's": 7} {
		_, err := m.ZAdd("{k}:queue:k", score, entry)
		require.NoError(t, err)
	}
	_, got, err := a.ask(t.Context(), w.entry, true)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.True(t, got.fresh)
	require.False(t, got.first)
	score, err := m.ZScore("{k}:queue:k", w.entry)
	require.NoError(t, err)
	require.Equal(t, 8.0, score)
}

// TestUnlockOfALostHandedLockLeavesNoPlace is rule 25: a process whose lock was deleted is not taken for a frozen one by
// the next release, which would cost its other waiters their places.
func TestUnlockOfALostHandedLockLeavesNoPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		defer time.Sleep(10 * time.Second) // the subscription ends
		holder := granted(t, l)
		got := make(chan *Lock, 1)
		go func() { // ends with the lock
			lock, _ := l.Lock(t.Context(), "k", WithTTL(time.Second), WithoutRenewal())
			got <- lock
		}()
		time.Sleep(100 * time.Millisecond)
		_, err = m.ZAdd("{k}:queue:k", 7, "another")
		require.NoError(t, err)
		require.NoError(t, holder.Unlock(t.Context()))
		lock := <-got
		require.NotNil(t, lock)
		members, err := m.ZMembers("{k}:queue:k")
		require.NoError(t, err)
		require.Len(t, members, 2, "it was handed over")
		m.Del("k") // the process has not noticed
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		members, err = m.ZMembers("{k}:queue:k")
		require.NoError(t, err)
		require.Equal(t, []string{"another"}, members)
	})
}

// TestLostQueueIsRememberedUntilRedisListens is rule 15: a queue that was lost while the subscription
// was down is joined again by all when it stands.
func TestLostQueueIsRememberedUntilRedisListens(t *testing.T) {
	_, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	b := made.(*engine).waitlist
	seat := func(token string) *waiter {
		p := acquireParams{target: target{token: token}, ttl: time.Second}
		p.key = "k"
		return b.enter(&p, false, readClocks())
	}
	first, second, third := seat("1"), seat("2"), seat("3")
	for _, w := range []*waiter{first, second, third} {
		b.onReply(w, readClocks(), acquireReply{at: 1, fresh: true}, ErrNotAcquired)
	}
	b.onReply(first, readClocks(), acquireReply{at: 2, fresh: true}, ErrNotAcquired)
	for _, w := range []*waiter{second, third} {
		require.Zero(t, w.lookAt)
	}
	b.look()
	for _, w := range []*waiter{second, third} {
		require.NotZero(t, w.lookAt)
		b.onReply(w, readClocks(), acquireReply{at: 3, fresh: true}, ErrNotAcquired)
	}
	b.look()
	require.NotZero(t, first.lookAt)
	require.Zero(t, second.lookAt, "it has its place")
}

// TestHopelessGrantsAreNoLoop: a waiter whose TTL leaves nothing to trust pauses between its attempts.
func TestHopelessGrantsAreNoLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		time.AfterFunc(100*time.Millisecond, func() { _ = holder.Unlock(context.Background()) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err = l.Lock(ctx, "k", WithTTL(time.Millisecond))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, ErrLost)
		require.Less(t, m.CommandCount(), 3000)
		time.Sleep(10 * time.Second)
	})
}

// TestDegradationIsToldOnce: also where a release was the first to find that nobody can be told.
func TestDegradationIsToldOnce(t *testing.T) {
	var told int
	_, client, _ := oneNode(t)
	s := newSubscription(client)
	s.deliver, s.changed, s.degraded = func(handover) {}, func() {}, func(error) { told++ }
	s.degrade(&s.publishRefused, errNoPublish)
	s.join()
	defer s.leave()
	s.degrade(&s.publishRefused, errNoPublish)
	require.Equal(t, 1, told)
	require.True(t, s.isDegraded())
}

// TestWaiterThatWasNeverQueuedSendsNothing is rule 21: its ctx has ended, so it has no place to give up.
func TestWaiterThatWasNeverQueuedSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		subscription := l.(*engine).waitlist.subscription
		subscription.join()
		defer time.Sleep(10 * time.Second) // the subscription ends
		defer subscription.leave()
		synctest.Wait()
		require.True(t, subscription.isReady())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := m.CommandCount()
		_, err = l.Lock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, before, m.CommandCount())
	})
}

// TestLockThatEndsByItselfLeavesNoNote is rule 25: the process lives, so its other waiters keep their places.
func TestLockThatEndsByItselfLeavesNoNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		time.AfterFunc(2*time.Second, func() { _ = holder.Unlock(context.Background()) })
		lock, err := l.Lock(t.Context(), "k", WithoutRenewal(), WithTTL(time.Second))
		require.NoError(t, err)
		require.True(t, m.Exists("{k}:queue:k"), "it was handed over")
		<-lock.Done()
		synctest.Wait()
		require.False(t, m.Exists("{k}:queue:k"))
		time.Sleep(time.Minute)
	})
}
