package locktest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// WaitInLine starts a Lock call and returns once its line is in the queue of Redis. Callers of one Locker stand in one
// line, so each call needs a Locker of its own. A Locker that holds the key queues only after some time.
func WaitInLine(t *testing.T, l redlatch.Locker, key string, opts ...redlatch.Option) <-chan *redlatch.Lock {
	t.Helper()
	before, err := l.Inspect(t.Context(), key)
	require.NoError(t, err)
	got := make(chan *redlatch.Lock, 1)
	// The caller owns this goroutine. It ends with the lock or with the test, and closes got.
	go func() {
		defer close(got)
		if lock, err := l.Lock(t.Context(), key, opts...); err == nil {
			got <- lock
		}
	}()
	Eventually(t, "it queues", func() bool {
		st, err := l.Inspect(t.Context(), key)
		return err == nil && st.Waiters == before.Waiters+1
	})
	return got
}

// Crowd has 24 goroutines lock one key again and again until stop, spread over the lockers. It returns
// how many grants there were, and fails if two held the key at once or a fence did not grow.
func Crowd(t *testing.T, lockers []redlatch.Locker, stop <-chan struct{}) int {
	t.Helper()
	var grants, inside, broken atomic.Int64
	var seen FenceLog
	crowd := hammer(t, 24, lockers, stop, func(lock *redlatch.Lock) error {
		if inside.Add(1) != 1 {
			broken.Add(1)
		}
		seen.Add(lock.Fence())
		<-time.After(time.Millisecond) // the machine has other work too
		inside.Add(-1)
		grants.Add(1)
		if err := lock.Unlock(t.Context()); errors.Is(err, redlatch.ErrLost) {
			return err
		}
		return nil
	})
	crowd.Wait()
	require.Zero(t, broken.Load(), "two owners at once")
	seen.RequireGrowth(t, int(grants.Load()))
	return int(grants.Load())
}

// hammer makes n goroutines lock one key again and again until stop, spread over the lockers. They
// call use with each lock, and use unlocks it. The caller waits for them.
func hammer(t *testing.T, n int, lockers []redlatch.Locker, stop <-chan struct{}, use func(lock *redlatch.Lock) error) *sync.WaitGroup {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				lock, err := lockers[i%len(lockers)].Lock(t.Context(), "k")
				if err == nil {
					err = use(lock)
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	return &wg
}

// ServedUnderLoad has 12 goroutines lock one key again and again, spread over the lockers, and fails unless l is
// served three times meanwhile, each time within some seconds.
func ServedUnderLoad(t *testing.T, l redlatch.Locker, lockers []redlatch.Locker) {
	t.Helper()
	stop := make(chan struct{})
	var grants atomic.Int64
	crowd := hammer(t, 12, lockers, stop, func(lock *redlatch.Lock) error {
		grants.Add(1)
		<-time.After(time.Millisecond) // the machine has other work too
		return lock.Unlock(t.Context())
	})
	defer crowd.Wait()
	defer close(stop)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
		begin := time.Now()
		lock, err := l.Lock(ctx, "k")
		cancel()
		require.NoError(t, err)
		t.Logf("served after %v and %d grants of others", time.Since(begin), grants.Load())
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// FenceLog is a protected resource: it has the fences in the order of the critical sections.
type FenceLog struct {
	mu     sync.Mutex // guards the fields below
	fences []uint64
}

// Add appends a fence.
func (l *FenceLog) Add(fence uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fences = append(l.fences, fence)
}

// RequireGrowth fails unless the log has n fences and each is higher than the one before.
func (l *FenceLog) RequireGrowth(t *testing.T, n int) {
	t.Helper()
	require.Len(t, l.fences, n)
	for i := 1; i < n; i++ {
		require.Greater(t, l.fences[i], l.fences[i-1], "grant %d", i)
	}
}
