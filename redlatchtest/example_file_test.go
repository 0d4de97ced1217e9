package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// Payments is the code under test. It takes one payment at a time for each cart.
type Payments struct {
	Locker redlatch.Locker
	Charge func(ctx context.Context) error
}

func (p *Payments) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := "cart:" + r.URL.Query().Get("cart")
	err := redlatch.TryDo(r.Context(), p.Locker, key, func(ctx context.Context, _ *redlatch.Lock) error {
		return p.Charge(ctx) // ctx ends when the lock is lost
	})
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		http.Error(w, "another payment is under way", http.StatusConflict)
	case errors.Is(err, redlatch.ErrUnavailable):
		http.Error(w, "try again", http.StatusServiceUnavailable)
	case err != nil:
		http.Error(w, err.Error(), http.StatusInternalServerError)
	}
}

// A test simulates another owner, and looks at what the code answers.
func Example() {
	t := new(testing.T) // in a test, its argument

	locker := redlatchtest.NewLocker(t, redlatch.WithTTL(time.Minute))
	payments := &Payments{Locker: locker, Charge: func(ctx context.Context) error { return ctx.Err() }}
	pay := func() int {
		answer := httptest.NewRecorder()
		payments.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/payment?cart=7", nil))
		return answer.Code
	}
	fmt.Println("nobody holds the key:", pay())

	locker.Hold("cart:7")
	fmt.Println("somebody else holds it:", pay())

	locker.Free("cart:7")
	payments.Charge = func(context.Context) error {
		locker.Steal("cart:7")
		return nil
	}
	fmt.Println("the lock is lost meanwhile:", pay())

	// Output:
	// nobody holds the key: 200
	// somebody else holds it: 409
	// the lock is lost meanwhile: 500
}
