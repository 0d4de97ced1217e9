package redlatch_test

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/redistest"
)

// BenchmarkPair measures a lock and its unlock, with a key for each goroutine. For comparison it measures
// the two commands that a program would write by hand.
func BenchmarkPair(b *testing.B) {
	s := redistest.Shared(b)
	ctx := context.Background()
	compareAndDelete := redis.NewScript(`if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`)
	for _, goroutines := range []int{1, 16, 256} {
		pairs := func(name string, pair func(key string) error) {
			b.Run(fmt.Sprintf("%s/goroutines=%d", name, goroutines), func(b *testing.B) {
				b.ReportAllocs()
				var left atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				for g := range goroutines {
					key := "pair" + strconv.Itoa(g)
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							if err := pair(key); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
			})
		}
		client := s.Client(b)
		pairs("raw", func(key string) error {
			token := uuid.NewString()
			if err := client.SetNX(ctx, key, token, 10*time.Second).Err(); err != nil {
				return err
			}
			return compareAndDelete.Run(ctx, client, []string{key}, token).Err()
		})
		l, err := redlatch.NewSetNXPX(client)
		if err != nil {
			b.Fatal(err)
		}
		pairs("redlatch", func(key string) error {
			lock, err := l.TryLock(ctx, key)
			if err != nil {
				return err
			}
			return lock.Unlock(ctx)
		})
	}
}

// BenchmarkHotKey hands one key from client to client. An operation is one grant. Besides the time, it
// reports Jain's index of fairness over the goroutines, the longest wait, and the commands for each grant.
// The index is 1 if all goroutines get the same number of grants.
func BenchmarkHotKey(b *testing.B) {
	for _, shape := range []struct{ clients, goroutines int }{{8, 4}, {32, 4}, {64, 1}, {256, 4}} {
		b.Run(fmt.Sprintf("%dx%d", shape.clients, shape.goroutines), func(b *testing.B) {
			s := redistest.Start(b)
			ctx := context.Background()
			var lockers []redlatch.Locker
			for range shape.clients {
				l, err := redlatch.NewSetNXPX(s.Client(b))
				if err != nil {
					b.Fatal(err)
				}
				lockers = append(lockers, l)
			}
			admin := s.Client(b)
			served := make([]int64, shape.clients*shape.goroutines)
			var left, longest atomic.Int64
			left.Store(int64(b.N))
			before := clientCommands(b, admin)
			b.ResetTimer()
			var wg sync.WaitGroup
			for i, l := range lockers {
				for g := range shape.goroutines {
					wg.Go(func() {
						for left.Add(-1) >= 0 {
							begin := time.Now()
							lock, err := l.Lock(ctx, "hot")
							if err != nil {
								b.Error(err)
								return
							}
							longest.Store(max(longest.Load(), int64(time.Since(begin))))
							served[i*shape.goroutines+g]++
							if err := lock.Unlock(ctx); err != nil {
								b.Error(err)
							}
						}
					})
				}
			}
			wg.Wait()
			b.StopTimer()
			var sum, squares float64
			for _, n := range served {
				sum += float64(n)
				squares += float64(n) * float64(n)
			}
			b.ReportMetric(sum*sum/squares/float64(len(served)), "jain")
			b.ReportMetric(float64(longest.Load())/1e6, "longest-ms")
			b.ReportMetric((clientCommands(b, admin)-before)/float64(b.N), "commands/op")
		})
	}
}

// clientCommands returns the number of commands of Lockers that the server has executed so far.
func clientCommands(tb testing.TB, admin *redis.Client) (n float64) {
	tb.Helper()
	info, err := admin.Info(context.Background(), "commandstats").Result()
	if err != nil {
		tb.Fatal(err)
	}
	for _, found := range regexp.MustCompile(`cmdstat_(?:evalsha|eval|ping|subscribe):calls=(\d+)`).FindAllStringSubmatch(info, -1) {
		calls, err := strconv.ParseFloat(found[1], 64)
		if err != nil {
			tb.Fatal(err)
		}
		n += calls
	}
	return n
}
