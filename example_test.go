package redlatch_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

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

// must keeps the examples short: they run on an embedded Redis that answers.
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

// The address is that of any Redis; here it is an embedded one.
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
		fmt.Println(err) // ErrLost: somebody else may have been
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

	// Options to a constructor are defaults, options to a call override them.
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithTTL(30*time.Second), redlatch.WithKeyPrefix("shop:"))
	must(err)
	lock, err := locker.TryLock(ctx, "stock", redlatch.WithToken("worker-7"))
	must(err)
	fmt.Println(lock.Key(), "is kept as", client.Keys(ctx, "shop:*").Val(), "by", client.Get(ctx, "shop:stock").Val())

	_, err = locker.TryLock(ctx, "stock")
	fmt.Println(err)
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// stock is kept as [shop:stock] by worker-7
	// redlatch: try lock "stock": held by another owner
	// <nil>
}

// Three nodes that know nothing of each other keep the lock. It is granted while two of them
// answer.
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

// A program in another language locks by SETNX with the time when its lock ends. The two exclude
// each other.
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
	client.Del(ctx, "nightly") // they are done

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

var errStale = errors.New("a newer lock has written here")

// register is a value in memory that only the newest lock may write.
type register struct {
	mu    sync.Mutex // guards the fields below
	fence uint64     // the highest that was seen
	value string
}

// write sets the value for the holder of the lock with that fence. The same holder may write again.
func (r *register) write(fence uint64, value string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if fence < r.fence {
		return errStale
	}
	r.fence, r.value = fence, value
	return nil
}

// twoHolders returns two locks on one key whose holders both believe in theirs. The first was
// paused, and its lease ended in Redis meanwhile.
func twoHolders() (paused, next *redlatch.Lock, end func()) {
	server, client, end := embedded()
	locker := made(redlatch.NewSetNXPX(client))
	paused = granted(locker.TryLock(context.Background(), "orders:42"))
	server.FastForward(time.Minute) // in Redis, and not for the holder
	next = granted(locker.TryLock(context.Background(), "orders:42"))
	return paused, next, end
}

// The protected resource remembers the highest fence that it saw and refuses a lower one. Here it
// is a value in memory.
func ExampleLock_Fence() {
	paused, next, end := twoHolders()
	defer end()
	var r register
	fmt.Println("next:", r.write(next.Fence(), "sent"))
	fmt.Println("next:", r.write(next.Fence(), "delivered"))
	fmt.Println("paused:", r.write(paused.Fence(), "packed"))
	fmt.Println(r.value)
	// Output:
	// next: <nil>
	// next: <nil>
	// paused: a newer lock has written here
	// delivered
}

// write is the same for a value that is kept in Redis.
//
//	KEYS[1] a hash: the value, and the highest fence that was seen
//	ARGV[1] the fence of the writer's lock
//	ARGV[2] the value
var write = redis.NewScript(`
local seen = redis.call('HGET', KEYS[1], 'fence')
if seen and tonumber(ARGV[1]) < tonumber(seen) then
  return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1`)

// A script checks the fence and writes in one step.
func ExampleLock_Fence_redis() {
	paused, next, end := twoHolders()
	defer end()
	_, client, endData := embedded() // the data may live on another Redis than the locks
	defer endData()
	ctx := context.Background()

	for _, lock := range []*redlatch.Lock{next, paused} {
		value := "by " + map[*redlatch.Lock]string{next: "next", paused: "paused"}[lock]
		written, err := write.Run(ctx, client, []string{"state:42"}, lock.Fence(), value).Bool()
		fmt.Println(value, "written:", written, err)
	}
	fmt.Println(client.HGet(ctx, "state:42", "value").Val())
	// Output:
	// by next written: true <nil>
	// by paused written: false <nil>
	// by next
}

// database is what a fenced write needs of *sql.DB, *sql.Conn or *sql.Tx.
type database interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

const setState = `UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND fence < $2`

