package line

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/wire"
)

// A keeper stands for a Locker and its server: one key with a queue. Replies and messages are late by chance, and some are
// lost.
type keeper struct {
	lines   *Lines
	options Options

	mu     sync.Mutex // guards the fields below
	random *rand.Rand
	made   uint64
	holder *asker
	queue  []*asker
	wrong  []string
}

// An asker is the owner of an attempt.
type asker struct {
	Attempt
	of     *keeper
	token  string
	under  bool // an acquire is under way
	served bool
	over   bool // released or unused
}

// A waiter is the owner of a call.
type waiter struct {
	Call
	of   *keeper
	over chan struct{} // closed when the wait has ended
	has  *asker
	err  error
	told bool
}

func newKeeper(seed uint64, in *inbox.Inbox) *keeper {
	return &keeper{
		lines: New(in), random: rand.New(rand.NewPCG(seed, 0)),
		options: Options{
			Config: Config{TTL: 10 * time.Second, Shortest: ms, Longest: 50 * ms, Passes: 3}, Renews: true,
		},
	}
}

func (k *keeper) newWaiter() *waiter {
	w := &waiter{of: k, over: make(chan struct{})}
	w.By, w.Since, w.Caller.Tell = w, clock.MonoNow(), true
	return w
}

func (w *waiter) Options() *Options { return &w.of.options }

func (w *waiter) Attempt() *Attempt {
	w.of.mu.Lock()
	defer w.of.mu.Unlock()
	w.of.made++
	a := &asker{of: w.of, token: fmt.Sprint("token-", w.of.made)}
	a.By = a
	return &a.Attempt
}

func (w *waiter) Fail(err error, _ int) { w.err = err; close(w.over) }

func (w *waiter) Tell(*Attempt, error, int) { w.of.mu.Lock(); w.told = true; w.of.mu.Unlock() }

func (*waiter) Trouble(context.Context, error, int) {}

func (a *asker) Token() string { return a.token }

func (a *asker) Acquire(context.Context) {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.of.expects(!a.under, "two acquires of a token are under way")
	a.of.expects(!a.over, "a token asks again that was given up")
	a.under = true
	entry, _, _ := a.Queued()
	go func() { // ends with the acquire
		a.of.isLate()
		r := a.of.acquire(a, entry != "")
		a.of.isLate()
		a.of.mu.Lock()
		a.under = false
		a.of.mu.Unlock()
		a.Heard(r, clock.Now())
	}()
}

func (k *keeper) expects(right bool, text string) {
	if !right {
		k.wrong = append(k.wrong, text)
	}
}

func (k *keeper) isLate() {
	k.mu.Lock()
	d := time.Duration(k.random.IntN(30)) * ms
	k.mu.Unlock()
	time.Sleep(d)
}

var errLost = errors.New("the reply is lost")

// acquire carries out an acquire. If the key is held, the token may wait for it.
func (k *keeper) acquire(a *asker, queues bool) Reply {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := Reply{Answer: Held, At: clock.Redis(time.Now().UnixMicro())}
	switch chance := k.random.IntN(20); {
	case chance == 0:
		return Reply{Answer: Failed, Err: errLost, Clean: true, NotDone: true}
	case k.holder == nil && len(k.queue) == 0 || k.holder == a:
		k.holder = a
		if chance == 1 {
			return Reply{Answer: Failed, Err: errLost}
		}
	default:
		r.Answer, r.Err, r.Clean, r.Holder = Refused, errLost, true, "another"
		if queues {
			k.enqueue(a)
			r.First = k.queue[0] == a
		}
	}
	return r
}

func (k *keeper) enqueue(a *asker) {
	if !slices.Contains(k.queue, a) {
		k.queue = append(k.queue, a)
	}
}

func (a *asker) Release(_ context.Context, _ clock.Mono, _ time.Duration, next *Attempt) {
	a.of.mu.Lock()
	a.of.expects(a.served, "a token was released in place of withdrawn")
	a.of.mu.Unlock()
	a.isReleased(next)
}

func (a *asker) Withdraw(context.Context) {
	a.of.mu.Lock()
	a.of.expects(!a.served, "a token was withdrawn that was served")
	a.of.mu.Unlock()
	a.isReleased(nil)
}

