package field_test

import (
	"bufio"
	"context"
	"io"
	"net"
	"os"
	"path"
	"regexp"
	"slices"
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

// A grantee is a Redis user with certain rights, on servers of its own. The test itself uses only
// commands that no right of a lock names, so that [grantee.used] tells them apart.
type grantee struct {
	redlatch.Locker // it sends every command as that user

	nodes   []*redis.Client // with all rights
	user    *redis.Client   // of one node
	waiting chan redlatch.Event
	polling chan error // why its waiters had to poll

	mu   sync.Mutex // guards the fields below
	seen [][]string // the words of each command that the servers carried out, also of scripts
}

func newGrantee(t *testing.T, strategy string, rights []string) *grantee {
	t.Helper()
	g := &grantee{waiting: make(chan redlatch.Event, 10), polling: make(chan error, 10)}
	node := func() redis.UniversalClient {
		s := redistest.Start(t)
		allowed := append([]string{"allchannels"}, rights...) // the default of Redis 6.2
		user := locktest.Closing(t, redis.NewClient(s.User(t, allowed...)))
		g.nodes, g.user = append(g.nodes, s.Client(t)), user
		g.monitor(t, s)
		return user
	}
	opts := []redlatch.Option{redlatch.WithKeyPrefix("lock:"), locktest.Patience, redlatch.WithHooks(redlatch.Hooks{
		Waiting:  func(_ context.Context, e redlatch.Event) { g.waiting <- e },
		Degraded: func(_ context.Context, e redlatch.Event) { g.polling <- e.Err },
	})}
	var err error
	switch strategy {
	case "Redlock":
		g.Locker, err = redlatch.NewRedlock([]redis.UniversalClient{node(), node(), node()}, opts...)
	case "Semaphore":
		g.Locker, err = redlatch.NewSemaphore(node(), 2, opts...)
	default:
		g.Locker, err = locktest.Strategies[strategy](node(), opts...)
	}
	require.NoError(t, err)
	return g
}

// monitor notes the commands of a server from now on, soon after they are carried out.
func (g *grantee) monitor(t *testing.T, s *redistest.Server) {
	conn, err := net.Dial(s.Network(), s.Addr())
	require.NoError(t, err)
	_, err = io.WriteString(conn, "MONITOR\r\n")
	require.NoError(t, err)
	lines := bufio.NewScanner(conn)
	require.True(t, lines.Scan(), "OK")
	word := regexp.MustCompile(`"((?:[^"\\]|\\.)*)"`)
	var noting sync.WaitGroup
	noting.Go(func() {
		for lines.Scan() {
			var words []string
			for _, found := range word.FindAllStringSubmatch(lines.Text(), -1) {
				words = append(words, found[1])
			}
			g.mu.Lock()
			g.seen = append(g.seen, words)
			g.mu.Unlock()
		}
	})
	t.Cleanup(func() {
		_ = conn.Close()
		noting.Wait()
	})
}

// used returns how many commands needed the right.
func (g *grantee) used(right string) (n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, words := range g.seen {
		command, sub, _ := strings.Cut(right[1:], "|")
		switch {
		case right[0] != '+':
			if slices.ContainsFunc(words[1:], func(word string) bool { ok, _ := path.Match(right[1:], word); return ok }) {
				n++
			}
		case strings.EqualFold(words[0], command) && (sub == "" || strings.EqualFold(words[1], sub)):
			n++
		}
	}
	return n
}

// uses waits until so many commands needed the right.
func (g *grantee) uses(t *testing.T, right string, n int) {
	t.Helper()
	locktest.Eventually(t, right+" is needed", func() bool { return g.used(right) >= n })
}

// useLocks uses every operation of a lock.
func (g *grantee) useLocks(t *testing.T, strategy string) {
	t.Helper()
	queues := strategy == "SetNXPX" || strategy == "Semaphore"
	if strategy == "Semaphore" { // of its two permits one is free, since its lock has expired
		locktest.MustLock(t, g, "k", redlatch.WithTTL(time.Minute))
		locktest.LockSoon(t, g, "k", redlatch.WithTTL(50*time.Millisecond), redlatch.WithoutRenewal())
		locktest.Eventually(t, "a permit is free", func() bool {
			st, err := g.Inspect(t.Context(), "k")
			return err == nil && st.Holders == 1
		})
	}
	lock := locktest.MustLock(t, g, "k")
	if strategy == "Redlock" { // Extend restores the lock on a node that has lost it
		for _, node := range g.nodes {
			locktest.Eventually(t, "the node has granted", func() bool { return node.Touch(t.Context(), "lock:k").Val() == 1 })
		}
		require.Equal(t, int64(1), g.nodes[0].Unlink(t.Context(), "lock:k").Val())
		require.NoError(t, lock.Extend(t.Context(), time.Minute))
		locktest.Eventually(t, "it has the lock again", func() bool { return g.nodes[0].Touch(t.Context(), "lock:k").Val() == 1 })
	}
	require.NoError(t, lock.Extend(t.Context(), time.Minute))

	brief, giveUp := context.WithCancel(t.Context())
	left := g.wait(brief, t, queues)
	giveUp()
	require.Nil(t, <-left, "a lock that is held was granted")
	served := g.wait(t.Context(), t, queues)
	if queues {
		g.uses(t, "+zscore", g.used("+zscore")+1) // the waiter checks that it is still in the queue
		g.uses(t, "+ping", g.used("+ping")+1)     // its subscription was silent for some time
	}
	require.NoError(t, lock.Unlock(t.Context()))
	next := <-served
	require.NotNil(t, next)
	adopted, err := g.Adopt(t.Context(), "k", next.Token())
	require.NoError(t, err)
	_, err = g.Adopt(t.Context(), "k", "nobody")
	require.ErrorIs(t, err, redlatch.ErrLost)
	require.NoError(t, adopted.Unlock(t.Context()))
	if queues { // a register that is too large is set back
		require.NoError(t, g.nodes[0].MSet(t.Context(), "lock:redlatch:fence", "9007199254740993").Err())
		_, err = g.TryLock(t.Context(), "k")
		require.ErrorContains(t, err, "holds something else")
	}
}

// wait starts a Lock call and returns once it waits, in the queue if there is one. The lock is nil
// if the call failed.
func (g *grantee) wait(ctx context.Context, t *testing.T, queues bool) <-chan *redlatch.Lock {
	t.Helper()
	returned := make(chan *redlatch.Lock, 1)
	go func() { // ends with ctx
		lock, _ := g.Lock(ctx, "k")
		returned <- lock
	}()
	<-g.waiting
	locktest.Eventually(t, "it queues", func() bool {
		st, err := g.Inspect(t.Context(), "k")
		return err == nil && (st.Waiters == 1 || !queues)
	})
	return returned
}

// TestACLLinesAreEnoughAndHaveNothingToSpare: with exactly the rights of SECURITY.md everything
// works, including the hand-over by message, and locks send commands that need each of the rights.
// Nothing is refused until the idle subscription is closed. Other keys and channels stay out of
// reach.
func TestACLLinesAreEnoughAndHaveNothingToSpare(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../SECURITY.md")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^ACL SETUSER (\w+) on >secret (.*)$`).FindAllStringSubmatch(string(text), -1)
	lines = slices.DeleteFunc(lines, func(line []string) bool { return strings.ToLower(line[1]) == line[1] }) // of the command
	require.Len(t, lines, 4, "a line for each strategy")
	for _, line := range lines {
		t.Run(line[1], func(t *testing.T) {
			t.Parallel()
			rights := strings.Fields(line[2])
			g := newGrantee(t, line[1], rights)
			g.useLocks(t, line[1])
			locktest.Eventually(t, "the subscription is closed", func() bool {
				return len(g.nodes[0].PubSubChannels(t.Context(), "*").Val()) == 0
			})
			require.Empty(t, g.polling)
			for _, node := range g.nodes {
				for _, e := range node.ACLLog(t.Context(), 1000).Val() {
					// The CLIENT commands by which go-redis introduces itself may be refused.
					require.True(t, strings.HasPrefix(e.Object, "client"), "%s %s", e.Reason, e.Object)
				}
			}
			for _, right := range rights {
				if right != "resetchannels" { // it takes rights away
					g.uses(t, right, 1)
				}
			}
			for _, words := range [][]any{
				{"get", "other"},
				{"set", "other", "x"},
				{"get", "{lock:k}:fence:other"},
				{"publish", "other", "x"},
				{"keys", "*"},
				{"flushall"},
				{"config", "get", "*"},
				{"acl", "list"},
				{"script", "flush"},
			} {
				require.ErrorContains(t, g.user.Do(t.Context(), words...).Err(), "NOPERM", words)
			}
		})
	}
}
