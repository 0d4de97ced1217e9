package redlatch_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// The examples of docs/recipes.md are here, except those that example_test.go has.

// scheduler stands in for one of a library, which puts tasks into a queue by a schedule.
type scheduler struct{ started func() }

func (s *scheduler) Start() error {
	fmt.Println("tasks are scheduled here")
	s.started()
	return nil
}

func (*scheduler) Shutdown() { fmt.Println("and no longer") }

// Many instances have a scheduler. It runs on one of them, and stops when the lock is lost, or with
// its process.
func ExampleLead() {
	server, client, end := embedded()
	defer end()
	locker := made(redlatch.NewSetNXPX(client))
	ctx, cancel := context.WithCancel(context.Background()) // in a program, ctx ends at shutdown
	defer cancel()
	newScheduler := func() *scheduler { return &scheduler{started: cancel} } // so the example ends

	err := redlatch.Lead(ctx, locker, "scheduler", func(ctx context.Context, _ *redlatch.Lock) error {
		s := newScheduler() // a new one for each term: many cannot be started twice
		if err := s.Start(); err != nil {
			return err // Hooks.Trouble reports it, and Lead waits for the lock again
		}
		<-ctx.Done() // the lock is lost, or the process stops
		s.Shutdown() // before return, which releases the lock
		return nil
	}, redlatch.WithOwner("host-7"))

	fmt.Println(err)
	fmt.Println("released:", !server.Exists("scheduler"))
	// Output:
	// tasks are scheduled here
	// and no longer
	// redlatch: lead "scheduler": context canceled
	// released: true
}

// A leader whose work is finished ends Lead.
func ExampleLead_finished() {
	_, client, end := embedded()
	defer end()
	locker := made(redlatch.NewSetNXPX(client))
	err := redlatch.Lead(context.Background(), locker, "import", func(context.Context, *redlatch.Lock) error {
		fmt.Println("everything is imported")
		return redlatch.ErrStop // any other error would go to Hooks.Trouble, and begin another term
	})
	fmt.Println(err)
	// Output:
	// everything is imported
	// <nil>
}

// A report is made once a day, on any host. One that failed is made again at the next attempt.
func ExampleLock_UnlockAfter() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	var attempts int
	makeReport := func(context.Context) error {
		if attempts++; attempts == 1 {
			return errors.New("no paper")
		}
		return nil
	}

	attempt := func() error {
		err := redlatch.TryDo(ctx, locker, "report", func(ctx context.Context, lock *redlatch.Lock) error {
			if err := makeReport(ctx); err != nil {
				return err // the lock is released: the next attempt may run
			}
			return lock.UnlockAfter(ctx, 23*time.Hour) // from now on, a little less than a day
		})
		var held *redlatch.HeldError
		if errors.As(err, &held) && held.Kept {
			return nil // it was made
		}
		return err // ErrNotAcquired: another host makes it now, and may fail
	}

	for range 3 {
		fmt.Println(attempt(), attempts)
	}
	server.FastForward(24 * time.Hour)
	fmt.Println(attempt(), attempts)
	// Output:
	// no paper 1
	// <nil> 2
	// <nil> 2
	// <nil> 3
}

// Somebody wants the report again before the end of its min hold.
func ExampleForget() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	must(granted(locker.Lock(ctx, "report")).UnlockAfter(ctx, 23*time.Hour))

	must(redlatch.Forget(ctx, locker, "report"))
	lock, err := locker.TryLock(ctx, "report")
	fmt.Println(lock.Key(), err)
	// Output: report <nil>
}

var (
	errDone = errors.New("an earlier request has done it")
	errRuns = errors.New("an earlier request is under way")
)

