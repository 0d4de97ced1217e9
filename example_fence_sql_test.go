package redlatch_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
)

// database is the part of *sql.DB, *sql.Conn and *sql.Tx that a fenced write needs.
type database interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

const setState = `UPDATE orders SET state = $1, fence = $2 WHERE id = $3 AND fence <= $2`

// changeState sets the state of an order, unless a newer lock has set it.
func changeState(ctx context.Context, db database, id int, state string, fence uint64) error {
	result, err := db.ExecContext(ctx, setState, state, fence, id)
	if err != nil {
		return err
	}
	changed, err := result.RowsAffected()
	if err == nil && changed == 0 { // a newer lock has set it, or there is no such order
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
	if id != o.id || o.fence > fence {
		return driver.RowsAffected(0), nil
	}
	o.state, o.fence = state, fence
	return driver.RowsAffected(1), nil
}

// In SQL the fence is a column of the protected row: fence BIGINT NOT NULL DEFAULT 0. It must not be NULL,
// since a comparison with NULL is never true. The holder of a lock may change the row many times.
func ExampleLock_Fence_sql() {
	paused, next, end := twoHolders()
	defer end()
	ctx, db := context.Background(), &orders{id: 42, state: "new"}
	fmt.Println("next:", changeState(ctx, db, 42, "sent", next.Fence()))
	fmt.Println("next:", changeState(ctx, db, 42, "delivered", next.Fence()))
	fmt.Println("paused:", changeState(ctx, db, 42, "packed", paused.Fence()))
	fmt.Println(db.state)
	// Output:
	// next: <nil>
	// next: <nil>
	// paused: a newer lock has written here
	// delivered
}
