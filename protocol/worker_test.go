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

// hasLock waits until a name has its lock, and returns the fence.
func (w worker) hasLock(t *testing.T, name string) uint64 {
	t.Helper()
	got := w.says(t)
	require.Len(t, got, 3, got)
	require.Equal(t, []string{"got", name}, got[:2])
	fence, err := strconv.ParseUint(got[2], 10, 64)
	require.NoError(t, err)
	return fence
}

// unlocks ends the lock of a name, with an outcome.
func (w worker) unlocks(t *testing.T, name, outcome string) {
	t.Helper()
	w.tells(t, "unlock", name)
	require.Equal(t, []string{outcome, name}, w.says(t))
}

func (w worker) signal(t *testing.T, name string) {
	t.Helper()
	require.NoError(t, redistest.Signal(strconv.Itoa(w.Process.Pid), name))
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
		if command == "share" {
			go share(t, l, client, name, key, time.Duration(n)*time.Second)
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
	t.Helper()
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

// enter notes a grant, and says whether it is the newest of all.
var enter = redis.NewScript(`
if tonumber(ARGV[1]) <= tonumber(redis.call('GET', 'newest') or 0) then return 0 end
redis.call('SET', 'newest', ARGV[1])
redis.call('HINCRBY', 'shares', ARGV[2], 1)
return 1
`)

// share has a key until the process ends. An error says that it was frozen.
func share(t *testing.T, l redlatch.Locker, client *redis.Client, name, key string, ttl time.Duration) {
	said := false
	for {
		lock, err := l.Lock(t.Context(), key, redlatch.WithTTL(ttl))
		if err != nil {
			continue
		}
		first, entered := enter.Run(t.Context(), client, nil, lock.Fence(), "go").Int()
		newest, read := client.Get(t.Context(), "newest").Uint64()
		alone := first == 1 && newest == lock.Fence()
		if lock.Unlock(t.Context()) == nil && entered == nil && read == nil && !alone {
			fmt.Println("twice", name, lock.Fence())
		}
		if !said {
			fmt.Println("first", name)
			said = true
		}
	}
}

// languages start a worker of each.
var languages = map[string]func(*testing.T, *redistest.Server) worker{"python": startPython, "go": startGo}
