package redlatchotel_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/otel"
	"github.com/redlatch/redlatch/redlatchtest"
)

// TestHooksRecordAGrantAndItsRelease: each is counted once, and the strategy is the only attribute.
func TestHooksRecordAGrantAndItsRelease(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil)
	lock, err := l.Lock(t.Context(), "orders:42")
	require.NoError(t, err)
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.grants", setNXPX))
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.wait.duration", setNXPX))
	require.NotContains(t, b.metrics(t), "redlatch.lock.hold.duration")
	require.NoError(t, lock.Unlock(t.Context()))
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.hold.duration", setNXPX, outcome.String("released")))
	require.Zero(t, b.count(t, "redlatch.lock.losses", setNXPX, outcome.String("lost")))
	require.Zero(t, b.count(t, "redlatch.lock.refusals", setNXPX))
}

// TestHooksBelongToTheSpanOfTheirCall: what they record has the span in the ctx of the call as its
// exemplar, and that span gets events. Its attributes are those of spans.
func TestHooksBelongToTheSpanOfTheirCall(t *testing.T) {
	b := newLab(t)
	hooks, err := redlatchotel.Hooks(append(b.opts, redlatchotel.WithSpanKey())...)
	require.NoError(t, err)
	l, err := redlatch.NewSetNXPX(b.client, redlatch.WithHooks(hooks), redlatch.WithoutRenewal(), redlatch.WithOpTimeout(2*time.Second))
	require.NoError(t, err)
	tracer := b.tracer.Tracer("test")
	locking, lockSpan := tracer.Start(t.Context(), "locking")
	work, workSpan := tracer.Start(t.Context(), "work")
	ending, cancel := context.WithCancel(locking)
	first, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	_, err = l.Lock(ending, "k", redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(context.Context, redlatch.Event) { cancel() },
	}))
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	require.NoError(t, first.Unlock(t.Context()))
	lock, err := l.Lock(locking, "k")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(work))
	lost, err := l.Lock(t.Context(), "lost")
	require.NoError(t, err)
	b.server.Del("lost")
	require.ErrorIs(t, lost.Unlock(work), redlatch.ErrLost)
	b.server.SetError("LOADING not yet")
	_, err = l.TryLock(locking, "k")
	require.ErrorIs(t, err, redlatch.ErrUnavailable)

	events := func(s trace.Span) (names []string) {
		for _, e := range s.(sdktrace.ReadOnlySpan).Events() {
			names = append(names, e.Name)
			require.Contains(t, e.Attributes, setNXPX)
			set := attribute.NewSet(e.Attributes...)
			key, _ := set.Value("redlatch.key")
			require.Contains(t, []string{"k", "lost"}, key.AsString())
		}
		return names
	}
	require.Equal(t, []string{"lock waiting", "lock acquired", "lock trouble"}, events(lockSpan))
	require.Equal(t, []string{"lock released", "lock lost"}, events(workSpan))
	require.Equal(t, lockSpan.SpanContext().TraceID(), b.exemplar(t, "redlatch.lock.wait.duration"))
	require.Equal(t, workSpan.SpanContext().TraceID(), b.exemplar(t, "redlatch.lock.hold.duration"))
}

// TestHooksMeasureSeconds: the unit of the histograms says so, and their buckets fit.
func TestHooksMeasureSeconds(t *testing.T) {
	b := newLab(t)
	hooks, err := redlatchotel.Hooks(b.opts...)
	require.NoError(t, err)
	hooks.Acquired(t.Context(), redlatch.Event{Strategy: "redlock", Elapsed: 250 * time.Millisecond})
	hooks.Released(t.Context(), redlatch.Event{Strategy: "redlock", Elapsed: 90 * time.Minute})
	for name, want := range map[string]struct {
		seconds     float64
		first, last float64
	}{
		"redlatch.lock.wait.duration": {0.25, 0.0005, 60},
		"redlatch.lock.hold.duration": {5400, 0.001, 14400},
	} {
		m := b.metrics(t)[name]
		require.Equal(t, "s", m.Unit, name)
		points := m.Data.(metricdata.Histogram[float64]).DataPoints
		require.Len(t, points, 1, name)
		require.InDelta(t, want.seconds, points[0].Sum, 1e-9, name)
		require.Equal(t, want.first, points[0].Bounds[0], name)
		require.Equal(t, want.last, points[0].Bounds[len(points[0].Bounds)-1], name)
		require.IsIncreasing(t, points[0].Bounds, name)
	}
}

