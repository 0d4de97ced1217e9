package handoff

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

var errHeld = errors.New("held")

// newList returns a waitlist on a Redis of its own, before its first use.
func newList(t *testing.T) *Waitlist {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	return NewWaitlist(NewSubscription(client, false), clock.Now, nil)
}

// listening returns a waitlist whose subscription is ready. No waiter looks when the subscription is confirmed or
// breaks.
func listening(t *testing.T) *Waitlist {
	t.Helper()
	l := newList(t)
	l.Subscription.changed = func() {}
	l.Subscription.Join()
	t.Cleanup(l.Subscription.Leave)
	for !l.Subscription.IsReady() {
		l.Subscription.Await(t.Context())
	}
	return l
}

// enter adds a waiter whose TTL is a second.
func enter(l *Waitlist, key, token string) *Waiter {
	return l.Enter(key, token, time.Second, clock.Now())
}

// TestHandoverNamesItsKeyAndItsPlace: a handover that names another key, number, TTL or process is delivered to
// nobody, whatever its token is.
func TestHandoverNamesItsKeyAndItsPlace(t *testing.T) {
	l := listening(t)
	mine, beside, elsewhere := enter(l, "k", "job-7"), enter(l, "k", "job-7"), enter(l, "l", "job-7")
	tell := func(entry, key string) {
		l.Subscription.received(&redis.Message{Payload: "1700000000 5 7 " + strconv.Itoa(len(entry)) + " " + entry + key})
	}
	heard := func() []int { return []int{len(mine.handed), len(beside.handed), len(elsewhere.handed)} }
	tell(mine.Entry, "l")
	tell(mine.Entry, "m")
	tell(elsewhere.Entry, "k")
	tell("1000 "+l.Subscription.channel+" 1 job-7", "k")
	tell("1000 redlatch:another"+strings.TrimPrefix(mine.Entry, "1000 "+l.Subscription.channel), "k")
	tell("9"+mine.Entry, "k")
	require.Equal(t, []int{0, 0, 0}, heard())
	tell(beside.Entry, "k")
	require.Equal(t, []int{0, 1, 0}, heard())
	tell(elsewhere.Entry, "l")
	require.Equal(t, []int{0, 1, 1}, heard())
}

// TestWaitersOfALostQueueLookAtOnce is rule 25: a look finds that the entry of its waiter was gone, so the
// entries of all waiters of the process are. These waiters queue again at once, and do not wait for their turns
// to look.
func TestWaitersOfALostQueueLookAtOnce(t *testing.T) {
	l := listening(t)
	first, second, newcomer := enter(l, "k", "1"), enter(l, "k", "2"), enter(l, "k", "3")
	for _, w := range []*Waiter{first, second} {
		l.OnRefusal(w, clock.Now(), Refusal{At: 1, Fresh: true, Holder: "h", Left: time.Minute}, errHeld)
	}
	require.Zero(t, second.lookAt)
	l.OnRefusal(first, clock.Now(), Refusal{At: 2, Fresh: true, Holder: "h", Left: time.Minute}, errHeld)
	require.Zero(t, first.lookAt)
	require.NotZero(t, second.lookAt)
	require.LessOrEqual(t, time.Until(second.lookAt), time.Duration(0))
	require.Zero(t, newcomer.lookAt, "it has had no place")
}

