package redlatchotel_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/debug"
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

// TestEveryWayToALockIsASpan: the span is a child of the caller's, and has the outcome.
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

// TestRefusedTryLockIsCountedAndNoFailure: it calls no hook, so only the histogram counts it.
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

// TestFailuresSayWhy: the span has the outcome and what is known of the cause.
func TestFailuresSayWhy(t *testing.T) {
	t.Parallel()
	canceled := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		return ctx
	}
	late := func(ctx context.Context) context.Context {
		ctx, cancel := context.WithTimeout(ctx, 0)
		t.Cleanup(cancel)
		return ctx
	}
	same := func(ctx context.Context) context.Context { return ctx }
	try := func(ctx context.Context, l redlatch.Locker) error { _, err := l.TryLock(ctx, "k"); return err }
	for _, c := range []struct {
		outcome, status string
		before          func(t *testing.T, b *lab)
		ctx             func(context.Context) context.Context
		call            func(ctx context.Context, l redlatch.Locker) error
	}{
		{"canceled", "canceled", nothing, canceled, try},
		{"deadline_exceeded", "deadline_exceeded", nothing, late, try},
		{"lost", "lost", nothing, same, func(ctx context.Context, l redlatch.Locker) error {
			_, err := l.Adopt(ctx, "k", "token")
			return err
		}},
		{"invalid", "invalid", nothing, same, func(ctx context.Context, l redlatch.Locker) error {
			_, err := l.Lock(ctx, "k", redlatch.WithTTL(0))
			return err
		}},
		{"error", "error: NOPERM", func(_ *testing.T, b *lab) { b.server.SetError("NOPERM for k and its token") }, same, try},
		{"unavailable", "unavailable: dial tcp", func(_ *testing.T, b *lab) { b.server.Close() }, same, try},
	} {
		t.Run(c.status, func(t *testing.T) {
			b := newLab(t)
			l := b.locker(t, nil, nil, redlatch.WithOpTimeout(2*time.Second))
			c.before(t, b)
			require.Error(t, c.call(c.ctx(t.Context()), l))
			ended := b.spans.Ended()
			require.Len(t, ended, 1)
			require.Equal(t, c.outcome, attributes(ended[0])["redlatch.outcome"])
			require.Equal(t, c.outcome, attributes(ended[0])["error.type"])
			require.Equal(t, codes.Error, ended[0].Status().Code)
			require.True(t, strings.HasPrefix(ended[0].Status().Description, c.status), ended[0].Status().Description)
			require.NotContains(t, ended[0].Status().Description, "token")
			operation := op.String(attributes(ended[0])["redlatch.operation"])
			require.EqualValues(t, 1, b.count(t, "redlatch.operation.duration", operation, outcome.String(c.outcome)))
		})
	}
}

// TestFailuresOfAQuorumSayWhy: the status has the cause on the first node where it is known.
func TestFailuresOfAQuorumSayWhy(t *testing.T) {
	t.Parallel()
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

func nothing(*testing.T, *lab) {}

// TestWaitThatEndedBehindAHolderIsNoFailure: its outcome is not_acquired, however ctx ended. Its
// span has no error.type and no error status.
func TestWaitThatEndedBehindAHolderIsNoFailure(t *testing.T) {
	t.Parallel()
	const want = "not_acquired"
	for end, ending := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"canceled": context.WithCancel,
		"deadline exceeded": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		},
	} {
		t.Run(end, func(t *testing.T) {
			b := newLab(t)
			l := b.locker(t, nil, nil)
			require.NoError(t, b.server.Set("k", "somebody else's"))
			ctx, cancel := ending(t.Context())
			defer cancel()
			waited := false
			_, err := l.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{Waiting: func(context.Context, redlatch.Event) {
				waited = true
				if end == "canceled" {
					cancel()
				}
			}}))
			require.ErrorIs(t, err, redlatch.ErrNotAcquired)
			require.ErrorIs(t, err, ctx.Err())
			require.True(t, waited)
			s := b.span(t, "lock acquire")
			require.Equal(t, codes.Unset, s.Status().Code)
			require.Equal(t, want, attributes(s)["redlatch.outcome"])
			require.NotContains(t, attributes(s), "error.type")
			require.EqualValues(t, 1, b.count(t, "redlatch.operation.duration", op.String("acquire"), outcome.String(want)))
		})
	}
}

