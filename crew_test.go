package redlatch

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
)

// TestOnlyWhatNobodyWaitedForIsUndone is rule 4: a straggler is undone, and a grant that was handed
// out is not, though its lease may have ended again before the job has.
func TestOnlyWhatNobodyWaitedForIsUndone(t *testing.T) {
	for name, late := range map[string]bool{"in time": false, "a straggler": true} {
		t.Run(name, func(t *testing.T) {
			undone := make(chan struct{}, 1)
			c := &claim{life: new(life), bound: time.Second}
			n := newNode(nil, mostJobs)
			j := &job{
				Context: t.Context(), node: n, claim: c, ended: make(chan struct{}),
				form: form{undo: func(*job, *claim) (grant, error) {
					undone <- struct{}{}
					return grant{}, nil
				}},
			}
			if late {
				j.settle(grant{}, context.Canceled)
			}
			c.life.state.Store(lifeReleased)
			j.land(grant{}, nil)
			require.Equal(t, late, c.life.undone.Load())
			if late {
				<-undone
			}
		})
	}
}

// goesOn is an operation that goes on until it is let go, and tells its claim.
func goesOn(began chan<- string, letGo <-chan struct{}) operation {
	return func(_ *job, c *claim) (grant, error) {
		began <- c.key + " " + c.token
		<-letGo
		return grant{}, nil
	}
}

// TestLaneOfAHungNodeIsBounded: releases that nothing goes before on a key pile up to a bound, where
// the node answers nothing, and are shed beyond it.
func TestLaneOfAHungNodeIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(nil, mostOfQuorum)
		began, letGo := make(chan string, 1000), make(chan struct{})
		start := func(token string) *job {
			c := &claim{place: place{key: "k"}, token: token, bound: time.Minute, life: new(life)}
			return n.start(t.Context(), goesOn(began, letGo), c, form{last: true, ordered: true})
		}
		start("stuck")
		var jobs []*job
		for i := range 300 {
			if i == 150 {
				require.Len(t, n.crew.lanes["k"].jobs, 150, "a burst is not shed")
				time.Sleep(longSilence + time.Millisecond)
			}
			jobs = append(jobs, start(fmt.Sprint(i)))
		}
		require.Len(t, n.crew.lanes["k"].jobs, 150)
		<-jobs[299].ended
		require.ErrorIs(t, jobs[299].err, errSheds)
		close(letGo)
		<-jobs[149].ended
		require.NoError(t, jobs[149].err)
	})
}

// TestBurstBesideAStuckJobIsNotShed: how long a node is silent counts from when so many jobs were
// under way.
func TestBurstBesideAStuckJobIsNotShed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(nil, 2)
		began, letGo := make(chan string, 1000), make(chan struct{})
		start := func(key string) *job {
			c := &claim{place: place{key: key}, bound: time.Minute, life: new(life)}
			return n.start(t.Context(), goesOn(began, letGo), c, form{})
		}
		start("stuck")
		time.Sleep(time.Hour)
		var jobs []*job
		for i := range 10 {
			jobs = append(jobs, start(fmt.Sprint(i)))
		}
		time.Sleep(longSilence + time.Millisecond)
		shed := start("late")
		<-shed.ended
		require.ErrorIs(t, shed.err, errSheds, "now it is silent")
		close(letGo)
		for _, j := range jobs {
			<-j.ended
			require.NoError(t, j.err)
		}
	})
}

// TestBusyKeyLetsOthersThrough: a worker goes round the keys.
func TestBusyKeyLetsOthersThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNode(nil, 1)
		began, letGo := make(chan string, 10), make(chan struct{})
		for _, key := range []string{"hot", "hot", "hot", "cold"} {
			c := &claim{place: place{key: key}, bound: time.Minute, life: new(life)}
			n.start(t.Context(), goesOn(began, letGo), c, form{ordered: true})
		}
		close(letGo)
		synctest.Wait()
		close(began)
		var order []string
		for key := range began {
			order = append(order, strings.TrimSpace(key))
		}
		require.Equal(t, []string{"hot", "cold", "hot", "hot"}, order)
	})
}

