package redlatch_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// till is a handler that works on one cart at a time.
type till struct {
	locker   redlatch.Locker
	patience time.Duration // how long a request may wait for its turn
}

func (h *till) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	turn, cancel := context.WithTimeout(r.Context(), h.patience)
	lock, err := h.locker.Lock(turn, "cart:"+r.PathValue("id"))
	cancel() // turn limits the wait, not the work
	var holder *redlatch.HeldError
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		seconds := 1.0
		if errors.As(err, &holder) {
			seconds = min(max(math.Ceil(holder.TTL.Seconds()), 1), 30) // the holder may release it much sooner
		}
		w.Header().Set("Retry-After", fmt.Sprint(seconds))
		http.Error(w, "this cart is being paid for", http.StatusConflict)
		return
	case errors.Is(err, redlatch.ErrUnavailable):
		w.Header().Set("Retry-After", "5")
		http.Error(w, "try again later", http.StatusServiceUnavailable)
		return
	case err != nil:
		http.Error(w, "not paid", http.StatusInternalServerError)
		return
	}
	defer func() {
		if err := lock.Unlock(r.Context()); err != nil { // releases even if the client has left
			log.Print(err)
		}
	}()
	if err := pay(lock.Context(r.Context()), r.PathValue("id"), lock.Fence()); err != nil {
		http.Error(w, "not paid", http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, "paid")
}

// pay stands in for the work. It stops when ctx ends. ctx ends with the request or with the lock.
func pay(ctx context.Context, _ string, _ uint64) error { return ctx.Err() }

// A handler works under a lock, and limits how long a request waits for the lock.
func Example_httpHandler() {
	server, client, end := embedded()
	defer end()
	ctx := context.Background()
	site := func(locker redlatch.Locker) http.Handler {
		mux := http.NewServeMux()
		mux.Handle("POST /carts/{id}/payment", &till{locker, 2 * time.Second})
		return mux
	}
	post := func(site http.Handler, cart int) {
		answer := httptest.NewRecorder()
		site.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, fmt.Sprintf("/carts/%d/payment", cart), nil))
		fmt.Printf("%d, Retry-After %q: %s", answer.Code, answer.Header().Get("Retry-After"), answer.Body)
	}

	shop := site(made(redlatch.NewSetNXPX(client)))
	post(shop, 7)
	another := redis.NewClient(&redis.Options{Addr: server.Addr()}) // on another host
	defer another.Close()
	lock := granted(made(redlatch.NewSetNXPX(another, redlatch.WithoutRenewal())).Lock(ctx, "cart:7"))
	post(shop, 7)
	must(lock.Unlock(ctx))
	server.SetError("OOM command not allowed when used memory > 'maxmemory'")
	post(shop, 8)
	server.SetError("")
	silent, err := net.Listen("tcp", "127.0.0.1:0") // accepts connections, and never replies
	must(err)
	defer silent.Close()
	client = redis.NewClient(&redis.Options{Addr: silent.Addr().String()})
	defer client.Close()
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithOpTimeout(100*time.Millisecond))
	must(err)
	post(site(locker), 9)
	// Output:
	// 200, Retry-After "": paid
	// 409, Retry-After "10": this cart is being paid for
	// 503, Retry-After "5": try again later
	// 503, Retry-After "5": try again later
}