// once runs work once a day for a key. It returns errDone if an earlier request has succeeded, and errRuns if one is
// under way. If work fails, or its process crashes, the next request runs it again.
func once(ctx context.Context, locker redlatch.Locker, key string, work func(ctx context.Context, fence uint64) error) error {
	err := redlatch.TryDo(ctx, locker, "request:"+key, func(ctx context.Context, lock *redlatch.Lock) error {
		if err := work(ctx, lock.Fence()); err != nil {
			return err
		}
		return lock.UnlockAfter(ctx, 24*time.Hour)
	})
	var held *redlatch.HeldError
	switch {
	case errors.As(err, &held) && held.Kept:
		return errDone // answer as the first time: read the result where work has stored it
	case errors.Is(err, redlatch.ErrNotAcquired):
		return errRuns // answer 409 with Retry-After
	}
	return err
}

// A payment is made once for each idempotency key, however often the client asks for it.
func ExampleHeldError() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))

	pay := func(ctx context.Context, _ uint64) error {
		again := once(ctx, locker, "7f3a", func(context.Context, uint64) error { panic("paid twice") })
		fmt.Println("meanwhile:", again)
		return nil
	}
	fmt.Println("first:", once(ctx, locker, "7f3a", pay))
	fmt.Println("again:", once(ctx, locker, "7f3a", pay))
	// Output:
	// meanwhile: an earlier request is under way
	// first: <nil>
	// again: an earlier request has done it
}

// A job that takes too long loses its lock, and its ctx ends.
func ExampleWithMaxHold() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	limit := time.Second
	importAll := func(ctx context.Context, _ *redlatch.Lock) error {
		<-ctx.Done() // a source that does not answer
		return ctx.Err()
	}

	err := redlatch.TryDo(ctx, locker, "import", importAll, redlatch.WithMaxHold(limit)) // such as an hour
	if errors.Is(err, redlatch.ErrMaxHold) {
		fmt.Println("the import took too long and was stopped")
	}
	// Output:
	// the import took too long and was stopped
}

// A serverless function holds a lock while it handles an event. Its platform may freeze it at any time, and thaw it later.
func Example_serverless() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client)) // made once for each process
	db := &orders{id: 42, state: "new"}
	const limit = 30 * time.Second
	pack := func(context.Context, int) error { return nil }

	// handle handles an event. The platform ends it after limit.
	handle := func(ctx context.Context, order int) error {
		return redlatch.TryDo(ctx, locker, fmt.Sprint("orders:", order), func(ctx context.Context, lock *redlatch.Lock) error {
			if err := pack(ctx, order); err != nil {
				return err
			}
			return changeState(ctx, db, order, "packed", lock.Fence()) // refused if the process was frozen for too long
		}, redlatch.WithoutRenewal(), redlatch.WithTTL(limit+10*time.Second))
	}

	fmt.Println(handle(ctx, 42), db.state)
	// Output:
	// <nil> packed
}

const getState = `SELECT state FROM orders WHERE id = $1`

// settle settles an order, once. It commits before it releases the lock.
func settle(ctx context.Context, locker redlatch.Locker, primary *sql.DB, id int) error {
	return redlatch.Do(ctx, locker, fmt.Sprint("orders:", id), func(ctx context.Context, lock *redlatch.Lock) error {
		tx, err := primary.BeginTx(ctx, nil) // if ctx ends, so does tx
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
		if err := claim(ctx, tx, id, lock.Fence()); err != nil {
			return err // before anything is read: older transactions have ended, or will be refused
		}
		var state string
		if err := tx.QueryRowContext(ctx, getState, id).Scan(&state); err != nil || state == "settled" {
			return err // nothing to do: somebody has settled it during the wait
		}
		if err := changeState(ctx, tx, id, "settled", lock.Fence()); err != nil {
			return err
		}
		return tx.Commit()
	})
}

var _ = settle // it needs a database, so it is compiled only