// TestHooksCountWaiting: a call of Lock whose first attempt was refused counts once.
func TestHooksCountWaiting(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil)
	holder, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	got := make(chan error, 1)
	go func() { // ends when it is granted the lock
		lock, err := l.Lock(t.Context(), "k")
		if err == nil {
			err = lock.Unlock(t.Context())
		}
		got <- err
	}()
	require.Eventually(t, func() bool { return b.count(t, "redlatch.lock.refusals", setNXPX) == 1 },
		time.Minute, time.Millisecond)
	require.NoError(t, holder.Unlock(t.Context()))
	require.NoError(t, <-got)
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.refusals", setNXPX))
	require.EqualValues(t, 2, b.count(t, "redlatch.lock.grants", setNXPX))
}

// TestHooksTellLossesApart: the outcome says what ended the lock. The time that it was held is
// recorded too.
func TestHooksTellLossesApart(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil)
	deleted, err := l.Lock(t.Context(), "deleted")
	require.NoError(t, err)
	b.server.Del("deleted")
	require.ErrorIs(t, deleted.Unlock(t.Context()), redlatch.ErrLost)
	slow, err := l.Lock(t.Context(), "slow", redlatch.WithMaxHold(500*time.Millisecond))
	require.NoError(t, err)
	<-slow.Done()
	require.ErrorIs(t, slow.Unlock(t.Context()), redlatch.ErrMaxHold)
	for _, end := range []string{"lost", "max_hold"} {
		for _, name := range []string{"redlatch.lock.losses", "redlatch.lock.hold.duration"} {
			// The hook may run after Done was closed.
			require.Eventually(t, func() bool { return b.count(t, name, setNXPX, outcome.String(end)) == 1 },
				time.Minute, time.Millisecond, "%s: %s", name, end)
		}
	}
}

// TestHooksCountRenewals: renewals that succeed and renewals that fail are counted by their
// outcomes.
func TestHooksCountRenewals(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil, redlatch.WithOpTimeout(2*time.Second), redlatch.WithoutRenewal())
	lock, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	b.server.SetError("LOADING not yet")
	require.Error(t, lock.Extend(t.Context(), time.Minute))
	b.server.SetError("")
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.renewals", setNXPX, outcome.String("renewed")))
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.renewals", setNXPX, outcome.String("unavailable")))
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestHooksCountWhatRedisDidNotConfirm: the time that a lock was held is recorded even if its
// Unlock got no clear answer.
func TestHooksCountWhatRedisDidNotConfirm(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil, redlatch.WithOpTimeout(2*time.Second))
	lock, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	b.server.SetError("LOADING not yet")
	require.Error(t, lock.Unlock(t.Context()))
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.hold.duration", setNXPX, outcome.String("unavailable")))
	require.Zero(t, b.count(t, "redlatch.lock.losses", setNXPX, outcome.String("lost")))
}

