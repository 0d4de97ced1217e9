package redlatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// TestWaiterWithAChosenTokenDeletesNothing is rule 4: a call that leaves just when the lock was handed to
// its token does not give that back, for the next call with the token may have it by now.
func TestWaiterWithAChosenTokenDeletesNothing(t *testing.T) {
	m, n := oneNode(t)
	made, err := NewSetNXPX(n.client)
	require.NoError(t, err)
	e := made.(*engine)
	r, err := e.request(t.Context(), "k", []Option{WithToken("job-7")})
	require.NoError(t, err)
	l, err := e.lease(r, "job-7")
	require.NoError(t, err)
	w := e.lobby.enter("k", "job-7", e.now())
	w.handed <- delivery{}
	e.lobby.leave(w)
	require.NoError(t, m.Set("k", "job-7"))
	l.leaveQueue(context.Background(), "place")
	require.True(t, m.Exists("k"))
}

// slowToLeave keeps those who leave the queue, and release nothing, waiting until release is closed.
type slowToLeave struct{ came, release, left chan struct{} }

func (h *slowToLeave) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *slowToLeave) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (h *slowToLeave) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if sha, ok := cmd.Args()[1].(*string); !ok || *sha != releaseScript.sha || *cmd.Args()[6].(*string) != "" {
			return next(ctx, cmd)
		}
		h.came <- struct{}{}
		<-h.release
		defer func() { h.left <- struct{}{} }()
		return next(ctx, cmd)
	}
}

// TestNextWaiterWithATokenKeepsItsPlace is rule 17: a waiter with a chosen token that is slow to leave does
// not take the next one's place along. If the lock is handed to its own place meanwhile, the next one
// has it, and its release leaves no place behind.
func TestNextWaiterWithATokenKeepsItsPlace(t *testing.T) {
	for name, handedFirst := range map[string]bool{"it leaves": false, "it is handed the lock": true} {
		t.Run(name, func(t *testing.T) { leaveSlowly(t, handedFirst) })
	}
}

func leaveSlowly(t *testing.T, handedFirst bool) {
	m, n := oneNode(t)
	other := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = other.Close() })
	theirs, err := NewSetNXPX(other)
	require.NoError(t, err)
	require.NoError(t, granted(t, theirs).Unlock(t.Context()), "release.lua is loaded")
	holder := granted(t, theirs)
	l, err := NewSetNXPX(n.client, WithOpTimeout(time.Minute))
	require.NoError(t, err)
	slow := &slowToLeave{make(chan struct{}), make(chan struct{}), make(chan struct{})}
	n.client.AddHook(slow)
	places := func() int {
		members, _ := m.ZMembers("{k}:queue:k")
		return len(members)
	}
	wait := func(ctx context.Context, place int) <-chan *Lock {
		got := make(chan *Lock, 1)
		go func() { // ends with ctx, or when it has the lock
			lock, _ := l.Lock(ctx, "k", WithToken("job-7"))
			got <- lock
		}()
		require.Eventually(t, func() bool { return places() == place }, 10*time.Second, time.Millisecond)
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

// TestUnlockOfALostChosenTokenDeletesNothing is rule 7: the token may have been granted anew, also on the
// side of a migration that was not lost.
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
				time.Sleep(2 * time.Second) // the bubble's
				next := granted(t, l, WithToken("job-7"))
				require.ErrorIs(t, lost.Unlock(t.Context()), ErrLost)
				require.True(t, m.Exists("k"))
				require.NoError(t, next.Unlock(t.Context()))
				require.False(t, m.Exists("k"))
			})
		})
	}
}

// TestAdoptedLockOutlivesItsParent is rule 4: where a lease was lost, its token may be somebody's who
// adopted it, and what comes late for it is not given back.
func TestAdoptedLockOutlivesItsParent(t *testing.T) {
	t.Parallel()
	m, n, c := strayed(t, lifeLost)
	n.chase(t.Context(), release, c)
	for _, found := range []bool{true, false} {
		j := &job{Context: t.Context(), node: n, claim: c, ended: make(chan struct{}), form: form{undo: release}}
		j.settle(grant{}, context.Canceled)
		if !found {
			<-time.After(2 * firstLook)
			require.True(t, m.Exists("k"), "it was the token's already, or nobody knows")
		}
		j.land(grant{found: found}, nil)
	}
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond, "it was nobody's")
}

// TestStrayOfAChosenTokenIsLeft is rule 4: after an Unlock the token may have been used again.
func TestStrayOfAChosenTokenIsLeft(t *testing.T) {
	t.Parallel()
	m, n, c := strayed(t, lifeOver)
	c.chosen = true
	n.chase(t.Context(), release, c)
	<-time.After(2 * firstLook)
	require.True(t, m.Exists("k"))

	left := make(chan struct{}, 10)
	c.entry = "its place"
	n.chase(t.Context(), func(*job, *claim) (grant, error) { left <- struct{}{}; return grant{}, nil }, c)
	<-left // the place in the queue
}

// TestFlightOfALostLockIsLeftToItsAdopter is rule 4, where nobody reads the reply: in a pipeline.
func TestFlightOfALostLockIsLeftToItsAdopter(t *testing.T) {
	t.Parallel()
	m, n := oneNode(t)
	client := n.client.(*redis.Client)
	require.NoError(t, client.ScriptLoad(t.Context(), acquireSource).Err())
	on := &inFlight{began: make(chan struct{}), letGo: make(chan struct{})}
	client.AddHook(on)
	pipeline, err := client.AutoPipeline()
	require.NoError(t, err)
	n.client, n.near = pipeline, nearBy(pipeline)
	c := quorumClaim(70)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-on.began
		cancel()
	}()
	_, err = n.do(ctx, acquire, c, form{undo: release})
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, m.Set("k", "mine")) // by a later attempt, whose lock was adopted
	c.life.state.Store(lifeLost)
	close(on.letGo)
	require.Eventually(t, func() bool { return m.Exists("{k}:fence:k") }, 10*time.Second, time.Millisecond, "it has landed")
	<-time.After(firstLook)
	require.True(t, m.Exists("k"))
}

// inFlight keeps the first script from its way until it is let go.
type inFlight struct {
	scripts      atomic.Int64
	began, letGo chan struct{}
}

func (h *inFlight) hold(cmd redis.Cmder) {
	if cmd.Name() == "evalsha" && h.scripts.Add(1) == 1 {
		close(h.began)
		<-h.letGo
	}
}

func (h *inFlight) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *inFlight) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.hold(cmd)
		return next(ctx, cmd)
	}
}

func (h *inFlight) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.hold(cmds[0])
		return next(ctx, cmds)
	}
}