// TestWaitThatEndedWithoutRedisSaysSo: the outcome is unavailable, although ctx has ended and the
// wait began behind a holder. The errors that were retried until then are counted.
func TestWaitThatEndedWithoutRedisSaysSo(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil, redlatch.WithOpTimeout(2*time.Second))
	require.NoError(t, b.server.Set("k", "somebody else's"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := l.Lock(ctx, "k", redlatch.WithHooks(redlatch.Hooks{
		Waiting: func(context.Context, redlatch.Event) { b.server.Close() },
		Trouble: func(context.Context, redlatch.Event) { cancel() },
	}))
	require.ErrorIs(t, err, redlatch.ErrUnavailable)
	require.ErrorIs(t, err, context.Canceled)
	s := b.span(t, "lock acquire")
	require.Equal(t, codes.Error, s.Status().Code)
	require.True(t, strings.HasPrefix(s.Status().Description, "unavailable: dial tcp"), s.Status().Description)
	require.Equal(t, "unavailable", attributes(s)["redlatch.outcome"])
	require.Equal(t, "unavailable", attributes(s)["error.type"])
	require.EqualValues(t, 1, b.count(t, "redlatch.operation.duration", op.String("acquire"),
		outcome.String("unavailable")))
	require.EqualValues(t, 1, b.count(t, "redlatch.trouble", setNXPX, cause.String("connection")))
}

// ways are the calls that return a lock, by the name of their operation.
var ways = map[string]func(ctx context.Context, l redlatch.Locker, opts ...redlatch.Option) (*redlatch.Lock, error){
	"acquire": func(ctx context.Context, l redlatch.Locker, opts ...redlatch.Option) (*redlatch.Lock, error) {
		return l.Lock(ctx, "k", opts...)
	},
	"try": func(ctx context.Context, l redlatch.Locker, opts ...redlatch.Option) (*redlatch.Lock, error) {
		return l.TryLock(ctx, "k", opts...)
	},
	"adopt": func(ctx context.Context, l redlatch.Locker, opts ...redlatch.Option) (*redlatch.Lock, error) {
		lock, err := l.Lock(context.Background(), "k", redlatch.WithOwner("billing"))
		if err != nil {
			return nil, err
		}
		return l.Adopt(ctx, "k", lock.Token(), opts...)
	},
}

// TestUnlockAndExtendAreSpans: they are children of the span in their ctx. If there is none, they are
// children of that in the ctx of the call that acquired the lock. They last as long as Redis took.
func TestUnlockAndExtendAreSpans(t *testing.T) {
	for _, traced := range []bool{true, false} {
		for name, take := range ways {
			t.Run(fmt.Sprintf("%s traced=%t", name, traced), func(t *testing.T) {
				b := newLab(t)
				l := b.locker(t, nil, nil)
				ctx, caller := b.tracer.Tracer("test").Start(t.Context(), "work")
				took := make(map[string]time.Duration)
				hooks := redlatch.WithHooks(redlatch.Hooks{
					Renewed:  func(_ context.Context, e redlatch.Event) { took["extend"] = e.Took },
					Released: func(_ context.Context, e redlatch.Event) { took["unlock"] = e.Took },
				})
				opts := []redlatch.Option{hooks, redlatch.WithoutRenewal()}
				if name != "adopt" {
					opts = append(opts, redlatch.WithOwner("billing"))
				}
				lock, err := take(ctx, l, opts...)
				require.NoError(t, err)
				caller.End()
				other, parent := t.Context(), caller
				if traced {
					other, parent = b.tracer.Tracer("test").Start(t.Context(), "other")
					defer parent.End()
				}
				require.NoError(t, lock.Extend(other, time.Minute))
				require.NoError(t, lock.Unlock(other))
				for op, done := range map[string]string{"extend": "extended", "unlock": "released"} {
					s := b.span(t, "lock "+op)
					require.Equal(t, parent.SpanContext().TraceID(), s.SpanContext().TraceID())
					require.Equal(t, parent.SpanContext().SpanID(), s.Parent().SpanID())
					require.Positive(t, took[op])
					require.Equal(t, took[op], s.EndTime().Sub(s.StartTime()))
					require.Equal(t, codes.Unset, s.Status().Code)
					require.Equal(t, map[string]string{
						"redlatch.operation": op,
						"redlatch.outcome":   done,
						"redlatch.fence":     fmt.Sprint(lock.Fence()),
						"redlatch.owner":     "billing",
					}, attributes(s))
				}
			})
		}
	}
}

// TestFailedUnlockAndExtendSayWhy: error.type and the status say why, even if only Unlock finds
// that the lock was lost.
func TestFailedUnlockAndExtendSayWhy(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil, redlatch.WithOpTimeout(2*time.Second), redlatch.WithoutRenewal())
	lock, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	lost, err := l.Lock(t.Context(), "lost")
	require.NoError(t, err)
	b.server.SetError("LOADING the token")
	require.ErrorIs(t, lock.Extend(t.Context(), time.Minute), redlatch.ErrUnavailable)
	b.server.SetError("NOPERM for k and its token")
	require.Error(t, lock.Unlock(t.Context()))
	b.server.SetError("")
	b.server.Del("lost")
	require.ErrorIs(t, lost.Unlock(t.Context()), redlatch.ErrLost)
	unlocks := b.spansNamed("lock unlock")
	require.Len(t, unlocks, 2)
	for _, c := range []struct {
		span            sdktrace.ReadOnlySpan
		outcome, status string
	}{
		{b.span(t, "lock extend"), "unavailable", "unavailable: LOADING"},
		{unlocks[0], "error", "error: NOPERM"},
		{unlocks[1], "lost", "lost"},
	} {
		require.Equal(t, c.outcome, attributes(c.span)["redlatch.outcome"])
		require.Equal(t, c.outcome, attributes(c.span)["error.type"])
		require.Equal(t, codes.Error, c.span.Status().Code)
		require.Equal(t, c.status, c.span.Status().Description)
	}
}

