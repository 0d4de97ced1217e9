package protocol_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestCrowdOfLanguagesHasOneOwner: two processes of each language, each with two lines, share a key. One of
// them is inside at a time, the fences are in order, and the key goes back and forth between the languages.
func TestCrowdOfLanguagesHasOneOwner(t *testing.T) {
	t.Parallel()
	mustHavePython(t)
	s := redistest.Start(t)
	const processes, lines, times = 2, 2, 25
	l := locktest.SetNXPX(t, s.Client(t))
	lock := locktest.MustLock(t, l, "k") // until all wait
	var workers []worker
	for range processes {
		workers = append(workers, startPython(t, s), startGo(t, s))
	}
	for _, w := range workers {
		for line := range lines {
			w.tells(t, "crowd", line, "k", times)
		}
	}
	waiters(t, l, "k", len(workers)*lines)
	require.NoError(t, lock.Unlock(t.Context()))
	for _, w := range workers {
		for range lines {
			require.Equal(t, "done", w.says(t)[0])
		}
	}
	grants := s.Client(t).LRange(t.Context(), "grants", 0, -1).Val()
	require.Len(t, grants, 2*processes*lines*times)
	last := uint64(0)
	changes, before := 0, ""
	for _, grant := range grants {
		var language string
		var inside, fence uint64
		_, err := fmt.Sscan(grant, &language, &inside, &fence)
		require.NoError(t, err)
		require.Equal(t, uint64(1), inside, "two owners")
		require.Greater(t, fence, last, "fences in order")
		last = fence
		if language != before {
			changes++
		}
		before = language
	}
	t.Logf("the key changed languages %d times in %d grants", changes, len(grants))
	require.Greater(t, changes, 10)
}

// waiters waits until a key has a number of lines in its queue.
func waiters(t *testing.T, l redlatch.Locker, key string, n int) {
	t.Helper()
	locktest.Eventually(t, fmt.Sprint(n, " lines queue"), func() bool {
		st, err := l.Inspect(t.Context(), key)
		return err == nil && st.Waiters == n
	})
}

var shares = flag.Duration("protocol.shares", 10*time.Second, "for how long TestLanguagesShareUnderFaults runs")

// TestLanguagesShareUnderFaults: processes are killed and frozen, and others come in their place. Nobody has the key while
// another has it, and no language starves. In ten minutes, their shares differ by a tenth at most.
func TestLanguagesShareUnderFaults(t *testing.T) {
	t.Parallel()
	mustHavePython(t)
	s := redistest.Start(t)
	client := s.Client(t)
	const each, ttl = 3, 3
	order := []string{"go", "python"}
	workers := make([]worker, each*len(order))
	begin := func(i int) worker {
		w := languages[order[i%len(order)]](t, s)
		w.tells(t, "share", i, "k", ttl)
		require.Equal(t, []string{"first", fmt.Sprint(i)}, w.says(t))
		return w
	}
	end := func(i int) {
		workers[i].kill(t)
		for line := range workers[i].said {
			t.Errorf("a worker in %s: %s", order[i%len(order)], line)
		}
	}
	for i := range workers {
		workers[i] = begin(i)
	}
	client.Del(t.Context(), "shares")
	granted := func(language string) int {
		n, _ := client.HGet(t.Context(), "shares", language).Int()
		return n
	}
	rounds := 0
	for begun := time.Now(); time.Since(begun) < *shares; rounds++ {
		for _, language := range order {
			before := granted(language)
			locktest.Eventually(t, language+" has its share", func() bool { return granted(language) > before+20 })
		}
		// A pair of each, so that both languages suffer as much.
		killed := rand.IntN(each) * len(order)
		frozen := (killed + len(order)) % len(workers)
		for i := range order {
			workers[frozen+i].signal(t, "STOP")
			another := begin(killed + i) // before, since Python starts slowly
			end(killed + i)
			workers[killed+i] = another
		}
		last := granted("go") + granted("python")
		locktest.Eventually(t, "others go on", func() bool { return granted("go")+granted("python") > last+40 })
		for i := range order {
			workers[frozen+i].signal(t, "CONT")
		}
	}
	for i := range workers {
		end(i)
	}
	inGo, inPython := granted("go"), granted("python")
	t.Logf("%d grants in Go, %d in Python, in %d rounds", inGo, inPython, rounds)
	require.Positive(t, min(inGo, inPython))
	if *shares >= 5*time.Minute { // before, chance has a larger share
		require.InEpsilon(t, inGo, inPython, 0.1)
	}
}

