package node

import (
	"context"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// The masters of clusterOf, and hash tags of keys that they have. go-redis changes loopback addresses.
const (
	firstMaster, secondMaster = "192.0.2.1:1", "192.0.2.2:1"
	onFirst, onSecond         = "{bar}", "{foo}"
	half                      = 8191 // the last slot of the first master
)

// clusterOf returns a node of a Cluster of two masters, each of which is a fake, and knows them.
func clusterOf(t *testing.T, serve func(addr string) fake) *Node {
	t.Helper()
	return sharedAt(t, halves, serve)
}

// sharedAt is like clusterOf. last returns the last slot of the first master.
func sharedAt(t *testing.T, last func() int, serve func(addr string) fake) *Node {
	t.Helper()
	n := New(fakeCluster(t, last, serve))
	require.Same(t, n, n.Of(onFirst), "go-redis would have to ask for the slots")
	require.NoError(t, do(n, Command("eval", "first", 1, onFirst)).Err)
	require.NoError(t, do(n, Command("eval", "first", 1, onSecond)).Err)
	return n
}

// fakeCluster returns a client that does not know the two masters yet.
func fakeCluster(t *testing.T, last func() int, serve func(addr string) fake) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{firstMaster},
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{
				{End: last(), Nodes: []redis.ClusterNode{{Addr: firstMaster}}},
				{Start: last() + 1, End: 16383, Nodes: []redis.ClusterNode{{Addr: secondMaster}}},
			}, nil
		},
		NewClient: func(o *redis.Options) *redis.Client {
			server := redis.NewClient(o)
			server.AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
				if cmds[0].Name() == "command" { // go-redis asks which commands there are
					return answer("NOPERM")
				}
				return next()
			}))
			server.AddHook(serve(o.Addr).hook(t))
			return server
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// silenced is like sharedAt, but one master is silent from then on, until the gate is opened. carried gets
// what the other one carries out.
func silenced(t *testing.T, last func() int, silent string, carried func(commands)) (*Node, *gate) {
	t.Helper()
	var known atomic.Bool
	g := newGate(t)
	n := sharedAt(t, last, func(addr string) fake {
		return func(sent commands) error {
			switch {
			case addr != silent:
				carried(sent)
			case known.Load():
				return g.pass(sent)
			}
			return nil
		}
	})
	known.Store(true)
	time.Sleep(tick) // what the servers have answered so far is of another instant
	return n, g
}

// halves is last of a Cluster that does not change.
func halves() int { return half }

// on returns a call of a key.
func on(key string) *Call { return Command("eval", "text", 1, key) }

// TestMasterHasANodeOfItsOwn: calls of its keys leave together, and go on while another master is
// silent. The node of the Cluster has heard what they have heard.
func TestMasterHasANodeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		most := 0
		n, g := silenced(t, halves, firstMaster, func(sent commands) { most = max(most, len(sent)) })
		first, second := n.Of(onFirst), n.Of(onSecond)
		require.NotSame(t, first, second)
		require.Same(t, first, n.Of(onFirst+"another"))
		var silent []<-chan Reply
		for range 100 {
			silent = append(silent, post(first, within(on(onFirst), time.Second)))
		}
		begin := time.Now()
		for range 10 {
			for _, reply := range together(second, on(onSecond+"1"), on(onSecond+"2"), on(onSecond+"3")) {
				requireOK(t, false, <-reply)
			}
		}
		require.Equal(t, begin, time.Now())
		require.Equal(t, 3, most)
		require.True(t, n.Served(0))
		for _, reply := range silent {
			require.ErrorAs(t, (<-reply).Err, new(*rediserr.NoReply))
		}
		is, _ := first.Health()
		require.True(t, is)
		is, _ = second.Health()
		require.False(t, is)
		g.open()
		synctest.Wait()
		require.True(t, idle(first) && idle(second) && idle(n))
	})
}

