package redlatchtest_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// constructors make Lockers of all kinds, also as code does that makes its own.
var constructors = map[string]func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error){
	"locks": func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatchtest.NewLocker(t, opts...), nil
	},
	"readers": func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error) {
		read, _ := redlatchtest.NewReadWrite(t, opts...)
		return read, nil
	},
	"writers": func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error) {
		_, write := redlatchtest.NewReadWrite(t, opts...)
		return write, nil
	},
	"permits": func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatchtest.NewSemaphore(t, 3, opts...), nil
	},
	"quorum": func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatchtest.NewRedlock(t, 3, opts...), nil
	},
	"own legacy locks": func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewLegacySetNX(redlatchtest.NewLocker(t).Client(), opts...)
	},
	"own permits": func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error) {
		return redlatch.NewSemaphore(redlatchtest.NewLocker(t).Client(), 3, opts...)
	},
	"own quorum": func(t *testing.T, opts ...redlatch.Option) (redlatch.Locker, error) {
		var clients []redis.UniversalClient
		for range 3 {
			clients = append(clients, redlatchtest.NewLocker(t).Client())
		}
		return redlatch.NewRedlock(clients, opts...)
	},
}

// lengthy are the options for a machine that may be busy.
var lengthy = []redlatch.Option{redlatch.WithTTL(10 * time.Minute), redlatch.WithOpTimeout(time.Minute)}

// TestEachOfManyCallersIsGranted: the commands of many callers go as one pipeline, which is written
// whole before a reply is read.
func TestEachOfManyCallersIsGranted(t *testing.T) {
	const callers = 200
	crowd := func(t *testing.T, l redlatch.Locker) {
		var all sync.WaitGroup
		for i := range callers {
			all.Go(func() {
				lock, err := l.TryLock(t.Context(), fmt.Sprint("k", i))
				if assert.NoError(t, err) {
					assert.NoError(t, lock.Unlock(t.Context()))
				}
			})
		}
		all.Wait()
	}
	t.Parallel()
	for name, construct := range constructors {
		t.Run(name+" in a bubble", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l, err := construct(t)
				require.NoError(t, err)
				begin := time.Now()
				crowd(t, l)
				require.Zero(t, time.Since(begin))
			})
		})
		t.Run(name+" outside", func(t *testing.T) {
			l, err := construct(t, lengthy...)
			require.NoError(t, err)
			crowd(t, l)
		})
	}
}

// TestManyLocksAreRenewed: no renewal of many locks at one instant fails.
func TestManyLocksAreRenewed(t *testing.T) {
	const locks = 100
	for name, construct := range constructors {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var renewed atomic.Int32
				l, err := construct(t, redlatch.WithHooks(redlatch.Hooks{
					Renewed:     func(context.Context, redlatch.Event) { renewed.Add(1) },
					RenewFailed: func(_ context.Context, e redlatch.Event) { t.Error(e.Err) },
					Lost:        func(_ context.Context, e redlatch.Event) { t.Error(e.Err) },
				}))
				require.NoError(t, err)
				var held []*redlatch.Lock
				for i := range locks {
					lock, err := l.TryLock(t.Context(), fmt.Sprint("k", i))
					require.NoError(t, err)
					held = append(held, lock)
				}
				time.Sleep(11 * time.Second)
				for _, lock := range held {
					require.NoError(t, lock.Unlock(t.Context()))
				}
				require.GreaterOrEqual(t, renewed.Load(), int32(2*locks))
			})
		})
	}
}

// TestPermitsAreUsedSideBySide: as many jobs run at a time as there are permits, and the next one
// begins when a permit is free.
func TestPermitsAreUsedSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := redlatchtest.NewSemaphore(t, 3)
		begin := time.Now()
		var jobs sync.WaitGroup
		for range 12 {
			jobs.Go(func() {
				assert.NoError(t, redlatch.Do(t.Context(), l, "mail", func(context.Context, *redlatch.Lock) error {
					time.Sleep(time.Second)
					return nil
				}))
			})
		}
		jobs.Wait()
		require.Equal(t, 4*time.Second, time.Since(begin))
	})
}

// TestAnOutageEndsForAll: after it, each call of many callers is served.
func TestAnOutageEndsForAll(t *testing.T) {
	const callers = 20
	for name, construct := range map[string]func(t *testing.T) *redlatchtest.Locker{
		"locks":   func(t *testing.T) *redlatchtest.Locker { return redlatchtest.NewLocker(t) },
		"permits": func(t *testing.T) *redlatchtest.Locker { return redlatchtest.NewSemaphore(t, 3) },
		"quorum":  func(t *testing.T) *redlatchtest.Locker { return redlatchtest.NewRedlock(t, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := construct(t)
				var over atomic.Bool // the outage
				var served, refused atomic.Int32
				var all sync.WaitGroup
				for i := range callers {
					all.Go(func() {
						for range 16 {
							after := over.Load()
							lock, err := l.TryLock(t.Context(), fmt.Sprint("k", i))
							switch {
							case err == nil:
								_ = lock.Unlock(t.Context())
								served.Add(1)
							case after:
								t.Error(err)
							default:
								assert.ErrorIs(t, err, redlatch.ErrUnavailable)
								refused.Add(1)
							}
							time.Sleep(500 * time.Millisecond)
						}
					})
				}
				time.Sleep(1200 * time.Millisecond)
				l.Disconnect()
				time.Sleep(4 * time.Second)
				l.Reconnect()
				over.Store(true)
				all.Wait()
				require.GreaterOrEqual(t, refused.Load(), int32(callers))
				require.GreaterOrEqual(t, served.Load(), int32(8*callers))
			})
		})
	}
}
