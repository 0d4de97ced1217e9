package redlatch_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
)

// onNearClients runs test on every kind of client whose commands come back in time by themselves, so
// that callers without an end of their own carry them out. Each goes through a proxy.
func onNearClients(t *testing.T, test func(t *testing.T, direct *redis.Client, p *faultproxy.Proxy, client redis.UniversalClient)) {
	for name, wrap := range map[string]func(t *testing.T, o *redis.Options) redis.UniversalClient{
		"pipelined": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			pipelined, err := client.AutoPipeline()
			require.NoError(t, err)
			return pipelined
		},
		"short timeouts": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			o.ReadTimeout, o.WriteTimeout = 500*time.Millisecond, 500*time.Millisecond
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			return client
		},
		"heeds deadlines": func(t *testing.T, o *redis.Options) redis.UniversalClient {
			o.ContextTimeoutEnabled = true
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			return client
		},
	} {
		t.Run(name, func(t *testing.T) {
			direct, p, _ := behindProxy(t)
			client := wrap(t, p.Options())
			warm, err := newLocker(t, client).TryLock(context.Background(), "warm") // the scripts are loaded
			require.NoError(t, err)
			require.NoError(t, warm.Extend(t.Context(), time.Second))
			require.NoError(t, warm.Unlock(t.Context()))
			test(t, direct, p, client)
		})
	}
}

// TestNearLostReplyIsNotLostOwnership is rules 3 and 7 where no operation has a goroutine.
func TestNearLostReplyIsNotLostOwnership(t *testing.T) {
	onNearClients(t, func(t *testing.T, direct *redis.Client, p *faultproxy.Proxy, client redis.UniversalClient) {
		l := newLocker(t, client)
		p.LoseReplies(1, "evalsha")
		lock, err := l.TryLock(context.Background(), "k")
		require.NoError(t, err)
		p.LoseReplies(1, "evalsha")
		require.NoError(t, lock.Extend(context.Background(), time.Hour))
		p.LoseReplies(1, "evalsha")
		require.NoError(t, lock.Unlock(t.Context()))
		require.Equal(t, 3, p.Lost())
		require.Zero(t, direct.Exists(t.Context(), "k").Val())
	})
}

// TestNearRefusalIsNoFault is rule 7: what Redis answers ends an operation, and it is not sent again.
func TestNearRefusalIsNoFault(t *testing.T) {
	onNearClients(t, func(t *testing.T, direct *redis.Client, p *faultproxy.Proxy, client redis.UniversalClient) {
		l := newLocker(t, client)
		lock, err := l.TryLock(context.Background(), "k")
		require.NoError(t, err)
		sent := p.Requests()
		_, err = l.TryLock(context.Background(), "k")
		require.ErrorIs(t, err, redlatch.ErrNotAcquired)
		require.NoError(t, direct.Del(t.Context(), "k").Err())
		require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		require.Equal(t, sent+2, p.Requests())
	})
}

// TestNearCallIsBounded is rules 4 and 8: a slow server holds nobody up, and ends as the callers
// wanted.
func TestNearCallIsBounded(t *testing.T) {
	t.Parallel()
	onNearClients(t, func(t *testing.T, direct *redis.Client, p *faultproxy.Proxy, client redis.UniversalClient) {
		l := newLocker(t, client, longTTL, redlatch.WithOpTimeout(500*time.Millisecond))
		held, err := l.TryLock(context.Background(), "held")
		require.NoError(t, err)

		p.Delay(7 * time.Second)
		begin := time.Now()
		require.ErrorContains(t, held.Unlock(t.Context()), "no reply within 500ms")
		_, err = l.TryLock(context.Background(), "k")
		require.ErrorContains(t, err, "no reply within 500ms")
		require.Less(t, time.Since(begin), 6*time.Second)
		p.Heal()
		gone(t, direct, "k")
		gone(t, direct, "held")
	})
}

// TestOutageIsNoCancellation: what ends an operation from within is not what a caller would take for an
// end of its own.
func TestOutageIsNoCancellation(t *testing.T) {
	t.Parallel()
	onNearClients(t, func(t *testing.T, _ *redis.Client, p *faultproxy.Proxy, client redis.UniversalClient) {
		l := newLocker(t, client, redlatch.WithOpTimeout(500*time.Millisecond))
		lock, err := l.TryLock(context.Background(), "k")
		require.NoError(t, err)
		p.Silence()
		_, first := l.TryLock(context.Background(), "k")
		_, second := l.TryLock(context.Background(), "k")
		for _, err := range []error{first, second, lock.Extend(context.Background(), time.Hour), lock.Unlock(context.Background())} {
			require.Error(t, err)
			require.NotErrorIs(t, err, context.Canceled)
		}
		p.Heal() // else the client would wait for what is under way when it is closed
	})
}

// TestNearReleaseIsCarriedOutAfterItsCallerLeft is rule 8: the connection dies under a release that
// nobody waits for any more.
func TestNearReleaseIsCarriedOutAfterItsCallerLeft(t *testing.T) {
	t.Parallel()
	onNearClients(t, func(t *testing.T, direct *redis.Client, p *faultproxy.Proxy, client redis.UniversalClient) {
		l := newLocker(t, client, longTTL, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(500*time.Millisecond))
		lock, err := l.TryLock(context.Background(), "k")
		require.NoError(t, err)
		p.Silence()
		_, pipelined := client.(*redis.AutoPipeliner)
		client.AddHook(&sends{late: !pipelined, second: func() { p.Cut(); p.Heal() }})
		require.ErrorContains(t, lock.Unlock(t.Context()), "no reply within 500ms")
		if pipelined { // it does not give up by itself
			p.Cut()
		}
		gone(t, direct, "k")
	})
}

