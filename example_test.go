package redlatch_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
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
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithKeyPrefix("shop:"), redlatch.WithOwner("till 3"))
	must(err)
	lock := granted(locker.TryLock(ctx, "stock"))
	fmt.Println(lock.Key(), "is kept as shop:stock:", client.Exists(ctx, "shop:stock").Val() == 1)
	fmt.Println("its value is the token:", client.Get(ctx, "shop:stock").Val() == string(lock.Token()))

	_, err = locker.TryLock(ctx, "stock")
	fmt.Println(err)
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// stock is kept as shop:stock: true
	// its value is the token: true
	// redlatch: try lock "stock": held by "till 3"
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

	lock := granted(locker.TryLock(ctx, "nightly"))
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

	lock := granted(locker.Lock(ctx, "report"))
	server.Del("report")
	working := lock.Context(ctx)
	<-working.Done()
	cause := context.Cause(working)
	fmt.Println(cause, errors.Is(cause, redlatch.ErrLost))
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// redlatch: lock lost: the key is gone: expired, deleted or evicted true
	// redlatch: unlock "report": lock lost: the key is gone: expired, deleted or evicted
}

// Inspect shows who holds a key and who waits, for people and dashboards. Status.Token is a secret, and prints as "…".
func ExampleLocker_Inspect() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	lock := granted(locker.Lock(ctx, "export", redlatch.WithOwner("api-7")))
	status, err := locker.Inspect(ctx, "export")
	must(err)
	fmt.Println("held by", status.Owner, "for at most", time.Since(status.Since).Round(time.Minute), "with", status.TTL, "left")
	for _, waiter := range status.Queue {
		fmt.Println(waiter.Owner, "has waited for", waiter.Waited)
	}
	must(lock.Unlock(ctx))
	// Output:
	// held by api-7 for at most 0s with 10s left
}

// Nobody holds a key that a min hold keeps, and nobody gets it.
func ExampleStatus() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client, redlatch.WithOwner("api-7")))
	lock := granted(locker.Lock(ctx, "report"))
	must(lock.UnlockAfter(ctx, time.Hour))

	status, err := locker.Inspect(ctx, "report")
	must(err)
	fmt.Printf("held: %t, kept: %t for another %v\n", status.Held, status.Kept, status.TTL.Round(time.Minute))
	// Output:
	// held: false, kept: true for another 1h0m0s
}

// One of two holders of a semaphore hangs. Its permit is released, and the other one goes on.
func ExampleHolder() {
	_, client, end := embedded()
	defer end()
	ctx, mail := context.Background(), made(redlatch.NewSemaphore(client, 2))
	healthy := granted(mail.Lock(ctx, "mail", redlatch.WithOwner("host-7")))
	hung := granted(mail.Lock(ctx, "mail", redlatch.WithOwner("host-8")))

	status, err := mail.Inspect(ctx, "mail")
	must(err)
	for _, holder := range status.Holding {
		fmt.Println(holder.Owner, "writes:", holder.Writes) // true for a writer of NewReadWrite
		if holder.Owner == "host-8" {
			must(granted(mail.Adopt(ctx, "mail", holder.Token, redlatch.WithoutRenewal())).Unlock(ctx))
		}
	}
	must(healthy.Unlock(ctx))
	fmt.Println(errors.Is(hung.Unlock(ctx), redlatch.ErrLost))
	// Output:
	// host-7 writes: false
	// host-8 writes: false
	// true
}

// A token prints as an ellipsis, so that no log has it.
func ExampleToken() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	lock := granted(locker.Lock(ctx, "import"))
	fmt.Printf("%v %+v\n", lock.Token(), struct{ Token redlatch.Token }{lock.Token()})
	stored, err := server.Get("import")
	must(err)
	fmt.Println(string(lock.Token()) == stored)
	must(lock.Unlock(ctx))
	// Output:
	// … {Token:…}
	// true
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
	// level=ERROR msg="lock lost" strategy=setnxpx key=export owner=api-7 error="redlatch: lock lost: the key is gone (expired, deleted or evicted), or another owner has it"
}

