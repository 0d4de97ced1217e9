package redlatch

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/handoff"
)

// handOnFrom releases a lock on k while entries queue for it, the first with a score of 0. It subscribes to
// redlatch:there and redlatch:polls, and returns the new holder of the key, the remaining entries with their scores,
// and the channel of each message that was published.
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

// TestReleaseForgetsAFrozenProcess is rule 25: a process was handed a lock that has expired unreleased. All its
// entries leave the queue, though it still listens.
func TestReleaseForgetsAFrozenProcess(t *testing.T) {
	next := "3000 redlatch:polls 4 d"
	holder, queue, heard := handOnFrom(t, "1000 redlatch:there 1 a", "1000 redlatch:there 2 b", "1000 -redlatch:there 3 c", next)
	require.Equal(t, "d", holder)
	require.Equal(t, map[string]float64{next: 0}, queue)
	require.Equal(t, []string{"redlatch:polls"}, heard)
}

// TestReleaseHandsOnToAProcessThatPolls is rule 28: a process that polls is handed the lock, whether it listens or
// not. Nothing is published to it.
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

// TestWaitInTheQueueNamesTheHolder is rule 35: Waiting has the refusal also if the process has a subscription already, so
// that the first attempt queues.
func TestWaitInTheQueueNamesTheHolder(t *testing.T) {
	_, client, _ := oneNode(t)
	l, err := NewSetNXPX(client, WithOwner("api-7"))
	require.NoError(t, err)
	granted(t, l)
	s := l.(*engine).waitlist.Subscription
	s.Join()
	defer s.Leave()
	for !s.IsReady() {
		s.Await(t.Context())
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var refusal error
	_, err = l.Lock(ctx, "k", WithHooks(Hooks{Waiting: func(e Event) { refusal = e.Err; cancel() }}))
	require.ErrorIs(t, err, context.Canceled)
	var held *HeldError
	require.ErrorAs(t, refusal, &held)
	require.Equal(t, "api-7", held.Owner)
}

// seated returns an attempt of l on k, and its waiter.
func seated(t *testing.T, l Locker, opts ...Option) (*attempt, *handoff.Waiter) {
	t.Helper()
	e := l.(*engine)
	r, err := e.request(t.Context(), "k", opts)
	require.NoError(t, err)
	a, err := e.newAttempt(r, "")
	require.NoError(t, err)
	return a, e.waitlist.Enter(a.params.key, a.params.token, a.params.ttl, e.now())
}

// queueing returns the holder of k, and an attempt that queues behind it, with its waiter. The process listens.
func queueing(t *testing.T, l Locker, opts ...Option) (holder *Lock, a *attempt, w *handoff.Waiter) {
	t.Helper()
	s := l.(*engine).waitlist.Subscription
	s.Join()
	t.Cleanup(s.Leave)
	for !s.IsReady() {
		s.Await(t.Context())
	}
	holder = granted(t, l)
	a, w = seated(t, l, opts...)
	_, _, err := a.ask(t.Context(), w.Entry, false)
	require.ErrorIs(t, err, ErrNotAcquired)
	return holder, a, w
}

// TestHolderThatHandsOnIsKnownByItsToken is rule 27: the token of such a holder is a UUID, alone or after an owner.
// Other holders may be clients that do not hand the lock on.
func TestHolderThatHandsOnIsKnownByItsToken(t *testing.T) {
	const id = "3f7c1a52-8a07-4a8e-9d6c-0f5f3a7e2b11"
	for holder, foreign := range map[string]bool{id: false, "api-7/" + id: false, "their-token": true, "x" + id: true, "": true} {
		got, ok := readRefusal([]any{int64(5), holder, int64(1), int64(1), int64(1), int64(1)})
		require.True(t, ok)
		require.Equal(t, foreign, got.Foreign, holder)
	}
}

// TestGrantTakesItsPlaceOut: a grant removes its entry from the queue, whether the lock was free or the token already
// held it.
func TestGrantTakesItsPlaceOut(t *testing.T) {
	for name, had := range map[string]bool{"free": false, "its own": true} {
		t.Run(name, func(t *testing.T) {
			m, client, _ := oneNode(t)
			l, err := NewSetNXPX(client)
			require.NoError(t, err)
			require.NoError(t, m.Set("k", "another's"))
			a, w := seated(t, l)
			_, _, err = a.ask(t.Context(), w.Entry, false)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.True(t, m.Exists("{k}:queue:k"))
			m.Del("k")
			if had {
				require.NoError(t, m.Set("k", a.params.token))
			}
			lock, got, err := a.ask(t.Context(), w.Entry, true)
			require.NoError(t, err)
			require.Equal(t, had, got.alreadyHeld)
			require.False(t, m.Exists("{k}:queue:k"))
			require.NoError(t, lock.Unlock(t.Context()))
			require.False(t, m.Exists("k"))
		})
	}
}

// TestEntryThatLostItsLockIsPlacedAnew is rule 25: a waiter was handed the lock, but asks only when another owner has
// it. Its entry moves to the end of the queue, and the reply says that the entry is new.
func TestEntryThatLostItsLockIsPlacedAnew(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	granted(t, made)
	a, w := seated(t, made)
	for entry, score := range map[string]float64{w.Entry: 0, "another's": 7} {
		_, err := m.ZAdd("{k}:queue:k", score, entry)
		require.NoError(t, err)
	}
	_, got, err := a.ask(t.Context(), w.Entry, true)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.True(t, got.Fresh)
	require.False(t, got.First)
	score, err := m.ZScore("{k}:queue:k", w.Entry)
	require.NoError(t, err)
	require.Equal(t, 8.0, score)
}

// TestUnlockOfALostHandedLockLeavesNoPlace is rule 25: Unlock removes the entry of a handed lock even if its key was
// deleted. Otherwise the next release would take the process for frozen and remove the entries of its other waiters.
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
		require.Len(t, members, 2, "the lock was handed over")
		m.Del("k") // the process has not noticed
		require.ErrorIs(t, lock.Unlock(t.Context()), ErrLost)
		members, err = m.ZMembers("{k}:queue:k")
		require.NoError(t, err)
		require.Equal(t, []string{"another"}, members)
	})
}

