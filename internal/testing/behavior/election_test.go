package behavior_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// electing returns an Election of a process of its own.
func electing(t *testing.T, l redlatch.Locker, opts ...redlatch.Option) *redlatch.Election {
	t.Helper()
	e, err := redlatch.NewElection(l, "k", opts...)
	require.NoError(t, err)
	return e
}

// running starts Run of an Election, whose fn returns when its ctx ends. It returns what Run returns.
func running(ctx context.Context, e *redlatch.Election) <-chan error {
	ended := make(chan error, 1)
	go func() { // ends with ctx
		ended <- e.Run(ctx, func(ctx context.Context, _ *redlatch.Lock) error { <-ctx.Done(); return nil })
	}()
	return ended
}

// TestLeadingIsWhatFnMayRelyOn: false before Run, true in fn, also once ctx has ended, and false when
// the lock was lost, was unlocked, or fn has returned or panics.
func TestLeadingIsWhatFnMayRelyOn(t *testing.T) {
	onEvery(t, withReaders(), func(t *testing.T, w *world) {
		e := electing(t, w.locker(t), longTTL)
		require.False(t, e.Leading())
		ctx, stop := context.WithCancel(t.Context())
		terms := 0
		err := e.Run(ctx, func(term context.Context, lock *redlatch.Lock) error {
			require.True(t, e.Leading())
			switch terms++; terms {
			case 1:
				require.NoError(t, w.Direct.FlushAll(t.Context()).Err())
				require.True(t, e.Leading(), "nobody has noticed")
				require.Error(t, lock.Extend(t.Context(), time.Hour))
				require.False(t, e.Leading())
				<-term.Done()
			case 2:
				require.NoError(t, lock.Unlock(t.Context()))
				require.False(t, e.Leading())
			default:
				stop()
				<-term.Done()
				require.True(t, e.Leading(), "the lock is held until fn returns")
			}
			return nil
		})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, 3, terms)
		require.False(t, e.Leading())
		require.PanicsWithValue(t, "jam", func() {
			_ = e.Run(t.Context(), func(context.Context, *redlatch.Lock) error { panic("jam") })
		})
		require.False(t, e.Leading())
		require.NoError(t, e.Run(t.Context(), func(context.Context, *redlatch.Lock) error { return redlatch.ErrStop }))
		require.False(t, e.Leading())
	})
}

// TestTwoNeverLead: the leader is cut off from Redis, and crashes. At no instant do two Elections
// say that they lead, and the one that was cut off says so no more before the other one does. Each
// names itself while it leads.
func TestTwoNeverLead(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		ctx, stop := context.WithCancel(t.Context())
		names := []string{"first", "second"}
		var all []*redlatch.Election
		var links []*link
		var ended []<-chan error
		for _, name := range names {
			l, link := w.linked(t, redlatch.WithTTL(5*time.Second), redlatch.WithOpTimeout(time.Second), redlatch.WithOwner(name))
			all, links = append(all, electing(t, l)), append(links, link)
			ended = append(ended, running(ctx, all[len(all)-1]))
		}
		leads := func() (leader int) { // -1: nobody
			leader = -1
			for i, e := range all {
				if !e.Leading() {
					continue
				}
				require.Equal(t, -1, leader, "two lead")
				leader = i
				name, known := e.Leader()
				require.Equal(t, []any{names[i], true}, []any{name, known})
			}
			return leader
		}
		until := func(what string, is func(leader int) bool) int {
			t.Helper()
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				leader := leads()
				if is(leader) {
					return leader
				}
				require.Less(t, time.Since(began), time.Minute, what)
			}
		}
		first := until("somebody leads", func(leader int) bool { return leader >= 0 })
		for range 3 {
			links[first].refuse()
			next := until("the other one leads", func(leader int) bool { return leader == 1-first })
			links[first].heal()
			first = next
		}
		stop()
		for i := range all {
			require.ErrorIs(t, await(t, ended[i], "Run returns"), context.Canceled)
			_, known := all[i].Leader()
			require.False(t, known)
		}
	})
}

// TestFollowersNameTheLeader: by what refused them. There is none while the key is kept, after an
// error, and without Run.
func TestFollowersNameTheLeader(t *testing.T) {
	onEvery(t, keeping, func(t *testing.T, w *world) {
		l, link := w.linked(t)
		e := electing(t, l)
		_, known := e.Leader()
		require.False(t, known)
		first := mustLock(t, w.locker(t, redlatch.WithOwner("first")), "k", longTTL)
		ctx, stop := context.WithCancel(t.Context())
		ended := running(ctx, e)
		becomes := func(owner string, known bool) {
			t.Helper()
			eventually(t, fmt.Sprintf("%q, %t", owner, known), func() bool {
				name, is := e.Leader()
				return name == owner && is == known
			})
		}
		becomes("first", true)
		second := made(w.make(w.Client(t), patience, redlatch.WithOwner("")))
		require.NoError(t, first.UnlockAfter(t.Context(), time.Minute))
		if w.name != "Write" { // there Moved is never called
			becomes("", false)
		}
		require.NoError(t, redlatch.Forget(t.Context(), second, "k"))
		eventually(t, "it leads", e.Leading)
		stop()
		require.ErrorIs(t, await(t, ended, "Run returns"), context.Canceled)
		becomes("", false)

		nameless := mustLock(t, second, "k", longTTL)
		ctx, stop = context.WithCancel(t.Context())
		ended = running(ctx, e)
		becomes("", true)
		stop()
		require.ErrorIs(t, await(t, ended, "Run returns"), context.Canceled)
		becomes("", false)
		require.NoError(t, nameless.Unlock(t.Context()))

		link.refuse()
		ctx, stop = context.WithTimeout(t.Context(), 20*time.Second)
		defer stop()
		require.ErrorIs(t, await(t, running(ctx, e), "Run returns"), redlatch.ErrUnavailable)
		becomes("", false)
	})
}

