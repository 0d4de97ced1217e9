package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// onceATick runs job for the tick that now belongs to, unless another host has it. Every host calls
// it at every tick.
//
// The key carries the tick's time, so that a host that comes late for one tick does not take the
// next one's turn. The lock is left to its TTL: released after a quick job, it would let a host
// whose clock is behind run the same tick again. That end counts as a loss, so l is a Locker without
// hooks that alert of losses.
//
// A tick is run once at most, and not at all where its host crashes, where Redis granted the lock and its
// reply never came, or on NewRedlock where hosts that try at one moment refuse each other: call Lock there,
// with a ctx that is much shorter than every.
func onceATick(ctx context.Context, l redlatch.Locker, name string, now time.Time, every time.Duration, job func(context.Context) error) error {
	key := fmt.Sprintf("%s:%d", name, now.Truncate(every).Unix())
	_, err := l.TryLock(ctx, key, redlatch.WithTTL(every), redlatch.WithoutRenewal())
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		return nil // another host has this tick
	case err != nil:
		return err
	}
	return job(ctx)
}

// A schedule that runs on many hosts, and each of its ticks on one of them.
func Example_schedule() {
	server, _, end := embedded()
	defer end()
	ctx := context.Background()
	noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

	for _, now := range []time.Time{noon, noon.Add(time.Minute)} {
		for i, late := range []time.Duration{0, 200 * time.Millisecond, 20 * time.Second} {
			client := redis.NewClient(&redis.Options{Addr: server.Addr()}) // as another host has its own
			defer client.Close()
			locker := made(redlatch.NewSetNXPX(client))
			must(onceATick(ctx, locker, "report", now.Add(late), time.Minute, func(context.Context) error {
				fmt.Println("host", i, "reports at", now.Format("15:04"))
				return nil
			}))
		}
	}
	// Output:
	// host 0 reports at 12:00
	// host 0 reports at 12:01
}