// Several callers need one thumbnail. The first one makes it, and the others wait for it.
func Example_lookAgain() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	var store sync.Map
	var made atomic.Int64
	scale := func(ctx context.Context, name string) error {
		made.Add(1)
		store.Store(name, "a small picture")
		return ctx.Err()
	}
	exists := func(_ context.Context, name string) (bool, error) {
		_, ok := store.Load(name)
		return ok, nil
	}

	thumbnail := func(ctx context.Context, name string) error {
		return redlatch.Do(ctx, locker, "thumbnail:"+name, func(ctx context.Context, _ *redlatch.Lock) error {
			if done, err := exists(ctx, name); err != nil || done {
				return err // somebody has made it during the wait
			}
			return scale(ctx, name)
		})
	}

	var callers sync.WaitGroup
	for range 5 {
		callers.Go(func() { must(thumbnail(ctx, "cat.jpg")) })
	}
	callers.Wait()
	fmt.Println("made:", made.Load())
	// Output:
	// made: 1
}

// tenantKey returns the key of a lock of a tenant. The escaped name has no slash, so tenants have no keys in common.
func tenantKey(tenant, name string) string { return url.PathEscape(tenant) + "/" + name }

// The tenants of a service share one Locker.
func Example_tenants() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()

	locker, err := redlatch.NewSetNXPX(client, redlatch.WithKeyPrefix("lock:")) // one for all tenants
	must(err)
	rebuild := func(ctx context.Context, tenant string) error {
		return redlatch.TryDo(ctx, locker, tenantKey(tenant, "index"), func(ctx context.Context, lock *redlatch.Lock) error {
			fmt.Println("rebuild", lock.Key(), client.Exists(ctx, "lock:"+lock.Key()).Val() == 1)
			return nil
		})
	}

	fmt.Println(rebuild(ctx, "a/b {c}"))
	// Output:
	// rebuild a%2Fb%20%7Bc%7D/index true
	// <nil>
}

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
	fmt.Println("the holder:", hung.Unlock(ctx))
	must(next.Unlock(ctx))
	// Output:
	// held by host-7
	// again: redlatch: adopt "import": lock lost: another owner has the key
	// the holder: redlatch: unlock "import": lock lost: the key is gone (expired, deleted or evicted), or another owner has it
}

// A leakFinder knows where the locks that are held were acquired. Its hooks belong to all Lockers that it watches.
type leakFinder struct {
	held sync.Map // origin by grant
}

type (
	grant struct {
		key   string
		fence uint64
	}
	origin struct {
		since time.Time
		stack string
	}
)

func (f *leakFinder) hooks() redlatch.Hooks {
	ended := func(_ context.Context, e redlatch.Event) { f.held.Delete(grant{e.Key, e.Fence}) }
	return redlatch.Hooks{
		Acquired: func(_ context.Context, e redlatch.Event) { // in the goroutine of the caller
			f.held.Store(grant{e.Key, e.Fence}, origin{time.Now(), string(debug.Stack())})
		},
		Released: ended, Lost: ended,
	}
}

// leaks returns the keys of locks that are held for longer than limit, with the stacks of the calls that acquired them.
func (f *leakFinder) leaks(limit time.Duration) map[string]string {
	found := make(map[string]string)
	f.held.Range(func(g, o any) bool {
		if time.Since(o.(origin).since) > limit {
			found[g.(grant).key] = o.(origin).stack
		}
		return true
	})
	return found
}

