package redlatch_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
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

// server is a database with one row, and knows two statements. Each connection is in one transaction at a time.
type server struct {
	mu  sync.Mutex // guards row
	row orders
}

func (s *server) Connect(context.Context) (driver.Conn, error) { return &connection{server: s}, nil }
func (s *server) Driver() driver.Driver                        { return nil }

type connection struct {
	server *server
	row    orders // as the transaction sees it
}

func (c *connection) Prepare(string) (driver.Stmt, error) {
	return nil, errors.New("unknown statement")
}
func (c *connection) Close() error { return nil }

func (c *connection) Begin() (driver.Tx, error) {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.row = c.server.row
	return c, nil
}

func (c *connection) Commit() error {
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	c.server.row = c.row
	fmt.Println("committed:", c.row.state)
	return nil
}

func (c *connection) Rollback() error { return nil }

func (c *connection) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	return c.row.ExecContext(ctx, query, args[0].Value, uint64(args[1].Value.(int64)), int(args[2].Value.(int64)))
}

func (c *connection) QueryContext(_ context.Context, query string, _ []driver.NamedValue) (driver.Rows, error) {
	if query != getState {
		return nil, errors.New("unknown statement")
	}
	return &rows{state: c.row.state}, nil
}

// rows are the result of getState.
type rows struct {
	state string
	read  bool
}

func (*rows) Columns() []string { return []string{"state"} }
func (*rows) Close() error      { return nil }

func (r *rows) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	dest[0], r.read = r.state, true
	return nil
}

// Several workers settle one order, and it is settled once. Each of them sees what the earlier ones have committed.
func Example_transaction() {
	_, client, end := embedded()
	defer end()
	ctx, locker := context.Background(), made(redlatch.NewSetNXPX(client))
	primary := sql.OpenDB(&server{row: orders{id: 42, state: "new"}})
	defer primary.Close()

	var workers sync.WaitGroup
	for range 5 {
		workers.Go(func() { must(settle(ctx, locker, primary, 42)) })
	}
	workers.Wait()
	// Output:
	// committed: settled
}

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
