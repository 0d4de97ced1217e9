package redlatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPanicOfBackoffEndsNoLine is rule 18: a function of WithBackoff panics, and somebody recovers. The line goes on.
func TestPanicOfBackoffEndsNoLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		q := &queueing{}
		l := queueingLocker(t, q, WithBackoff(func(int) time.Duration {
			if panics.Swap(false) {
				panic("of the caller")
			}
			return time.Minute
		}))
		q.reply(func(ctx context.Context, p *acquireParams) (acquireReply, error) {
			time.Sleep(time.Second)
			return refuse(ctx, p)
		}, nil)
		panics.Store(true)
		panicked := make(chan any)
		go func() { // ends with the panic
			defer func() { panicked <- recover() }()
			_, _ = l.Lock(t.Context(), "k")
		}()
		synctest.Wait()
		next, _ := standing(t.Context(), l)
		require.Equal(t, "of the caller", <-panicked)
		require.Equal(t, 1, InLine(l, "k"))
		q.reply(nil, nil)
		lock := <-next

		next, _ = standing(t.Context(), l)
		panics.Store(true)
		require.PanicsWithValue(t, "of the caller", func() { _ = lock.Unlock(t.Context()) })
		require.NoError(t, (<-next).Unlock(t.Context()))
	})
}

// TestReleaseDoesNotQueueALineThatAsks is rule 26: a token that an acquire may be granted meanwhile, and that is released
// again, would get into the queue behind that. The line asks once the release has ended.
func TestReleaseDoesNotQueueALineThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &queueing{}
		l := queueingLocker(t, q)
		lock, err := l.Lock(t.Context(), "k")
		require.NoError(t, err)
		asked, answer := make(chan struct{}), make(chan struct{})
		q.reply(func(ctx context.Context, p *acquireParams) (acquireReply, error) {
			close(asked)
			<-answer
			return refuse(ctx, p)
		}, nil)
		next, _ := standing(t.Context(), l)
		<-asked // since the key has been held for long
		q.reply(nil, func(p *releaseParams) (releaseReply, error) {
			require.Empty(t, p.next)
			close(answer)
			synctest.Wait()
			return releaseReply{}, nil
		})
		begun := time.Now()
		require.NoError(t, lock.Unlock(t.Context()))
		q.reply(nil, nil)
		require.NoError(t, (<-next).Unlock(t.Context()))
		require.Less(t, time.Since(begun), time.Second)
	})
}