// A function returns early and forgets its lock, which is renewed as long as something refers to it.
func Example_leakedLocks() {
	_, client, end := embedded()
	defer end()
	ctx := context.Background()
	var finder leakFinder
	locker := made(redlatch.NewSetNXPX(client, redlatch.WithHooks(finder.hooks())))
	forgetful := func() *redlatch.Lock { return granted(locker.Lock(ctx, "orders:42")) }

	lock := forgetful()
	must(granted(locker.Lock(ctx, "orders:43")).Unlock(ctx))
	for key, stack := range finder.leaks(0) { // in a service, every minute, with a limit above the longest work
		fmt.Println(key, strings.Contains(stack, "Example_leakedLocks"))
	}
	must(lock.Unlock(ctx))
	fmt.Println(finder.leaks(0))
	// Output:
	// orders:42 true
	// map[]
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

var _, _ = newOnSentinel, newOnCluster // they need servers, so they are compiled only

// resume returns the lock of a run that crashed, whose token is in file. If there is none, or if it has ended, resume
// acquires a new lock and stores its token.
func resume(ctx context.Context, locker redlatch.Locker, key, file string) (*redlatch.Lock, error) {
	token, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if len(token) > 0 {
		lock, err := locker.Adopt(ctx, key, redlatch.Token(token))
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

// A job keeps its lock from one process to another, since its token is stored. Here it is started again after a crash,
// and adopts the lock of its first run.
func ExampleLocker_Adopt() {
	server, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client, redlatch.WithOwner("host-7")))
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
	// Output:
	// others: redlatch: try lock "import": held by "host-7"
	// the same lock: true
	// a higher fence: true
	// released: true
}

// TestRecipesTellTheirKeyFromOthers: the work of a recipe needs a lock that is held, or is kept, or
// its Redis is away. No recipe answers that somebody else does the work, or has done it.
func TestRecipesTellTheirKeyFromOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker, away := redlatchtest.NewLocker(t), redlatchtest.NewLocker(t)
		ctx := t.Context()
		locker.Hold("held")
		kept, err := locker.Lock(ctx, "kept")
		require.NoError(t, err)
		require.NoError(t, kept.UnlockAfter(ctx, time.Hour))
		away.Disconnect()
		nothing := func(context.Context, *redlatch.Lock) error { return nil }
		for _, work := range []func(context.Context) error{
			func(ctx context.Context) error { return redlatch.TryDo(ctx, locker, "held", nothing) },
			func(ctx context.Context) error { return redlatch.TryDo(ctx, locker, "kept", nothing) },
			func(ctx context.Context) error { return redlatch.TryDo(ctx, away, "k", nothing) },
		} {
			want := work(ctx)
			require.Error(t, want)
			err := once(ctx, locker, "7f3a", func(ctx context.Context, _ uint64) error { return work(ctx) })
			require.NotErrorIs(t, err, errDone)
			require.NotErrorIs(t, err, errRuns)
			require.EqualError(t, err, want.Error())

			answer, request := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil)
			shop := &till{locker: locker, patience: time.Second, pay: func(ctx context.Context, _ string, _ uint64) error { return work(ctx) }}
			shop.ServeHTTP(answer, request)
			require.Equal(t, http.StatusInternalServerError, answer.Code)
		}
		require.NoError(t, once(ctx, locker, "7f3a", func(context.Context, uint64) error { return nil }))
		require.ErrorIs(t, once(ctx, locker, "7f3a", nil), errDone)
	})
}

// TestHealthCheckNamesNoLeaderThatWasCutOff: the recipe names a leader only while it may lead. From
// the moment that another process can lead, and after the end of Run, it does not.
func TestHealthCheckNamesNoLeaderThatWasCutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlatchtest.NewLocker(t)
		election, check, err := newHost(locker.Client(), "mine")
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := make(chan error, 1)
		go func() { ended <- election.Run(ctx, schedule) }()
		answer := func() string {
			w := httptest.NewRecorder()
			check(w, nil)
			return fmt.Sprint(w.Code, " ", strings.TrimSpace(w.Body.String()))
		}
		becomes := func(want string) {
			t.Helper()
			for begin := time.Now(); answer() != want; time.Sleep(time.Millisecond) {
				require.Less(t, time.Since(begin), time.Minute, answer())
			}
		}
		const nobody = "503 leader: nobody, as far as known"
		becomes("200 leader: mine")
		locker.Disconnect()
		becomes(nobody)
		time.Sleep(time.Second) // the lock ends a little before its key
		locker.Hold("scheduler")
		for range 60 { // in the partition
			time.Sleep(time.Second)
			require.Equal(t, nobody, answer())
		}
		locker.Reconnect()
		becomes("503 leader: somebody else")
		locker.Free("scheduler")
		becomes("200 leader: mine")
		cancel()
		require.ErrorIs(t, <-ended, context.Canceled)
		require.Equal(t, nobody, answer())
	})
}