// TestHooksCountHeldLocksUpAndDown: each lock is counted down once, however it ended, with the
// attributes with which it was counted up.
func TestHooksCountHeldLocksUpAndDown(t *testing.T) {
	t.Parallel()
	kind := attribute.String("redlatch.key", "orders")
	for name, end := range map[string]func(t *testing.T, b *lab, lock *redlatch.Lock){
		"released": func(t *testing.T, _ *lab, lock *redlatch.Lock) { require.NoError(t, lock.Unlock(t.Context())) },
		"not confirmed": func(t *testing.T, b *lab, lock *redlatch.Lock) {
			b.server.SetError("LOADING not yet")
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrUnavailable)
		},
		"found lost by Unlock": func(t *testing.T, b *lab, lock *redlatch.Lock) {
			b.server.Del(lock.Key())
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		},
		"found lost by Extend": func(t *testing.T, b *lab, lock *redlatch.Lock) {
			b.server.Del(lock.Key())
			require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), redlatch.ErrLost)
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
		},
		"lost before Unlock": func(t *testing.T, _ *lab, lock *redlatch.Lock) {
			<-lock.Done()
			require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrMaxHold)
		},
		"lost and left": func(_ *testing.T, _ *lab, lock *redlatch.Lock) { <-lock.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newLab(t)
			of := redlatchotel.WithKeyAttribute(func(string) string { return "orders" })
			l := b.locker(t, []redlatchotel.Option{of}, nil, redlatch.WithOpTimeout(2*time.Second))
			held := func() int64 { return b.count(t, "redlatch.lock.held", setNXPX, kind) }
			stays, err := l.Lock(t.Context(), "stays")
			require.NoError(t, err)
			var opts []redlatch.Option
			if strings.HasPrefix(name, "lost") {
				opts = append(opts, redlatch.WithMaxHold(500*time.Millisecond))
			}
			ends, err := l.Lock(t.Context(), "ends", opts...)
			require.NoError(t, err)
			if opts == nil {
				require.EqualValues(t, 2, held())
			}
			end(t, b, ends)
			// The hook may run after Done was closed.
			require.Eventually(t, func() bool { return held() == 1 }, time.Minute, time.Millisecond)
			b.server.SetError("")
			require.NoError(t, stays.Unlock(t.Context()))
			require.Zero(t, held())
			data := b.metrics(t)["redlatch.lock.held"].Data.(metricdata.Sum[int64])
			require.False(t, data.IsMonotonic)
			require.Len(t, data.DataPoints, 1)
		})
	}
}

// TestHooksCountTroubleByCauseAndNode: there is no node if the error is not about one, and a kind
// of key only if there is a key.
func TestHooksCountTroubleByCauseAndNode(t *testing.T) {
	b := newLab(t)
	hooks, err := redlatchotel.Hooks(append(b.opts, redlatchotel.WithKeyAttribute(func(key string) string {
		require.NotEmpty(t, key)
		return "orders"
	}))...)
	require.NoError(t, err)
	redlock := attribute.String("redlatch.strategy", "redlock")
	why := errors.New("connection refused")
	for _, e := range []redlatch.Event{
		{Strategy: "redlock", Node: "one:6379", Cause: "connection", Err: why},
		{Strategy: "redlock", Node: "one:6379", Cause: "connection", Err: why},
		{Strategy: "redlock", Node: "one:6379", Cause: "LOADING", Err: why},
		{Strategy: "redlock", Node: "two:6379", Cause: "connection", Err: why},
		{Strategy: "redlock", Key: "orders:42", Cause: "quorum", Err: why},
	} {
		hooks.Trouble(t.Context(), e)
	}
	for _, c := range []struct {
		times int64
		attrs []attribute.KeyValue
	}{
		{2, []attribute.KeyValue{redlock, cause.String("connection"), node.String("one:6379")}},
		{1, []attribute.KeyValue{redlock, cause.String("LOADING"), node.String("one:6379")}},
		{1, []attribute.KeyValue{redlock, cause.String("connection"), node.String("two:6379")}},
		{1, []attribute.KeyValue{redlock, cause.String("quorum"), attribute.String("redlatch.key", "orders")}},
	} {
		require.Equal(t, c.times, b.count(t, "redlatch.trouble", c.attrs...), "%v", c.attrs)
	}
	require.Len(t, b.metrics(t)["redlatch.trouble"].Data.(metricdata.Sum[int64]).DataPoints, 4)
}