// TestWhatWasLostBeforeIsNoSpan: a loss is an event of the caller's span. The Extend that finds it
// has no span, and neither has a later Extend or Unlock.
func TestWhatWasLostBeforeIsNoSpan(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil, redlatch.WithoutRenewal())
	ctx, work := b.tracer.Tracer("test").Start(t.Context(), "work")
	found, err := l.Lock(ctx, "found")
	require.NoError(t, err)
	b.server.Del("found")
	expired, err := l.Lock(ctx, "expired", redlatch.WithTTL(4*time.Second), redlatch.WithOpTimeout(2*time.Second))
	require.NoError(t, err)
	<-expired.Done()
	for _, lock := range []*redlatch.Lock{found, expired} {
		require.ErrorIs(t, lock.Extend(ctx, time.Minute), redlatch.ErrLost)
		require.ErrorIs(t, lock.Unlock(ctx), redlatch.ErrLost)
	}
	require.Eventually(t, func() bool { return len(work.(sdktrace.ReadOnlySpan).Events()) == 2 },
		time.Minute, time.Millisecond)
	require.Len(t, b.spans.Ended(), 2)
	require.Len(t, b.spansNamed("lock acquire"), 2)
}

// TestRenewalsAreNoSpans: neither a renewal that succeeds nor one that fails has a span.
func TestRenewalsAreNoSpans(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil, redlatch.WithTTL(6*time.Second), redlatch.WithOpTimeout(2*time.Second))
	renewed, failed := make(chan redlatch.Event, 100), make(chan redlatch.Event, 100)
	lock, err := l.Lock(t.Context(), "k", redlatch.WithHooks(redlatch.Hooks{
		Renewed:     func(_ context.Context, e redlatch.Event) { renewed <- e },
		RenewFailed: func(_ context.Context, e redlatch.Event) { failed <- e },
	}))
	require.NoError(t, err)
	expect := func(from chan redlatch.Event) {
		t.Helper()
		select {
		case e := <-from:
			require.True(t, e.Renewal)
			require.Positive(t, e.Took)
		case <-lock.Done():
			require.FailNow(t, "the lock has ended", lock.Err())
		}
	}
	expect(renewed)
	b.server.SetError("LOADING not yet")
	expect(failed)
	b.server.SetError("")
	expect(renewed) // by now the spans of the renewals above would be recorded
	require.NoError(t, lock.Unlock(t.Context()))
	require.Len(t, b.spans.Ended(), 2)
	b.span(t, "lock acquire")
	b.span(t, "lock unlock")
}

