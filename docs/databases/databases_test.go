//go:build unix

package databases_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// statements are those of a dialect, as the recipe has them. Their numbers are those of the arguments, in order.
type statements struct {
	claim, read, write string // of a worker that claims the row first
	replace            string // of a worker that writes where the row still has the fence that it has read
}

// recipe returns the statements that docs/recipes.md has for a dialect.
func recipe(t *testing.T, dialect string) statements {
	t.Helper()
	text, err := os.ReadFile("../recipes.md")
	require.NoError(t, err)
	block := regexp.MustCompile("(?s)```sql\n-- " + dialect + "[^\n]*\n(.*?)```").FindStringSubmatch(string(text))
	require.NotNil(t, block, dialect)
	lines := strings.Split(strings.TrimSpace(block[1]), ";\n")
	require.Len(t, lines, 4, dialect)
	return statements{lines[0], lines[1], lines[2], strings.TrimSuffix(lines[3], ";")}
}

// An executor is a database, or a transaction.
type executor interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// A worker adds an amount to the number that the state of an order is. It has read what it adds to before it writes.
type worker struct {
	statements
	positional bool // the dialect has no numbers for arguments
	fence      uint64
	amount     int

	state, seen int
	refused     bool
	confirmed   int
}

// changed runs a statement. If it changed no row, the worker has been refused and does no more.
func (w *worker) changed(t *testing.T, db executor, query string, args ...any) {
	result, err := db.ExecContext(t.Context(), query, args...)
	require.NoError(t, err)
	rows, err := result.RowsAffected()
	require.NoError(t, err)
	w.refused = rows == 0
}

func (w *worker) claimOrder(t *testing.T, db executor) {
	if w.positional {
		w.changed(t, db, w.claim, w.fence, 42, w.fence)
		return
	}
	w.changed(t, db, w.claim, w.fence, 42)
}

func (w *worker) readOrder(t *testing.T, db executor) {
	var state string
	require.NoError(t, db.QueryRowContext(t.Context(), w.read, 42).Scan(&state, &w.seen))
	var err error
	w.state, err = strconv.Atoi(state)
	require.NoError(t, err)
}

// writeWith writes where last allows it: the fence of the worker if it has claimed the row, or the fence that it has read.
func (w *worker) writeWith(t *testing.T, db executor, query string, last ...any) {
	state := strconv.Itoa(w.state + w.amount)
	args := []any{state, w.fence, 42}
	if w.positional {
		last = append([]any{w.fence}, last...)
	}
	w.changed(t, db, query, append(args, last...)...)
	if !w.refused {
		w.confirmed = w.amount
	}
}

func (w *worker) writeClaimed(t *testing.T, db executor) { w.writeWith(t, db, w.write) }

func (w *worker) writeUnchanged(t *testing.T, db executor) { w.writeWith(t, db, w.replace, w.seen) }

type step func(*worker, *testing.T, executor)

// each plays a test on each database that is installed.
func each(t *testing.T, test func(t *testing.T, db *sql.DB, s statements, positional bool)) {
	t.Run("SQLite", func(t *testing.T) { test(t, sqlite(t), recipe(t, "SQLite"), false) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, postgres(t), recipe(t, "PostgreSQL"), false) })
	t.Run("MySQL", func(t *testing.T) { test(t, mysql(t), recipe(t, "MySQL"), true) })
}

func begin(t *testing.T, db *sql.DB) {
	t.Helper()
	for _, statement := range []string{
		"DROP TABLE IF EXISTS orders",
		"CREATE TABLE orders (id BIGINT PRIMARY KEY, state VARCHAR(100) NOT NULL, fence BIGINT NOT NULL DEFAULT 0)",
	} {
		_, err := db.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}
	anew(t, db)
}

func anew(t *testing.T, db *sql.DB) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), "DELETE FROM orders")
	require.NoError(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO orders (id, state) VALUES (42, '0')")
	require.NoError(t, err)
}

// lost returns how much of what was confirmed the order does not have.
func lost(t *testing.T, db *sql.DB, workers ...*worker) int {
	t.Helper()
	var state string
	require.NoError(t, db.QueryRowContext(t.Context(), "SELECT state FROM orders").Scan(&state))
	rest, err := strconv.Atoi(state)
	require.NoError(t, err)
	sum := 0
	for _, w := range workers {
		sum += w.confirmed
	}
	return sum - rest
}

// interleavings calls play with each order of the steps of two workers, as a row of their numbers.
func interleavings(steps int, play func(order []int)) {
	var extend func(order []int, left [2]int)
	extend = func(order []int, left [2]int) {
		if left == [2]int{} {
			play(order)
		}
		for who, more := range left {
			if more > 0 {
				next := left
				next[who]--
				extend(append(slices.Clip(order), who), next)
			}
		}
	}
	extend(nil, [2]int{steps, steps})
}

// TestNoConfirmedWriteIsLost, whatever the order of the steps of two workers is, of which the older one has lost its lock.
// Workers that compare fences only when they write are the control: they lose some.
func TestNoConfirmedWriteIsLost(t *testing.T) {
	late := step((*worker).writeClaimed)
	recipes := map[string][]step{
		"claimed":     {(*worker).claimOrder, (*worker).readOrder, late},
		"unchanged":   {(*worker).readOrder, (*worker).writeUnchanged},
		"the control": {(*worker).readOrder, late},
	}
	each(t, func(t *testing.T, db *sql.DB, s statements, positional bool) {
		begin(t, db)
		for name, steps := range recipes {
			losses, both, played := 0, 0, 0
			interleavings(len(steps), func(order []int) {
				anew(t, db)
				workers := []*worker{
					{statements: s, positional: positional, fence: 1 << 40, amount: 1},
					{statements: s, positional: positional, fence: 1<<40 + 64, amount: 10},
				}
				done := [2]int{}
				for _, who := range order {
					if w := workers[who]; !w.refused {
						steps[done[who]](w, t, db)
					}
					done[who]++
				}
				played++
				if lost(t, db, workers...) != 0 {
					losses++
				}
				if workers[0].confirmed > 0 && workers[1].confirmed > 0 {
					both++
				}
				require.True(t, name == "unchanged" || workers[1].confirmed > 0, "%s: the holder was refused: %v", name, order)
			})
			require.Equal(t, name == "the control", losses > 0, "%s: %d of %d orders lost a confirmed write", name, losses, played)
			require.Positive(t, both, name)
		}
	})
}

// TestTransactionsLoseNoConfirmedWrite: workers that claim, read and write in one transaction run at once.
func TestTransactionsLoseNoConfirmedWrite(t *testing.T) {
	each(t, func(t *testing.T, db *sql.DB, s statements, positional bool) {
		begin(t, db)
		workers := make([]*worker, 16)
		failed := make(chan error, len(workers))
		for i := range workers {
			workers[i] = &worker{statements: s, positional: positional, fence: uint64(i + 1), amount: 1}
			go func() {
				failed <- workers[i].settle(t, db)
			}()
		}
		for range workers {
			require.NoError(t, <-failed)
		}
		require.Zero(t, lost(t, db, workers...))
		require.Positive(t, workers[len(workers)-1].confirmed, "the newest holder was refused")
	})
}

// settle claims, reads and writes in one transaction.
func (w *worker) settle(t *testing.T, db *sql.DB) (err error) {
	tx, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // it does nothing after Commit
	for _, next := range []step{(*worker).claimOrder, (*worker).readOrder, (*worker).writeClaimed} {
		if next(w, t, tx); w.refused {
			return nil
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("%d: %w", w.fence, err)
	}
	return nil
}
