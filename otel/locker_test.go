package redlatchotel_test

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/otel"
)

// TestEveryWayToALockIsASpan: a child of the caller's, which says how it ended.
func TestEveryWayToALockIsASpan(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil)
	ctx, caller := b.tracer.Tracer("test").Start(t.Context(), "work")
	lock, err := l.Lock(ctx, "orders:42")
	require.NoError(t, err)
	_, err = l.TryLock(ctx, "orders:43")
	require.NoError(t, err)
	_, err = l.Adopt(ctx, "orders:42", lock.Token())
	require.NoError(t, err)
	for _, name := range []string{"acquire", "try", "adopt"} {
		s := b.span(t, "lock "+name)
		require.Equal(t, caller.SpanContext().SpanID(), s.Parent().SpanID())
		require.Equal(t, codes.Unset, s.Status().Code)
		said := attributes(s)
		require.Equal(t, name, said["redlatch.operation"])
		require.Equal(t, "granted", said["redlatch.outcome"])
		require.NotContains(t, said, "redlatch.key")
		require.EqualValues(t, 1, b.count(t, "redlatch.operation.duration", op.String(name), outcome.String("granted")))
	}
	require.Equal(t, fmt.Sprint(lock.Fence()), attributes(b.span(t, "lock acquire"))["redlatch.fence"])
}

// TestRefusedTryLockIsCountedAndNoFailure: it fires no hook, so the histogram alone has it.
func TestRefusedTryLockIsCountedAndNoFailure(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil)
	require.NoError(t, b.server.Set("k", "somebody else's"))
	_, err := l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	s := b.span(t, "lock try")
	require.Equal(t, codes.Unset, s.Status().Code)
	require.Equal(t, "not_acquired", attributes(s)["redlatch.outcome"])
	require.EqualValues(t, 1, b.count(t, "redlatch.operation.duration", op.String("try"), outcome.String("not_acquired")))
	require.NotContains(t, b.metrics(t), "redlatch.lock.grants")
}

// TestFailuresSayWhy: each by its outcome, and by what is known of the cause.
func TestFailuresSayWhy(t *testing.T) {
	canceled := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}
	late := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
		t.Cleanup(cancel)
		return ctx
	}
	same := func(ctx context.Context) context.Context { return ctx }
	lock := func(ctx context.Context, l redlatch.Locker) error { _, err := l.Lock(ctx, "k"); return err }
	try := func(ctx context.Context, l redlatch.Locker) error { _, err := l.TryLock(ctx, "k"); return err }
	for _, c := range []struct {
		outcome, status string
		before          func(t *testing.T, b *lab)
		ctx             func(context.Context) context.Context
		call            func(ctx context.Context, l redlatch.Locker) error
	}{
		{"canceled", "canceled", held, canceled, lock},
		{"deadline_exceeded", "deadline_exceeded", held, late, lock},
		{"lost", "lost", nothing, same, func(ctx context.Context, l redlatch.Locker) error {
			_, err := l.Adopt(ctx, "k", "token")
			return err
		}},
		{"invalid_option", "invalid_option", nothing, same, func(ctx context.Context, l redlatch.Locker) error {
			_, err := l.Lock(ctx, "k", redlatch.WithTTL(0))
			return err
		}},
		{"error", "error: NOPERM", func(_ *testing.T, b *lab) { b.server.SetError("NOPERM for k and its token") }, same, try},
		{"error", "error: dial tcp", func(_ *testing.T, b *lab) { b.server.Close() }, same, try},
	} {
		t.Run(c.status, func(t *testing.T) {
			b := newLab(t)
			l := b.locker(t, nil, nil, redlatch.WithOpTimeout(2*time.Second))
			c.before(t, b)
			require.Error(t, c.call(c.ctx(t.Context()), l))
			ended := b.spans.Ended()
			require.Len(t, ended, 1)
			require.Equal(t, c.outcome, attributes(ended[0])["redlatch.outcome"])
			require.Equal(t, codes.Error, ended[0].Status().Code)
			require.True(t, strings.HasPrefix(ended[0].Status().Description, c.status), ended[0].Status().Description)
			require.NotContains(t, ended[0].Status().Description, "token")
			operation := op.String(attributes(ended[0])["redlatch.operation"])
			require.EqualValues(t, 1, b.count(t, "redlatch.operation.duration", operation, outcome.String(c.outcome)))
		})
	}
}