// Hooks feed metrics. Each hook is optional.
func ExampleWithHooks() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()
	counts := make(map[string]int) // hooks may run concurrently, but not in this example
	locker := made(redlatch.NewSetNXPX(client, redlatch.WithHooks(redlatch.Hooks{
		Acquired: func(context.Context, redlatch.Event) { counts["acquired"]++ },
		Lost:     func(context.Context, redlatch.Event) { counts["lost"]++ },
		Released: func(context.Context, redlatch.Event) { counts["released"]++ },
	})))
	for range 3 {
		must(granted(locker.Lock(ctx, "export")).Unlock(ctx))
	}
	fmt.Println(counts)
	// Output:
	// map[acquired:3 released:3]
}

// A Locker writes to the log, and counts what it has lost.
func ExampleWithHooks_several() {
	server, client, end := embedded()
	defer end()
	var lost int
	locker := made(redlatch.NewSetNXPX(client,
		redlatch.WithHooks(redlatch.Hooks{Lost: func(_ context.Context, e redlatch.Event) { fmt.Println("log:", e.Key, "is lost") }}), // or SlogHooks(logger)
		redlatch.WithHooks(redlatch.Hooks{Lost: func(context.Context, redlatch.Event) { lost++ }}),
	))
	lock := granted(locker.Lock(context.Background(), "export"))
	server.Del("export")
	_ = lock.Unlock(context.Background())
	fmt.Println("losses:", lost)
	// Output:
	// log: export is lost
	// losses: 1
}

// The wait has a bound, and the work has none.
func ExampleWithMaxWait() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()
	locker := made(redlatch.NewSetNXPX(client, redlatch.WithMaxWait(200*time.Millisecond), redlatch.WithOwner("api-7")))
	export := func(ctx context.Context, _ *redlatch.Lock) error {
		_, bounded := ctx.Deadline()
		fmt.Println("bounded:", bounded)
		again := redlatch.Do(context.Background(), locker, "export", func(context.Context, *redlatch.Lock) error { return nil })
		fmt.Println(errors.Is(again, redlatch.ErrNotAcquired), errors.Is(again, context.DeadlineExceeded))
		return nil
	}
	must(redlatch.Do(ctx, locker, "export", export))
	// Output:
	// bounded: false
	// true false
}

// A caller that cannot wait for a server that hangs asks for a short reply.
func ExampleWithOpTimeout() {
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never replies
	must(err)
	defer silent.Close()
	client := redis.NewClient(&redis.Options{Addr: silent.Addr().String()})
	defer client.Close()

	locker, err := redlatch.NewSetNXPX(client, redlatch.WithOpTimeout(100*time.Millisecond))
	must(err)
	_, err = locker.TryLock(context.Background(), "k")
	fmt.Println(errors.Is(err, redlatch.ErrUnavailable))
	// Output: true
}

// A leader that needs 3 s to stop loses its lock 3 s before another one may start.
func ExampleWithGrace() {
	_, client, end := embedded()
	defer end()
	locker := made(redlatch.NewSetNXPX(client, redlatch.WithTTL(20*time.Second), redlatch.WithGrace(3*time.Second)))
	lock := granted(locker.Lock(context.Background(), "scheduler"))
	fmt.Println("without Redis, it stops in", time.Until(lock.Until()).Round(time.Second))
	must(lock.Unlock(context.Background()))
	// Output:
	// without Redis, it stops in 17s
}

// Each tenant has its own limit, and one Locker serves all of them.
func ExampleWithLimit() {
	_, client, end := embedded()
	defer end()
	ctx, exports := context.Background(), made(redlatch.NewSemaphore(client, 1))
	limitOf := func(tenant string) int { return map[string]int{"big": 2}[tenant] }

	for _, tenant := range []string{"big", "big", "big", "small"} {
		var opts []redlatch.Option
		if limit := limitOf(tenant); limit > 0 {
			opts = append(opts, redlatch.WithLimit(limit))
		}
		_, err := exports.TryLock(ctx, "exports:"+tenant, opts...)
		fmt.Println(tenant, err == nil)
	}
	// Output:
	// big true
	// big true
	// big false
	// small true
}

// work stands in for the code that runs under a lock.
func work(ctx context.Context) error {
	fmt.Println("alone")
	return ctx.Err()
}

