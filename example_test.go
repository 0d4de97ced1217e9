package redlatch_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// embedded returns a Redis inside this process, and a client of it. end closes both.
func embedded() (server *miniredis.Miniredis, client *redis.Client, end func()) {
	server = miniredis.NewMiniRedis()
	must(server.Start())
	client = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return server, client, func() {
		must(client.Close())
		server.Close()
	}
}

// must panics on an error, which keeps the examples short. They run on an embedded Redis that always answers.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

func granted(lock *redlatch.Lock, err error) *redlatch.Lock {
	must(err)
	return lock
}

func made(l redlatch.Locker, err error) redlatch.Locker {
	must(err)
	return l
}

// Use the address of any Redis. Here it is an embedded one.
func Example() {
	server, _, end := embedded()
	defer end()
	ctx, addr := context.Background(), server.Addr()

	client := redis.NewClient(&redis.Options{Addr: addr})
	locker, err := redlatch.NewSetNXPX(client)
	if err != nil {
		panic(err)
	}
	lock, err := locker.Lock(ctx, "orders:42") // waits until the key is free or ctx ends
	if err != nil {
		panic(err)
	}
	fmt.Println("nobody else is working on", lock.Key())
	if err := lock.Unlock(ctx); err != nil {
		fmt.Println(err) // ErrLost: another owner may have had the lock meanwhile
	}
	// Output:
	// nobody else is working on orders:42
}

func ship(_ context.Context, order int, _ uint64) error {
	fmt.Println("shipped order", order)
	return nil
}

func ExampleDo() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	err := redlatch.Do(ctx, locker, "orders:42", func(ctx context.Context, lock *redlatch.Lock) error {
		return ship(ctx, 42, lock.Fence()) // ctx ends when the lock does
	})
	fmt.Println("error:", err)
	// Output:
	// shipped order 42
	// error: <nil>
}

func ExampleNewSetNXPX() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()

	// Options of a constructor are defaults. Options of a call override them.
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithTTL(30*time.Second), redlatch.WithKeyPrefix("shop:"))
	must(err)
	lock, err := locker.TryLock(ctx, "stock")
	must(err)
	fmt.Println(lock.Key(), "is kept as shop:stock:", client.Exists(ctx, "shop:stock").Val() == 1)
	fmt.Println("its value is the token:", client.Get(ctx, "shop:stock").Val() == lock.Token())

	_, err = locker.TryLock(ctx, "stock")
	fmt.Println(err)
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// stock is kept as shop:stock: true
	// its value is the token: true
	// redlatch: try lock "stock": held by another owner
	// <nil>
}

// Three independent nodes keep the lock. It is granted as long as two of them answer.
func ExampleNewRedlock() {
	var nodes []redis.UniversalClient
	for i := range 3 {
		server, client, end := embedded()
		defer end()
		if i == 0 {
			server.Close() // a dead node
		}
		nodes = append(nodes, client)
	}

	locker, err := redlatch.NewRedlock(nodes)
	must(err)
	err = redlatch.Do(context.Background(), locker, "orders:42", func(_ context.Context, lock *redlatch.Lock) error {
		fmt.Println("locked by a quorum, with a fence:", lock.Fence() > 0)
		return nil
	})
	fmt.Println("error:", err)
	// Output:
	// locked by a quorum, with a fence: true
	// error: <nil>
}

// A program in another language stores the time when its lock ends, with SETNX. The two programs
// exclude each other.
func ExampleNewLegacySetNX() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()
	locker, err := redlatch.NewLegacySetNX(client)
	must(err)

	theirs := time.Now().Add(time.Minute).Unix() + 1
	fmt.Println("they have it:", client.SetNX(ctx, "nightly", theirs, 0).Val())
	_, err = locker.TryLock(ctx, "nightly")
	fmt.Println(err)
	client.Del(ctx, "nightly") // the other program releases its lock

	lock, err := locker.TryLock(ctx, "nightly")
	must(err)
	fmt.Println("they have it:", client.SetNX(ctx, "nightly", theirs, 0).Val())
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// they have it: true
	// redlatch: try lock "nightly": held by another owner
	// they have it: false
	// <nil>
}

