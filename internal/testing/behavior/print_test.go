package behavior_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
)

// TestPrintingIsSafe: a lock and a Locker are printed while others use them, with any verb, also as
// parts of a caller's struct. fmt looks into what has no method for that, and a map that changes
// meanwhile would end the process.
func TestPrintingIsSafe(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		l := made(w.make(w.Client(t)))
		lock := mustLock(t, l, "held")
		election := electing(t, l)
		over := make(chan error, 1)
		shown := struct {
			Locker   redlatch.Locker
			Lock     *redlatch.Lock
			locker   redlatch.Locker
			lock     *redlatch.Lock
			election *redlatch.Election
		}{l, lock, l, lock, election}
		stop, end := context.WithCancel(t.Context())
		var users sync.WaitGroup
		for i := range 4 {
			users.Go(func() {
				for stop.Err() == nil {
					ctx, leave := context.WithCancel(stop)
					lock.Context(ctx)
					leave()
					if k, err := l.TryLock(stop, fmt.Sprint(i/2)); err == nil {
						_ = k.Unlock(context.Background())
					}
				}
			})
		}
		go func() { // ends with stop
			over <- election.Run(stop, func(context.Context, *redlatch.Lock) error { return nil })
		}()
		for range 5 {
			for _, v := range []any{lock, *lock, l, election, shown, &shown} {
				require.NotEmpty(t, printed(v))
			}
		}
		end()
		users.Wait()
		require.ErrorIs(t, <-over, context.Canceled)
		require.NoError(t, lock.Unlock(t.Context()))
	})
}

// TestLockPrintsItsName, whatever the verb is.
func TestLockPrintsItsName(t *testing.T) {
	onEvery(t, everyLocker(), func(t *testing.T, w *world) {
		lock := mustLock(t, made(w.make(w.Client(t), redlatch.WithKeyPrefix("shop:"))), "a b")
		name := `lock "a b"`
		if lock.Fence() != 0 {
			name += fmt.Sprintf(", fence %d", lock.Fence())
		}
		for _, form := range []string{"%v", "%+v", "%s"} {
			require.Equal(t, name, fmt.Sprintf(form, lock), form)
		}
		require.Equal(t, strconv.Quote(name), fmt.Sprintf("%q", lock))
		require.Equal(t, "%!d(string="+name+")", fmt.Sprintf("%d", lock))
		require.Equal(t, name, lock.String())
		require.Equal(t, name, fmt.Sprint(*lock))
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, name, lock.String())
	})
	require.Equal(t, `lock ""`, fmt.Sprint(new(redlatch.Lock)))
	require.Equal(t, "<nil>", fmt.Sprint((*redlatch.Lock)(nil)))
}