// workAlone is the code that docs/migrating.md shows in place of calls of redsync and redislock.
func workAlone(ctx context.Context, locker redlatch.Locker) error {
	turn, cancel := context.WithTimeout(ctx, 5*time.Second) // how long to wait
	defer cancel()
	lock, err := locker.Lock(turn, "orders:42")
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return errBusy
	} else if err != nil {
		return err // Redis is in trouble
	}
	return errors.Join(work(lock.Context(ctx)), lock.Unlock(ctx))
}

var errBusy = errors.New("somebody else is at it")

func ExampleLocker_Lock() {
	_, client, end := embedded()
	defer end()
	fmt.Println(workAlone(context.Background(), made(redlatch.NewSetNXPX(client))))
	// Output:
	// alone
	// <nil>
}

// A user does not wait for a page that somebody else edits, and learns who that is.
func ExampleLocker_TryLock() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	lock := granted(locker.TryLock(ctx, "page:7", redlatch.WithOwner("alice")))

	_, err := locker.TryLock(ctx, "page:7", redlatch.WithOwner("bob"))
	var held *redlatch.HeldError
	if errors.As(err, &held) { // it matches ErrNotAcquired
		fmt.Println("edited by", held.Owner, "for at most", time.Since(held.Since).Round(time.Minute))
	}
	must(lock.Unlock(ctx))
	// Output:
	// edited by alice for at most 0s
}

// Without renewal, the lock of a job that hangs ends with its TTL. A job that makes progress extends it.
func ExampleLock_Extend() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client, redlatch.WithoutRenewal()))
	lock := granted(locker.Lock(ctx, "import"))
	for part := range 3 {
		if err := lock.Extend(ctx, time.Minute); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println("part", part)
		server.Del("import") // somebody ends the lock during the first part
	}
	// Output:
	// part 0
	// redlatch: extend "import": lock lost: the key is gone: expired, deleted or evicted
}

// All instances start a job at the same time, and one of them runs it.
func ExampleTryDo() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	sendReport := func(context.Context) error {
		fmt.Println("the report is sent")
		return nil
	}

	tick := func() error {
		err := redlatch.TryDo(ctx, locker, "cron:report", func(ctx context.Context, _ *redlatch.Lock) error {
			return sendReport(ctx) // ctx ends when the lock does
		}, redlatch.WithMinHold(10*time.Second))
		if errors.Is(err, redlatch.ErrNotAcquired) {
			return nil // another instance runs it, or has just run it
		}
		return err
	}

	for range 3 { // instances
		must(tick())
	}
	// Output:
	// the report is sent
}

// A transfer locks two accounts. Transfers in both directions do not deadlock.
func ExampleDoAll() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	balance := map[string]int{"alice": 100, "bob": 100}
	transfer := func(ctx context.Context, from, to string, amount int) error {
		return redlatch.DoAll(ctx, locker, []string{from, to}, func(context.Context, []*redlatch.Lock) error {
			balance[from] -= amount
			balance[to] += amount
			return nil
		})
	}
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() { must(transfer(ctx, "alice", "bob", 3)) })
		wg.Go(func() { must(transfer(ctx, "bob", "alice", 1)) })
	}
	wg.Wait()
	fmt.Println(balance)
	// Output:
	// map[alice:80 bob:120]
}

// Seats are reserved together, or not at all if somebody else is reserving one of them.
func ExampleTryDoAll() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	reserve := func(seats ...string) error {
		return redlatch.TryDoAll(ctx, locker, seats, func(context.Context, []*redlatch.Lock) error {
			fmt.Println("reserved", seats)
			return nil
		})
	}
	must(reserve("12A", "12B"))

	other := granted(locker.TryLock(ctx, "12C", redlatch.WithOwner("desk 2"))) // another process has one of the keys
	err := reserve("12B", "12C")
	fmt.Println(errors.Is(err, redlatch.ErrNotAcquired), err)
	fmt.Println("12B is locked:", client.Exists(ctx, "12B").Val() == 1)
	must(other.Unlock(ctx))
	// Output:
	// reserved [12A 12B]
	// true redlatch: try do all "12C": held by "desk 2"
	// 12B is locked: false
}

