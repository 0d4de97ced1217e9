package redlatchtest_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// The code of docs/testing.md is here. First what is tested: a handler and two jobs that lock.

// handler takes payments for carts, one at a time for each cart.
func handler(locker redlatch.Locker) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /carts/{id}/payment", func(w http.ResponseWriter, r *http.Request) {
		lock, err := locker.TryLock(r.Context(), "cart:"+r.PathValue("id"))
		switch {
		case errors.Is(err, redlatch.ErrNotAcquired):
			w.WriteHeader(http.StatusConflict)
			return
		case errors.Is(err, redlatch.ErrUnavailable):
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		case err != nil:
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		defer func() { _ = lock.Unlock(r.Context()) }()
		w.WriteHeader(http.StatusOK)
	})
	return mux
}

func post(h http.Handler, path string) (status int) {
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, path, nil))
	return answer.Code
}

// report is a job of two hours that one process does at a time.
func report(ctx context.Context, locker redlatch.Locker) error {
	return redlatch.Do(ctx, locker, "report", func(ctx context.Context, _ *redlatch.Lock) error {
		select {
		case <-time.After(2 * time.Hour):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	})
}

// sendAll sends so many mails, each of which takes a second. Together, all processes send as many at
// a time as there are permits.
func sendAll(ctx context.Context, permits redlatch.Locker, mails int) {
	var all sync.WaitGroup
	for range mails {
		all.Go(func() {
			_ = redlatch.Do(ctx, permits, "mail", func(context.Context, *redlatch.Lock) error {
				time.Sleep(time.Second)
				return nil
			})
		})
	}
	all.Wait()
}

// shop makes a Locker of its own.
func shop(client redis.UniversalClient) (http.Handler, error) {
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithKeyPrefix("shop:"))
	return handler(locker), err
}

// The first test is also in the package documentation.

func TestSecondPaymentIsRefused(t *testing.T) {
	locker := redlatchtest.NewLocker(t)
	locker.Hold("cart:7") // somebody else pays
	require.Equal(t, http.StatusConflict, post(handler(locker), "/carts/7/payment"))
}

func TestReportStopsWhenItsLockIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlatchtest.NewLocker(t)
		time.AfterFunc(time.Hour, func() { locker.Steal("report") }) // an hour of the bubble takes no time
		require.ErrorIs(t, report(t.Context(), locker), redlatch.ErrLost)
	})
}

func TestPaymentInAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlatchtest.NewLocker(t)
		locker.Disconnect()
		require.Equal(t, http.StatusServiceUnavailable, post(handler(locker), "/carts/7/payment"))
		locker.Reconnect()
		require.Equal(t, http.StatusOK, post(handler(locker), "/carts/7/payment"))
	})
}

func TestReportWaitsItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlatchtest.NewLocker(t)
		locker.Hold("report")
		time.AfterFunc(time.Minute, func() { locker.Free("report") })
		start := time.Now()
		require.NoError(t, report(t.Context(), locker))
		require.Equal(t, 2*time.Hour+time.Minute, time.Since(start))
	})
}

func TestReportKeepsItsLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlatchtest.NewLocker(t)
		done := make(chan error, 1)
		go func() { done <- report(t.Context(), locker) }()
		time.Sleep(time.Hour)
		_, err := locker.TryLock(t.Context(), "report")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, <-done)
	})
}

func TestPaymentWhileRedisIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlatchtest.NewLocker(t)
		locker.Delay(100 * time.Millisecond)
		require.Equal(t, http.StatusOK, post(handler(locker), "/carts/7/payment"))
		locker.Delay(2 * time.Second) // longer than redlatch.WithOpTimeout
		require.Equal(t, http.StatusServiceUnavailable, post(handler(locker), "/carts/7/payment"))
	})
}

func TestThreeMailsAreSentAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		permits := redlatchtest.NewSemaphore(t, 3)
		permits.Hold("mail") // another process sends one
		start := time.Now()
		sendAll(t.Context(), permits, 12)
		require.Equal(t, 6*time.Second, time.Since(start)) // two at a time
	})
}

func TestPaymentWithoutOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locker := redlatchtest.NewRedlock(t, 3)
		locker.Nodes()[0].Disconnect()
		require.Equal(t, http.StatusOK, post(handler(locker), "/carts/7/payment"))
		locker.Nodes()[1].Disconnect()
		require.Equal(t, http.StatusServiceUnavailable, post(handler(locker), "/carts/7/payment"))
	})
}

func TestShopRefusesASecondPayment(t *testing.T) {
	locker := redlatchtest.NewLocker(t, redlatch.WithKeyPrefix("shop:")) // the prefix of the code
	h, err := shop(locker.Client())
	require.NoError(t, err)
	locker.Hold("cart:7")
	require.Equal(t, http.StatusConflict, post(h, "/carts/7/payment"))
}

// vip is a fake: it grants the carts of one shop and no others.
type vip struct {
	*redlatchtest.Locker
	shop string
}

func (v vip) TryLock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	if key != "cart:"+v.shop {
		return nil, &redlatch.HeldError{Owner: "bob"}
	}
	return v.Locker.TryLock(ctx, key, opts...)
}

func TestFakeDecidesItself(t *testing.T) {
	h := handler(vip{redlatchtest.NewLocker(t), "7"})
	require.Equal(t, http.StatusOK, post(h, "/carts/7/payment"))
	require.Equal(t, http.StatusConflict, post(h, "/carts/8/payment"))
}
