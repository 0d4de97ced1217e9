package behavior_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// TestOutageCostsARequestAnOpTimeout: a service with 100 requests a second goes through an outage of
// 10 s. Each request may wait for 5 s, for a holder: that Redis is out of reach it learns after one op
// timeout, 1 s, with a key of its own, and after two in line with others.
func TestOutageCostsARequestAnOpTimeout(t *testing.T) {
	for how, begins := range map[string]func(*link){"refused": (*link).refuse, "hung": (*link).hang} {
		for keys, most := range map[int]time.Duration{1: 2 * time.Second, 10: 2 * time.Second, 10_000: time.Second} {
			locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
				client := s.Client(t)
				link := linkOf(t, client)
				l := made(redlatch.NewSetNXPX(client, redlatch.WithMaxWait(5*time.Second)))
				warm(t, l)
				var requests sync.WaitGroup
				began := time.Now()
				time.AfterFunc(2*time.Second, func() { begins(link) })
				time.AfterFunc(12*time.Second, link.heal)
				for i := range 1500 {
					asked := time.Since(began)
					requests.Go(func() {
						err := redlatch.Do(context.WithoutCancel(t.Context()), l, fmt.Sprint(i%keys), func(context.Context, *redlatch.Lock) error {
							time.Sleep(5 * time.Millisecond)
							return nil
						})
						took := time.Since(began) - asked
						switch {
						case asked > 3*time.Second && asked < 9*time.Second: // an op timeout after its begin, and before its end
							if !errors.Is(err, redlatch.ErrUnavailable) || took > most+200*time.Millisecond {
								t.Errorf("%s, %d keys: asked at %v, took %v: %v", how, keys, asked, took, err)
							}
						case asked < time.Second:
							if err != nil {
								t.Errorf("%s, %d keys: asked at %v: %v", how, keys, asked, err)
							}
						}
					})
					time.Sleep(10 * time.Millisecond)
				}
				requests.Wait()
				eventually(t, how+": requests are served again", func() bool {
					return redlatch.Do(t.Context(), l, "0", func(context.Context, *redlatch.Lock) error { return nil }) == nil
				})
			})
		}
	}
}

// TestHungSemaphoreCostsTwoOpTimeouts: a call alone asks for a permit, and then waits for its release.
func TestHungSemaphoreCostsTwoOpTimeouts(t *testing.T) {
	locktest.InBubble(t, func(t *testing.T, s *locktest.Site) {
		client := s.Client(t)
		l := made(redlatch.NewSemaphore(client, 2, redlatch.WithMaxWait(time.Minute)))
		warm(t, l)
		time.Sleep(10 * time.Second) // else it may be the first connection that is slow
		linkOf(t, client).hang()
		began := time.Now()
		_, err := l.Lock(t.Context(), "k")
		require.ErrorIs(t, err, redlatch.ErrUnavailable)
		require.Equal(t, 2*time.Second, time.Since(began))
		linkOf(t, client).heal()
	})
}