// isReleased releases the token, and carries the acquire of next.
func (a *asker) isReleased(next *Attempt) {
	k := a.of
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expects(!a.under, "a release overtakes the acquire of its token")
	k.expects(!a.over, "a token is released twice")
	a.over = true
	var n *asker
	if next != nil {
		n = next.By.(*asker)
		k.expects(!n.under, "two acquires of a token are under way")
		n.under = true
	}
	go func() { // ends with the release
		k.isLate()
		k.mu.Lock()
		k.leave(a)
		if n != nil {
			k.enqueue(n)
		}
		k.handOn()
		at := clock.Redis(time.Now().UnixMicro())
		k.mu.Unlock()
		k.isLate()
		if n != nil {
			k.mu.Lock()
			n.under = false
			k.mu.Unlock()
			n.Carried(Reply{Answer: Refused, Err: errLost, At: at}, clock.Now())
		}
	}()
}

func (k *keeper) leave(a *asker) {
	if k.holder == a {
		k.holder = nil
	}
	k.queue = slices.DeleteFunc(k.queue, func(other *asker) bool { return other == a })
}

// handOn hands the key to the first in the queue, and sends a message that may be lost.
func (k *keeper) handOn() {
	if k.holder != nil || len(k.queue) == 0 {
		return
	}
	k.holder, k.queue = k.queue[0], k.queue[1:]
	a, h := k.holder, wire.HandOver{Token: k.holder.token, Tick: 1, At: clock.Redis(time.Now().UnixMicro())}
	if k.random.IntN(8) > 0 {
		time.AfterFunc(time.Duration(k.random.IntN(30))*ms, func() { a.Message(h, clock.Now()) })
	}
}

func (a *asker) Serve(_ context.Context, to Waiter, _ clock.Instant, _ int, _ Claim, _ int) {
	w := to.(*waiter)
	a.of.mu.Lock()
	a.of.expects(a.of.holder == a, "a call is served with a token that does not hold the key")
	a.served = true
	w.has = a
	a.of.mu.Unlock()
	close(w.over)
}

func (*asker) Expect() {}

func (a *asker) Unused() {
	a.of.mu.Lock()
	defer a.of.mu.Unlock()
	a.of.expects(a.of.holder != a, "a token is forgotten that holds the key")
	a.over = true
}

// uses has a call wait for the key, and unlock it.
func (k *keeper) uses(ctx context.Context) *waiter {
	w := k.newWaiter()
	k.lines.Join(ctx, &w.Call, ID{Lock: "k"}, 1, clock.Now())
	select {
	case <-w.over:
	case <-ctx.Done():
		if _, waited := k.lines.Leave(&w.Call, clock.Now()); waited {
			return w
		}
		<-w.over
	}
	if w.has != nil {
		time.Sleep(ms)
		w.has.Unlock(ctx, clock.Now(), true, 0)
	}
	return w
}

// TestLinesCarryOutWhatIsDecided: whatever the order of replies and messages is, and whichever are lost, each wait ends once,
// a token has one acquire under way, is released once and after it, and nothing is left in the end.
func TestLinesCarryOutWhatIsDecided(t *testing.T) {
	for name, in := range map[string]func() *inbox.Inbox{
		"queue": func() *inbox.Inbox { return inbox.New(nil) },
		"poll":  func() *inbox.Inbox { return nil },
	} {
		for seed := range uint64(50) {
			t.Run(fmt.Sprint(name, "/", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					k := newKeeper(seed, in())
					var calls sync.WaitGroup
					served := 0
					for i := range 5 {
						random := rand.New(rand.NewPCG(seed, uint64(i+1)))
						calls.Go(func() {
							for range 20 {
								ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(3000))*ms)
								w := k.uses(ctx)
								cancel()
								k.mu.Lock()
								if w.has != nil {
									served++
								}
								k.mu.Unlock()
							}
						})
					}
					calls.Wait()
					time.Sleep(time.Minute)
					synctest.Wait()
					require.Empty(t, k.wrong)
					require.Empty(t, k.queue)
					require.Nil(t, k.holder)
					require.Empty(t, k.lines.shared)
					require.Empty(t, k.lines.waiting)
					require.Greater(t, served, 10)
				})
			})
		}
	}
}

// TestAnIdleLineIsFreed at once: no timer keeps it, however long a pause between polls is.
func TestAnIdleLineIsFreed(t *testing.T) {
	t.Parallel()
	k := newKeeper(1, nil)
	k.options.Shortest, k.options.Longest = time.Hour, time.Hour
	k.holder = new(asker)
	line := func() weak.Pointer[keyLine] {
		w := k.newWaiter()
		k.lines.Join(t.Context(), &w.Call, ID{Lock: "k"}, 1, clock.Now())
		for looks := false; !looks; runtime.Gosched() {
			k.lines.locked(func() { looks = w.line.timer != nil })
		}
		_, waited := k.lines.Leave(&w.Call, clock.Now())
		require.True(t, waited)
		return weak.Make(w.line)
	}()
	for line.Value() != nil {
		runtime.GC()
	}
}
