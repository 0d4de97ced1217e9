package redlatchotel

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
)

// Locker returns a Locker that calls l and records spans, a histogram, how many calls of Lock wait
// now, and how long the oldest of these has waited. Waits of [redlatch.Lead] have the attribute
// redlatch.lead.
//
// Each Lock ("lock acquire"), TryLock ("lock try") and Adopt ("lock adopt") has a span. The
// histogram has the duration and the outcome of these calls. It includes refused calls of TryLock
// and waits that were given up, which [Hooks] does not record.
//
// Each Extend ("lock extend") and Unlock ("lock unlock") of a lock that these calls returned has a
// span too. It lasts as long as Redis took. Its parent is the span in its ctx. If there is none, the
// parent is the span in the ctx of the call that acquired the lock.
//
// If the lock is lost while the span in the ctx of the call that acquired it is recorded, that span
// gets the event "lock lost". An Extend that finds the loss has no span. An Extend or Unlock after
// the loss has none either. If Unlock finds the loss, its span says so.
//
// The arguments of a call go to l unchanged, except that the ctx contains the span and that the
// options also have hooks that record spans. If a call fails, error.type and the status of its span
// say what is known of the cause, without key and token. If another owner has the key, a TryLock or
// a wait that ctx ended is not a failure.
//
// The error matches [redlatch.ErrInvalid] if l is nil or an option is invalid. Otherwise it
// is an error of the meter provider.
func Locker(l redlatch.Locker, opts ...Option) (redlatch.Locker, error) {
	c, err := newConfig(opts)
	if err != nil {
		return nil, err
	}
	if p := reflect.ValueOf(l); l == nil || p.Kind() == reflect.Pointer && p.IsNil() {
		return nil, invalid("the Locker is nil")
	}
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(version()))
	duration, err := meter.Float64Histogram("redlatch.operation.duration", metric.WithUnit("s"),
		metric.WithDescription("Duration of calls of Lock, TryLock and Adopt, whatever their outcome."), waits)
	if err != nil {
		return nil, err
	}
	waiters, err := meter.Int64UpDownCounter("redlatch.lock.waiting", metric.WithUnit("{call}"),
		metric.WithDescription("Calls of Lock that have not returned."))
	if err != nil {
		return nil, err
	}
	oldest, err := waitingOf(c, meter)
	if err != nil {
		return nil, err
	}
	tracer := c.tracers.Tracer(scope, trace.WithInstrumentationVersion(version()))
	return &locker{Locker: l, config: c, tracer: tracer, duration: duration, waiters: waiters, oldest: oldest}, nil
}

// locker traces some calls. The others go to the embedded Locker.
type locker struct {
	redlatch.Locker
	config
	tracer   trace.Tracer
	duration metric.Float64Histogram
	waiters  metric.Int64UpDownCounter
	oldest   *ages // of the calls that wait
}

// Unwrap returns the embedded Locker, through which [redlatch.Drain], [redlatch.Forget],
// [redlatch.NewElection] and [redlatch.NewMigration] look.
func (l *locker) Unwrap() redlatch.Locker { return l.Locker }

// Format prints what fmt prints of the embedded Locker.
func (l *locker) Format(f fmt.State, verb rune) {
	_, _ = fmt.Fprintf(f, fmt.FormatString(f, verb), l.Locker)
}

// Lock calls Lock of the embedded Locker in a span.
func (l *locker) Lock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	waiting, returned := l.waits(key)
	defer returned()
	opts = l.withHooks(ctx, opts, waiting)
	return l.traced(ctx, "acquire", key, func(ctx context.Context) (*redlatch.Lock, error) {
		return l.Locker.Lock(ctx, key, opts...)
	})
}

// waits notes that a call of Lock waits. Call returned at its end. The hook waiting notes that it is
// a call of Lead.
func (l *locker) waits(key string) (waiting func(context.Context, redlatch.Event), returned func()) {
	call := redlatch.Event{Fence: l.oldest.number.Add(1)}
	var set attribute.Set
	count := func(n int64) { l.waiters.Add(context.Background(), n, metric.WithAttributeSet(set)) }
	begin := func(lead bool) {
		set, call.Lead = attribute.NewSet(l.withKey(withLead(nil, lead), key)...), lead
		count(1)
		l.oldest.begin(set, call)
	}
	end := func() {
		count(-1)
		l.oldest.end(set, call)
	}
	begin(false)
	return func(_ context.Context, e redlatch.Event) { // in the goroutine of the call
		if e.Lead && !call.Lead {
			end()
			begin(true)
		}
	}, end
}

// TryLock calls TryLock of the embedded Locker in a span.
func (l *locker) TryLock(ctx context.Context, key string, opts ...redlatch.Option) (*redlatch.Lock, error) {
	opts = l.withHooks(ctx, opts, nil)
	return l.traced(ctx, "try", key, func(ctx context.Context) (*redlatch.Lock, error) {
		return l.Locker.TryLock(ctx, key, opts...)
	})
}