// TestHooksOfACallAreStillCalled: the hooks of the Locker and of the call are called. The slice of
// the caller's options is not changed.
func TestHooksOfACallAreStillCalled(t *testing.T) {
	t.Parallel()
	for name, take := range ways {
		t.Run(name, func(t *testing.T) {
			b := newLab(t)
			l := b.locker(t, nil, nil)
			var called []string
			record := func(what string) func(context.Context, redlatch.Event) {
				return func(context.Context, redlatch.Event) { called = append(called, what) }
			}
			opts := make([]redlatch.Option, 0, 3)
			opts = append(opts, redlatch.WithoutRenewal(), redlatch.WithHooks(redlatch.Hooks{
				Acquired: record("acquired"), Renewed: record("renewed"), RenewFailed: record("renew failed"),
				Lost: record("lost"), Released: record("released"),
			}))
			lock, err := take(t.Context(), l, opts...)
			require.NoError(t, err)
			require.Nil(t, opts[:3][2], "written to")
			require.NoError(t, lock.Extend(t.Context(), time.Minute))
			require.NoError(t, lock.Unlock(t.Context()))
			require.Equal(t, []string{"acquired", "renewed", "released"}, called)
			require.EqualValues(t, 1, b.count(t, "redlatch.lock.renewals", setNXPX, outcome.String("renewed")))
			require.EqualValues(t, 1, b.count(t, "redlatch.lock.hold.duration", setNXPX, outcome.String("released")))
		})
	}
}

// TestAMigrationHasASpanForEachSide: Extend and Unlock of a migration have a span for each of the
// two locks.
func TestAMigrationHasASpanForEachSide(t *testing.T) {
	b := newLab(t)
	from, err := redlatch.NewLegacySetNX(b.client, redlatch.WithKeyPrefix("old:"))
	require.NoError(t, err)
	to, err := redlatch.NewSetNXPX(b.client, redlatch.WithKeyPrefix("new:"))
	require.NoError(t, err)
	both, err := redlatch.NewMigration(from, to)
	require.NoError(t, err)
	l, err := redlatchotel.Locker(both, b.opts...)
	require.NoError(t, err)
	lock, err := l.Lock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, lock.Extend(t.Context(), time.Minute))
	require.NoError(t, lock.Unlock(t.Context()))
	require.Len(t, b.spansNamed("lock acquire"), 1)
	require.Len(t, b.spansNamed("lock extend"), 2)
	require.Len(t, b.spansNamed("lock unlock"), 2)
	require.Len(t, b.spans.Ended(), 5)
}

// TestAMigrationToItselfIsRefused: also if one side is wrapped.
func TestAMigrationToItselfIsRefused(t *testing.T) {
	b := newLab(t)
	l, err := redlatch.NewSetNXPX(b.client)
	require.NoError(t, err)
	traced, err := redlatchotel.Locker(l, b.opts...)
	require.NoError(t, err)
	for _, sides := range [][2]redlatch.Locker{{traced, l}, {l, traced}, {traced, traced}} {
		_, err = redlatch.NewMigration(sides[0], sides[1])
		require.ErrorIs(t, err, redlatch.ErrInvalid)
	}
}

