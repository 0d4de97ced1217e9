package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// onceATick runs job for the tick that contains now, unless another host has that tick. Every host
// calls onceATick at every tick.
//
// The key contains the time of the tick, so a host that is late for one tick does not take the next
// one. The lock is not released but expires. If it were released after a quick job, a host whose clock
// is behind could run the same tick again. The expiry counts as a loss, so l should have no hooks that
// alert on losses.
//
// A tick runs at most once. It does not run if its host crashes, or if Redis grants the lock but the
// reply is lost. On NewRedlock it also does not run if hosts that try at the same time refuse each
// other. Call Lock there instead, with a ctx that is much shorter than every.
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

// A schedule runs on many hosts, and each of its ticks runs on one of them.
func Example_schedule() {
	server, _, end := embedded()
	defer end()
	ctx := context.Background()
	noon := time.Date(2026, time.January, 1, 12, 0, 0, 0, time.UTC)

	for _, now := range []time.Time{noon, noon.Add(time.Minute)} {
		for i, late := range []time.Duration{0, 200 * time.Millisecond, 20 * time.Second} {
			client := redis.NewClient(&redis.Options{Addr: server.Addr()}) // each host has its own client
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