// TestLooksComeAtIntervals is rule 27: the first waiter of the queue polls if the lock changes hands past it.
// Other waiters look less and less often while the key stays with one holder.
func TestLooksComeAtIntervals(t *testing.T) {
	l := listening(t)
	pause := func(polls int, _ time.Duration) time.Duration { return time.Duration(polls) * time.Millisecond }
	w := enter(l, "k", "1")
	const ours, others, theirs, kept = "ours", "another of ours", "theirs", "kept"
	look := func(holder string, first bool) time.Duration {
		got := Refusal{At: 1, Holder: holder, First: first, Foreign: holder == theirs, Kept: holder == kept, Left: time.Minute}
		l.OnRefusal(w, clock.Now(), got, errHeld)
		return l.interval(w, pause, got)
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
	between(time.Second, look(kept, true))
	require.Equal(t, time.Millisecond, look(ours, true))
	require.Equal(t, 2*time.Millisecond, look(ours, true))

	l.Leave(w)
	w = enter(l, "k", "2")
	between(250*time.Millisecond, look(theirs, true))
	require.Equal(t, time.Millisecond, look(ours, true))
}

// TestMessageThatCameIsNotMissed is rule 30: the message came while the look that found the lock was in flight.
func TestMessageThatCameIsNotMissed(t *testing.T) {
	l := listening(t)
	w := enter(l, "k", "1")
	l.OnRefusal(w, clock.Now(), Refusal{At: 1, Fresh: true, Holder: "h", Left: time.Minute}, errHeld)
	l.deliver(Handover{key: "k", entry: w.Entry, Fence: 1, at: 1})
	l.Found(w, true)
	require.Empty(t, l.missing)
	<-w.handed
	l.Found(w, true)
	require.Equal(t, w.Entry, l.missing)
	l.deliver(Handover{key: "k", entry: w.Entry, Fence: 1, at: 1})
	require.Empty(t, l.missing, "it came a little later")
}

// TestNextWaiterLooksAfterAnExpiredHandover is rule 25: a process that was frozen finds that a lock that it was
// handed is free. Its other entries may have left the queue, so the next waiter looks at once.
func TestNextWaiterLooksAfterAnExpiredHandover(t *testing.T) {
	l := listening(t)
	w, next := enter(l, "k", "1"), enter(l, "k", "2")
	l.OnRefusal(w, clock.Now(), Refusal{At: 1, Fresh: true, Holder: "h", Left: time.Minute}, errHeld)
	l.deliver(Handover{key: "k", entry: w.Entry, Fence: 1, at: 1})
	l.Found(w, false)
	require.Zero(t, next.lookAt)
	l.Leave(w)
	require.LessOrEqual(t, time.Until(next.lookAt), time.Duration(0))
	require.NotZero(t, next.lookAt)
}

// TestLostQueueIsRememberedUntilRedisListens is rule 15: if a queue was lost while the subscription
// was down, all waiters join it again once the subscription is confirmed.
func TestLostQueueIsRememberedUntilRedisListens(t *testing.T) {
	l := newList(t)
	first, second, third := enter(l, "k", "1"), enter(l, "k", "2"), enter(l, "k", "3")
	for _, w := range []*Waiter{first, second, third} {
		l.OnRefusal(w, clock.Now(), Refusal{At: 1, Fresh: true}, errHeld)
	}
	l.OnRefusal(first, clock.Now(), Refusal{At: 2, Fresh: true}, errHeld)
	for _, w := range []*Waiter{second, third} {
		require.Zero(t, w.lookAt)
	}
	l.look()
	for _, w := range []*Waiter{second, third} {
		require.NotZero(t, w.lookAt)
		l.OnRefusal(w, clock.Now(), Refusal{At: 3, Fresh: true}, errHeld)
	}
	l.look()
	require.NotZero(t, first.lookAt)
	require.Zero(t, second.lookAt, "it has its place")
}

// TestDegradationIsReportedOnce: it is reported once, even if a release is the first to find that PUBLISH is refused.
func TestDegradationIsReportedOnce(t *testing.T) {
	var told int
	l := newList(t)
	s, err := l.Subscription, errors.New("NOPERM")
	s.changed, s.degraded = func() {}, func(error) { told++ }
	s.RefusePublish(err)
	s.Join()
	defer s.Leave()
	s.RefusePublish(err)
	require.Equal(t, 1, told)
	require.True(t, s.IsDegraded())
}

// TestClosedSubscriptionKeepsWhatWasRefused is rule 34: the subscription is closed between two waits. What Redis refused before
// is not reported again, unless Redis has allowed it meanwhile.
func TestClosedSubscriptionKeepsWhatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, refuse := range map[string]func(*Subscription, error){
			"SUBSCRIBE": (*Subscription).refuse, "PUBLISH": (*Subscription).RefusePublish,
		} {
			var told int
			s := NewSubscription(nil, false)
			NewWaitlist(s, clock.Now, func(error) { told++ })
			refuse(s, errors.New("NOPERM"))
			require.True(t, s.stop())
			require.True(t, s.IsDegraded(), name)
			refuse(s, errors.New("NOPERM"))
			require.Equal(t, 1, told, name)
			s.received(&redis.Subscription{})
			time.Sleep(muteFor)
			refuse(s, errors.New("NOPERM"))
			require.Equal(t, 2, told, name)
		}
	})
}