// TestSilentMasterHoldsUpNoConfirmationOfAnother: calls with a second command travel alone, and take half
// of the connections to one master, not of those to all.
func TestSilentMasterHoldsUpNoConfirmationOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		whole, g := silenced(t, halves, firstMaster, func(commands) {})
		n := NewSlow(whole.client)
		require.NoError(t, do(n.Of(onSecond), confirmed(onSecond)).Err)
		first, second := n.Of(onFirst), n.Of(onSecond)
		require.NotSame(t, first, second)
		require.Equal(t, n.most, first.most)
		var silent []<-chan Reply
		for range 100 {
			silent = append(silent, post(first, confirmed(onFirst)))
		}
		begin := time.Now()
		for range 10 {
			requireOK(t, false, do(second, confirmed(onSecond)))
		}
		require.Equal(t, begin, time.Now())
		for _, reply := range silent {
			require.ErrorAs(t, (<-reply).Err, new(*rediserr.NoReply))
		}
		g.open()
		synctest.Wait()
		require.True(t, idle(first) && idle(second) && idle(n))
	})
}

// confirmed returns a call of a key with a second command.
func confirmed(key string) *Call {
	c := within(waits(on(key)), time.Second)
	c.Key = key
	return c
}

// TestSilentMasterHoldsUpNoFirstConfirmationOfAnother: the client knows the masters before one has answered.
func TestSilentMasterHoldsUpNoFirstConfirmationOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		n := NewSlow(fakeCluster(t, halves, func(addr string) fake {
			return func(sent commands) error {
				if addr == firstMaster {
					return g.pass(sent)
				}
				return nil
			}
		}))
		require.Same(t, n, n.Of(onFirst), "go-redis would have to ask for the slots")
		var silent []<-chan Reply
		for range 100 {
			silent = append(silent, post(n.Of(onFirst), confirmed(onFirst)))
		}
		synctest.Wait()
		begin := time.Now()
		requireOK(t, false, do(n.Of(onSecond), confirmed(onSecond)))
		require.Equal(t, begin, time.Now())
		for _, reply := range silent {
			require.ErrorAs(t, (<-reply).Err, new(*rediserr.NoReply))
		}
		g.open()
		synctest.Wait()
		require.True(t, idle(n.Of(onFirst)) && idle(n.Of(onSecond)) && idle(n))
	})
}

// TestShardOfARingHasANodeOfItsOwn: calls of its keys leave together, and go on while another shard is
// silent.
func TestShardOfARingHasANodeOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const silentShard, shard = "192.0.2.1:1", "192.0.2.2:1"
		g, most := newGate(t), 0
		client := redis.NewRing(&redis.RingOptions{
			Addrs:              map[string]string{"a": silentShard, "b": shard},
			HeartbeatFrequency: time.Hour,
			NewClient: func(o *redis.Options) *redis.Client {
				server := redis.NewClient(o)
				server.AddHook(fake(func(sent commands) error {
					if o.Addr == silentShard {
						return g.pass(sent)
					}
					most = max(most, len(sent))
					return nil
				}).hook(t))
				return server
			},
		})
		defer client.Close()
		var tags [2]string // of keys of each shard
		for i := 0; tags[0] == "" || tags[1] == ""; i++ {
			tag := fmt.Sprintf("{%d}", i)
			server, err := client.GetShardClientForKey(tag)
			require.NoError(t, err)
			if server.Options().Addr == silentShard {
				tags[0] = tag
			} else {
				tags[1] = tag
			}
		}
		n := New(client)
		requireOK(t, false, do(n.Of(tags[1]), on(tags[1])))
		silent := post(n.Of(tags[0]), within(on(tags[0]), time.Second))
		begin := time.Now()
		for _, reply := range together(n.Of(tags[1]), on(tags[1]+"1"), on(tags[1]+"2"), on(tags[1]+"3")) {
			requireOK(t, false, <-reply)
		}
		require.Equal(t, begin, time.Now())
		require.Equal(t, 3, most)
		require.ErrorAs(t, (<-silent).Err, new(*rediserr.NoReply))
		g.open()
		synctest.Wait()
		require.True(t, idle(n.Of(tags[0])) && idle(n.Of(tags[1])) && idle(n))
	})
}

