package redlatchotel

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
)

// Locker returns l with a span around each Lock ("lock acquire"), TryLock ("lock try") and Adopt
// ("lock adopt"), and a histogram of how long they took and how they ended: it counts refusals of
// TryLock and waits that were given up, of which [Hooks] do not hear. Each Extend ("lock extend") and Unlock
// ("lock unlock") of a lock that it returned has a span too, a child of that in the ctx of the call that took the
// lock, as long as Redis took. A lock that is lost adds the event "lock lost" to that one, while it is recorded:
// an Extend that finds the loss, or comes after it, has no span, nor has an Unlock after it. Where only Unlock
// finds the loss, its span says so.
//
// Every call passes through as it came, its ctx with the span as a value, and hooks of its own beside the caller's.
// Where a call fails, error.type and the status of its span say what is known of the cause without naming key or
// token. That another owner has the key is no failure, of a TryLock or of a wait that ctx ended.
//
// The error is redlatch.ErrInvalidOption where l is nil or an option cannot work, or that of the
// meter provider.
func Locker(l redlatch.Locker, opts ...Option) (redlatch.Locker, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if l == nil {
		return nil, invalid("the Locker is nil")
	}
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(version()))
	duration, err := meter.Float64Histogram("redlatch.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Time that calls of a Locker took, whatever their outcome."), waits)
	if err != nil {
		return nil, err
	}
	tracer := c.tracers.Tracer(scope, trace.WithInstrumentationVersion(version()))
	return &locker{Locker: l, config: c, tracer: tracer, duration: duration}, nil
}

// locker passes on what it does not trace.
type locker struct {
	redlatch.Locker
	config
	tracer   trace.Tracer
	duration metric.Float64Histogram
}

// Lock is that of the Locker inside, in a span.
func (l *locker) Lock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	opts = l.withSpans(ctx, opts)
	return l.traced(ctx, "acquire", key, func(ctx context.Context) (*redlatch.Lock, error) {
		return l.Locker.Lock(ctx, key, opts...)
	})
}

// TryLock is that of the Locker inside, in a span.
func (l *locker) TryLock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	opts = l.withSpans(ctx, opts)
	return l.traced(ctx, "try", key, func(ctx context.Context) (*redlatch.Lock, error) {
		return l.Locker.TryLock(ctx, key, opts...)
	})
}

// Adopt is that of the Locker inside, in a span.
func (l *locker) Adopt(ctx context.Context, key, token string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	opts = l.withSpans(ctx, opts)
	return l.traced(ctx, "adopt", key, func(ctx context.Context) (*redlatch.Lock, error) {
		return l.Locker.Adopt(ctx, key, token, opts...)
	})
}

// traced makes a call in a span. A ctx that is nil goes where it is refused.
func (l *locker) traced(ctx context.Context, op, key string, call func(context.Context) (*redlatch.Lock, error)) (*redlatch.Lock, error) {
	if ctx == nil {
		return call(ctx)
	}
	operation := operationAttribute.String(op)
	inside, span := l.tracer.Start(ctx, "lock "+op, trace.WithAttributes(l.spanAttributes(key, operation)...))
	defer span.End()
	started := time.Now()
	lock, err := call(inside)
	ended := callOutcome(ctx, err)
	l.duration.Record(inside, time.Since(started).Seconds(), l.metricAttributes(key, operation, outcomeAttribute.String(ended)))
	span.SetAttributes(outcomeAttribute.String(ended))
	switch {
	case err == nil:
		span.SetAttributes(fence(lock))
		l.watch(trace.SpanFromContext(ctx), lock)
	case !errors.Is(err, redlatch.ErrNotAcquired):
		span.SetAttributes(errorAttribute.String(ended))
		span.SetStatus(codes.Error, status(ended, err))
	}
	return lock, err
}

// withSpans returns opts and hooks that make a span of each Extend and Unlock of the lock, as a child of the span
// in ctx, which is that of the caller. An event tells how long Redis took, so the span is made when it has ended.
// A renewal has none, nor has a loss that no Unlock found.
func (l *locker) withSpans(ctx context.Context, opts []redlatch.Option) []redlatch.Option {
	if ctx == nil {
		return opts
	}
	parent := trace.ContextWithSpanContext(context.Background(), trace.SpanContextFromContext(ctx))
	made := func(op, done string) func(redlatch.Event) {
		return func(e redlatch.Event) {
			if e.Renewal || e.Took == 0 {
				return
			}
			now := time.Now()
			ended := outcome(e.Err, done)
			attrs := l.spanAttributes(e.Key, operationAttribute.String(op), outcomeAttribute.String(ended),
				fenceAttribute.Int64(int64(e.Fence)))
			if e.Owner != "" {
				attrs = append(attrs, ownerAttribute.String(e.Owner))
			}
			_, span := l.tracer.Start(parent, "lock "+op, trace.WithTimestamp(now.Add(-e.Took)),
				trace.WithAttributes(attrs...))
			if e.Err != nil {
				span.SetAttributes(errorAttribute.String(ended))
				span.SetStatus(codes.Error, status(ended, e.Err))
			}
			span.End(trace.WithTimestamp(now))
		}
	}
	return append(slices.Clip(opts), redlatch.WithHooks(redlatch.Hooks{
		Renewed: made("extend", "extended"), RenewFailed: made("extend", "extended"),
		Released: made("unlock", "released"), Lost: made("unlock", "released"),
	}))
}

// status says what is known of a failure.
func status(ended string, err error) string {
	if why := reason(err); why != "" {
		return ended + ": " + why
	}
	return ended
}

// watch adds an event to the caller's span when lock is lost. What it keeps does not reach lock: one
// that is forgotten must end.
func (l *locker) watch(caller trace.Span, lock *redlatch.Lock) {
	if !caller.IsRecording() {
		return
	}
	attrs := l.spanAttributes(lock.Key(), fence(lock))
	held := lock.Context(context.Background())
	// Runs once, when the lock ends.
	context.AfterFunc(held, func() {
		if err := context.Cause(held); errors.Is(err, redlatch.ErrLost) {
			caller.AddEvent("lock lost", trace.WithAttributes(append(attrs, outcomeAttribute.String(outcome(err, "")))...))
		}
	})
}

// fence returns the fence of lock as an attribute, which is at most a number of microseconds.
func fence(lock *redlatch.Lock) attribute.KeyValue {
	return fenceAttribute.Int64(int64(lock.Fence()))
}
