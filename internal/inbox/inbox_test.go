package inbox

import (
	"context"
	"errors"
	"net"
	"reflect"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/alicebob/miniredis/v2/server"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/wire"
)

var (
	errRefused = errors.New("NOPERM")
	unused     = redis.NewClient(&redis.Options{})
)

// bubble runs a test in a bubble. Its inbox is on a Redis of its own, which cannot be reached while
// down is set. The channel gets each call of Changed.
func bubble(t *testing.T, test func(t *testing.T, s *Inbox, m *miniredis.Miniredis, down *atomic.Bool, changed <-chan bool)) {
	synctest.Test(t, func(t *testing.T) {
		m := miniredis.NewMiniRedis()
		defer m.Close()
		var down atomic.Bool
		client := redis.NewClient(&redis.Options{
			Dialer: func(context.Context, string, string) (net.Conn, error) {
				if down.Load() {
					return nil, &net.OpError{Op: "dial", Err: errors.New("no route")}
				}
				return m.Dial()
			},
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // it has a ticker
		})
		defer client.Close()
		changes := make(chan bool, 100)
		s := New(client)
		s.Changed, s.Degraded, s.Deliver = func(returned bool) { changes <- returned }, func(error) {}, func(wire.HandOver) {}
		s.Served = func(clock.Mono) bool { return true }

		s.Join()
		defer time.Sleep(2 * wakeEvery) // the inbox ends by then, also in an outage
		defer s.Leave()
		test(t, s, m, &down, changes)
	})
}

// TestMessagesComeWhereRedisAllowsThem: messages come while SUBSCRIBE is confirmed, unless Redis
// refuses PUBLISH.
func TestMessagesComeWhereRedisAllowsThem(t *testing.T) {
	type steps []func(*Inbox)
	confirm := func(s *Inbox) { s.received(&redis.Subscription{}) }
	breaks := func(s *Inbox) { s.setSubscribed(false) }
	refused := func(s *Inbox) { s.refuse(errRefused) }
	mute := func(s *Inbox) { s.RefusePublish(errRefused) }
	rest := func(d time.Duration) func(*Inbox) { return func(*Inbox) { time.Sleep(d) } }
	for name, c := range map[string]struct {
		steps steps
		want  bool
	}{
		"not confirmed yet":                {},
		"confirmed":                        {steps: steps{confirm, rest(time.Hour)}, want: true},
		"the connection has broken":        {steps: steps{confirm, breaks}},
		"SUBSCRIBE is refused":             {steps: steps{confirm, breaks, refused}},
		"SUBSCRIBE works again":            {steps: steps{refused, confirm}, want: true},
		"PUBLISH is refused":               {steps: steps{confirm, mute, rest(time.Minute - 1)}},
		"PUBLISH was refused a minute ago": {steps: steps{confirm, mute, rest(time.Minute)}, want: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(unused)
			s.Changed, s.Degraded = func(bool) {}, func(error) {}
			for _, step := range c.steps {
				step(s)
			}
			require.Equal(t, c.want, s.Listens(), name)
		})
	}
	s := New(nil)
	s.Join()
	require.Equal(t, false, s.Listens(), "the client cannot subscribe")
}

// TestChangedAfterEachConfirmation: messages may have been lost whenever the connection broke, and
// come again when it is confirmed. Both are changes. Missed replaces a connection that was
// confirmed when the message was lost.
func TestChangedAfterEachConfirmation(t *testing.T) {
	bubble(t, func(t *testing.T, s *Inbox, m *miniredis.Miniredis, _ *atomic.Bool, changed <-chan bool) {
		delivered := make(chan wire.HandOver, 1)
		s.Deliver = func(g wire.HandOver) { delivered <- g }
		begin := clock.MonoNow()
		time.Sleep(time.Second)
		require.False(t, <-changed)
		require.Equal(t, true, s.Listens())
		m.Publish(s.Channel, "1 1 1 5 1 c xk")
		require.Equal(t, "x", (<-delivered).Token)

		s.Missed(begin.Add(-1))               // before the confirmation
		time.Sleep(time.Second + wakeEvery/4) // a wake does not come just now
		require.Empty(t, changed)
		s.Missed(clock.MonoNow())
		s.Missed(clock.MonoNow()) // another connection is about to replace it
		require.False(t, <-changed)
		missed := time.Now()
		require.Equal(t, false, s.Listens())
		require.False(t, <-changed, "it did not break")
		require.Equal(t, true, s.Listens())
		require.Less(t, time.Since(missed), wakeEvery/2, "at once, and not at the next wake")
		time.Sleep(time.Minute)
		require.Empty(t, changed)
	})
}

