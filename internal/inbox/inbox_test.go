package inbox

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/line"
)

var (
	errRefused = errors.New("NOPERM")
	unused     = redis.NewClient(&redis.Options{})
)

// newInbox returns a subscription on a Redis of its own, and a channel that gets each call of Changed.
func newInbox(t *testing.T) (s *Inbox, changed <-chan struct{}) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	t.Cleanup(func() { _ = client.Close() })
	calls := make(chan struct{}, 100)
	s = New(client)
	s.Changed, s.Degraded, s.Deliver = func() { calls <- struct{}{} }, func(error) {}, func(Grant) {}
	return s, calls
}

// TestRefusalIsReportedOnce: what Redis refused before is not reported again, even if the inbox was closed between two waits, unless
// Redis has allowed it meanwhile. If SUBSCRIBE is refused, lines that rely on messages look: that is a change.
func TestRefusalIsReportedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, refuse := range map[string]func(*Inbox, error){"SUBSCRIBE": (*Inbox).refuse, "PUBLISH": (*Inbox).RefusePublish} {
			told, changes := 0, 0
			s := New(unused)
			s.Changed, s.Degraded = func() { changes++ }, func(error) { told++ }
			refuse(s, errRefused)
			require.Equal(t, name == "SUBSCRIBE", changes == 1)
			require.True(t, s.stop())
			s.running = true // a line waits again
			require.Equal(t, line.Closed, s.State(), name)
			refuse(s, errRefused)
			require.Equal(t, 1, told, name)
			s.received(&redis.Subscription{})
			time.Sleep(muteFor)
			refuse(s, errRefused)
			require.Equal(t, 2, told, name)
		}
	})
}

// TestMessagesComeWhereRedisAllowsThem: messages come once SUBSCRIBE is confirmed. They are expected for a second before that, for
// a second after the connection broke, and before anybody waits. They do not come if Redis refuses SUBSCRIBE or PUBLISH, or if
// the client cannot subscribe.
func TestMessagesComeWhereRedisAllowsThem(t *testing.T) {
	type steps []func(*Inbox)
	confirm := func(s *Inbox) { s.received(&redis.Subscription{}) }
	breaks := func(s *Inbox) { s.broke() }
	refused := func(s *Inbox) { s.refuse(errRefused) }
	mute := func(s *Inbox) { s.RefusePublish(errRefused) }
	rest := func(d time.Duration) func(*Inbox) { return func(*Inbox) { time.Sleep(d) } }
	almost := rest(time.Second - 1)
	for name, c := range map[string]struct {
		unused bool
		steps  steps
		want   line.Channel
	}{
		"nobody waits":                       {unused: true, want: line.Opening},
		"it has just been opened":            {want: line.Opening},
		"almost a second without an answer":  {steps: steps{almost}, want: line.Opening},
		"a second without an answer":         {steps: steps{rest(time.Second)}},
		"confirmed":                          {steps: steps{confirm, rest(time.Hour)}, want: line.Open},
		"confirmed late":                     {steps: steps{rest(time.Hour), confirm}, want: line.Open},
		"the connection has just broken":     {steps: steps{confirm, rest(time.Hour), breaks, almost}, want: line.Opening},
		"it has been broken for a second":    {steps: steps{confirm, breaks, rest(time.Second)}},
		"a second attempt fails":             {steps: steps{confirm, breaks, almost, breaks, rest(1)}},
		"confirmed again":                    {steps: steps{confirm, breaks, rest(time.Hour), confirm}, want: line.Open},
		"SUBSCRIBE is refused":               {steps: steps{refused}},
		"SUBSCRIBE is refused from now on":   {steps: steps{confirm, refused}},
		"SUBSCRIBE works again":              {steps: steps{refused, confirm}, want: line.Open},
		"PUBLISH is refused":                 {steps: steps{confirm, mute, rest(time.Minute - 1)}},
		"PUBLISH was refused a minute ago":   {steps: steps{confirm, mute, rest(time.Minute)}, want: line.Open},
		"PUBLISH is refused, and it listens": {steps: steps{mute, confirm}},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(unused)
			s.Changed, s.Degraded = func() {}, func(error) {}
			s.running, s.changed = !c.unused, time.Now() // as Join does
			for _, step := range c.steps {
				step(s)
			}
			require.Equal(t, c.want, s.State(), name)
		})
	}
	s := New(nil)
	s.Join()
	require.Equal(t, line.Closed, s.State(), "the client cannot subscribe")
}