// TestFailuresOfAQuorumSayWhy: by the first node of which something is known.
func TestFailuresOfAQuorumSayWhy(t *testing.T) {
	b := newLab(t)
	inside, err := redlatch.NewRedlock([]redis.UniversalClient{b.client}, redlatch.WithOpTimeout(2*time.Second))
	require.NoError(t, err)
	l, err := redlatchotel.Locker(inside, b.opts...)
	require.NoError(t, err)
	b.server.SetError("NOPERM for k and its token")
	_, err = l.TryLock(t.Context(), "k")
	require.ErrorIs(t, err, redlatch.ErrNoQuorum)
	require.Equal(t, "no_quorum: NOPERM", b.spans.Ended()[0].Status().Description)
}

func held(t *testing.T, b *lab) { require.NoError(t, b.server.Set("k", "somebody else's")) }

func nothing(*testing.T, *lab) {}

// TestLossIsAnEventOfTheCallersSpan: of the one that works under the lock, once, and only while it
// is recorded. A release is none.
func TestLossIsAnEventOfTheCallersSpan(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, []redlatchotel.Option{redlatchotel.WithSpanKey()})
	ctx, work := b.tracer.Tracer("test").Start(t.Context(), "work")
	released, err := l.Lock(ctx, "released")
	require.NoError(t, err)
	require.NoError(t, released.Unlock(t.Context()))
	lock, err := l.Lock(ctx, "k", redlatch.WithMaxHold(50*time.Millisecond))
	require.NoError(t, err)
	<-lock.Done()
	events := func() []sdktrace.Event { return work.(sdktrace.ReadOnlySpan).Events() }
	require.Eventually(t, func() bool { return len(events()) > 0 }, 20*time.Second, time.Millisecond)
	require.Len(t, events(), 1)
	require.Equal(t, "lock lost", events()[0].Name)
	require.ElementsMatch(t, []attribute.KeyValue{
		attribute.Int64("redlatch.fence", int64(lock.Fence())),
		attribute.String("redlatch.key", "k"),
		outcome.String("max_hold"),
	}, events()[0].Attributes)
}

// TestKeysAreRecordedWhereAskedFor: whole on spans, as a kind on metrics.
func TestKeysAreRecordedWhereAskedFor(t *testing.T) {
	b := newLab(t)
	kind := redlatchotel.WithKeyAttribute(func(string) string { return "orders" })
	for i, c := range []struct {
		opts       []redlatchotel.Option
		span, kind string
	}{
		{[]redlatchotel.Option{kind}, "orders", "orders"},
		{[]redlatchotel.Option{kind, redlatchotel.WithSpanKey()}, "orders:42", "orders"},
	} {
		l := b.locker(t, nil, c.opts)
		require.NoError(t, redlatch.Do(t.Context(), l, "orders:42", func(context.Context, *redlatch.Lock) error { return nil }))
		require.Equal(t, c.span, attributes(b.spans.Ended()[i])["redlatch.key"])
		require.EqualValues(t, i+1, b.count(t, "redlatch.operation.duration", op.String("acquire"),
			outcome.String("granted"), attribute.String("redlatch.key", "orders")))
	}
}

