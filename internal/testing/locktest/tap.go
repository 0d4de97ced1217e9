package locktest

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// A Tap is between a client and its server.
type Tap struct {
	Sent   atomic.Int64 // scripts
	script atomic.Pointer[func(ctx context.Context, send func() error) error]
}

// Tapped returns a client of s, as another process would have, and its tap.
func Tapped(t *testing.T, s *Site) (*redis.Client, *Tap) {
	t.Helper()
	client, p := s.Client(t), new(Tap)
	client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if !strings.HasPrefix(cmd.Name(), "eval") {
				return next(ctx, cmd)
			}
			p.Sent.Add(1)
			if f := p.script.Load(); f != nil {
				return (*f)(ctx, func() error { return next(context.WithoutCancel(ctx), cmd) })
			}
			return next(ctx, cmd)
		}
	}))
	return client, p
}

// Set has f carry each script from now on.
func (p *Tap) Set(f func(ctx context.Context, send func() error) error) { p.script.Store(&f) }

// Late has each reply arrive after d.
func (p *Tap) Late(d time.Duration) {
	p.Set(func(_ context.Context, send func() error) error {
		err := send()
		time.Sleep(d) // of the bubble
		return err
	})
}

// HoldFirst has the next script reach the server only when goesOn is closed.
func (p *Tap) HoldFirst(goesOn <-chan struct{}) {
	var n atomic.Int64
	p.Set(func(_ context.Context, send func() error) error {
		if n.Add(1) == 1 {
			<-goesOn
		}
		return send()
	})
}

// Cut fails each script.
func (p *Tap) Cut() {
	p.Set(func(context.Context, func() error) error { return errors.New("no route") })
}

// Heal has scripts run as before.
func (p *Tap) Heal() { p.script.Store(nil) }

// Warm has the scripts loaded, and the time of Redis known.
func Warm(t *testing.T, l redlatch.Locker) {
	t.Helper()
	lock := MustLock(t, l, "warm")
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	_, err := l.Adopt(t.Context(), "warm", lock.Token(), redlatch.WithoutRenewal())
	require.True(t, err == nil || errors.Is(err, errors.ErrUnsupported), err)
	require.NoError(t, lock.Unlock(t.Context()))
}