// TestTheVersionIsOnBothScopes: the meters and the tracer have the version of this module in the
// program.
func TestTheVersionIsOnBothScopes(t *testing.T) {
	b := newLab(t)
	info, ok := debug.ReadBuildInfo()
	require.True(t, ok)
	require.Equal(t, "github.com/redlatch/redlatch/otel", info.Main.Path)
	hooks, err := redlatchotel.Hooks(b.opts...)
	require.NoError(t, err)
	hooks.Acquired(t.Context(), redlatch.Event{}) // recorded by the meter of Hooks only
	require.Equal(t, info.Main.Version, b.meter(t).Version)
	b = newLab(t)
	inside, err := redlatch.NewSetNXPX(b.client)
	require.NoError(t, err)
	l, err := redlatchotel.Locker(inside, b.opts...)
	require.NoError(t, err)
	_, err = l.TryLock(t.Context(), "k") // recorded by the meter of Locker only
	require.NoError(t, err)
	require.Equal(t, info.Main.Version, b.meter(t).Version)
	tracer := b.span(t, "lock try").InstrumentationScope()
	require.Equal(t, "github.com/redlatch/redlatch/otel", tracer.Name)
	require.Equal(t, info.Main.Version, tracer.Version)
}

// TestLossIsAnEventOfTheCallersSpan: a loss is one event of the span in the ctx of the call that
// acquired the lock. A release is no event.
func TestLossIsAnEventOfTheCallersSpan(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, []redlatchotel.Option{redlatchotel.WithSpanKey()})
	ctx, work := b.tracer.Tracer("test").Start(t.Context(), "work")
	released, err := l.Lock(ctx, "released")
	require.NoError(t, err)
	require.NoError(t, released.Unlock(t.Context()))
	lock, err := l.Lock(ctx, "k", redlatch.WithMaxHold(500*time.Millisecond))
	require.NoError(t, err)
	<-lock.Done()
	events := func() []sdktrace.Event { return work.(sdktrace.ReadOnlySpan).Events() }
	require.Eventually(t, func() bool { return len(events()) > 0 }, time.Minute, time.Millisecond)
	require.Len(t, events(), 1)
	require.Equal(t, "lock lost", events()[0].Name)
	require.ElementsMatch(t, []attribute.KeyValue{
		attribute.Int64("redlatch.fence", int64(lock.Fence())),
		attribute.String("redlatch.key", "k"),
		outcome.String("max_hold"),
	}, events()[0].Attributes)
}

// TestKeysAreRecordedWhereAskedFor: spans have the whole key, and metrics have its kind.
func TestKeysAreRecordedWhereAskedFor(t *testing.T) {
	kind := redlatchotel.WithKeyAttribute(func(string) string { return "orders" })
	for _, c := range []struct {
		opts       []redlatchotel.Option
		span, kind string
	}{
		{[]redlatchotel.Option{kind}, "orders", "orders"},
		{[]redlatchotel.Option{kind, redlatchotel.WithSpanKey()}, "orders:42", "orders"},
	} {
		b := newLab(t)
		l := b.locker(t, nil, c.opts)
		require.NoError(t, redlatch.Do(t.Context(), l, "orders:42", func(ctx context.Context, lock *redlatch.Lock) error {
			return lock.Extend(ctx, time.Minute)
		}))
		for _, name := range []string{"lock acquire", "lock extend", "lock unlock"} {
			require.Equal(t, c.span, attributes(b.span(t, name))["redlatch.key"], name)
		}
		require.EqualValues(t, 1, b.count(t, "redlatch.operation.duration", op.String("acquire"),
			outcome.String("granted"), attribute.String("redlatch.key", "orders")))
	}
}