// TestChangedAfterEachConfirmation: messages may have been lost whenever the connection broke, and come again when it is
// confirmed. Both are changes. Missed replaces the connection, unless it was confirmed since the message was lost.
func TestChangedAfterEachConfirmation(t *testing.T) {
	s, changed := newInbox(t)
	begin := time.Now()
	s.Join()
	defer s.Leave()
	await(t, changed)
	require.Equal(t, line.Open, s.State())
	s.Missed(begin)
	s.mu.Lock()
	require.NotNil(t, s.current, "the message was lost before")
	s.mu.Unlock()
	s.Missed(time.Now())
	await(t, changed)
	await(t, changed)
	require.Equal(t, line.Open, s.State())
	require.Empty(t, changed)
}

// TestMissedIsForAConnectionThatListens: one that is not confirmed yet is about to replace the one that lost the message.
func TestMissedIsForAConnectionThatListens(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	defer client.Close()
	for name, c := range map[string]struct {
		up     bool
		lost   time.Duration // after the confirmation
		closed bool
	}{
		"it listened when the message was lost": {true, 1, true},
		"it was confirmed at that moment":       {true, 0, true},
		"it was confirmed since then":           {true, -1, false},
		"it is not confirmed":                   {false, 1, false},
	} {
		s := New(client)
		s.current, s.up, s.changed = client.Subscribe(t.Context()), c.up, time.Now()
		ps := s.current
		s.Missed(s.changed.Add(c.lost))
		require.Equal(t, c.closed, s.current == nil, name)
		require.Equal(t, c.closed, ps.Close() != nil, name)
		s.Missed(s.changed.Add(c.lost)) // does nothing
	}
}

func await(t *testing.T, event <-chan struct{}) {
	t.Helper()
	select {
	case <-event:
	case <-time.After(20 * time.Second):
		require.Fail(t, "no change was told")
	}
}

// TestProxyThatHangsUpOnSubscribeRefusesIt: three connections in a row are closed before SUBSCRIBE is confirmed. That counts as
// refused, is reported once, and the pauses grow. An outage, in which nothing can be reached, does not count.
func TestProxyThatHangsUpOnSubscribeRefusesIt(t *testing.T) {
	m := miniredis.RunT(t)
	var subscribed atomic.Int64
	m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
		if cmd != "SUBSCRIBE" {
			return false
		}
		subscribed.Add(1)
		c.Close()
		return true
	})
	client := redis.NewClient(&redis.Options{Addr: m.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	s := New(client)
	told := make(chan error, 10)
	s.Changed, s.Degraded = func() {}, func(err error) { told <- err }
	s.Join()
	defer s.Leave()
	select {
	case err := <-told:
		require.Error(t, err)
	case <-time.After(20 * time.Second):
		require.Fail(t, "not reported")
	}
	require.Equal(t, line.Closed, s.State())
	require.LessOrEqual(t, subscribed.Load(), int64(2*mostHungUp), "go-redis sends each twice")
	m.Server().SetPreHook(nil)
	require.Eventually(t, func() bool { return s.State() == line.Open }, 20*time.Second, time.Millisecond, "it is allowed now")
	require.Empty(t, told)

	m.Close()
	require.Eventually(t, func() bool { return s.State() == line.Closed }, 20*time.Second, time.Millisecond)
	require.Empty(t, told)
}

// TestReconnectsPauseLongerAndLonger: from 50 ms to 3 s, and half of each pause is random.
func TestReconnectsPauseLongerAndLonger(t *testing.T) {
	for failed, ms := range []int{50, 100, 200, 400, 800, 1600, 3000, 3000, 3000, 3000} {
		most := time.Duration(ms) * time.Millisecond
		for range 100 {
			pause := reconnectPause(failed)
			require.LessOrEqual(t, pause, most)
			require.Greater(t, pause, most/2)
		}
	}
}