// sends calls second before a command is sent for the second time, on its own or in a pipeline.
type sends struct {
	n      atomic.Int64
	second func()
	late   bool // the first comes back after its caller has left
}

func (h *sends) count() int64 {
	n := h.n.Add(1)
	if n == 2 {
		h.second()
	}
	return n
}

func (h *sends) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *sends) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n := h.count()
		err := next(ctx, cmd)
		if h.late && n == 1 {
			<-ctx.Done()
		}
		return err
	}
}

func (h *sends) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.count()
		return next(ctx, cmds)
	}
}

// keeper is a hook that keeps what it is given, as one that logs from a goroutine of its own does.
type keeper struct {
	mu   sync.Mutex // guards the fields below
	ctxs []context.Context
	cmds []redis.Cmder
	said []string // what the commands said then
}

func (h *keeper) keep(ctx context.Context, cmds []redis.Cmder) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ctxs = append(h.ctxs, ctx)
	for _, cmd := range cmds {
		h.cmds, h.said = append(h.cmds, cmd), append(h.said, said(cmd))
	}
}

// said returns the words of a command, also of those that it has pointers to.
func said(cmd redis.Cmder) string {
	var words strings.Builder
	for _, word := range cmd.Args() {
		fmt.Fprintf(&words, "%v ", reflect.Indirect(reflect.ValueOf(word)))
	}
	return words.String()
}

func (h *keeper) DialHook(next redis.DialHook) redis.DialHook { return next }

func (h *keeper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		h.keep(ctx, []redis.Cmder{cmd})
		return next(ctx, cmd)
	}
}

func (h *keeper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.keep(ctx, cmds)
		return next(ctx, cmds)
	}
}

// TestNearCommandsMayBeKept: the ctx and the words of a command stay what they were when a hook of the
// client keeps them, and what waits for the ctx ends.
func TestNearCommandsMayBeKept(t *testing.T) {
	onNearClients(t, func(t *testing.T, _ *redis.Client, _ *faultproxy.Proxy, client redis.UniversalClient) {
		kept := &keeper{}
		client.AddHook(kept)
		l := newLocker(t, client)
		type name struct{}
		for i := range 10 {
			ctx := context.WithValue(context.Background(), name{}, i)
			lock, err := l.TryLock(ctx, fmt.Sprint("k", i))
			require.NoError(t, err)
			_, err = l.TryLock(ctx, fmt.Sprint("k", i), redlatch.WithoutFence()) // two commands
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.NoError(t, lock.Unlock(ctx))
		}
		kept.mu.Lock()
		defer kept.mu.Unlock()
		require.Len(t, kept.cmds, 40)
		for i, cmd := range kept.cmds {
			require.Equal(t, kept.said[i], said(cmd))
			require.Contains(t, kept.said[i], fmt.Sprint("k", i/4))
		}
		if _, pipelined := client.(*redis.AutoPipeliner); pipelined {
			return // its batches have a ctx of its own
		}
		for i, ctx := range kept.ctxs {
			require.Equal(t, i/4, ctx.Value(name{}))
			require.Error(t, ctx.Err())
			<-ctx.Done()
		}
	})
}

// TestAbandonedReleaseIsCarriedOut is rule 8: the server does not have the script of a release whose
// caller left before that was known.
func TestAbandonedReleaseIsCarriedOut(t *testing.T) {
	t.Parallel()
	onNearClients(t, func(t *testing.T, direct *redis.Client, p *faultproxy.Proxy, client redis.UniversalClient) {
		l := newLocker(t, client, longTTL, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(500*time.Millisecond))
		lock, err := l.TryLock(context.Background(), "k")
		require.NoError(t, err)
		require.NoError(t, direct.ScriptFlush(t.Context()).Err())
		p.Delay(700 * time.Millisecond)
		require.Error(t, lock.Unlock(t.Context()))
		p.Heal()
		gone(t, direct, "k")
	})
}

// TestNearClientIsSharedByMany is for the race detector: callers stay, or leave.
func TestNearClientIsSharedByMany(t *testing.T) {
	onNearClients(t, func(t *testing.T, direct *redis.Client, _ *faultproxy.Proxy, client redis.UniversalClient) {
		l := newLocker(t, client)
		var wg sync.WaitGroup
		for g := range 16 {
			wg.Go(func() {
				key := fmt.Sprint("k", g/2) // two for each
				for i := range 100 {
					ctx, cancel := context.Background(), func() {}
					if g%2 == 0 {
						ctx, cancel = context.WithTimeout(ctx, time.Duration(i%20)*100*time.Microsecond)
					}
					if lock, err := l.TryLock(ctx, key); err == nil {
						_ = lock.Unlock(t.Context())
					}
					cancel()
				}
			})
		}
		wg.Wait()
		for g := range 8 {
			gone(t, direct, fmt.Sprint("k", g))
		}
	})
}
