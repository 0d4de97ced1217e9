package handoff

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

var errRefused = errors.New("NOPERM")

// newSubscription returns a subscription on a Redis of its own, and a channel that gets each call of Changed.
func newSubscription(t *testing.T) (s *Subscription, changed <-chan struct{}) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	calls := make(chan struct{}, 100)
	s = NewSubscription(client, false)
	s.Changed, s.Degraded, s.Deliver = func() { calls <- struct{}{} }, func(error) {}, func(Grant) {}
	return s, calls
}

// TestDegradationIsReportedOnce: it is reported once, even if a release is the first to find that PUBLISH is refused.
func TestDegradationIsReportedOnce(t *testing.T) {
	var told int
	s, _ := newSubscription(t)
	s.Degraded = func(error) { told++ }
	s.RefusePublish(errRefused)
	s.Join()
	defer s.Leave()
	s.RefusePublish(errRefused)
	require.Equal(t, 1, told)
	require.True(t, s.State().Polls)
}

// TestClosedSubscriptionKeepsWhatWasRefused: the subscription is closed between two waits. What Redis refused before
// is not reported again, unless Redis has allowed it meanwhile.
func TestClosedSubscriptionKeepsWhatWasRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, refuse := range map[string]func(*Subscription, error){
			"SUBSCRIBE": (*Subscription).refuse, "PUBLISH": (*Subscription).RefusePublish,
		} {
			var told int
			s := NewSubscription(nil, false)
			s.Changed, s.Degraded = func() {}, func(error) { told++ }
			refuse(s, errRefused)
			require.True(t, s.stop())
			require.True(t, s.State().Polls, name)
			refuse(s, errRefused)
			require.Equal(t, 1, told, name)
			s.received(&redis.Subscription{})
			time.Sleep(muteFor)
			refuse(s, errRefused)
			require.Equal(t, 2, told, name)
		}
	})
}

// TestPublishIsTriedAgain: a minute after Redis refused PUBLISH, a process relies on messages again, even
// if it always has waiters. If Redis still refuses PUBLISH, that is reported once more.
func TestPublishIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told int
		s := NewSubscription(nil, false)
		s.Changed, s.Degraded = func() {}, func(error) { told++ }
		for range 2 {
			s.RefusePublish(errRefused)
			require.True(t, s.State().Polls)
			time.Sleep(time.Minute)
			require.False(t, s.State().Polls)
		}
		require.Equal(t, 2, told)
	})
}

// TestStateSaysHowGrantsArrive: a process polls while SUBSCRIBE or PUBLISH is refused, or if its client cannot
// subscribe. It is deaf unless only PUBLISH is refused. It listens once SUBSCRIBE is confirmed.
func TestStateSaysHowGrantsArrive(t *testing.T) {
	confirm := func(s *Subscription) { s.received(&redis.Subscription{}) }
	for name, c := range map[string]struct {
		impossible bool
		steps      []func(*Subscription)
		want       State
	}{
		"before it is confirmed": {want: State{}},
		"confirmed":              {steps: []func(*Subscription){confirm}, want: State{Ready: true}},
		"the connection broke":   {steps: []func(*Subscription){confirm, func(s *Subscription) { s.markDown() }}},
		"SUBSCRIBE is refused": {
			steps: []func(*Subscription){func(s *Subscription) { s.refuse(errRefused) }}, want: State{Polls: true, Deaf: true},
		},
		"PUBLISH is refused": {
			steps: []func(*Subscription){confirm, func(s *Subscription) { s.RefusePublish(errRefused) }}, want: State{Polls: true},
		},
		"SUBSCRIBE works again": {
			steps: []func(*Subscription){func(s *Subscription) { s.refuse(errRefused) }, confirm}, want: State{Ready: true},
		},
		"the client cannot": {impossible: true, want: State{Polls: true, Deaf: true}},
	} {
		s := NewSubscription(nil, c.impossible)
		s.Changed, s.Degraded = func() {}, func(error) {}
		for _, step := range c.steps {
			step(s)
		}
		require.Equal(t, c.want, s.State(), name)
	}
}

// TestChangedAfterEachConfirmation: messages may have been lost whenever the connection broke, and come again
// when it is confirmed. Both are told.
func TestChangedAfterEachConfirmation(t *testing.T) {
	s, changed := newSubscription(t)
	s.Join()
	defer s.Leave()
	await(t, changed)
	require.True(t, s.State().Ready)
	s.Replace()
	await(t, changed)
	await(t, changed)
	require.True(t, s.State().Ready)
	require.Empty(t, changed)
}

func await(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(20 * time.Second):
		require.Fail(t, "no change was told")
	}
}