// Work that uses the lock's context stops when the lock is lost. Here the key is deleted, and the
// next renewal notices it.
func ExampleLock_Context() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client, redlatch.WithTTL(3*time.Second)))

	lock, err := locker.Lock(ctx, "report")
	must(err)
	server.Del("report")
	working := lock.Context(ctx)
	<-working.Done()
	cause := context.Cause(working)
	fmt.Println(cause, errors.Is(cause, redlatch.ErrLost))
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// redlatch: lock lost: the key is gone true
	// redlatch: unlock "report": lock lost: the key is gone
}

// A job keeps its lock when it moves from one process to another: the token moves with it.
func ExampleLocker_Adopt() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	lock, err := locker.Lock(ctx, "export", redlatch.WithoutRenewal())
	must(err)
	token := lock.Token() // sent to the process that continues the job

	adopted, err := locker.Adopt(ctx, "export", token)
	must(err)
	fmt.Println("a higher fence:", adopted.Fence() > lock.Fence())
	fmt.Println("unlock:", adopted.Unlock(ctx))

	_, err = locker.Adopt(ctx, "export", token)
	fmt.Println(err)
	// Output:
	// a higher fence: true
	// unlock: <nil>
	// redlatch: adopt "export": lock lost: the key is gone
}

// Inspect shows who holds a key, for people and dashboards. The TTL is in nanoseconds.
func ExampleLocker_Inspect() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	lock, err := locker.Lock(ctx, "export")
	must(err)
	status, err := locker.Inspect(ctx, "export")
	must(err)
	status.Token = "" // anyone who knows the token can release the lock
	text, err := json.Marshal(status)
	must(err)
	fmt.Println(string(text))
	must(lock.Unlock(ctx))
	// Output:
	// {"held":true,"ttl_ns":10000000000,"holders":1}
}

// After a crash, a process acquires its lock again by the token that it stored before, while the lease lasts.
func ExampleWithToken() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	token := uuid.NewString() // stored with the job before the call, and used for this job only
	crashed := granted(locker.TryLock(ctx, "import:7", redlatch.WithToken(token), redlatch.WithoutRenewal()))
	_, err := locker.TryLock(ctx, "import:7")
	fmt.Println(err)
	again := granted(locker.TryLock(ctx, "import:7", redlatch.WithToken(token)))
	fmt.Println("a newer fence:", again.Fence() > crashed.Fence())
	fmt.Println(again.Unlock(ctx))
	// Output:
	// redlatch: try lock "import:7": held by another owner
	// a newer fence: true
	// <nil>
}

func ExampleSlogHooks() {
	server, client, end := embedded()
	defer end()
	ctx := context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "fence", "elapsed": // different in each run
				return slog.Attr{}
			}
			return a
		},
	}))
	locker := made(redlatch.NewSetNXPX(client, redlatch.WithHooks(redlatch.SlogHooks(logger)), redlatch.WithOwner("api-7")))

	lock := granted(locker.Lock(ctx, "export"))
	server.Del("export")
	_ = lock.Unlock(ctx) // the log below is complete
	// Output:
	// level=DEBUG msg="lock acquired" strategy=setnxpx key=export owner=api-7 attempts=1
	// level=ERROR msg="lock lost" strategy=setnxpx key=export owner=api-7 error="redlatch: lock lost: the key is gone, or another owner has it"
}

// Hooks feed metrics. Each hook is optional, and JoinHooks combines several Hooks into one.
func ExampleWithHooks() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()
	counts := make(map[string]int) // hooks may run concurrently, but not in this example
	locker := made(redlatch.NewSetNXPX(client, redlatch.WithHooks(redlatch.Hooks{
		Acquired: func(redlatch.Event) { counts["acquired"]++ },
		Lost:     func(redlatch.Event) { counts["lost"]++ },
		Released: func(redlatch.Event) { counts["released"]++ },
	})))
	for range 3 {
		must(granted(locker.Lock(ctx, "export")).Unlock(ctx))
	}
	fmt.Println(counts)
	// Output:
	// map[acquired:3 released:3]
}