// TestCallWhoseShardHasLeftTheRingGoesOn: the client of that shard is closed, that of the Ring is not. A
// program may have its own type of Ring.
func TestCallWhoseShardHasLeftTheRingGoesOn(t *testing.T) {
	for _, embedded := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const leaves, stays = "192.0.2.1:1", "192.0.2.2:1"
			var client *redis.Ring
			client = redis.NewRing(&redis.RingOptions{
				Addrs:              map[string]string{"a": leaves},
				HeartbeatFrequency: time.Hour,
				NewClient: func(o *redis.Options) *redis.Client {
					server := redis.NewClient(o)
					server.AddHook(fake(func(commands) error {
						if o.Addr == leaves {
							client.SetAddrs(map[string]string{"b": stays})
							return redis.ErrClosed
						}
						return nil
					}).hook(t))
					return server
				},
			})
			defer client.Close()
			n := New(client)
			if embedded {
				n = New(struct{ *redis.Ring }{client})
			}
			requireOK(t, false, do(n, on(onFirst)))
			client.SetAddrs(map[string]string{"a": leaves})
			for _, reply := range together(n.Of(onFirst), on(onFirst+"1"), on(onFirst+"2"), on(onFirst+"3")) {
				requireOK(t, false, <-reply)
			}
			require.NoError(t, client.Close())
			require.ErrorIs(t, do(n, on(onFirst)).Err, redis.ErrClosed)
			synctest.Wait()
			require.True(t, idle(n.Of(onFirst)) && idle(n))
		})
	}
}

// TestWholeClusterHasServedWhatAMasterHas: since some time.
func TestWholeClusterHasServedWhatAMasterHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := clusterOf(t, func(string) fake { return func(commands) error { return nil } })
		before := clock.MonoNow()
		require.False(t, n.Served(before))
		time.Sleep(time.Second)
		requireOK(t, false, do(n.Of(onSecond), on(onSecond)))
		require.True(t, n.Served(before))
	})
}

// TestRedirectedCallTravelsAlone: the others of its batch have their replies at once, and the call has
// the time that it had. It keeps what is known of it, also if nobody waits for it any more.
func TestRedirectedCallTravelsAlone(t *testing.T) {
	for _, word := range []string{"MOVED", "ASK"} {
		synctest.Test(t, func(t *testing.T) {
			const moved = onFirst + "moved"
			var away, carried atomic.Bool // the other master is, and has carried it out
			n := clusterOf(t, func(addr string) fake {
				return func(sent commands) error {
					if addr == secondMaster && away.Load() {
						return io.EOF
					}
					carried.Store(addr == secondMaster)
					return partly(func(words []string) error {
						if addr == firstMaster && words[3] == moved {
							return answer(word + " 5061 " + secondMaster)
						}
						return nil
					})(sent)
				}
			})
			first := n.Of(onFirst)
			away.Store(true)
			insists := on(moved)
			insists.Insists = true
			begin := time.Now()
			got := together(first, on(onFirst+"1"), within(insists, time.Second), on(onFirst+"2"))
			requireOK(t, false, <-got[0])
			requireOK(t, false, <-got[2])
			require.Equal(t, begin, time.Now())
			require.ErrorAs(t, (<-got[1]).Err, new(*rediserr.NoReply))
			require.InDelta(t, time.Second, time.Since(begin), float64(tick))
			synctest.Wait()
			second := n.Of(onSecond)
			require.Equal(t, []int{0, 0, 1}, []int{repeats(first), repeats(n), repeats(second)})
			require.False(t, carried.Load())
			away.Store(false)
			time.Sleep(2 * insistEvery)
			require.True(t, carried.Load(), "it insists")
			requireOK(t, false, do(first, on(moved)))
			time.Sleep(time.Second) // go-redis may reload its slots in the background
			require.True(t, idle(first) && idle(second) && idle(n))
			require.Zero(t, repeats(second))
		})
	}
}

// TestRedirectedCallIsConfirmedByItsNewMaster: the first master no longer has the key, and go-redis learns
// that from its answer.
func TestRedirectedCallIsConfirmedByItsNewMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var moved atomic.Bool
		last := func() int {
			if moved.Load() {
				return 4000 // below the slot of the key
			}
			return half
		}
		n := sharedAt(t, last, func(addr string) fake {
			return partly(func(words []string) error {
				if addr == firstMaster && moved.Load() && words[0] == "eval" {
					return answer("MOVED 5061 " + secondMaster)
				}
				return nil
			})
		})
		n = NewSlow(n.client)
		patient := func() *Call { return within(confirmed(onFirst), 5*time.Second) }
		require.NoError(t, do(n.Of(onFirst), patient()).Err)
		first := n.Of(onFirst)
		moved.Store(true)
		got := do(first, patient())
		require.NoError(t, got.Err)
		require.Equal(t, &Reply{Value: "OK"}, got.Then)
		time.Sleep(time.Second) // go-redis may reload its slots in the background
		require.NotSame(t, first, n.Of(onFirst))
		require.True(t, idle(first) && idle(n))
	})
}

