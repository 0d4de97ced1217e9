// Package world plays a plan in a bubble of testing/synctest, where time passes only when nothing
// else can happen.
package world

import (
	"context"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/sim/judge"
	"github.com/redlatch/redlatch/sim/plan"
	"github.com/redlatch/redlatch/sim/road"
	"github.com/redlatch/redlatch/sim/server"
)

const (
	patience = 90 * time.Second // of callers whose ctx has no other end, after the faults
	settling = 12 * time.Second // after which no lock is left that nobody has released
	sampling = 250 * time.Millisecond
	seldom   = 2 * time.Second // in a world of hours

	stalled = 90 * time.Second // of real time: nothing happens any more
)

// A Result is what came of a world.
type Result struct {
	Events  []judge.Event
	Broken  []judge.Broken
	Virtual time.Duration
	Grants  int
	Scripts int
	Faults  int
}

func init() { redis.SetLogger(quiet{}) }

// quiet drops messages about connections that were cut.
type quiet struct{}

func (quiet) Printf(context.Context, string, ...any) {}

// A world is what a plan happens in.
type world struct {
	*plan.Plan
	start   time.Time
	record  record
	servers []*server.Server
	roads   [][]*road.Road // by process and server
	clients [][]redis.UniversalClient
	lockers []redlatch.Locker
	hurry   context.Context //nolint:containedctx // of calls whose ctx has no other end
}

// Play plays a plan. It ends the process if virtual time stands still. Events are written to log.
func Play(t *testing.T, p *plan.Plan, log io.Writer) (r Result) {
	t.Helper()
	var pulse atomic.Int64
	done := make(chan struct{})
	watched := make(chan struct{})
	go func() { // ends with done
		defer close(watched)
		watch(p, &pulse, done)
	}()
	defer func() { close(done); <-watched }()
	synctest.Test(t, func(t *testing.T) {
		w := &world{Plan: p, start: time.Now()}
		w.record.start, w.record.pulse, w.record.log = w.start, &pulse, log
		r = w.play(t)
	})
	// go-redis keeps timers in a global pool, and those of a bubble must not be used in another.
	runtime.GC()
	runtime.GC()
	return r
}

// watch ends the process if pulse stands still.
func watch(p *plan.Plan, pulse *atomic.Int64, done <-chan struct{}) {
	for last := pulse.Load(); ; last = pulse.Load() {
		select {
		case <-done:
			return
		case <-time.After(stalled):
		}
		if pulse.Load() == last {
			stacks := make([]byte, 8<<20)
			stacks = stacks[:runtime.Stack(stacks, true)]
			fmt.Fprintf(os.Stderr, "theme %s, seed %d: virtual time stands still\n%s", p.Theme, p.Seed, stacks)
			os.Exit(3)
		}
	}
}

// play is the life of a world.
func (w *world) play(t *testing.T) Result {
	ctx, cancel := context.WithTimeout(t.Context(), w.Length+patience)
	defer cancel()
	w.hurry = ctx
	w.build(t)
	var actors, fates sync.WaitGroup
	for _, f := range w.Faults {
		fates.Go(func() { w.suffer(f) })
	}
	for _, o := range w.Ops {
		actors.Go(func() { w.act(o) })
	}
	over := make(chan struct{})
	go w.sample(over) // ends with over
	fates.Wait()
	time.Sleep(w.Length - time.Since(w.start))
	w.record.add(judge.Event{Kind: judge.Calm})
	ended := make(chan struct{})
	go func() { actors.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * patience):
		w.abort()
	}
	time.Sleep(settling)
	w.hurry = t.Context() // there may be many keys
	w.probe()
	close(over)
	virtual := time.Since(w.start)
	time.Sleep(2 * time.Minute)
	w.look()
	w.used()
	before := w.scripts()
	time.Sleep(25 * time.Hour)
	w.record.add(judge.Event{Kind: judge.Idle, For: time.Duration(w.scripts() - before)})
	w.look()
	w.end()
	return w.result(virtual)
}

// build makes servers, roads, clients and Lockers.
func (w *world) build(t *testing.T) {
	t.Helper()
	for range w.Servers {
		w.servers = append(w.servers, server.New())
	}
	for i, p := range w.Processes {
		var roads []*road.Road
		var clients []redis.UniversalClient
		for j, s := range w.servers {
			r := road.New(plan.Addr(j), w.Seed<<16|uint64(i<<8|j), s.Accept)
			r.Delay, r.Jitter = p.Delay, p.Jitter
			roads = append(roads, r)
			clients = append(clients, client(p, plan.Addr(j), r))
		}
		w.roads, w.clients = append(w.roads, roads), append(w.clients, clients)
	}
	for i := range w.Lockers {
		l, err := w.locker(i)
		if err != nil {
			t.Fatalf("locker %d, %+v: %v", i, w.Lockers[i], err)
		}
		w.lockers = append(w.lockers, l)
	}
}