// TestHopelessGrantsAreNoLoop: a waiter whose TTL is shorter than the drift pauses between its attempts.
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

// TestWaiterThatWasNeverQueuedSendsNothing is rule 21: a waiter whose ctx has ended before it queues sends nothing.
// It has no place to give up.
func TestWaiterThatWasNeverQueuedSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		subscription := l.(*engine).waitlist.Subscription
		subscription.Join()
		defer time.Sleep(10 * time.Second) // the subscription ends
		defer subscription.Leave()
		synctest.Wait()
		require.True(t, subscription.IsReady())
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		before := m.CommandCount()
		_, err = l.Lock(ctx, "k")
		require.ErrorIs(t, err, context.Canceled)
		synctest.Wait()
		require.Equal(t, before, m.CommandCount())
	})
}

// TestLockThatEndsByItselfLeavesNoNote is rule 25: a process that is alive removes the entry of a handed lock when
// the lock expires. So its other waiters keep their places.
func TestLockThatEndsByItselfLeavesNoNote(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		time.AfterFunc(2*time.Second, func() { _ = holder.Unlock(context.Background()) })
		lock, err := l.Lock(t.Context(), "k", WithoutRenewal(), WithTTL(time.Second))
		require.NoError(t, err)
		require.True(t, m.Exists("{k}:queue:k"), "the lock was handed over")
		<-lock.Done()
		synctest.Wait()
		require.False(t, m.Exists("{k}:queue:k"))
		time.Sleep(time.Minute)
	})
}

// TestPlaceThatWasNotGivenUpIsReleased is rule 26: a waiter left while Redis refused all commands, so its entry
// stayed in the queue. A lock that is handed to the entry later is released.
func TestPlaceThatWasNotGivenUpIsReleased(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	holder, a, w := queueing(t, made)
	m.SetError("ERR away")
	made.(*engine).waitlist.Leave(w)
	a.leaveQueue(context.Background(), w.Entry)
	m.SetError("")
	require.True(t, m.Exists("{k}:queue:k"))
	require.NoError(t, holder.Unlock(t.Context()))
	require.Eventually(t, func() bool { return !m.Exists("k") }, 5*time.Second, time.Millisecond)
	require.False(t, m.Exists("{k}:queue:k"))
}

// TestKeptLockIsHandedOnThoughItHasExpired is rule 37: the key may expire just before the minimum hold ends. The
// process still hands the lock on then. Any other release of an expired key is ErrLost.
func TestKeptLockIsHandedOnThoughItHasExpired(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	holder, a, _ := queueing(t, made)
	m.Del("k")
	p := &releaseParams{target: holder.lease.params.target}
	s := made.(*engine).strategy
	_, err = s.release(t.Context(), p)
	require.ErrorIs(t, err, ErrLost)
	require.False(t, m.Exists("k"))
	p.keeper = newKeeper()
	_, err = s.release(t.Context(), p)
	require.NoError(t, err)
	value, err := m.Get("k")
	require.NoError(t, err)
	require.Equal(t, a.params.token, value)
}
