package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// next returns what a caller can do about err, which a call with ctx returned. The case of ErrMaxHold comes
// before that of ErrLost, since ErrMaxHold matches both. next also checks ctx.Err, since the timeout of a dial
// matches context.DeadlineExceeded.
func next(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "go on"
	case errors.Is(err, redlatch.ErrInvalidOption):
		return "fix the program"
	case ctx.Err() != nil && errors.Is(err, ctx.Err()):
		return "time is up"
	case errors.Is(err, redlatch.ErrNotAcquired):
		return "somebody else is at it"
	case errors.Is(err, redlatch.ErrMaxHold):
		return "too slow: check the work"
	case errors.Is(err, redlatch.ErrLost):
		return "not alone: check the work"
	case errors.Is(err, redlatch.ErrReleased):
		return "unlocked before"
	case errors.Is(err, redlatch.ErrNoQuorum):
		return "too few nodes: try later"
	case errors.Is(err, redlatch.ErrNotReplicated):
		return "too few replicas: try later"
	case errors.Is(err, redlatch.ErrUnavailable):
		return "Redis is in trouble: try later"
	default:
		return "fix what the error names"
	}
}

// This example shows common errors, and what a caller can do about each of them.
func Example_errors() {
	server, client, end := embedded()
	defer end()
	ctx := context.Background()
	show := func(ctx context.Context, err error) { fmt.Printf("%v\n=> %s\n", err, next(ctx, err)) }

	locker := made(redlatch.NewSetNXPX(client, redlatch.WithOwner("api-7")))
	lock := granted(locker.Lock(ctx, "k"))
	_, err := locker.TryLock(ctx, "k")
	show(ctx, err)
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	_, err = locker.Lock(impatient, "k")
	show(impatient, err)

	server.Del("k") // the result is the same if the key expires or gets another owner
	show(ctx, lock.Unlock(ctx))
	show(ctx, lock.Unlock(ctx))
	short := granted(locker.Lock(ctx, "k", redlatch.WithMaxHold(100*time.Millisecond)))
	<-short.Done()
	show(ctx, short.Unlock(ctx))

	_, err = locker.Lock(ctx, "k", redlatch.WithTTL(0))
	show(ctx, err)

	_, err = locker.TryLock(ctx, "k", redlatch.WithReplicas(1, 10*time.Millisecond)) // this server has no replicas
	show(ctx, err)

	dead, unreachable, endDead := embedded()
	defer endDead()
	dead.Close()
	quorum := made(redlatch.NewRedlock([]redis.UniversalClient{client, unreachable}, redlatch.WithOpTimeout(100*time.Millisecond)))
	_, err = quorum.TryLock(ctx, "k")
	var q *redlatch.QuorumError
	if errors.As(err, &q) {
		fmt.Printf("%s needs %d of %d nodes, and one is dead\n=> %s\n", q.Op, q.Need, len(q.Nodes), next(ctx, err))
	}
	// Output:
	// redlatch: try lock "k": held by "api-7"
	// => somebody else is at it
	// redlatch: lock "k": context canceled
	// => time is up
	// redlatch: unlock "k": lock lost: the key is gone (expired, deleted or evicted), or another owner has it
	// => not alone: check the work
	// redlatch: unlock "k": lock already released
	// => unlocked before
	// redlatch: unlock "k": lock lost: held for as long as WithMaxHold allows
	// => too slow: check the work
	// redlatch: lock "k": invalid option: WithTTL(0s): below 1ms
	// => fix the program
	// redlatch: try lock "k": not replicated: 0 of 1 replicas confirmed it within 10ms
	// => too few replicas: try later
	// acquire needs 2 of 2 nodes, and one is dead
	// => too few nodes: try later
}