// TestElectionWithoutRunDoesNothing: no goroutine, and no command.
func TestElectionWithoutRunDoesNothing(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var sent atomic.Int64
		client := s.Client(t)
		client.AddHook(locktest.Count(&sent))
		l := newLocker(t, client)
		before := runtime.NumGoroutine()
		var all []*redlatch.Election
		for range 1000 {
			e := electing(t, l)
			require.False(t, e.Leading())
			_, known := e.Leader()
			require.False(t, known)
			all = append(all, e)
		}
		synctest.Wait()
		require.Less(t, runtime.NumGoroutine(), before+len(all)) // other tests have goroutines, too
		require.Zero(t, sent.Load())
		require.Equal(t, `election "k"`, fmt.Sprintf("%v", all[0]))
	})
}

// TestElectionRunsOnceAtATime: a second Run is refused while one is under way, and another one may
// follow. Both ask from many goroutines.
func TestElectionRunsOnceAtATime(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		e := electing(t, newLocker(t, s.Client(t)))
		for range 2 {
			ctx, stop := context.WithCancel(t.Context())
			ended := running(ctx, e)
			for range 20 {
				go func() { // ends with ctx
					for ; ctx.Err() == nil; time.Sleep(time.Millisecond) {
						e.Leading()
						e.Leader()
					}
				}()
			}
			eventually(t, "it leads", e.Leading)
			err := e.Run(ctx, never[*redlatch.Lock](t))
			requireOnly(t, err, redlatch.ErrInvalid)
			require.ErrorContains(t, err, `run "k": invalid argument: another Run`)
			require.True(t, e.Leading())
			stop()
			require.ErrorIs(t, await(t, ended, "Run returns"), context.Canceled)
		}
	})
}

// TestElectionThatCannotWorkIsRefused: by NewElection, also behind a decorator. A zero Election does
// not lead.
func TestElectionThatCannotWorkIsRefused(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l := w.locker(t)
		for name, c := range map[string]struct {
			l    redlatch.Locker
			key  string
			opts []redlatch.Option
		}{
			"no Locker":       {nil, "k", nil},
			"no key":          {l, "", nil},
			"a bad option":    {l, "k", []redlatch.Option{redlatch.WithTTL(0)}},
			"no option":       {l, "k", []redlatch.Option{nil}},
			"a max wait":      {l, "k", []redlatch.Option{redlatch.WithMaxWait(time.Second)}},
			"what it cannot":  {wrapped{wrapped{l}}, "k", []redlatch.Option{redlatch.WithReplicas(1, time.Hour)}},
			"a grace":         {wrapped{l}, "k", []redlatch.Option{redlatch.WithGrace(time.Hour)}},
			"an opaque fake":  {&moody{Locker: l}, "k", []redlatch.Option{redlatch.WithTTL(0)}},
			"a limit, opaque": {&moody{Locker: l}, "", nil},
		} {
			e, err := redlatch.NewElection(c.l, c.key, c.opts...)
			requireOnly(t, err, redlatch.ErrInvalid, name)
			require.Nil(t, e, name)
			var of *redlatch.Error
			require.ErrorAs(t, err, &of, name)
			require.Equal(t, []string{"new election", c.key}, []string{of.Op, of.Key}, name)
		}
		require.ErrorIs(t, electing(t, l).Run(t.Context(), nil), redlatch.ErrInvalid)
		require.ErrorIs(t, electing(t, l).Run(nil, never[*redlatch.Lock](t)), redlatch.ErrInvalid) //nolint:staticcheck // a caller may pass nil
		var zero redlatch.Election
		require.False(t, zero.Leading())
		_, known := zero.Leader()
		require.False(t, known)
		require.ErrorIs(t, zero.Run(t.Context(), never[*redlatch.Lock](t)), redlatch.ErrInvalid)
	})
}

// TestElectionEndsWithWhatRetryingCannotFix, as Lead does.
func TestElectionEndsWithWhatRetryingCannotFix(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		require.NoError(t, s.Direct.RPush(t.Context(), "k", "data").Err())
		err := electing(t, newLocker(t, s.Client(t))).Run(bounded(t), never[*redlatch.Lock](t))
		require.ErrorContains(t, err, `redlatch: run "k": WRONGTYPE`)
		closed := s.Client(t)
		l := newLocker(t, closed)
		require.NoError(t, closed.Close())
		err = electing(t, l).Run(bounded(t), never[*redlatch.Lock](t))
		require.True(t, errors.Is(err, redis.ErrClosed), err)
	})
}

// TestPausesOfAnElectionDiffer: half of the second after a term is random, so that processes do not ask in step.
func TestPausesOfAnElectionDiffer(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		var ended time.Time
		var shortest, longest time.Duration
		terms := 0
		err := redlatch.Lead(t.Context(), locktest.SetNXPX(t, s.Client(t)), "k", func(context.Context, *redlatch.Lock) error {
			if terms++; terms > 1 {
				pause := time.Since(ended)
				shortest, longest = min(pause, cmp.Or(shortest, pause)), max(pause, longest)
			}
			if ended = time.Now(); terms == 100 {
				return redlatch.ErrStop
			}
			return nil
		})
		require.NoError(t, err)
		require.Less(t, shortest, 600*time.Millisecond)
		require.Greater(t, longest, 900*time.Millisecond)
		require.LessOrEqual(t, longest, time.Second+100*time.Millisecond)
	})
}