// TestRedirectedCallMayHaveBeenCarriedOut: a hook lets it go on though it was interrupted, as a fake does.
// The reply of the other master is lost.
func TestRedirectedCallMayHaveBeenCarriedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var moved atomic.Bool
		var carried atomic.Int64
		n := clusterOf(t, func(addr string) fake {
			return func(commands) error {
				switch {
				case !moved.Load():
					return nil
				case addr == firstMaster:
					return answer("MOVED 5061 " + secondMaster)
				case carried.Add(1) == 1:
					return io.EOF
				}
				return nil
			}
		})
		moved.Store(true)
		requireOK(t, true, do(n.Of(onFirst), on(onFirst)))
		require.EqualValues(t, 2, carried.Load())
		time.Sleep(time.Second) // go-redis may reload its slots in the background
	})
}

// TestCallWhoseKeyHasMovedHoldsUpNoOther: it waited at the node of the master that had the key. The other
// one is silent.
func TestCallWhoseKeyHasMovedHoldsUpNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const moves, stays = onFirst, "{b}"
		var last atomic.Int64
		last.Store(half)
		n, g := silenced(t, func() int { return int(last.Load()) }, secondMaster, func(commands) {})
		first := n.Of(moves)
		require.Same(t, first, n.Of(stays))
		last.Store(4000) // between the two
		n.slots.Reload()
		time.Sleep(time.Second)
		require.NotSame(t, first, n.Of(moves))
		begin := time.Now()
		got := together(first, on(stays+"1"), within(on(moves), time.Second), on(stays+"2"))
		requireOK(t, false, <-got[0])
		requireOK(t, false, <-got[2])
		require.Equal(t, begin, time.Now())
		require.ErrorAs(t, (<-got[1]).Err, new(*rediserr.NoReply))
		require.InDelta(t, time.Second, time.Since(begin), float64(tick))
		g.open()
		synctest.Wait()
		require.True(t, idle(first) && idle(n))
	})
}

// TestCallWhoseKeyHasMovedNeedsNoFormerMaster: no courier of that one will return, and a release waits for
// one when the other master gets the key.
func TestCallWhoseKeyHasMovedNeedsNoFormerMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var last, carried atomic.Int64
		last.Store(half)
		n, g := silenced(t, func() int { return int(last.Load()) }, firstMaster, func(commands) { carried.Add(1) })
		first := n.Of(onFirst)
		first.mu.Lock()
		first.mostWrittenOff = 1
		first.mu.Unlock()
		insists := within(on(onFirst), time.Second)
		insists.Insists = true
		require.ErrorAs(t, do(first, insists).Err, new(*rediserr.NoReply))
		time.Sleep(2 * insistEvery) // its repeat takes the last courier
		last.Store(4000)
		n.slots.Reload()
		carried.Store(0)
		time.Sleep(insistEvery)
		require.EqualValues(t, 1, carried.Load())
		require.Equal(t, []int{0, 0}, []int{repeats(first), repeats(n)})
		g.open()
		synctest.Wait()
		require.True(t, idle(first) && idle(n))
	})
}

func repeats(n *Node) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.repeats
}

