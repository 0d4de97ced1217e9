package system_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestServiceAnswers503WithoutRedis: three processes serve requests under a lock, with each strategy. No two
// requests share a key, so no request is refused by another owner: none is answered 409. Every request that begins in
// the first second after kill -9 gets 503. So do 1,000 requests after that.
func TestServiceAnswers503WithoutRedis(t *testing.T) {
	t.Parallel()
	if addr := locktest.Part(); addr != "" {
		beService(t, addr)
		return
	}
	s := redistest.Start(t)
	var replicas []*locktest.Process
	for range 3 {
		p := locktest.Start(t, s.Addr())
		require.Equal(t, "serves", <-p.Said)
		replicas = append(replicas, p)
	}
	s.Kill()
	for _, p := range replicas {
		_, err := fmt.Fprintln(p.In, "killed")
		require.NoError(t, err)
	}
	for _, p := range replicas {
		said := 0
		for line := range p.Said {
			require.Regexp(t, `^\w+: map\[503:\d+\] in the first second, map\[503:334\] then, 0 conflicts, last: .*connection refused`, line)
			said++
		}
		require.Equal(t, len(services), said)
		p.Wait(t)
	}
}

// services make the Locker of a service.
var services = map[string]func(c redis.UniversalClient) (redlatch.Locker, error){
	"SetNXPX":     func(c redis.UniversalClient) (redlatch.Locker, error) { return redlatch.NewSetNXPX(c) },
	"LegacySetNX": func(c redis.UniversalClient) (redlatch.Locker, error) { return redlatch.NewLegacySetNX(c) },
	"Semaphore":   func(c redis.UniversalClient) (redlatch.Locker, error) { return redlatch.NewSemaphore(c, 2) },
	"Redlock": func(c redis.UniversalClient) (redlatch.Locker, error) {
		return redlatch.NewRedlock([]redis.UniversalClient{c})
	},
}

// A service answers a request when it holds the lock on its path.
type service struct {
	locker redlatch.Locker
	last   atomic.Value // the text of the last error
}

func (s *service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), 300*time.Millisecond)
	defer cancel()
	lock, err := s.locker.Lock(ctx, r.URL.Path)
	if err != nil {
		s.last.Store(err.Error())
	}
	switch {
	case errors.Is(err, redlatch.ErrNotAcquired):
		w.WriteHeader(http.StatusConflict)
	case errors.Is(err, redlatch.ErrUnavailable):
		w.WriteHeader(http.StatusServiceUnavailable)
	case err != nil:
		w.WriteHeader(http.StatusInternalServerError)
	default:
		_ = lock.Unlock(r.Context()) // it may fail in the outage
	}
}

// A tally counts answers by status.
type tally struct {
	mu     sync.Mutex // guards the fields below
	status map[int]int
}

func (c *tally) add(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.status[status]++
}

// beService is one of the processes.
func beService(t *testing.T, addr string) {
	client := func() *redis.Client { return redis.NewClient(&redis.Options{Network: "unix", Addr: addr}) }
	killed, oneSecondOn := make(chan struct{}), make(chan struct{})
	var started, wg sync.WaitGroup
	for name, made := range services {
		l, err := made(client())
		require.NoError(t, err)
		s := &service{locker: l}
		var number atomic.Int64
		post := func() int {
			answer := httptest.NewRecorder()
			s.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, fmt.Sprintf("/%s/%d/%d", name, os.Getpid(), number.Add(1)), nil))
			return answer.Code
		}
		before, first, then := tally{status: map[int]int{}}, tally{status: map[int]int{}}, tally{status: map[int]int{}}
		started.Add(1)
		wg.Go(func() {
			for code := 0; code != http.StatusOK; { // a busy machine may be late
				code = post()
			}
			started.Done()
			var workers sync.WaitGroup
			for range 8 {
				workers.Go(func() {
					for {
						count := &before
						select {
						case <-oneSecondOn:
							return
						case <-killed:
							count = &first
						default:
						}
						count.add(post())
					}
				})
			}
			workers.Wait()
			left := make(chan struct{}, 334)
			for range cap(left) {
				left <- struct{}{}
			}
			close(left)
			for range 32 {
				workers.Go(func() {
					for range left {
						then.add(post())
					}
				})
			}
			workers.Wait()
			locktest.Say(fmt.Sprintf("%s: %v in the first second, %v then, %d conflicts, last: %v",
				name, first.status, then.status, before.status[http.StatusConflict], s.last.Load()))
		})
	}
	started.Wait()
	locktest.Say("serves")
	_, err := bufio.NewReader(os.Stdin).ReadString('\n')
	require.NoError(t, err)
	close(killed)
	time.AfterFunc(time.Second, func() { close(oneSecondOn) })
	wg.Wait()
}