// client makes a client of a process.
func client(p plan.Process, addr string, r *road.Road) redis.UniversalClient {
	// go-redis holds a mutex for these during a handshake, and a mutex stops virtual time.
	off := &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	if !p.Cluster {
		return redis.NewClient(&redis.Options{
			Addr: addr, Dialer: r.Dial, MaxRetries: p.Retries, PoolSize: 16,
			DisableIdentity: true, MaintNotificationsConfig: off,
		})
	}
	return redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{addr}, Dialer: r.Dial, MaxRetries: p.Retries, PoolSize: 16,
		DisableIdentity: true, MaintNotificationsConfig: off,
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			return []redis.ClusterSlot{{End: 16383, Nodes: []redis.ClusterNode{{Addr: addr}}}}, nil
		},
		DisableRoutingPolicies: true, // else go-redis asks for all commands, and holds a mutex meanwhile
	})
}

// probe acquires each key by each Locker, as nobody has it any more.
func (w *world) probe() {
	for i, l := range w.Lockers {
		for _, key := range w.Groups[l.Group].Keys {
			w.act(plan.Op{
				Number: -1, Locker: i, Call: plan.Lock, Keys: []string{key}, Patience: 10 * time.Second,
				Steps: []plan.Step{{Act: plan.Unlock}},
			})
			time.Sleep(max(l.MinHold, 200*time.Millisecond))
		}
	}
}

// look notes the keys that are left, and the lines of Lockers.
func (w *world) look() {
	for i, l := range w.lockers {
		if p, is := l.(pair); is {
			l = p.Locker
		}
		if _, lines, left := strings.Cut(fmt.Sprint(l), "\n"); left {
			w.record.add(judge.Event{Kind: judge.Left, Text: owner(i) + lines})
		}
	}
	for _, s := range w.servers {
		for _, k := range s.Keys() {
			w.record.add(judge.Event{Kind: judge.Left, Text: k.Name, For: k.TTL})
		}
	}
}

// used notes what commands did with each key.
func (w *world) used() {
	for _, s := range w.servers {
		for _, u := range s.Uses() {
			w.record.add(judge.Event{
				Kind: judge.Used, Places: []string{u.Key}, Owner: u.Owner, Sent: u.Sent, For: u.Ahead,
				Text: strings.Join(u.Late, ", "),
			})
		}
	}
}

// end closes what the world has opened. A goroutine that is left is noted.
func (w *world) end() {
	for _, clients := range w.clients {
		for _, client := range clients {
			_ = client.Close()
		}
	}
	for _, s := range w.servers {
		s.Close()
	}
	time.Sleep(time.Minute)
	left := others()
	for _, stack := range left {
		w.record.add(judge.Event{Kind: judge.Left, Text: stack})
	}
	if len(left) > 0 {
		w.abort()
	}
}

// abort ends the process: a bubble cannot end while a goroutine is blocked.
func (w *world) abort() {
	r := w.result(time.Since(w.start))
	fmt.Fprintf(os.Stderr, "theme %s, seed %d: goroutines are left\n", w.Theme, w.Seed)
	for _, b := range r.Broken {
		fmt.Fprintln(os.Stderr, b)
	}
	os.Exit(3)
}

// others returns the stacks of the other goroutines of this bubble.
func others() (stacks []string) {
	all := make([]byte, 1<<20)
	all = all[:runtime.Stack(all, true)]
	own, rest, _ := strings.Cut(string(all), "\n\n")
	_, bubble, _ := strings.Cut(own, "synctest bubble ")
	bubble, _, _ = strings.Cut(bubble, "]")
	for stack := range strings.SplitSeq(rest, "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if strings.HasSuffix(head, "synctest bubble "+bubble+"]:") && !strings.Contains(stack, "testing/synctest.Test") {
			stacks = append(stacks, stack)
		}
	}
	return stacks
}

// losses returns when which keys may be lost.
func (w *world) losses() (all []judge.Loss) {
	for _, f := range w.Faults {
		if !f.Loses() {
			continue
		}
		loss := judge.Loss{At: f.At, Clock: f.What == plan.ClockStep}
		for _, place := range w.places() {
			if _, servers := w.at(place); f.Text == place || f.Text == "" && f.Server < len(servers) {
				loss.Places = append(loss.Places, place)
			}
		}
		all = append(all, loss)
	}
	return all
}

func (w *world) result(virtual time.Duration) Result {
	events := w.record.all()
	r := Result{Events: events, Virtual: virtual, Faults: len(w.Faults)}
	r.Broken = judge.Check(judge.History{
		Events: events, Losses: w.losses(), Faulty: len(w.Faults) > 0, Back: w.Back(), Start: w.start,
	})
	for _, e := range events {
		if e.Kind == judge.Granted {
			r.Grants++
		}
	}
	r.Scripts = w.scripts()
	return r
}

// scripts returns how many scripts were carried out.
func (w *world) scripts() (n int) {
	for _, s := range w.servers {
		n += s.Scripts()
	}
	return n
}