// TestTokenIsRecordedNowhere: no span, event or metric contains the token, even if an error
// contains it.
func TestTokenIsRecordedNowhere(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, []redlatchotel.Option{redlatchotel.WithSpanKey()}, redlatch.WithOpTimeout(2*time.Second))
	ctx, work := b.tracer.Tracer("test").Start(t.Context(), "work")
	require.NoError(t, b.server.Set("released", "sesame"))
	require.NoError(t, b.server.Set("k", "sesame"))
	b.server.SetTTL("k", time.Minute)
	released, err := l.Adopt(ctx, "released", "sesame")
	require.NoError(t, err)
	b.server.SetError("NOPERM for sesame")
	_, err = l.TryLock(ctx, "k")
	require.ErrorContains(t, err, "sesame", "an error that names the token")
	_, err = l.Adopt(ctx, "k", "sesame")
	require.ErrorContains(t, err, "sesame", "an error that names the token")
	require.ErrorContains(t, released.Extend(ctx, time.Minute), "sesame", "an error that names the token")
	require.ErrorContains(t, released.Unlock(ctx), "sesame", "an error that names the token")
	b.server.SetError("")
	lock, err := l.Adopt(ctx, "k", "sesame", redlatch.WithMaxHold(500*time.Millisecond))
	require.NoError(t, err)
	<-lock.Done()
	require.Eventually(t, func() bool { return len(work.(sdktrace.ReadOnlySpan).Events()) > 0 }, time.Minute, time.Millisecond)
	work.End()
	require.Len(t, b.spans.Ended(), 7)
	for _, s := range b.spans.Ended() {
		require.NotContains(t, fmt.Sprint(s.Attributes(), s.Events(), s.Status()), "sesame")
	}
	require.NotContains(t, fmt.Sprint(b.metrics(t)), "sesame")
}

// spy reports the arguments of each call to called.
type spy struct {
	redlatch.Locker
	called func(op string, ctx context.Context, key string, token redlatch.Token, opts int)
}

func (s spy) Lock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	s.called("lock", ctx, key, "", len(opts))
	return s.Locker.Lock(ctx, key, opts...)
}

func (s spy) TryLock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	s.called("try lock", ctx, key, "", len(opts))
	return s.Locker.TryLock(ctx, key, opts...)
}

func (s spy) Adopt(
	ctx context.Context, key string, token redlatch.Token, opts ...redlatch.Option,
) (*redlatch.Lock, error) {
	s.called("adopt", ctx, key, token, len(opts))
	return s.Locker.Adopt(ctx, key, token, opts...)
}

func (s spy) Inspect(ctx context.Context, key string) (redlatch.Status, error) {
	s.called("inspect", ctx, key, "", 0)
	return s.Locker.Inspect(ctx, key)
}

// TestCallsPassThrough: arguments and results are not changed, and a nil ctx is passed on. But
// there is one more option, for the spans of Extend and Unlock, and ctx has the span, for the spans
// of the commands.
func TestCallsPassThrough(t *testing.T) {
	b := newLab(t)
	inside, err := redlatch.NewSetNXPX(b.client)
	require.NoError(t, err)
	var calls []string
	var last context.Context
	l, err := redlatchotel.Locker(spy{inside, func(op string, ctx context.Context, key string, token redlatch.Token, opts int) {
		calls, last = append(calls, fmt.Sprint(op, " ", key, " ", string(token), opts)), ctx
	}}, b.opts...)
	require.NoError(t, err)

	lock, err := l.TryLock(t.Context(), "a", redlatch.WithOwner("one"))
	require.NoError(t, err)
	token := lock.Token()
	require.True(t, strings.HasPrefix(string(token), "one/"))
	require.Equal(t, b.span(t, "lock try").SpanContext().SpanID(), trace.SpanContextFromContext(last).SpanID())
	_, err = l.TryLock(t.Context(), "a", redlatch.WithoutRenewal(), redlatch.WithTTL(time.Second))
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	adopted, err := l.Adopt(t.Context(), "a", token)
	require.NoError(t, err)
	require.Greater(t, adopted.Fence(), lock.Fence())
	status, err := l.Inspect(t.Context(), "a")
	require.NoError(t, err)
	require.Equal(t, token, status.Token)
	require.Equal(t, []string{"try lock a 2", "try lock a 3", "adopt a " + string(token) + "1", "inspect a 0"}, calls)
	require.NoError(t, lock.Unlock(t.Context()))

	var none context.Context
	_, err = l.Lock(none, "a")
	require.ErrorIs(t, err, redlatch.ErrInvalid)
	require.Equal(t, "lock a 0", calls[len(calls)-1])
	require.Len(t, b.spans.Ended(), 4)
}