// TestASpanHasATroubleOnce: a call that waits through a long outage meets with the same trouble again
// and again. All of it is counted, and each span has one event of each cause and node.
func TestASpanHasATroubleOnce(t *testing.T) {
	b := newLab(t)
	hooks, err := redlatchotel.Hooks(b.opts...)
	require.NoError(t, err)
	one, oneSpan := b.tracer.Tracer("test").Start(t.Context(), "one")
	two, twoSpan := b.tracer.Tracer("test").Start(t.Context(), "two")
	away := redlatch.Event{Strategy: "setnxpx", Key: "k", Cause: "connection", Err: errors.New("connection refused")}
	loads, far := away, away
	loads.Cause, far.Node = "LOADING", "one:6379"
	for range 100 {
		hooks.Trouble(one, away)
		hooks.Trouble(two, away)
		hooks.Trouble(one, loads)
		hooks.Trouble(one, far)
		hooks.Trouble(t.Context(), away)
		hooks.RenewFailed(one, redlatch.Event{Strategy: "setnxpx", Key: "k", Renewal: true, Err: away.Err})
	}
	require.Len(t, oneSpan.(sdktrace.ReadOnlySpan).Events(), 3)
	require.Len(t, twoSpan.(sdktrace.ReadOnlySpan).Events(), 1)
	require.EqualValues(t, 300, b.count(t, "redlatch.trouble", setNXPX, cause.String("connection")))
}

// TestHooksCountDegradedWaiting: the event has no key, so the function of WithKeyAttribute is not
// called.
func TestHooksCountDegradedWaiting(t *testing.T) {
	b := newLab(t)
	hooks, err := redlatchotel.Hooks(append(b.opts, redlatchotel.WithKeyAttribute(func(key string) string {
		require.NotEmpty(t, key)
		return "k"
	}))...)
	require.NoError(t, err)
	hooks.Degraded(t.Context(), redlatch.Event{Strategy: "setnxpx", Err: errors.New("NOPERM")})
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.degraded", setNXPX))
}

// TestHooksSayTheKindOfAKey: it is the result of WithKeyAttribute. If that is empty, there is no
// attribute.
func TestHooksSayTheKindOfAKey(t *testing.T) {
	b := newLab(t)
	kind := redlatchotel.WithKeyAttribute(func(key string) string {
		if key == "secret" {
			return ""
		}
		return "orders"
	})
	l := b.locker(t, []redlatchotel.Option{kind}, nil)
	for _, key := range []string{"orders:1", "orders:2", "secret"} {
		_, err := l.TryLock(t.Context(), key)
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, b.count(t, "redlatch.lock.grants", setNXPX, attribute.String("redlatch.key", "orders")))
	require.EqualValues(t, 1, b.count(t, "redlatch.lock.grants", setNXPX))
}

// TestHooksOfEveryStrategy: each strategy has its name as an attribute.
func TestHooksOfEveryStrategy(t *testing.T) {
	b := newLab(t)
	hooks, err := redlatchotel.Hooks(b.opts...)
	require.NoError(t, err)
	with := redlatch.WithHooks(hooks)
	legacy, err := redlatch.NewLegacySetNX(b.client, with)
	require.NoError(t, err)
	quorum, err := redlatch.NewRedlock([]redis.UniversalClient{b.client}, with)
	require.NoError(t, err)
	read, write, err := redlatch.NewReadWrite(b.client, with)
	require.NoError(t, err)
	for name, l := range map[string]redlatch.Locker{"legacysetnx": legacy, "redlock": quorum, "read": read, "write": write} {
		require.NoError(t, redlatch.Do(t.Context(), l, name, func(context.Context, *redlatch.Lock) error { return nil }))
		strategy := attribute.String("redlatch.strategy", name)
		require.EqualValues(t, 1, b.count(t, "redlatch.lock.grants", strategy))
		require.EqualValues(t, 1, b.count(t, "redlatch.lock.hold.duration", strategy, outcome.String("released")))
	}
}

// TestInvalidOptionsAreRefused: the error matches redlatch.ErrInvalid.
func TestInvalidOptionsAreRefused(t *testing.T) {
	b := newLab(t)
	for name, opt := range map[string]redlatchotel.Option{
		"option 0 is nil":         nil,
		"WithMeterProvider(nil)":  redlatchotel.WithMeterProvider(nil),
		"WithTracerProvider(nil)": redlatchotel.WithTracerProvider(nil),
	} {
		_, err := redlatchotel.Hooks(opt)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
		require.ErrorContains(t, err, name)
		_, err = redlatchotel.Locker(b.locker(t, nil, nil), opt)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
	}
	for _, none := range []redlatch.Locker{nil, (*redlatchtest.Locker)(nil)} {
		_, err := redlatchotel.Locker(none)
		require.ErrorIs(t, err, redlatch.ErrInvalid)
	}
}