// TestSilentConnectionIsReplaced: go-redis does not notice a dead connection, so an inbox asks. It closes the old one.
func TestSilentConnectionIsReplaced(t *testing.T) {
	bubble(t, func(t *testing.T, s *Inbox, m *miniredis.Miniredis, _ *atomic.Bool, changed <-chan bool) {
		<-changed
		m.Server().SetPreHook(func(_ *server.Peer, cmd string, _ ...string) bool { return cmd == "PING" })
		time.Sleep((2*pingAfter + 1) * wakeEvery)
		require.Len(t, changed, 2)
		require.False(t, <-changed)
		require.True(t, <-changed, "it is open again after it broke")
		require.Equal(t, map[string]int{s.Channel: 1}, m.PubSubNumSub(s.Channel))
	})
}

// TestProxyThatHangsUpOnSubscribeRefusesIt: three connections in a row are closed before SUBSCRIBE
// is confirmed. That counts as refused, and is reported once. An outage, in which nothing can be
// reached, does not count.
func TestProxyThatHangsUpOnSubscribeRefusesIt(t *testing.T) {
	bubble(t, func(t *testing.T, s *Inbox, m *miniredis.Miniredis, down *atomic.Bool, changed <-chan bool) {
		reported := make(chan error, 10)
		s.Degraded = func(err error) { reported <- err }
		<-changed
		var subscribed atomic.Int64
		m.Server().SetPreHook(func(c *server.Peer, cmd string, _ ...string) bool {
			if cmd == "SUBSCRIBE" {
				subscribed.Add(1)
				c.Close()
			}
			return cmd == "SUBSCRIBE"
		})
		s.Missed(clock.MonoNow())
		require.Error(t, <-reported)
		require.LessOrEqual(t, subscribed.Load(), int64(6), "three, and go-redis sends each twice")
		require.Equal(t, false, s.Listens())
		synctest.Wait()
		require.Len(t, changed, 1, "the connection broke")
		time.Sleep(time.Minute)
		require.Empty(t, reported, "it was reported before")
		m.Server().SetPreHook(nil)
		time.Sleep(2 * lastReconnect)
		require.Equal(t, true, s.Listens(), "it is allowed now")

		down.Store(true)
		s.Missed(clock.MonoNow())
		time.Sleep(time.Minute)
		require.Equal(t, false, s.Listens())
		require.Empty(t, reported)
	})
}

// TestOutageRefusesNothing: SUBSCRIBE counts as refused only if commands work meanwhile, and if the
// answer is not a passing one.
func TestOutageRefusesNothing(t *testing.T) {
	const passes, lasts = "BUSY Redis is busy running a script", "NOPERM this user has no permissions"
	for name, c := range map[string]struct {
		answer string // to SUBSCRIBE; empty: the connection is closed
		works  bool
		want   int
	}{
		"no server behind a proxy":            {},
		"a proxy that answers for a server":   {answer: lasts},
		"a proxy that cannot subscribe":       {works: true, want: 1},
		"the right is missing":                {answer: lasts, works: true, want: 1},
		"the answer is a passing one":         {answer: passes, works: true},
		"the answer of a server that is sick": {answer: passes},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, s *Inbox, m *miniredis.Miniredis, _ *atomic.Bool, changed <-chan bool) {
				reported := make(chan error, 10)
				s.Degraded = func(err error) { reported <- err }
				s.Served = func(since clock.Mono) bool { return c.works && clock.MonoNow().Sub(since) > 10*time.Millisecond }
				<-changed
				m.Server().SetPreHook(func(p *server.Peer, cmd string, _ ...string) bool {
					switch {
					case cmd != "SUBSCRIBE":
						return false
					case c.answer == "":
						p.Close()
					default:
						p.WriteError(c.answer)
					}
					return true
				})
				s.Missed(clock.MonoNow())
				time.Sleep(time.Minute)
				require.Len(t, reported, c.want)
				require.False(t, s.Listens())
				m.Server().SetPreHook(nil)
				time.Sleep(2 * lastReconnect)
				require.True(t, s.Listens())
			})
		})
	}
}

// TestReconnectsPauseLongerAndLonger: 50 ms, doubling to 3 s, half of it random.
func TestReconnectsPauseLongerAndLonger(t *testing.T) {
	for failed, ms := range []int{50, 100, 200, 400, 800, 1600, 3000, 3000, 3000, 3000} {
		most := time.Duration(ms) * time.Millisecond
		for range 100 {
			pause := reconnectPause(failed)
			require.LessOrEqual(t, pause, most)
			require.Greater(t, pause, most/2-1)
		}
	}
	require.LessOrEqual(t, reconnectPause(1000), lastReconnect)
}