// TestOrderHoldsAcrossLanguages: who came first is served first, and renewals keep the key meanwhile.
func TestOrderHoldsAcrossLanguages(t *testing.T) {
	t.Parallel()
	mustHavePython(t)
	s := redistest.Start(t)
	l := locktest.SetNXPX(t, s.Client(t))
	lock := locktest.MustLock(t, l, "k")
	workers := []worker{startPython(t, s), startGo(t, s)}
	for i := range 6 {
		workers[i%2].tells(t, "lock", i, "k", 10)
		waiters(t, l, "k", i+1)
	}
	fence := lock.Fence()
	require.NoError(t, lock.Unlock(t.Context()))
	for i := range 6 {
		w, name := workers[i%2], strconv.Itoa(i)
		next := w.hasLock(t, name)
		require.Greater(t, next, fence)
		fence = next
		w.unlocks(t, name, "released")
	}
	st, err := l.Inspect(t.Context(), "k")
	require.NoError(t, err)
	require.False(t, st.Held)
	require.Zero(t, st.Waiters)
}

// TestPythonRenews: a lock is held for longer than its TTL, which was a claim at first.
func TestPythonRenews(t *testing.T) {
	t.Parallel()
	mustHavePython(t)
	s := redistest.Start(t)
	client := s.Client(t)
	l := locktest.SetNXPX(t, client)
	lock := locktest.MustLock(t, l, "k")
	w := startPython(t, s)
	w.tells(t, "lock", "a", "k", 6)
	waiters(t, l, "k", 1)
	require.NoError(t, lock.Unlock(t.Context()))
	w.hasLock(t, "a")
	const claim = 2 * time.Second
	locktest.Eventually(t, "the claim is extended", func() bool { return client.PTTL(t.Context(), "k").Val() > claim })
	longest := client.PTTL(t.Context(), "k").Val()
	locktest.Eventually(t, "the TTL is shorter", func() bool {
		left := client.PTTL(t.Context(), "k").Val()
		longest = min(longest, left)
		return longest < 5*time.Second
	})
	locktest.Eventually(t, "it is renewed", func() bool { return client.PTTL(t.Context(), "k").Val() > longest })
	w.unlocks(t, "a", "released")
}

// TestKilledProcessOfOneLanguageCostsTheOtherLittle: a killed waiter is skipped, and a killed holder keeps
// the key for its TTL.
func TestKilledProcessOfOneLanguageCostsTheOtherLittle(t *testing.T) {
	t.Parallel()
	mustHavePython(t)
	for killed, other := range map[string]string{"python": "go", "go": "python"} {
		t.Run(killed+" is killed", func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			client := s.Client(t)
			l := locktest.SetNXPX(t, client)
			waiter, holder, survivor := languages[killed](t, s), languages[killed](t, s), languages[other](t, s)
			holder.tells(t, "lock", "holder", "k", 2)
			before := holder.hasLock(t, "holder")
			waiter.tells(t, "lock", "waiter", "k", 10)
			waiters(t, l, "k", 1)
			survivor.tells(t, "lock", "survivor", "k", 10)
			waiters(t, l, "k", 2)
			waiter.kill(t)
			holder.kill(t)
			require.Greater(t, survivor.hasLock(t, "survivor"), before)
			survivor.unlocks(t, "survivor", "released")
			require.Zero(t, client.Exists(t.Context(), "k", "{k}:queue:k").Val())
		})
	}
}

// TestFrozenProcessOfOneLanguageCostsTheOtherAClaim: a frozen holder loses the key after its TTL, and a frozen waiter
// is passed over after a claim. When they continue, the holder knows its loss, and the waiter has its turn.
func TestFrozenProcessOfOneLanguageCostsTheOtherAClaim(t *testing.T) {
	t.Parallel()
	mustHavePython(t)
	for frozen, other := range map[string]string{"python": "go", "go": "python"} {
		t.Run(frozen+" is frozen", func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			l := locktest.SetNXPX(t, s.Client(t))
			sleeper, survivor := languages[frozen](t, s), languages[other](t, s)
			sleeper.tells(t, "lock", "holder", "k", 2)
			before := sleeper.hasLock(t, "holder")
			sleeper.tells(t, "lock", "waiter", "k", 30)
			waiters(t, l, "k", 1)
			survivor.tells(t, "lock", "survivor", "k", 30)
			waiters(t, l, "k", 2)
			sleeper.signal(t, "STOP")
			during := survivor.hasLock(t, "survivor")
			require.Greater(t, during, before)
			sleeper.signal(t, "CONT")
			sleeper.unlocks(t, "holder", "lost")
			survivor.unlocks(t, "survivor", "released")
			require.Greater(t, sleeper.hasLock(t, "waiter"), during)
			sleeper.unlocks(t, "waiter", "released")
		})
	}
}