// At most two uploads run at a time, in all processes together.
func ExampleNewSemaphore() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()

	uploads, err := redlatch.NewSemaphore(client, 2)
	must(err)
	upload := func(ctx context.Context, file string) error {
		return redlatch.Do(ctx, uploads, "uploads", func(context.Context, *redlatch.Lock) error {
			fmt.Println("upload", file)
			return nil
		})
	}
	must(upload(ctx, "a.jpg"))

	first := granted(uploads.Lock(ctx, "uploads"))
	second := granted(uploads.Lock(ctx, "uploads"))
	_, err = uploads.TryLock(ctx, "uploads")
	fmt.Println("a third upload has to wait:", errors.Is(err, redlatch.ErrNotAcquired))
	status, err := uploads.Inspect(ctx, "uploads")
	must(err)
	fmt.Println("holders:", status.Holders)

	must(first.Unlock(ctx))
	must(upload(ctx, "b.jpg"))
	must(second.Unlock(ctx))
	// Output:
	// upload a.jpg
	// a third upload has to wait: true
	// holders: 2
	// upload b.jpg
}

func find(name string) error { fmt.Println("find", name); return nil }
func build(_ uint64) error   { fmt.Println("build"); return nil }

// Many read a catalog, and one at a time rebuilds it.
func ExampleNewReadWrite() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()

	read, write, err := redlatch.NewReadWrite(client)
	must(err)
	lookUp := func(ctx context.Context, name string) error {
		return redlatch.Do(ctx, read, "catalog", func(context.Context, *redlatch.Lock) error { return find(name) })
	}
	rebuild := func(ctx context.Context) error {
		return redlatch.Do(ctx, write, "catalog", func(_ context.Context, lock *redlatch.Lock) error { return build(lock.Fence()) })
	}
	must(rebuild(ctx))
	must(lookUp(ctx, "tea"))

	reader := granted(read.Lock(ctx, "catalog"))
	other := granted(read.Lock(ctx, "catalog"))
	_, err = write.TryLock(ctx, "catalog")
	fmt.Println("a writer has to wait:", errors.Is(err, redlatch.ErrNotAcquired))
	must(reader.Unlock(ctx))
	must(other.Unlock(ctx))
	must(rebuild(ctx))
	// Output:
	// build
	// find tea
	// a writer has to wait: true
	// build
}

// Up to five workers, or one maintenance.
func ExampleNewReadWrite_workers() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()

	workers, err := redlatch.NewSemaphore(client, 5)
	must(err)
	_, maintenance, err := redlatch.NewReadWrite(client)
	must(err)

	worker := granted(workers.Lock(ctx, "queue"))
	_, err = maintenance.TryLock(ctx, "queue")
	fmt.Println("maintenance has to wait:", errors.Is(err, redlatch.ErrNotAcquired))
	must(worker.Unlock(ctx))
	repair := granted(maintenance.Lock(ctx, "queue"))
	_, err = workers.TryLock(ctx, "queue")
	fmt.Println("workers have to wait:", errors.Is(err, redlatch.ErrNotAcquired))
	must(repair.Unlock(ctx))
	// Output:
	// maintenance has to wait: true
	// workers have to wait: true
}

// generations returns the Lockers of a fleet that migrates from the timestamps of SETNX and GETSET to SetNXPX.
func generations(client redis.UniversalClient) (one, two, three redlatch.Locker, err error) {
	from, err := redlatch.NewLegacySetNX(client) // generation 1 uses only this one
	if err != nil {
		return nil, nil, nil, err
	}
	to, err := redlatch.NewSetNXPX(client, redlatch.WithKeyPrefix("v2:")) // generation 3 uses only this one
	if err != nil {
		return nil, nil, nil, err
	}
	both, err := redlatch.NewMigration(from, to) // generation 2 holds every key under both
	if err != nil {
		return nil, nil, nil, err
	}
	return from, both, to, nil
}