// TestPublishIsTriedAgain is rule 28: a minute after Redis refused PUBLISH, a process relies on messages again, even
// if it always has waiters. If Redis still refuses PUBLISH, that is reported once more.
func TestPublishIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told int
		s := NewSubscription(nil, false)
		NewWaitlist(s, clock.Now, func(error) { told++ })
		for range 2 {
			s.RefusePublish(errors.New("NOPERM"))
			require.True(t, s.IsDegraded())
			time.Sleep(time.Minute)
			require.False(t, s.IsDegraded())
		}
		require.Equal(t, 2, told)
	})
}

// TestRefusedPublishCostsNoPlace is rule 28: a waiter queues anew when PUBLISH is refused, so that others hand it the lock
// without a message. It does not queue anew when PUBLISH is tried again.
func TestRefusedPublishCostsNoPlace(t *testing.T) {
	l := listening(t)
	l.Subscription.degraded = func(error) {}
	before := enter(l, "k", "1")
	require.False(t, l.Outdated(before))
	l.Subscription.RefusePublish(errors.New("NOPERM"))
	require.True(t, l.Outdated(before))
	w := enter(l, "k", "2")
	require.Contains(t, w.Entry, " -redlatch:")
	require.False(t, l.Outdated(w))
	l.Subscription.mute = time.Now()
	require.False(t, l.Subscription.IsDegraded())
	require.False(t, l.Outdated(w))
	pause := func(int, time.Duration) time.Duration { return 7 * time.Millisecond }
	require.Equal(t, 7*time.Millisecond, l.interval(w, pause, Refusal{}), "it continues to poll")
}

// TestWaiterQueuesAnewWhenSubscribeWorks is rule 28: from then on messages reach it.
func TestWaiterQueuesAnewWhenSubscribeWorks(t *testing.T) {
	l := listening(t)
	l.Subscription.degraded = func(error) {}
	l.Subscription.refuse(errors.New("NOPERM"))
	w := enter(l, "k", "1")
	require.False(t, l.Outdated(w))
	l.Subscription.received(&redis.Subscription{})
	require.True(t, l.Outdated(w))
}

// TestMessageThatEndedTheSleepIsNotMissed is rule 30: the lock is confirmed by replicas after its message.
func TestMessageThatEndedTheSleepIsNotMissed(t *testing.T) {
	l := listening(t)
	w := enter(l, "k", "1")
	got := Refusal{At: 1, Fresh: true, Holder: "h", Left: time.Minute}
	l.OnRefusal(w, clock.Now(), got, errHeld)
	l.deliver(Handover{key: "k", entry: w.Entry, Fence: 1, at: 1})
	h, _ := l.Sleep(t.Context(), w, nil, got)
	require.NotNil(t, h)
	l.Found(w, true)
	require.Empty(t, l.missing)
}

// TestLookIsPassedOn is rule 15: a waiter is told to look at once, and leaves before it can. The next one looks instead. A
// waiter that was handed its lock has no look to pass on.
func TestLookIsPassedOn(t *testing.T) {
	l := listening(t)
	w, next, last := enter(l, "k", "1"), enter(l, "k", "2"), enter(l, "k", "3")
	for _, w := range []*Waiter{w, next, last} {
		l.OnRefusal(w, clock.Now(), Refusal{At: 1, Fresh: true, Holder: "h", Left: time.Minute}, errHeld)
	}
	l.look()
	require.Zero(t, next.lookAt)
	l.Leave(w)
	require.NotZero(t, next.lookAt)
	require.LessOrEqual(t, time.Until(next.lookAt), time.Duration(0))
	l.deliver(Handover{key: "k", entry: next.Entry, Fence: 1, at: 1})
	l.Leave(next)
	require.Zero(t, last.lookAt)

	l.look()
	require.NotZero(t, last.lookAt)
	late := enter(l, "k", "4")
	l.Found(last, true)
	last.found = false // it expected no message
	l.Leave(last)
	require.Zero(t, late.lookAt, "last has looked")
}
