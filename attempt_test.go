package redlatch

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/inbox"
	"github.com/redlatch/redlatch/internal/rediserr"
	"github.com/redlatch/redlatch/internal/wire"
)

// A fake is a strategy without Redis. Commands, replies and messages are late by chance, and some
// are lost. It notes what no token may do.
type fake struct {
	limit   int
	deliver func(wire.HandOver)
	begin   time.Time

	mu      sync.Mutex // guards the fields below
	random  *rand.Rand
	holders map[string]time.Time // when each lease ends
	queue   []string             // tokens of entries
	tick    uint64
	asks    map[string]bool // tokens with an acquire under way
	given   map[string]bool // tokens that were given back
	ended   map[string]bool // of these, those whose release has an answer
	wrong   []string
}

func newFake(seed uint64, limit int) *fake {
	return &fake{
		limit: limit, begin: time.Now(), random: rand.New(rand.NewPCG(seed, 0)), holders: make(map[string]time.Time),
		asks: make(map[string]bool), given: make(map[string]bool), ended: make(map[string]bool),
	}
}

func (*fake) adapt(*config) error { return nil }

func (*fake) underWay() int { return 0 }

func (*fake) keyOf(prefix, key string) (string, error) { return prefix + key, nil }

func (*fake) wordsOf(_, name string) words { return words{key: name} }

func (*fake) trouble(op, *params, time.Duration) error { return errors.New("silence") }

func (f *fake) do(_ context.Context, op op, p *params, to hearer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent, next := *p, wire.TokenOf(p.next)
	switch op {
	case toAcquire:
		f.asking(p.token)
	case toRelease:
		f.noteLocked(!f.asks[p.token], "a release overtakes the acquire of its token")
		f.noteLocked(!f.given[p.token] || f.ended[p.token], "a token is given back twice") // afterwards a message may come
		f.given[p.token] = true
		if next != "" {
			f.asking(next)
		}
	}
	go func() { // ends with the command
		time.Sleep(f.chance(op == toRelease))
		f.mu.Lock()
		delete(f.asks, p.token)
		delete(f.asks, next)
		got := f.carryOutLocked(op, &sent)
		f.mu.Unlock()
		time.Sleep(f.chance(false))
		f.mu.Lock()
		f.ended[p.token] = op == toRelease
		f.mu.Unlock()
		to.hear(got)
	}()
}

func (f *fake) asking(token string) {
	f.noteLocked(!f.asks[token], "two acquires of a token are under way")
	f.noteLocked(!f.given[token], "a token asks again that was given back")
	f.asks[token] = true
}

func (f *fake) noteLocked(right bool, text string) {
	if !right {
		f.wrong = append(f.wrong, text)
	}
}

// chance returns how late something is.
func (f *fake) chance(repeated bool) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if repeated && f.random.IntN(20) == 0 {
		return 3 * time.Second
	}
	return time.Duration(f.random.IntN(30)) * time.Millisecond
}

var errFake = errors.New("the reply is lost")

func (f *fake) carryOutLocked(op op, p *params) reply {
	for token, end := range f.holders {
		if !time.Now().Before(end) {
			delete(f.holders, token)
		}
	}
	chance := f.random.IntN(40)
	if chance == 0 && op != toRelease {
		return reply{err: &rediserr.NotDone{Err: errFake}}
	}
	got := reply{at: f.now()}
	_, holds := f.holders[p.token]
	switch {
	case op == toAcquire:
		got = f.acquireLocked(p, holds)
	case !holds:
		got.err = errNotOurs
	case op == toExtend:
		f.holders[p.token] = time.Now().Add(p.ttl)
	}
	if op == toRelease {
		delete(f.holders, p.token)
		f.leaveLocked(wire.TokenOf(p.entry))
		if p.next != "" && !slices.Contains(f.queue, wire.TokenOf(p.next)) {
			f.queue = append(f.queue, wire.TokenOf(p.next))
		}
		got.tick = f.handOnLocked(wire.TokenOf(p.next))
	}
	if chance == 1 && op != toRelease {
		return reply{err: errFake}
	}
	return got
}

func (f *fake) now() clock.Redis { return clock.Redis(time.Since(f.begin)) }

func (f *fake) acquireLocked(p *params, holds bool) reply {
	got := reply{at: f.now()}
	if token := wire.TokenOf(p.entry); holds || len(f.holders) < f.limit && len(f.queue) == 0 {
		f.tick++
		f.holders[p.token], got.tick = time.Now().Add(p.ttl), f.tick
		f.leaveLocked(token)
	} else {
		got.err = ErrNotAcquired
		for got.holder = range f.holders {
			got.left = time.Until(f.holders[got.holder])
		}
		if got.newEntry = token != "" && !slices.Contains(f.queue, token); got.newEntry {
			f.queue = append(f.queue, token)
		}
		f.handOnLocked("")
		got.first = len(f.queue) > 0 && f.queue[0] == token
	}
	return got
}

func (f *fake) leaveLocked(token string) {
	f.queue = slices.DeleteFunc(f.queue, func(other string) bool { return other == token })
}