// TestTokenIsRecordedNowhere: not by a grant, nor by errors that name it.
func TestTokenIsRecordedNowhere(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, []redlatchotel.Option{redlatchotel.WithSpanKey()})
	ctx, work := b.tracer.Tracer("test").Start(t.Context(), "work")
	secret := redlatch.WithToken("sesame")
	lock, err := l.Lock(ctx, "k", secret, redlatch.WithMaxHold(50*time.Millisecond))
	require.NoError(t, err)
	_, err = l.Adopt(ctx, "k", "another", secret)
	require.ErrorContains(t, err, "sesame", "an error that names the token")
	<-lock.Done()
	require.Eventually(t, func() bool { return len(work.(sdktrace.ReadOnlySpan).Events()) > 0 }, 20*time.Second, time.Millisecond)
	work.End()
	require.Len(t, b.spans.Ended(), 3)
	for _, s := range b.spans.Ended() {
		require.NotContains(t, fmt.Sprint(s.Attributes(), s.Events(), s.Status()), "sesame")
	}
	require.NotContains(t, fmt.Sprint(b.metrics(t)), "sesame")
}

// spy hears how it was called.
type spy struct {
	redlatch.Locker
	heard func(op string, ctx context.Context, key, token string, opts int)
}

func (s spy) Lock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	s.heard("lock", ctx, key, "", len(opts))
	return s.Locker.Lock(ctx, key, opts...)
}

func (s spy) TryLock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	s.heard("try lock", ctx, key, "", len(opts))
	return s.Locker.TryLock(ctx, key, opts...)
}

func (s spy) Adopt(ctx context.Context, key, token string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	s.heard("adopt", ctx, key, token, len(opts))
	return s.Locker.Adopt(ctx, key, token, opts...)
}

func (s spy) Inspect(ctx context.Context, key string) (redlatch.Status, error) {
	s.heard("inspect", ctx, key, "", 0)
	return s.Locker.Inspect(ctx, key)
}

// TestCallsPassThrough: arguments as they came, with the span in ctx for the commands below, also
// a nil ctx, and results as they are.
func TestCallsPassThrough(t *testing.T) {
	b := newLab(t)
	inside, err := redlatch.NewSetNXPX(b.client)
	require.NoError(t, err)
	var calls []string
	var last context.Context
	l, err := redlatchotel.Locker(spy{inside, func(op string, ctx context.Context, key, token string, opts int) {
		calls, last = append(calls, fmt.Sprint(op, " ", key, " ", token, opts)), ctx
	}}, b.opts...)
	require.NoError(t, err)

	lock, err := l.Lock(t.Context(), "a", redlatch.WithToken("one"))
	require.NoError(t, err)
	require.Equal(t, "one", lock.Token())
	require.Equal(t, b.span(t, "lock acquire").SpanContext().SpanID(), trace.SpanContextFromContext(last).SpanID())
	_, err = l.TryLock(t.Context(), "a", redlatch.WithoutRenewal(), redlatch.WithTTL(time.Second))
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	adopted, err := l.Adopt(t.Context(), "a", "one")
	require.NoError(t, err)
	require.Greater(t, adopted.Fence(), lock.Fence())
	status, err := l.Inspect(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, "one", status.Token)
	require.Equal(t, []string{"lock a 1", "try lock a 2", "adopt a one0", "inspect a 0"}, calls)
	require.NoError(t, lock.Unlock(t.Context()))

	var none context.Context
	_, err = l.Lock(none, "a")
	require.ErrorIs(t, err, redlatch.ErrInvalidOption)
	require.Len(t, b.spans.Ended(), 3)
}

// TestWatchedLockCanBeForgotten: what waits for a loss does not keep the handle alive, which would be
// renewed for ever.
func TestWatchedLockCanBeForgotten(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil, redlatch.WithTTL(300*time.Millisecond))
	ctx, work := b.tracer.Tracer("test").Start(t.Context(), "work")
	defer work.End()
	_, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		runtime.GC()
		return len(work.(sdktrace.ReadOnlySpan).Events()) == 1
	}, 20*time.Second, 5*time.Millisecond, "renewed although nobody has it")
}