// TestNoCommandPassesTheHooksOfTheWhole: whether the servers are known yet or not, alone, in a batch, with a second
// command, or redirected. Those of a server see all commands that go there. One that is asked for a key whose slot is
// on the way there hears ASKING right before.
func TestNoCommandPassesTheHooksOfTheWhole(t *testing.T) {
	never := hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
		t.Errorf("a hook of the whole sees %v", cmds)
		return next()
	})
	for _, word := range []string{"", "MOVED", "ASK"} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex // guards seen
			seen := make(map[string][]string)
			client := fakeCluster(t, halves, func(addr string) fake {
				return func(sent commands) error {
					mu.Lock()
					defer mu.Unlock()
					each := make(replies, len(sent))
					for i, words := range sent {
						seen[addr] = append(seen[addr], words[0])
						if each[i] = "OK"; addr == firstMaster && word != "" && words[0] == "eval" {
							each[i] = answer(word + " 5061 " + secondMaster)
						}
					}
					return each
				}
			})
			client.AddHook(never)
			n := New(client)
			requireOK(t, false, do(n.Of(onFirst), on(onFirst)))
			for _, reply := range together(n.Of(onFirst), on(onFirst+"1"), on(onFirst+"2")) {
				requireOK(t, false, <-reply)
			}
			requireOK(t, false, do(n.Of(onFirst), on(onFirst)))
			pair := do(NewSlow(client).Of(onFirst), confirmed(onFirst))
			require.NoError(t, pair.Err)
			require.Equal(t, &Reply{Value: "OK"}, pair.Then)
			there := secondMaster
			if word == "" {
				there = firstMaster
			}
			mu.Lock()
			defer mu.Unlock()
			want := strings.Repeat("eval ", 5) + "wait"
			if word == "ASK" {
				want = strings.ReplaceAll(want, "eval", "asking eval")
			}
			require.Equal(t, want, strings.Join(seen[there], " "))
			if word != "" {
				require.Equal(t, strings.ReplaceAll(want, "asking ", ""), strings.Join(seen[firstMaster], " "))
			}
			time.Sleep(time.Second) // go-redis may reload its slots in the background
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ring := redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": firstMaster}, HeartbeatFrequency: time.Hour,
			NewClient: func(o *redis.Options) *redis.Client {
				server := redis.NewClient(o)
				server.AddHook(fake(func(commands) error { return nil }).hook(t))
				return server
			},
		})
		defer ring.Close()
		ring.AddHook(never)
		n := New(ring)
		requireOK(t, false, do(n.Of("k"), on("k")))
		requireOK(t, false, do(n, on("k")))
		for _, reply := range together(n.Of("k"), on("k"), on("k")) {
			requireOK(t, false, <-reply)
		}
	})
}

// TestSickServerOfAWholeIsNotStormed: it gets about as many commands as a lone server that is loading its data,
// whether go-redis knows the servers already or not. The other servers serve meanwhile.
func TestSickServerOfAWholeIsNotStormed(t *testing.T) {
	const loads = 2 * time.Second
	sent := make(map[string]int)
	var mu sync.Mutex // guards sent
	loading := func(name string, also func() bool) fake {
		begin := time.Now()
		return func(b commands) error {
			mu.Lock()
			defer mu.Unlock()
			sent[name] += len(b)
			if time.Since(begin) < loads && also() {
				return errLoading
			}
			return nil
		}
	}
	always := func() bool { return true }
	storm := func(t *testing.T, n *Node, key string) {
		var calls []<-chan Reply
		for i := range 300 {
			calls = append(calls, post(n.Of(key), within(on(key), 10*time.Second)))
			if i == 0 { // else as many as come before its answer leave at once
				synctest.Wait()
			}
		}
		for _, c := range calls {
			requireOK(t, false, <-c)
		}
	}
	synctest.Test(t, func(t *testing.T) { storm(t, answered(t, loading("alone", always)), "k") })
	for name, known := range map[string]bool{"master": true, "new client": false} {
		synctest.Test(t, func(t *testing.T) {
			var sick atomic.Bool
			client := fakeCluster(t, halves, func(addr string) fake {
				if addr == firstMaster {
					return loading(name, sick.Load)
				}
				return func(commands) error { return nil }
			})
			n := New(client)
			if known {
				requireOK(t, false, do(n.Of(onFirst), on(onFirst)))
			}
			sick.Store(true)
			storm(t, n, onFirst)
			begin := time.Now()
			requireOK(t, false, do(n.Of(onSecond), on(onSecond)))
			require.Equal(t, begin, time.Now())
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ring := redis.NewRing(&redis.RingOptions{
			Addrs: map[string]string{"a": firstMaster}, HeartbeatFrequency: time.Hour,
			NewClient: func(o *redis.Options) *redis.Client {
				server := redis.NewClient(o)
				server.AddHook(loading("shard", always).hook(t))
				return server
			},
		})
		defer ring.Close()
		storm(t, New(ring), "k")
	})
	t.Log(sent)
	for name, n := range sent {
		require.Less(t, n, sent["alone"]+100, name)
	}
}

// TestFormerMastersAreForgotten: their number is bounded.
func TestFormerMastersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := clusterOf(t, func(string) fake { return func(commands) error { return nil } })
		n.servers = map[*redis.Client]*Node{}
		for range mostServers {
			n.servers[new(redis.Client)] = n
		}
		before := n.Of(onFirst)
		require.Same(t, before, n.Of(onFirst))
		require.Len(t, n.servers, 1)
	})
}