// handOnLocked hands the key to those in the queue. It returns the tick of mine, which gets no
// message.
func (f *fake) handOnLocked(mine string) (tick uint64) {
	for len(f.queue) > 0 && len(f.holders) < f.limit {
		g := wire.HandOver{Token: f.queue[0], At: f.now()}
		f.queue = f.queue[1:]
		f.tick++
		f.holders[g.Token], g.Tick = time.Now().Add(time.Second), f.tick
		if g.Token == mine {
			tick = f.tick
		} else if f.random.IntN(8) > 0 {
			time.AfterFunc(time.Duration(f.random.IntN(30))*time.Millisecond, func() { f.deliver(g) })
		}
	}
	return tick
}

// TestEachEffectReachesItsAttempt: whatever the order of commands, replies and messages is, and
// whichever are lost, the engine sends for each token what the core has decided for it: one acquire
// at a time, none after its release, and in the end nothing is left. A caller gets the lock of a
// token that Redis has granted.
func TestEachEffectReachesItsAttempt(t *testing.T) {
	for name, h := range map[string]traits{
		"queue":     {inbox: inbox.New(nil), keeps: true},
		"semaphore": {inbox: inbox.New(nil), limit: 2},
		"poll":      {},
		"quorum":    {quorum: true},
		"readers":   {inbox: inbox.New(nil), keeps: true, reads: true, limit: math.MaxInt32},
	} {
		for seed := range uint64(40) {
			t.Run(fmt.Sprint(name, "/", seed), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake(seed, 1)
					if h.limit == 2 {
						f.limit = 2
					}
					l, err := newEngine(f, h, []Option{WithTTL(10 * time.Second)})
					require.NoError(t, err)
					e := l.(*engine)
					f.deliver = e.deliver
					callers := sync.WaitGroup{}
					for i := range 5 {
						random := rand.New(rand.NewPCG(seed, uint64(i+1)))
						callers.Go(func() {
							for range 20 {
								f.useOnce(t, l, random)
							}
						})
					}
					callers.Wait()
					time.Sleep(time.Minute)
					synctest.Wait()
					f.mu.Lock()
					defer f.mu.Unlock()
					require.Empty(t, f.wrong)
					require.Empty(t, f.queue)
					for token, end := range f.holders { // what was handed to those who had left ends
						require.True(t, end.Before(time.Now()), token)
					}
					require.Empty(t, e.newest.byKey)
					require.Empty(t, e.lines.String())
					require.Empty(t, e.tokens.used)
				})
			})
		}
	}
}

// useOnce has a caller lock the key and unlock it.
func (f *fake) useOnce(t *testing.T, l Locker, random *rand.Rand) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(4000))*time.Millisecond)
	defer cancel()
	k, err := l.Lock(ctx, "k")
	if err != nil {
		return
	}
	f.mu.Lock()
	end := f.holders[attemptOf(k.handle).id.token]
	f.noteLocked(time.Now().Before(end) && len(f.holders) <= f.limit, "a caller is served with a token that does not hold the key")
	f.mu.Unlock()
	time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
	_ = k.UnlockAfter(t.Context(), 0)
}

// mutes is a fake whose server says nothing from a release on that carries an acquire. The release fails.
type mutes struct {
	*fake
	silent bool
}

func (m *mutes) do(ctx context.Context, op op, p *params, to hearer) {
	switch {
	case op == toRelease && p.next != "":
		m.silent = true
		go to.hear(reply{err: errFake})
	case !m.silent:
		m.fake.do(ctx, op, p, to)
	}
}

// TestFailedReleaseSaysWhyItsAcquireFailed: the next in line asks by the release of the lock.
func TestFailedReleaseSaysWhyItsAcquireFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &mutes{fake: newFake(1, 1)}
		l, err := newEngine(m, traits{inbox: inbox.New(nil), keeps: true}, []Option{WithMaxHold(time.Minute)}) // so no turn is passed on
		require.NoError(t, err)
		m.deliver = l.(*engine).deliver
		k, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		waits := make(chan error)
		go func() {
			_, err := l.Lock(ctx, "k")
			waits <- err
		}()
		synctest.Wait()
		require.ErrorIs(t, k.Unlock(t.Context()), errFake)
		err = <-waits
		require.ErrorIs(t, err, errFake)
		require.NotErrorIs(t, err, ErrNotAcquired)
	})
}

// TestFailedLeadersAreForgotten: there is no end of the keys whose fn has failed.
func TestFailedLeadersAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := &engine{live: new(live)}
		for i := range 10 {
			for _, key := range []string{"a", "b"} {
				c := cause{kind: CauseFunc, key: key}
				require.True(t, e.due(c), "%d %s", i, key)
				require.False(t, e.due(c), "%d %s", i, key)
			}
			time.Sleep(troubleEvery + troubleEvery/3)
		}
		time.Sleep(10 * troubleEvery)
		for c := range e.troubles.Range {
			t.Error("not forgotten:", c)
		}
	})
}