// changeState sets the state of an order, unless a newer lock has, or this lock itself.
func changeState(ctx context.Context, db database, id int, state string, fence uint64) error {
	result, err := db.ExecContext(ctx, setState, state, fence, id)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err == nil && changed == 0 {
		err = errStale
	}
	return err
}

// orders stands in for a database. It has one row and knows one statement.
type orders struct {
	id    int
	state string
	fence uint64
}

func (o *orders) ExecContext(_ context.Context, query string, args ...any) (sql.Result, error) {
	if query != setState {
		return nil, errors.New("unknown statement")
	}
	state, fence, id := args[0].(string), args[1].(uint64), args[2].(int)
	if id != o.id || o.fence >= fence {
		return driver.RowsAffected(0), nil
	}
	o.state, o.fence = state, fence
	return driver.RowsAffected(1), nil
}

// In SQL the fence is a column of the protected row. Each lock may change it once: where one lock
// makes several changes, compare with <= instead.
func ExampleLock_Fence_sql() {
	paused, next, end := twoHolders()
	defer end()
	ctx, db := context.Background(), &orders{id: 42, state: "new"}
	fmt.Println("next:", changeState(ctx, db, 42, "sent", next.Fence()))
	fmt.Println("paused:", changeState(ctx, db, 42, "packed", paused.Fence()))
	fmt.Println(db.state)
	// Output:
	// next: <nil>
	// paused: a newer lock has written here
	// sent
}

// Work that heeds the lock's context stops when the lock is lost: here its key is deleted, and the
// next renewal finds out.
func ExampleLock_Context() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client, redlatch.WithTTL(time.Second)))

	lock, err := locker.Lock(ctx, "report")
	must(err)
	server.Del("report")
	working := lock.Context(ctx)
	<-working.Done()
	cause := context.Cause(working)
	fmt.Println(cause, errors.Is(cause, redlatch.ErrLost))
	fmt.Println(lock.Unlock(ctx))
	// Output:
	// redlatch: lock lost true
	// redlatch: unlock "report": lock lost
}

// A job that is handed from one process to another keeps its lock: the token goes along.
func ExampleLocker_Adopt() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	lock, err := locker.Lock(ctx, "export", redlatch.WithoutRenewal())
	must(err)
	token := lock.Token() // sent to the process that carries on

	adopted, err := locker.Adopt(ctx, "export", token)
	must(err)
	fmt.Println("same grant:", adopted.Fence() == lock.Fence())
	fmt.Println("unlock:", adopted.Unlock(ctx))

	_, err = locker.Adopt(ctx, "export", token)
	fmt.Println(err)
	// Output:
	// same grant: true
	// unlock: <nil>
	// redlatch: adopt "export": lock lost
}

// Who holds a key, for people and dashboards. TTL is in nanoseconds.
func ExampleLocker_Inspect() {
	server, client, end := embedded()
	defer end()
	server.SetTime(time.Date(2026, time.January, 1, 0, 0, 0, 0, time.UTC))
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	lock, err := locker.Lock(ctx, "export", redlatch.WithToken("worker-7"))
	must(err)
	status, err := locker.Inspect(ctx, "export")
	must(err)
	text, err := json.Marshal(status)
	must(err)
	fmt.Println(string(text))
	must(lock.Unlock(ctx))
	// Output:
	// {"held":true,"token":"worker-7","ttl_ns":10000000000,"fence":1767225600000000}
}

func ExampleSlogHooks() {
	server, client, end := embedded()
	defer end()
	ctx := context.Background()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{
		Level: slog.LevelDebug,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			switch a.Key {
			case slog.TimeKey, "fence", "elapsed": // another one at each run
				return slog.Attr{}
			}
			return a
		},
	}))
	locker := made(redlatch.NewSetNXPX(client, redlatch.WithHooks(redlatch.SlogHooks(logger))))

	lock := granted(locker.Lock(ctx, "export", redlatch.WithToken("worker-7")))
	server.Del("export")
	_ = lock.Unlock(ctx) // the hooks have told
	// Output:
	// level=DEBUG msg="lock acquired" strategy=setnxpx key=export token=worker-7 attempts=1
	// level=ERROR msg="lock lost" strategy=setnxpx key=export token=worker-7 attempts=0 error="redlatch: lock lost"
}

