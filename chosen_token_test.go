package redlatch

import (
	"context"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
)

// TestWaiterWithAChosenTokenDeletesNothing is rule 4: a waiter leaves while its token holds the key.
// The lock was not handed to the waiter's place, so the key stays: another call with the token may own it.
func TestWaiterWithAChosenTokenDeletesNothing(t *testing.T) {
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	a, w := seated(t, made, WithToken("job-7"))
	made.(*engine).waitlist.Leave(w)
	require.NoError(t, m.Set("k", "job-7"))
	a.leaveQueue(context.Background(), w.Entry)
	require.True(t, m.Exists("k"))
}

// TestWhatWasHandedToAChosenTokenIsHandedOn is rule 26: a waiter that leaves releases the lock that was handed to its
// place, unless somebody else has acquired or adopted the lock by the token since.
func TestWhatWasHandedToAChosenTokenIsHandedOn(t *testing.T) {
	for name, since := range map[string]func(l Locker) (*Lock, error){
		"nobody has it": nil,
		"adopted":       func(l Locker) (*Lock, error) { return l.Adopt(context.Background(), "k", "job-7") },
		"acquired":      func(l Locker) (*Lock, error) { return l.TryLock(context.Background(), "k", WithToken("job-7")) },
	} {
		t.Run(name, func(t *testing.T) {
			m, client, _ := oneNode(t)
			made, err := NewSetNXPX(client)
			require.NoError(t, err)
			holder, a, w := queueing(t, made, WithToken("job-7"))
			require.NoError(t, holder.Unlock(t.Context()))
			value, err := m.Get("k")
			require.NoError(t, err)
			require.Equal(t, "job-7", value, "the lock was handed over")
			made.(*engine).waitlist.Leave(w)
			var lock *Lock
			if since != nil {
				lock, err = since(made)
				require.NoError(t, err)
			}
			a.leaveQueue(context.Background(), w.Entry)
			require.Equal(t, since != nil, m.Exists("k"))
			require.False(t, m.Exists("{k}:queue:k"))
			if since != nil {
				require.NoError(t, lock.Unlock(t.Context()))
			}
		})
	}
}

// slowToLeave holds back the commands that leave the queue until release is closed.
type slowToLeave struct{ came, release, left chan struct{} }

func (h *slowToLeave) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *slowToLeave) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *slowToLeave) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if last, ok := cmd.Args()[len(cmd.Args())-1].(string); !ok || last != "handed" {
			return next(ctx, cmd)
		}
		h.came <- struct{}{}
		<-h.release
		defer func() { h.left <- struct{}{} }()
		return next(ctx, cmd)
	}
}

// TestNextWaiterWithATokenKeepsItsPlace is rule 17: while a waiter with a chosen token leaves slowly, the next
// waiter with that token keeps its place. If the lock is handed to the first place meanwhile, the next waiter
// gets the lock. Its Unlock leaves no place in the queue.
func TestNextWaiterWithATokenKeepsItsPlace(t *testing.T) {
	for name, handedFirst := range map[string]bool{"handed over after the leave": false, "handed over during the leave": true} {
		t.Run(name, func(t *testing.T) { leaveSlowly(t, handedFirst) })
	}
}

func leaveSlowly(t *testing.T, handedFirst bool) {
	m, client, _ := oneNode(t)
	other := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = other.Close() })
	theirs, err := NewSetNXPX(other)
	require.NoError(t, err)
	require.NoError(t, granted(t, theirs).Unlock(t.Context()), "release.lua is loaded")
	holder := granted(t, theirs)
	l, err := NewSetNXPX(client, WithOpTimeout(time.Minute))
	require.NoError(t, err)
	subscription := l.(*engine).waitlist.Subscription
	subscription.Join()
	t.Cleanup(subscription.Leave)
	for !subscription.IsReady() {
		subscription.Await(t.Context())
	}
	slow := &slowToLeave{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	client.AddHook(slow)
	places := func() int {
		members, _ := m.ZMembers("{k}:queue:k")
		return len(members)
	}
	wait := func(ctx context.Context, place int) <-chan *Lock {
		got := make(chan *Lock, 1)
		answered := make(chan struct{})
		go func() { // ends with ctx, or when it has the lock
			lock, _ := l.Lock(ctx, "k", WithToken("job-7"), WithHooks(Hooks{Waiting: func(Event) { close(answered) }}))
			got <- lock
		}()
		<-answered // otherwise the acquire may run late, and a second leave undoes it
		require.Equal(t, place, places())
		return got
	}
	ctx, cancel := context.WithCancel(t.Context())
	gone := wait(ctx, 1)
	cancel()
	require.Nil(t, <-gone)
	<-slow.came
	next := wait(t.Context(), 2)
	if handedFirst {
		require.NoError(t, holder.Unlock(t.Context()))
	}
	close(slow.release)
	<-slow.left
	require.Equal(t, 1, places())
	if !handedFirst {
		require.NoError(t, holder.Unlock(t.Context()))
	}
	lock := <-next
	require.NotNil(t, lock)
	require.NoError(t, lock.Unlock(t.Context()))
	require.False(t, m.Exists("k"), "nobody waits any more")
	require.Zero(t, places())
}

