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

// Locking starts a Lock call. The channel gets the lock, and is closed if the call failed.
func Locking(t *testing.T, l redlatch.Locker, key string, opts ...redlatch.Option) <-chan *redlatch.Lock {
	t.Helper()
	got := make(chan *redlatch.Lock, 1)
	go func() { // ends with the lock, or with the test
		defer close(got)
		lock, err := l.Lock(t.Context(), key, opts...)
		switch {
		case err == nil:
			got <- lock
		case t.Context().Err() == nil: // else the test is over, and has said why
			t.Error(err)
		}
	}()
	return got
}

// WaitInLine starts a Lock call and returns once its line is in the queue of Redis. Callers of one
// Locker stand in one line, so each call needs a Locker of its own. A Locker that holds the key
// queues only after some time.
func WaitInLine(t *testing.T, l redlatch.Locker, key string, opts ...redlatch.Option) <-chan *redlatch.Lock {
	t.Helper()
	before, err := l.Inspect(t.Context(), key)
	require.NoError(t, err)
	got := Locking(t, l, key, opts...)
	Eventually(t, "it queues", func() bool {
		st, err := l.Inspect(t.Context(), key)
		return err == nil && st.Waiters == before.Waiters+1
	})
	return got
}

// ServedUnderLoad has 12 goroutines lock one key again and again, spread over the lockers, and
// fails unless l is served three times meanwhile, each time before thousands of others are.
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
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		before := grants.Load()
		lock, err := l.Lock(ctx, "k")
		cancel()
		require.NoError(t, err)
		require.Less(t, grants.Load()-before, int64(5000), "others were served in between")
		require.NoError(t, lock.Unlock(t.Context()))
	}
}

// Standing has a caller stand in the line of k, in a bubble.
func Standing(t *testing.T, l redlatch.Locker, opts ...redlatch.Option) <-chan *redlatch.Lock {
	t.Helper()
	got := Locking(t, l, "k", opts...)
	synctest.Wait()
	return got
}