// Hooks feed metrics. Any may be left out, and JoinHooks makes one of several.
func ExampleWithHooks() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()
	counts := make(map[string]int) // hooks may run concurrently; here nothing does
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

// next says what a caller can do about an error. ErrMaxHold stands before ErrLost, which it
// matches too.
func next(err error) string {
	switch {
	case err == nil:
		return "go on"
	case errors.Is(err, redlatch.ErrInvalidOption):
		return "mend the program"
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
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
	default:
		return "Redis is in trouble: try later"
	}
}

// What each error looks like to a caller, and what it can do next.
func Example_errors() {
	server, client, end := embedded()
	defer end()
	ctx := context.Background()
	show := func(err error) { fmt.Printf("%v\n=> %s\n", err, next(err)) }

	locker := made(redlatch.NewSetNXPX(client))
	lock := granted(locker.Lock(ctx, "k"))
	_, err := locker.TryLock(ctx, "k")
	show(err)
	impatient, cancel := context.WithCancel(ctx)
	cancel()
	_, err = locker.Lock(impatient, "k")
	show(err)

	server.Del("k") // or it expired, or somebody took it
	show(lock.Unlock(ctx))
	show(lock.Unlock(ctx))
	short := granted(locker.Lock(ctx, "k", redlatch.WithMaxHold(200*time.Millisecond)))
	<-short.Done()
	show(short.Unlock(ctx))

	_, err = locker.Lock(ctx, "k", redlatch.WithTTL(0))
	show(err)

	dead, unreachable, endDead := embedded()
	defer endDead()
	dead.Close()
	quorum := made(redlatch.NewRedlock([]redis.UniversalClient{client, unreachable}, redlatch.WithOpTimeout(100*time.Millisecond)))
	_, err = quorum.TryLock(ctx, "k")
	var q *redlatch.QuorumError
	if errors.As(err, &q) {
		fmt.Printf("%s needs %d of %d nodes, and one is dead\n=> %s\n", q.Op, q.Need, len(q.Nodes), next(err))
	}
	// Output:
	// redlatch: try lock "k": held by another owner
	// => somebody else is at it
	// redlatch: lock "k": gave up waiting: context canceled
	// => time is up
	// redlatch: unlock "k": lock lost
	// => not alone: check the work
	// redlatch: unlock "k": lock already released
	// => unlocked before
	// redlatch: unlock "k": lock lost: held for as long as WithMaxHold allows
	// => too slow: check the work
	// redlatch: lock "k": invalid option: WithTTL(0s): below 1ms
	// => mend the program
	// acquire needs 2 of 2 nodes, and one is dead
	// => too few nodes: try later
}

// A test of code that locks runs on an embedded Redis. In a bubble of testing/synctest an hour
// takes no time.
func TestNightlyJobKeepsItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := miniredis.NewMiniRedis()
		server.ClockTTL(true) // keys expire by the bubble's clock
		defer server.Close()
		client := redis.NewClient(&redis.Options{
			Addr:   "127.0.0.1:6379", // an IP address: a name would be looked up outside the bubble
			Dialer: func(context.Context, string, string) (net.Conn, error) { return server.Dial() },
		})
		defer client.Close()
		locker, err := redlatch.NewSetNXPX(client)
		require.NoError(t, err)

		lock, err := locker.Lock(t.Context(), "nightly")
		require.NoError(t, err)
		time.Sleep(time.Hour) // the job
		require.NoError(t, lock.Err())
		require.NoError(t, lock.Unlock(t.Context()))
		time.Sleep(time.Minute) // what waiters left open is closed
	})
}
