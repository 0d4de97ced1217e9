package behavior_test

import (
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestLongOutageGetsFewAttempts: a server has no connection left, or takes connections and closes them. Once that has
// lasted for some seconds, a Locker with many callers that wait makes three attempts a second at most: each round has
// a new acquire, and a release of one whose outcome is unknown. When it is over, one of the callers has the lock within a second, and somebody who comes
// then has his answer.
func TestLongOutageGetsFewAttempts(t *testing.T) {
	for name, fails := range map[string]func(*link){
		"maxclients": func(l *link) { l.answer("ERR max number of clients reached") },
		"closed":     func(l *link) { l.fail(io.EOF) },
	} {
		t.Run(name, func(t *testing.T) {
			onEvery(t, everyStrategy, func(t *testing.T, w *world) {
				client := w.Client(t)
				attempts := countScripts(client)
				l, link := w.over(t, client, redlatch.WithOpTimeout(time.Second)), linkOf(t, client)
				mustLock(t, w.locker(t, redlatch.WithTTL(time.Hour), redlatch.WithoutRenewal()), "k")
				got := make(chan *redlatch.Lock, 20)
				for range cap(got) {
					locking(t, got, l, "k")
				}
				time.Sleep(5 * time.Second) // they wait
				fails(link)
				time.Sleep(10 * time.Second)
				before := attempts.Load()
				const seconds = 60
				time.Sleep(seconds * time.Second)
				few := attempts.Load() - before
				require.Less(t, few, int64(3*seconds), "attempts in %d s", seconds)
				require.Greater(t, few, int64(seconds/2), "in vain, but it asks")

				require.NoError(t, w.Direct.FlushDB(t.Context()).Err())
				link.heal()
				began := time.Now()
				_, err := l.TryLock(t.Context(), "another")
				require.NoError(t, err)
				require.Less(t, time.Since(began), time.Second)
				lock := await(t, got, "a lock")
				require.Less(t, time.Since(began), 1200*time.Millisecond, "a second, and the pause of those who poll")
				for range cap(got) - 1 {
					require.NoError(t, lock.Unlock(t.Context()))
					lock = await(t, got, "the next lock")
				}
				require.NoError(t, lock.Unlock(t.Context()))
			})
		})
	}
}

// countScripts counts the scripts that client sends, or tries to send.
func countScripts(client *redis.Client) *atomic.Int64 {
	var n atomic.Int64
	client.AddHook(locktest.Count(&n))
	return &n
}