// TestSubscriptionLeavesADeadServerOfACluster: the server that has the slot of the channel is dead,
// and another one has its slots. The client would ask for them a minute later.
func TestSubscriptionLeavesADeadServerOfACluster(t *testing.T) {
	t.Parallel()
	addrs, reads := []string{"127.0.0.1:1", miniredis.RunT(t).Addr()}, atomic.Int64{}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: addrs,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			server := addrs[min(reads.Add(1), 3)/3] // the second read comes too early
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: server}}}}, nil
		},
	})
	defer client.Close()
	s := New(client)
	s.Changed, s.Degraded = func(bool) {}, func(error) {}
	s.Join()
	defer s.Leave()
	require.Eventually(t, s.Listens, time.Minute, time.Millisecond)
	require.GreaterOrEqual(t, reads.Load(), int64(3))
}

// TestNoMessagesComeWhileTheConnectionIsDialed: go-redis dials by itself when the connection
// breaks. Lines know at once that no messages come, or soon if the dialer does not heed ctx.
func TestNoMessagesComeWhileTheConnectionIsDialed(t *testing.T) {
	for name, heeds := range map[string]bool{"the dialer heeds ctx": true, "the dialer does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := miniredis.NewMiniRedis()
				defer m.Close()
				var newest net.Conn
				var hangs atomic.Bool
				client := redis.NewClient(&redis.Options{
					Dialer: func(ctx context.Context, _, _ string) (conn net.Conn, err error) {
						if hangs.Load() {
							if !heeds {
								ctx = context.Background()
							}
							select {
							case <-ctx.Done():
								return nil, ctx.Err()
							case <-time.After(time.Minute):
							}
						}
						newest, err = m.Dial()
						return newest, err
					},
					MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
				})
				defer client.Close()
				var changed atomic.Int64
				s := New(client)
				s.Changed, s.Degraded = func(bool) { changed.Add(1) }, func(error) {}
				s.Served = func(clock.Mono) bool { return true }
				s.Join()
				defer time.Sleep(5 * time.Minute) // the dials end
				defer s.Leave()
				time.Sleep(10 * time.Second)
				require.True(t, s.Listens())

				hangs.Store(true)
				require.NoError(t, newest.Close())
				if !heeds {
					time.Sleep(lateAfter)
				}
				synctest.Wait()
				require.False(t, s.Listens())
				require.Equal(t, int64(2), changed.Load())

				hangs.Store(false)
				time.Sleep(3 * time.Minute)
				require.True(t, s.Listens())
				require.Equal(t, int64(3), changed.Load())
			})
		})
	}
}

// TestPanicOfTheClientIsAFailedConnection: a hook, dialer or OnConnect of the user panics. The
// process lives, messages come once that is over, and the inbox ends without users. A panic each
// time is as if Redis refused SUBSCRIBE.
func TestPanicOfTheClientIsAFailedConnection(t *testing.T) {
	bubble(t, func(t *testing.T, s *Inbox, _ *miniredis.Miniredis, _ *atomic.Bool, changed <-chan bool) {
		var degraded []string
		s.Degraded = func(err error) { degraded = append(degraded, err.Error()) }
		time.Sleep(time.Second)
		<-changed
		var panics atomic.Bool
		panics.Store(true)
		s.client.(*redis.Client).AddHook(dialHook(func() {
			if panics.Load() {
				panic("boom")
			}
		}))
		s.Missed(clock.MonoNow())
		<-changed
		require.False(t, s.Listens())
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, degraded, 1)
		require.Regexp(t, `^the client panicked: boom \(at inbox\.`, degraded[0])
		panics.Store(false)
		<-changed
		require.True(t, s.Listens())
		panics.Store(true)
		s.Missed(clock.MonoNow())
	})
}

// A dialHook runs before each dial.
type dialHook func()

func (h dialHook) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		h()
		return next(ctx, network, addr)
	}
}

func (dialHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (dialHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// least has no other methods than an inbox needs, in place of a whole [redis.UniversalClient].
type least struct{ client *redis.Client }

func (l least) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return l.client.Subscribe(ctx, channels...)
}

// TestAnInboxNeedsOneMethod: so another client can be used with a few lines.
func TestAnInboxNeedsOneMethod(t *testing.T) {
	require.LessOrEqual(t, reflect.TypeFor[client]().NumMethod(), 10)
	m := miniredis.RunT(t)
	direct := redis.NewClient(&redis.Options{Addr: m.Addr()})
	defer direct.Close()
	confirmed, heard := make(chan struct{}, 10), make(chan wire.HandOver, 1)
	s := New(least{direct})
	s.Changed, s.Degraded, s.Served = func(bool) { confirmed <- struct{}{} }, func(error) {}, func(clock.Mono) bool { return true }
	s.Deliver = func(h wire.HandOver) { heard <- h }
	s.Join()
	defer s.Leave()
	<-confirmed
	m.Publish(s.Channel, "1 1 1 5 1 c xk")
	require.Equal(t, "x", (<-heard).Token)
}
