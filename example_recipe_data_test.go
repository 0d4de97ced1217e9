package redlatch_test

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"sync"
	"sync/atomic"

	"github.com/redlatch/redlatch"
)

const getState = `SELECT state FROM orders WHERE id = $1`

// settle settles an order, once. It commits before it releases the lock.
func settle(ctx context.Context, locker redlatch.Locker, primary *sql.DB, id int) error {
	return redlatch.Do(ctx, locker, fmt.Sprint("orders:", id), func(ctx context.Context, lock *redlatch.Lock) error {
		tx, err := primary.BeginTx(ctx, nil) // if ctx ends, so does tx
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }() // does nothing after Commit
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

	held := granted(locker.TryLock(ctx, tenantKey("acme", "index")))
	fmt.Println(rebuild(ctx, "acme"))
	fmt.Println(rebuild(ctx, "a/b {c}"))
	must(held.Unlock(ctx))
	// Output:
	// redlatch: try lock "acme/index": held by another owner
	// rebuild a%2Fb%20%7Bc%7D/index true
	// <nil>
}
