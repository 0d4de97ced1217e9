package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// forceUnlock releases the lock that status shows, whoever holds it. It leaves a newer lock alone.
func forceUnlock(ctx context.Context, locker redlatch.Locker, key string, status redlatch.Status) error {
	lock, err := locker.Adopt(ctx, key, status.Token, redlatch.WithoutRenewal())
	if err != nil {
		return err // ErrLost: it has ended since
	}
	return lock.Unlock(ctx)
}

// An operator releases the lock of a holder that hangs.
func Example_forcedUnlock() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	hung := granted(locker.Lock(ctx, "import", redlatch.WithOwner("host-7"), redlatch.WithMinHold(time.Hour)))

	status, err := locker.Inspect(ctx, "import")
	must(err)
	fmt.Println("held by", status.Owner)
	must(forceUnlock(ctx, locker, "import", status))

	next := granted(locker.TryLock(ctx, "import"))
	fmt.Println("again:", forceUnlock(ctx, locker, "import", status))
	fmt.Println("the holder believes in its lock:", hung.Err() == nil)
	fmt.Println("the holder:", hung.Unlock(ctx))
	fmt.Println("a higher fence:", next.Fence() > hung.Fence())
	must(next.Unlock(ctx))
	// Output:
	// held by host-7
	// again: redlatch: adopt "import": lock lost: another owner has the key
	// the holder believes in its lock: true
	// the holder: redlatch: unlock "import": lock lost: the key is gone, or another owner has it
	// a higher fence: true
}

// newOnSentinel keeps locks on the primary that the sentinels name.
func newOnSentinel(name string, sentinels ...string) (redlatch.Locker, error) {
	return redlatch.NewSetNXPX(redis.NewFailoverClient(&redis.FailoverOptions{
		MasterName:    name,
		SentinelAddrs: sentinels, // such as "10.0.0.1:26379"
	}))
}

// newOnCluster keeps each lock on the primary of its slot.
func newOnCluster(some ...string) (redlatch.Locker, error) {
	return redlatch.NewSetNXPX(redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: some, // of any nodes: the client finds the others
	}))
}

// newOnQuorum keeps each lock on most of the servers. It takes one client for each of them.
func newOnQuorum(servers ...string) (redlatch.Locker, error) {
	var clients []redis.UniversalClient
	for _, addr := range servers {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr}))
	}
	return redlatch.NewRedlock(clients)
}

// A client of each kind.
func Example_clients() {
	ctx := context.Background()
	var addrs []string
	for range 3 {
		server := miniredis.NewMiniRedis()
		must(server.Start())
		defer server.Close()
		addrs = append(addrs, server.Addr())
	}
	_, err := newOnSentinel("main", "10.0.0.1:26379", "10.0.0.2:26379", "10.0.0.3:26379")
	fmt.Println(err)
	for _, locker := range []redlatch.Locker{made(newOnCluster(addrs[0])), made(newOnQuorum(addrs...))} {
		lock := granted(locker.TryLock(ctx, "orders:42"))
		fmt.Println(lock.Err(), lock.Unlock(ctx))
	}
	// Output:
	// <nil>
	// <nil> <nil>
	// <nil> <nil>
}

// A caller that waits for less than a second gives each command a part of that time.
func Example_shortWait() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()
	work := func(context.Context, *redlatch.Lock) error { return nil }

	pay := func(ctx context.Context) error {
		locker, err := redlatch.NewSetNXPX(client, redlatch.WithOpTimeout(100*time.Millisecond))
		if err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond) // bounds the wait and the work
		defer cancel()
		return redlatch.Do(ctx, locker, "cart:7", work)
	}

	fmt.Println(pay(ctx))
	// Output:
	// <nil>
}

// resume returns the lock of a run that crashed, whose token is in file. If there is none, or if it has ended, resume
// acquires a new lock and stores its token.
func resume(ctx context.Context, locker redlatch.Locker, key, file string) (*redlatch.Lock, error) {
	token, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(token) > 0 {
		lock, err := locker.Adopt(ctx, key, string(token))
		if !errors.Is(err, redlatch.ErrLost) {
			return lock, err
		}
	}
	lock, err := locker.TryLock(ctx, key)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, []byte(lock.Token()), 0o600); err != nil {
		return nil, errors.Join(err, lock.Unlock(ctx))
	}
	return lock, nil
}

// A job is started again after a crash, and adopts the lock of its first run.
func Example_resume() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	dir, err := os.MkdirTemp("", "")
	must(err)
	defer func() { must(os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "import.token")

	crashed := granted(resume(ctx, locker, "import", file)) // nobody unlocks it
	_, err = locker.TryLock(ctx, "import")
	fmt.Println("others:", err)
	lock := granted(resume(ctx, locker, "import", file))
	fmt.Println("the same lock:", lock.Token() == crashed.Token())
	fmt.Println("a higher fence:", lock.Fence() > crashed.Fence())
	must(lock.Unlock(ctx))
	fmt.Println("released:", !server.Exists("import"))

	next := granted(resume(ctx, locker, "import", file))
	fmt.Println("another lock:", next.Token() != lock.Token())
	must(next.Unlock(ctx))
	// Output:
	// others: redlatch: try lock "import": held by another owner
	// the same lock: true
	// a higher fence: true
	// released: true
	// another lock: true
}
