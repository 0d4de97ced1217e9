package locktest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
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

// ServedUnderLoad has 12 goroutines lock one key again and again, spread over the lockers, and fails unless l is
// served three times meanwhile, each time within some seconds.
func ServedUnderLoad(t *testing.T, l redlatch.Locker, lockers []redlatch.Locker) {
	t.Helper()
	var stop atomic.Bool
	var grants atomic.Int64
	var crowd sync.WaitGroup
	defer crowd.Wait()
	defer stop.Store(true)
	for i := range 12 {
		crowd.Go(func() {
			for !stop.Load() {
				lock, err := lockers[i%len(lockers)].Lock(t.Context(), "k")
				if err == nil {
					grants.Add(1)
					<-time.After(time.Millisecond) // the machine has other work too
					err = lock.Unlock(t.Context())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	Eventually(t, "each of them was served, more or less", func() bool { return grants.Load() > 12 })
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

// Standing has a caller stand in the line of k, in a bubble.
func Standing(t *testing.T, l redlatch.Locker, opts ...redlatch.Option) <-chan *redlatch.Lock {
	t.Helper()
	got := make(chan *redlatch.Lock, 1)
	go func() { // ends with the lock
		lock, err := l.Lock(context.Background(), "k", opts...)
		if err != nil {
			t.Error(err)
		}
		got <- lock
	}()
	synctest.Wait()
	return got
}
