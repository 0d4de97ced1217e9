package protocol_test

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// python returns an interpreter that has redis-py: that of the system may, and another one come first in PATH.
var python = sync.OnceValue(func() string {
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		path := filepath.Join(dir, "python3")
		if exec.Command(path, "-c", "import redis").Run() == nil {
			return path
		}
	}
	return ""
})

// mustHavePython skips a test that needs redis-py if it is not installed. If REDLATCH_REQUIRE_REDIS is
// set, the test fails.
func mustHavePython(t *testing.T) string {
	t.Helper()
	redistest.MustBeInstalled(t)
	if path := python(); path != "" {
		return path
	}
	const missing = "python3-redis is not installed: test skipped"
	if os.Getenv("REDLATCH_REQUIRE_REDIS") != "" {
		t.Fatal(missing)
	}
	t.Skip(missing)
	return ""
}

// A worker is another process. It locks as it is told, and says what happens.
type worker struct {
	*exec.Cmd
	tell io.Writer
	said <-chan string // closed when the process ends
}

// startWorker starts a process that reads lines and writes lines. It is killed at the end of t.
func startWorker(t *testing.T, cmd *exec.Cmd) worker {
	t.Helper()
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said := make(chan string, 100)
	go func() { // ends with the process
		defer close(said)
		for lines := bufio.NewScanner(out); lines.Scan(); {
			said <- lines.Text()
		}
	}()
	return worker{cmd, in, said}
}

func (w worker) tells(t *testing.T, words ...any) {
	t.Helper()
	_, err := fmt.Fprintln(w.tell, words...)
	require.NoError(t, err)
}

// says returns the words of the next line.
func (w worker) says(t *testing.T) []string {
	t.Helper()
	select {
	case line := <-w.said:
		return strings.Fields(line)
	case <-time.After(time.Minute):
		t.Fatal("the other process says nothing")
		return nil
	}
}

func (w worker) kill(t *testing.T) {
	t.Helper()
	require.NoError(t, w.Process.Kill())
	_ = w.Wait() // it reports the signal
}

func startPython(t *testing.T, s *redistest.Server) worker {
	t.Helper()
	return startWorker(t, exec.Command(mustHavePython(t), "testdata/worker.py", "unix://"+s.Addr()))
}

// childsServer has the server of a test binary that is run as a worker.
const childsServer = "REDLATCH_TEST_SERVER"

// startGo runs the test binary as a worker in Go.
func startGo(t *testing.T, s *redistest.Server) worker {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestWorker$")
	cmd.Env = append(os.Environ(), childsServer+"="+s.Addr())
	return startWorker(t, cmd)
}

// TestWorker is the worker in Go: testdata/worker.py has the same commands. As a test it does nothing.
func TestWorker(t *testing.T) {
	addr := os.Getenv(childsServer)
	if addr == "" {
		return
	}
	client := locktest.Closing(t, redis.NewClient(&redis.Options{Network: "unix", Addr: addr}))
	ends := map[string]chan struct{}{}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		words := strings.Fields(lines.Text())
		command, name := words[0], words[1]
		if command == "unlock" {
			close(ends[name])
			continue
		}
		end, key := make(chan struct{}), words[2]
		ends[name] = end
		n, _ := strconv.Atoi(words[3])
		l := locktest.SetNXPX(t, client) // each has a line of its own
		if command == "crowd" {
			go func() { crowd(t, l, client, key, n); fmt.Println("done", name) }()
			continue
		}
		go func() {
			lock, err := l.Lock(t.Context(), key, redlatch.WithTTL(time.Duration(n)*time.Second))
			if err != nil {
				panic(err)
			}
			fmt.Println("got", name, lock.Fence())
			<-end
			if lock.Unlock(t.Context()) == nil {
				fmt.Println("released", name)
			} else {
				fmt.Println("lost", name)
			}
		}()
	}
}

// crowd has a key n times, and counts in Redis who is inside.
func crowd(t *testing.T, l redlatch.Locker, client *redis.Client, key string, n int) {
	for range n {
		lock, err := l.Lock(t.Context(), key, redlatch.WithTTL(30*time.Second))
		if err != nil {
			t.Error(err)
			return
		}
		inside := client.Incr(t.Context(), "inside").Val()
		client.RPush(t.Context(), "grants", fmt.Sprintf("go %d %d", inside, lock.Fence()))
		client.Decr(t.Context(), "inside")
		if err := lock.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

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
		w := workers[i%2]
		got := w.says(t)
		require.Equal(t, []string{"got", strconv.Itoa(i)}, got[:2])
		next, err := strconv.ParseUint(got[2], 10, 64)
		require.NoError(t, err)
		require.Greater(t, next, fence)
		fence = next
		w.tells(t, "unlock", i)
		require.Equal(t, []string{"released", strconv.Itoa(i)}, w.says(t))
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
	require.Equal(t, "got", w.says(t)[0])
	const claim = 2 * time.Second
	locktest.Eventually(t, "the claim is extended", func() bool { return client.PTTL(t.Context(), "k").Val() > claim })
	longest := client.PTTL(t.Context(), "k").Val()
	locktest.Eventually(t, "the TTL is shorter", func() bool {
		left := client.PTTL(t.Context(), "k").Val()
		longest = min(longest, left)
		return longest < 5*time.Second
	})
	locktest.Eventually(t, "it is renewed", func() bool { return client.PTTL(t.Context(), "k").Val() > longest })
	w.tells(t, "unlock", "a")
	require.Equal(t, "released", w.says(t)[0])
}

// TestKilledProcessOfOneLanguageCostsTheOtherLittle: a killed waiter is skipped, and a killed holder keeps
// the key for its TTL.
func TestKilledProcessOfOneLanguageCostsTheOtherLittle(t *testing.T) {
	t.Parallel()
	mustHavePython(t)
	languages := map[string]func(*testing.T, *redistest.Server) worker{"python": startPython, "go": startGo}
	for killed, other := range map[string]string{"python": "go", "go": "python"} {
		t.Run(killed+" is killed", func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			client := s.Client(t)
			l := locktest.SetNXPX(t, client)
			waiter, holder, survivor := languages[killed](t, s), languages[killed](t, s), languages[other](t, s)
			holder.tells(t, "lock", "holder", "k", 2)
			before := holder.says(t)
			require.Equal(t, "got", before[0])
			waiter.tells(t, "lock", "waiter", "k", 10)
			waiters(t, l, "k", 1)
			survivor.tells(t, "lock", "survivor", "k", 10)
			waiters(t, l, "k", 2)
			waiter.kill(t)
			holder.kill(t)
			after := survivor.says(t)
			require.Equal(t, []string{"got", "survivor"}, after[:2])
			first, err := strconv.ParseUint(before[2], 10, 64)
			require.NoError(t, err)
			second, err := strconv.ParseUint(after[2], 10, 64)
			require.NoError(t, err)
			require.Greater(t, second, first)
			survivor.tells(t, "unlock", "survivor")
			require.Equal(t, []string{"released", "survivor"}, survivor.says(t))
			require.Zero(t, client.Exists(t.Context(), "k", "{k}:queue:k").Val())
		})
	}
}