// A fleet migrates to another kind of lock without a stop. A process of generation 2 excludes processes of
// generations 1 and 3.
func ExampleNewMigration() {
	server, client, end := embedded()
	defer end()
	ctx := context.Background()
	old, both, next, err := generations(client)
	must(err)

	lock := granted(both.Lock(ctx, "orders:42", redlatch.WithOwner("api-7")))
	fmt.Println("both keys:", server.Exists("orders:42"), server.Exists("v2:orders:42"))
	_, err = old.TryLock(ctx, "orders:42")
	fmt.Println(err)
	_, err = next.TryLock(ctx, "orders:42")
	fmt.Println(err)

	must(lock.Unlock(ctx))
	fmt.Println("both keys:", server.Exists("orders:42"), server.Exists("v2:orders:42"))
	// Output:
	// both keys: true true
	// redlatch: try lock "orders:42": held by another owner
	// redlatch: try lock "orders:42": held by "api-7"
	// both keys: false false
}

var errStale = errors.New("a newer lock has claimed this row")

// database is the part of *sql.DB, *sql.Conn and *sql.Tx that a fenced write needs.
type database interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

const claimOrder = `UPDATE orders SET fence = $1 WHERE id = $2 AND fence <= $1`

const setState = `UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND fence <= $2`

// claim keeps workers with older locks from changing an order. Read the order afterwards.
func claim(ctx context.Context, db database, id int, fence uint64) error {
	return oneRow(db.ExecContext(ctx, claimOrder, fence, id))
}

// changeState sets the state of an order, unless a newer lock has claimed it.
func changeState(ctx context.Context, db database, id int, state string, fence uint64) error {
	return oneRow(db.ExecContext(ctx, setState, state, fence, id))
}

// oneRow returns errStale if a statement has changed no row: a newer lock has claimed it, or there is no such order.
func oneRow(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err == nil && changed == 0 {
		err = errStale
	}
	return err
}

// orders stands in for a database. It has one row and knows two statements.
type orders struct {
	id    int
	state string
	fence uint64
}

func (o *orders) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	state := o.state
	switch query {
	case claimOrder:
	case setState:
		state, args = args[0].(string), args[1:]
	default:
		return nil, errors.New("unknown statement")
	}
	fence, id := args[0].(uint64), args[1].(int)
	if id != o.id || o.fence > fence {
		return driver.RowsAffected(0), nil
	}
	o.state, o.fence = state, fence
	return driver.RowsAffected(1), nil
}

// The protected resource refuses a fence that is lower than the highest it has seen. In SQL the fence is a column of
// the protected row: fence BIGINT NOT NULL DEFAULT 0. It must not be NULL, because a comparison with NULL is never true.
// A holder claims the row before it reads it, and may then change it many times. Here another holder was paused, its
// lease expired in Redis meanwhile, and both believe that they own the key.
func ExampleLock_Fence() {
	server, client, end := embedded()
	defer end()
	locker := made(redlatch.NewSetNXPX(client))
	paused := granted(locker.TryLock(context.Background(), "orders:42"))
	server.FastForward(time.Minute)
	next := granted(locker.TryLock(context.Background(), "orders:42"))

	ctx, db := context.Background(), &orders{id: 42, state: "new"}
	fmt.Println("next claims:", claim(ctx, db, 42, next.Fence()))
	fmt.Println("paused:", changeState(ctx, db, 42, "packed", paused.Fence()))
	fmt.Println("next:", changeState(ctx, db, 42, "sent", next.Fence()))
	fmt.Println("next:", changeState(ctx, db, 42, "delivered", next.Fence()))
	fmt.Println(db.state)
	// Output:
	// next claims: <nil>
	// paused: a newer lock has claimed this row
	// next: <nil>
	// next: <nil>
	// delivered
}

// next returns what a caller can do about err, which a call with ctx returned. The case of
// ErrMaxHold comes before the case of ErrLost, because ErrMaxHold matches both. next also checks
// ctx.Err, because the timeout of a dial also matches context.DeadlineExceeded.
func next(ctx context.Context, err error) string {
	switch {
	case err == nil:
		return "go on"
	case errors.Is(err, redlatch.ErrInvalid):
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
	// redlatch: lock "k": invalid argument: WithTTL(0s): below 3ms
	// => fix the program
	// redlatch: try lock "k": not replicated: 0 of 1 replicas confirmed it within 10ms
	// => too few replicas: try later
	// acquire needs 2 of 2 nodes, and one is dead
	// => too few nodes: try later
}