// TestWatchedLockCanBeForgotten: the function that waits for a loss does not keep the handle alive.
// Otherwise the lock would be renewed forever.
func TestWatchedLockCanBeForgotten(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	l := b.locker(t, nil, nil, redlatch.WithTTL(3*time.Second), redlatch.WithOpTimeout(2*time.Second))
	ctx, work := b.tracer.Tracer("test").Start(t.Context(), "work")
	defer work.End()
	_, err := l.Lock(ctx, "k")
	require.NoError(t, err)
	require.Eventually(t, func() bool {
		runtime.GC()
		return len(work.(sdktrace.ReadOnlySpan).Events()) == 1
	}, time.Minute, 5*time.Millisecond, "renewed although nobody has it")
}

// none is a fake that grants nothing, without an error.
type none struct{ redlatch.Locker }

func (none) TryLock(context.Context, string, ...redlatch.Option) (*redlatch.Lock, error) {
	return nil, nil
}

// TestNilLockOfAFakePassesThrough: Do refuses it.
func TestNilLockOfAFakePassesThrough(t *testing.T) {
	b := newLab(t)
	l, err := redlatchotel.Locker(none{b.locker(t, nil, nil)}, b.opts...)
	require.NoError(t, err)
	lock, err := l.TryLock(t.Context(), "k")
	require.NoError(t, err)
	require.Nil(t, lock)
	require.ErrorIs(t, redlatch.TryDo(t.Context(), l, "k", func(context.Context, *redlatch.Lock) error { return nil }), redlatch.ErrInvalid)
}

// TestErrorsOfCallsAndFunctionsGoThrough: a call whose key is held says so and names the key. A
// function that another lock refuses has not failed for its own.
func TestErrorsOfCallsAndFunctionsGoThrough(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil)
	require.NoError(t, b.server.Set("b", "somebody else's"))
	nothing := func(context.Context, []*redlatch.Lock) error { return nil }
	err := redlatch.TryDoAll(t.Context(), l, []string{"b", "a"}, nothing)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
	var refused *redlatch.Error
	require.ErrorAs(t, err, &refused)
	require.Equal(t, []string{"try do all", "b"}, []string{refused.Op, refused.Key})

	err = redlatch.Do(t.Context(), l, "k", func(ctx context.Context, _ *redlatch.Lock) error {
		return redlatch.TryDoAll(ctx, l, []string{"b"}, nothing)
	})
	require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
	var failed *redlatch.FuncError
	require.ErrorAs(t, err, &failed)
	require.ErrorIs(t, failed.Err, redlatch.ErrNotAcquired)
}

// TestForgetGoesThrough: it ends the min hold of the Locker inside.
func TestForgetGoesThrough(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil)
	lock, err := l.TryLock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, lock.UnlockAfter(t.Context(), time.Hour))
	require.NoError(t, redlatch.Forget(t.Context(), l, "k"))
	lock, err = l.TryLock(t.Context(), "k")
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(t.Context()))
}

// TestLockerPrintsAsTheOneInIt: fmt would look into what changes.
func TestLockerPrintsAsTheOneInIt(t *testing.T) {
	l := newLab(t).locker(t, nil, nil)
	require.Equal(t, "setnxpx", fmt.Sprintf("%v", l))
	require.Equal(t, `"setnxpx"`, fmt.Sprintf("%q", l))
}

// TestDrainAndElectionsGoThrough: they look through the Locker of this package.
func TestDrainAndElectionsGoThrough(t *testing.T) {
	b := newLab(t)
	l := b.locker(t, nil, nil)
	require.NoError(t, redlatch.Drain(t.Context(), l))
	_, err := redlatch.NewElection(l, "k", redlatch.WithReplicas(1, time.Hour))
	require.ErrorIs(t, err, redlatch.ErrInvalid)
	election, err := redlatch.NewElection(l, "k")
	require.NoError(t, err)
	require.NoError(t, election.Run(t.Context(), func(context.Context, *redlatch.Lock) error {
		require.True(t, election.Leading())
		return redlatch.ErrStop
	}))
	require.NoError(t, redlatch.Drain(t.Context(), l))
	require.Len(t, b.spansNamed("lock acquire"), 1)
}