// Adopt calls Adopt of the embedded Locker in a span.
func (l *locker) Adopt(
	ctx context.Context, key string, token redlatch.Token, opts ...redlatch.Option,
) (*redlatch.Lock, error) {
	opts = l.withHooks(ctx, opts, nil)
	return l.traced(ctx, "adopt", key, func(ctx context.Context) (*redlatch.Lock, error) {
		return l.Locker.Adopt(ctx, key, token, opts...)
	})
}

// traced makes a call in a span. If ctx is nil, there is no span, and the call refuses it.
func (l *locker) traced(
	ctx context.Context, op, key string, call func(context.Context) (*redlatch.Lock, error),
) (*redlatch.Lock, error) {
	if ctx == nil {
		return call(ctx)
	}
	operation := operationAttribute.String(op)
	inside, span := l.tracer.Start(ctx, "lock "+op, trace.WithAttributes(l.spanAttributes(key, operation)...))
	defer span.End()
	started := time.Now()
	lock, err := call(inside)
	ended := callOutcome(ctx, err)
	l.duration.Record(inside, time.Since(started).Seconds(),
		l.metricAttributes(key, operation, outcomeAttribute.String(ended)))
	span.SetAttributes(outcomeAttribute.String(ended))
	switch {
	case err == nil && lock == nil: // l is a fake. Do and the like refuse this
	case err == nil:
		span.SetAttributes(fence(lock))
		l.watch(trace.SpanFromContext(ctx), lock)
	case !errors.Is(err, redlatch.ErrNotAcquired):
		span.SetAttributes(errorAttribute.String(ended))
		span.SetStatus(codes.Error, status(ended, err))
	}
	return lock, err
}

// withHooks adds hooks to opts: waiting, and some that record a span for each Extend and Unlock of
// the lock. The parent is the span in the ctx of that call. If there is none, it is that in ctx, of
// the call that acquires the lock. The span is recorded after the call, when the event has the time
// that Redis took. Renewals have no span, and neither have losses that no Unlock found.
func (l *locker) withHooks(
	ctx context.Context, opts []redlatch.Option, waiting func(context.Context, redlatch.Event),
) []redlatch.Option {
	if ctx == nil {
		return opts
	}
	acquired := trace.SpanContextFromContext(ctx) // without the rest of ctx, which may end long before the lock
	made := func(op, done string) func(context.Context, redlatch.Event) {
		return func(ctx context.Context, e redlatch.Event) {
			if e.Renewal || e.Took == 0 {
				return
			}
			if !trace.SpanContextFromContext(ctx).IsValid() {
				ctx = trace.ContextWithSpanContext(ctx, acquired)
			}
			now := time.Now()
			ended := outcome(e.Err, done)
			attrs := l.spanAttributes(e.Key, operationAttribute.String(op), outcomeAttribute.String(ended),
				fenceAttribute.Int64(int64(e.Fence)))
			if e.Owner != "" {
				attrs = append(attrs, ownerAttribute.String(e.Owner))
			}
			_, span := l.tracer.Start(ctx, "lock "+op, trace.WithTimestamp(now.Add(-e.Took)),
				trace.WithAttributes(attrs...))
			if e.Err != nil {
				span.SetAttributes(errorAttribute.String(ended))
				span.SetStatus(codes.Error, status(ended, e.Err))
			}
			span.End(trace.WithTimestamp(now))
		}
	}
	return append(slices.Clip(opts), redlatch.WithHooks(redlatch.Hooks{
		Waiting: waiting, Renewed: made("extend", "extended"), RenewFailed: made("extend", "extended"),
		Released: made("unlock", "released"), Lost: made("unlock", "released"),
	}))
}

// status returns the description of a failed span.
func status(ended string, err error) string {
	if why := reason(err); why != "" {
		return ended + ": " + why
	}
	return ended
}

// watch adds an event to the caller's span when lock is lost. It keeps no reference to lock: a lock
// that its owner has forgotten must be garbage-collected, since that ends its renewal.
func (l *locker) watch(caller trace.Span, lock *redlatch.Lock) {
	if !caller.IsRecording() {
		return
	}
	attrs := l.spanAttributes(lock.Key(), fence(lock))
	held := lock.Context(context.Background())
	// Runs once, when the lock ends.
	context.AfterFunc(held, func() {
		if err := context.Cause(held); errors.Is(err, redlatch.ErrLost) {
			attrs = append(attrs, outcomeAttribute.String(outcome(err, "")))
			caller.AddEvent("lock lost", trace.WithAttributes(attrs...))
		}
	})
}

// fence returns the fence of lock as an attribute. A fence fits an int64, since it is at most a
// number of microseconds.
func fence(lock *redlatch.Lock) attribute.KeyValue {
	return fenceAttribute.Int64(int64(lock.Fence()))
}