// TestShedReleaseLeavesNoOrphan is rule 4: where the release of an acquire under way is shed, the acquire is
// undone when it lands. Jobs that nobody waits for any more leave their room to it.
func TestShedReleaseLeavesNoOrphan(t *testing.T) {
	const underWay = 0 // the attempt, while it takes back what it was granted
	for name, c := range map[string]struct {
		shed  bool
		state int32
	}{
		"behind releases":                        {true, lifeReleased},
		"behind releases, of an attempt refused": {true, underWay},
		"behind jobs that nobody waits for":      {false, lifeReleased},
	} {
		t.Run(name, func(t *testing.T) {
			shed, state := c.shed, c.state
			synctest.Test(t, func(t *testing.T) {
				n := newNode(nil, mostOfQuorum)
				began, letGo := make(chan string, 1000), make(chan struct{})
				op := goesOn(began, letGo)
				mine := &claim{place: place{key: "k"}, token: "mine", bound: time.Minute, life: new(life)}
				undone := false
				n.start(t.Context(), op, mine, form{ordered: true, undo: func(*job, *claim) (grant, error) {
					undone = true
					return grant{}, nil
				}})
				for range longestLane {
					c := &claim{place: place{key: "k"}, token: "other", bound: time.Millisecond, life: new(life)}
					n.start(t.Context(), op, c, form{last: shed, ordered: true})
				}
				time.Sleep(longSilence + time.Millisecond)
				mine.life.state.Store(state)
				release := n.start(t.Context(), op, mine, form{last: true, ordered: true})
				close(letGo)
				<-release.ended
				require.Equal(t, shed, errors.Is(release.err, errSheds))
				synctest.Wait()
				require.Equal(t, shed, undone)
				require.False(t, mine.life.undone.Load(), "one node explains no loss")
			})
		})
	}
}

// TestHungPipelineIsShed: callers that leave commands behind in a pipeline that answers nothing leave a
// bounded number of them, and are served again once it answers. A lock that is held is released.
func TestHungPipelineIsShed(t *testing.T) {
	t.Parallel()
	m, _ := oneNode(t)
	p := faultproxy.New(t, "tcp", m.Addr())
	o := p.Options()
	o.ReadTimeout = time.Minute // it does not let go of a command before
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	pipeline, err := client.AutoPipeline()
	require.NoError(t, err)
	l, err := NewSetNXPX(pipeline)
	require.NoError(t, err)
	crew := &l.(*engine).strategy.(*setNXPX).node.crew
	crew.most = 10
	try := func(opts ...Option) error {
		lock, err := l.TryLock(context.Background(), "k", opts...)
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		return err
	}
	flights := func() int {
		crew.mu.Lock()
		defer crew.mu.Unlock()
		return crew.flights
	}
	require.NoError(t, try())
	held, err := l.TryLock(context.Background(), "held", WithoutRenewal(), WithTTL(time.Hour))
	require.NoError(t, err)
	p.Silence()
	for begin := time.Now(); !errors.Is(err, errSheds); err = try(WithOpTimeout(50 * time.Millisecond)) {
		require.Less(t, time.Since(begin), 20*time.Second)
	}
	before := flights()
	require.GreaterOrEqual(t, before, 10)
	shed := 0
	for range 100 {
		if errors.Is(try(WithOpTimeout(50*time.Millisecond)), errSheds) {
			shed++
		}
	}
	require.Greater(t, shed, 50, "one goes through each half second")
	require.LessOrEqual(t, flights(), before+2*(100-shed), "with its clean-up")
	require.Error(t, held.Unlock(t.Context()))
	p.Heal()
	require.Eventually(t, func() bool { return flights() == 0 && try() == nil && !m.Exists("held") }, 20*time.Second, 10*time.Millisecond)
}

// TestShedWaiterSendsNothing: a waiter that nothing was sent for leaves no place, and so sends no release.
func TestShedWaiterSendsNothing(t *testing.T) {
	m, n := oneNode(t)
	pipeline, err := n.client.AutoPipeline()
	require.NoError(t, err)
	made, err := NewSetNXPX(pipeline)
	require.NoError(t, err)
	l := made.(*engine)
	holder := granted(t, l, WithTTL(time.Hour))
	ready := l.lobby.subscription.join()
	defer l.lobby.subscription.leave()
	<-ready
	crew := &l.strategy.(*setNXPX).node.crew
	crew.mu.Lock()
	crew.flights, crew.probed = crew.most, time.Now().Add(time.Hour)
	crew.mu.Unlock()
	before := m.CommandCount()
	_, err = l.Lock(context.Background(), "k")
	require.ErrorIs(t, err, errSheds)
	require.Equal(t, before, m.CommandCount())
	require.NoError(t, holder.Unlock(t.Context()), "a release is sent")
}

// TestShedRetryPerhapsTookTheLock is rule 4: what was sent before may have been carried out.
func TestShedRetryPerhapsTookTheLock(t *testing.T) {
	for _, resent := range []bool{false, true} {
		n := newNode(nil, 1)
		n.crew.working, n.crew.full = 1, time.Now().Add(-time.Hour)
		j := &job{
			Context: t.Context(), node: n, claim: &claim{bound: time.Minute}, ended: make(chan struct{}),
			deadline: time.Now().Add(time.Minute), resent: resent,
		}
		n.crew.start(j)
		<-j.ended
		require.ErrorIs(t, j.err, errSheds)
		require.Equal(t, !resent, surelyNot(j.err))
	}
}