// TestUnlockOfALostChosenTokenDeletesNothing is rule 7: after a loss, the token may have been granted again. So
// Unlock of the lost lock leaves the key alone, also in a migration.
func TestUnlockOfALostChosenTokenDeletesNothing(t *testing.T) {
	for name, migrating := range map[string]bool{"SetNXPX": false, "Migration": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				l, err := NewSetNXPX(client)
				require.NoError(t, err)
				if migrating {
					_, old := bubbleRedis(t)
					from, err := NewSetNXPX(old)
					require.NoError(t, err)
					l, err = NewMigration(from, l)
					require.NoError(t, err)
				}
				lost := granted(t, l, WithToken("job-7"), WithTTL(time.Second), WithoutRenewal())
				time.Sleep(2 * time.Second) // the bubble's time
				next := granted(t, l, WithToken("job-7"))
				require.ErrorIs(t, lost.Unlock(t.Context()), ErrLost)
				require.True(t, m.Exists("k"))
				require.NoError(t, next.Unlock(t.Context()))
				require.False(t, m.Exists("k"))
			})
		})
	}
}

// lateAcquire sets k to the token mine on an empty server. The lease of the token is in the given state. The
// function that lateAcquire returns handles a late reply to the acquire.
func lateAcquire(t *testing.T, state int32) (*miniredis.Miniredis, func(node.Reply), *lockState) {
	t.Helper()
	m, _, n := oneNode(t)
	require.NoError(t, m.Set("k", "mine"))
	s := &lockState{}
	s.become(state)
	lock := mine()
	return m, func(r node.Reply) {
		got, err := readAcquire(r)
		s.late(n, r, got, err, func() { n.Post(context.Background(), quorumReleaseCall(&lock)) })
	}, s
}

// gaveUpReading is the outcome of a command whose connection the client closed before a reply came.
var gaveUpReading = node.Reply{Err: os.ErrDeadlineExceeded}

// TestAdoptedLockOutlivesItsParent is rule 4: after a lease is lost, somebody may have adopted its token. A late
// acquire is released only if it is known to have taken the key anew.
func TestAdoptedLockOutlivesItsParent(t *testing.T) {
	t.Parallel()
	m, late, _ := lateAcquire(t, lost)
	late(gaveUpReading)
	late(node.Reply{Value: int64(-7), Overtaken: true}) // the token held the key already
	late(node.Reply{Err: io.EOF, Overtaken: true})
	<-time.After(2 * firstLook)
	require.True(t, m.Exists("k"))
	late(node.Reply{Value: int64(7), Overtaken: true})
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond, "the late acquire is released")
}

// TestLateAcquireOfAChosenTokenIsLeft is rule 4: after Unlock the token may be in use again, so its
// key stays. Only the place of the late acquire in the queue is removed.
func TestLateAcquireOfAChosenTokenIsLeft(t *testing.T) {
	t.Parallel()
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	s := made.(*engine).strategy.(*setNXPX)
	state := &lockState{}
	state.become(over)
	p := &acquireParams{target: mine(), state: state}
	p.callerToken = true
	p.place, err = s.place("", "k")
	require.NoError(t, err)
	require.NoError(t, m.Set("k", "mine"))
	s.late(t.Context(), p, gaveUpReading)
	_, err = m.ZAdd("{k}:queue:k", 1, "its place")
	require.NoError(t, err)
	p.entry = "its place"
	s.late(t.Context(), p, gaveUpReading)
	require.Eventually(t, func() bool { return !m.Exists("{k}:queue:k") }, 10*time.Second, time.Millisecond)
	<-time.After(2 * firstLook)
	require.True(t, m.Exists("k"))
}
