package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// till is a handler that works on one cart at a time.
type till struct {
	locker   redlatch.Locker
	patience time.Duration // how long a request may wait for its turn

	// pay stops when ctx ends: the request has ended, or the lock. If it fails, nothing was paid.
	pay func(ctx context.Context, cart string, fence uint64) error
}

func (h *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := redlatch.Do(r.Context(), h.locker, "cart:"+r.PathValue("id"), func(ctx context.Context, lock *redlatch.Lock) error {
		return h.pay(ctx, r.PathValue("id"), lock.Fence())
	}, redlatch.WithMaxWait(h.patience))
	switch {
	case err == nil:
		fmt.Fprintln(w, "paid")
	case errors.Is(err, redlatch.ErrNotAcquired):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "this cart is being paid for", http.StatusConflict)
	case errors.Is(err, redlatch.ErrUnavailable):
		w.Header().Set("Retry-After", "5")
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	case errors.Is(err, redlatch.ErrLost): // pay was called, and another request may have paid at the same time
		http.Error(w, "perhaps paid: look at the cart", http.StatusInternalServerError)
	default: // the error of pay
		http.Error(w, "not paid", http.StatusInternalServerError)
	}
}

// A handler works under a lock, and limits how long a request waits for the lock. The Redis of this example is inside
// the process.
func Example_httpHandler() {
	server := miniredis.NewMiniRedis()
	if err := server.Start(); err != nil {
		log.Fatal(err)
	}
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	locker, err := redlatch.NewSetNXPX(client)
	if err != nil {
		log.Fatal(err) //nolint:gocritic // the client ends with the process
	}

	h := &till{locker: locker, patience: time.Second}
	site := http.NewServeMux()
	site.Handle("POST /carts/{id}/payment", h)
	post := func(cart int) {
		answer := httptest.NewRecorder()
		site.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, fmt.Sprintf("/carts/%d/payment", cart), nil))
		fmt.Printf("%d, Retry-After %q: %s", answer.Code, answer.Header().Get("Retry-After"), answer.Body)
	}

	h.pay = func(context.Context, string, uint64) error { return nil }
	post(7)
	h.pay = func(context.Context, string, uint64) error { return errors.New("the card was refused") }
	post(7)
	h.pay = func(context.Context, string, uint64) error {
		server.Del("cart:7") // Redis loses the lock
		return nil
	}
	post(7)

	// This process has the lock already.
	lock, err := locker.TryLock(context.Background(), "cart:7")
	if err != nil {
		log.Fatal(err)
	}
	post(7)
	if err := lock.Unlock(context.Background()); err != nil {
		log.Fatal(err)
	}
	server.SetError("OOM command not allowed when used memory > 'maxmemory'")
	post(7)
	// Output:
	// 200, Retry-After "": paid
	// 500, Retry-After "": not paid
	// 500, Retry-After "": perhaps paid: look at the cart
	// 409, Retry-After "1": this cart is being paid for
	// 503, Retry-After "5": try again later
}
