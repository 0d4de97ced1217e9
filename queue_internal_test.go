package redlatch

import (
	"context"
	"sync"
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

// TestReleaseForgetsAFrozenProcess is rule 25: a line was handed a lock that has expired unreleased. Its entry leaves the
// queue, though its process still listens. Other lines of that process keep their places.
func TestReleaseForgetsAFrozenProcess(t *testing.T) {
	next, last := "3000 redlatch:there b", "3000 redlatch:polls c"
	holder, queue, heard := handOnFrom(t, "1000 redlatch:there a", next, last)
	require.Equal(t, "b", holder)
	require.Equal(t, map[string]float64{next: 0, last: 2}, queue)
	require.Equal(t, []string{"redlatch:there"}, heard)
}

// TestReleaseHandsOnToAProcessThatPolls is rule 28: a process that polls is handed the lock, whether it listens or
// not. Nothing is published to it.
func TestReleaseHandsOnToAProcessThatPolls(t *testing.T) {
	for name, listens := range map[string]string{"it listens": "redlatch:polls", "it does not": "redlatch:silent"} {
		t.Run(name, func(t *testing.T) {
			first, second := "3000 -"+listens+" b", "3000 redlatch:there c"
			holder, queue, heard := handOnFrom(t, "1000 redlatch:gone a", first, second)
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
	listen(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var refusal error
	_, err = l.Lock(ctx, "k", WithHooks(Hooks{Waiting: func(e Event) { refusal = e.Err; cancel() }}))
	require.ErrorIs(t, err, context.Canceled)
	var held *HeldError
	require.ErrorAs(t, refusal, &held)
	require.Equal(t, "api-7", held.Owner)
}

// listen waits until the process of l is told of what it is handed. That lasts until the test ends.
func listen(t *testing.T, l Locker) {
	t.Helper()
	c := l.(*engine).channel
	c.Join()
	t.Cleanup(c.Leave)
	soon(t, "it listens", func() bool { return c.State().Ready })
}

// queueOf is where the line of a key waits.
func queueOf(key string) string { return "{" + key + "}:queue:" + key }

// newEntry returns an attempt of l on k with an entry for the queue.
func newEntry(t *testing.T, l Locker) *lease {
	t.Helper()
	e := l.(*engine)
	r, err := e.request(t.Context(), "k", nil)
	require.NoError(t, err)
	a, err := e.newAttempt(r, nil, "")
	require.NoError(t, err)
	a.entry = handoff.Entry(a.params.ttl, false, e.channel.Channel, a.params.token)
	a.params.entry = a.entry
	return a
}

// send sends the acquire of a, which is in the queue already if queued is set.
func (a *lease) send(t *testing.T, queued bool) (acquireReply, error) {
	p := a.params
	p.queued = queued
	return a.engine.strategy.acquire(t.Context(), &p)
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
			a := newEntry(t, l)
			_, err = a.send(t, false)
			require.ErrorIs(t, err, ErrNotAcquired)
			require.True(t, m.Exists("{k}:queue:k"))
			m.Del("k")
			if had {
				require.NoError(t, m.Set("k", a.params.token))
			}
			got, err := a.send(t, true)
			require.NoError(t, err)
			require.Equal(t, had, got.alreadyHeld)
			require.False(t, m.Exists("{k}:queue:k"))
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
	a := newEntry(t, made)
	ahead := float64(time.Now().Add(time.Hour).UnixMicro()) // the clock was set back
	for entry, score := range map[string]float64{a.entry: 0, "another's": ahead} {
		_, err := m.ZAdd("{k}:queue:k", score, entry)
		require.NoError(t, err)
	}
	got, err := a.send(t, true)
	require.ErrorIs(t, err, ErrNotAcquired)
	require.True(t, got.Fresh)
	require.False(t, got.First)
	score, err := m.ZScore("{k}:queue:k", a.entry)
	require.NoError(t, err)
	require.Equal(t, ahead+1, score)
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
		_, err = m.ZAdd("{k}:queue:k", 1e16, "another")
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
		subscription := l.(*engine).channel
		subscription.Join()
		defer time.Sleep(10 * time.Second) // the subscription ends
		defer subscription.Leave()
		synctest.Wait()
		require.True(t, subscription.State().Ready)
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

// TestPlaceThatWasNotGivenUpIsReleased is rule 26: everybody left a line while Redis refused all commands, so its entry
// stayed in the queue. A lock that is handed to the entry later is released.
func TestPlaceThatWasNotGivenUpIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, client := bubbleRedis(t)
		defer time.Sleep(time.Minute) // the subscription ends
		l, err := NewSetNXPX(client)
		require.NoError(t, err)
		holder := granted(t, l)
		ctx, cancel := context.WithCancel(t.Context())
		var left sync.WaitGroup
		for range 3 {
			left.Go(func() {
				_, err := l.Lock(ctx, "k")
				require.ErrorIs(t, err, context.Canceled)
			})
		}
		time.Sleep(time.Second)
		require.True(t, m.Exists(queueOf("k")))
		m.SetError("ERR away")
		cancel()
		left.Wait()
		time.Sleep(1500 * time.Millisecond) // releases are not tried again any more, and the process still listens
		m.SetError("")
		require.True(t, m.Exists(queueOf("k")))
		require.Len(t, m.PubSubChannels("redlatch:*"), 1)
		require.NoError(t, holder.Unlock(t.Context()))
		synctest.Wait()
		require.Equal(t, []string{"redlatch:fence"}, m.Keys())
		require.Empty(t, l.(*engine).lines.tokens)
	})
}

// TestKeptLockIsHandedOnThoughItHasExpired is rule 37: the key may expire just before the minimum hold ends. The
// process still hands the lock on then. Any other release of an expired key is ErrLost.
func TestKeptLockIsHandedOnThoughItHasExpired(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	listen(t, made)
	holder, a := granted(t, made), newEntry(t, made)
	_, err = a.send(t, false)
	require.ErrorIs(t, err, ErrNotAcquired)
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
