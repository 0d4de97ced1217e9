// Package redlatchotel records OpenTelemetry metrics and spans for the locks of package redlatch.
//
// [Hooks] returns hooks that record metrics. [Locker] adds spans, and a histogram of the calls that
// acquire a lock. Each works without the other. The token of a lock is never recorded. Its key is
// recorded only if an option asks for it.
package redlatchotel

import (
	"context"
	"errors"
	"sync"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
)

const (
	strategyAttribute  = attribute.Key("redlatch.strategy")
	operationAttribute = attribute.Key("redlatch.operation")
	outcomeAttribute   = attribute.Key("redlatch.outcome")
	keyAttribute       = attribute.Key("redlatch.key")
	fenceAttribute     = attribute.Key("redlatch.fence")
	ownerAttribute     = attribute.Key("redlatch.owner")
	causeAttribute     = attribute.Key("redlatch.cause")
	nodeAttribute      = attribute.Key("redlatch.node")
	leadAttribute      = attribute.Key("redlatch.lead")
	errorAttribute     = attribute.Key("error.type")
)

var (
	// waits starts below a millisecond, since a near Redis grants a free lock in that time. It ends
	// at a minute, since somebody notices such a long wait.
	waits = metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
		0.5, 1, 2.5, 5, 10, 30, 60)
	// holds includes hours, since a renewed lock can last for hours.
	holds = metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300,
		900, 3600, 14400)
)

// recorder has the instruments of one call of Hooks.
type recorder struct {
	config
	wait, hold                                              metric.Float64Histogram
	grants, refusals, renewals, losses, degrading, troubles metric.Int64Counter
	held                                                    metric.Int64UpDownCounter
	begun                                                   *sync.Map // the sets of attributes whose counters are there
	told                                                    *told
}

// Hooks returns [redlatch.Hooks] that record metrics. Histograms have the time to acquire locks and the
// time that they were held. Gauges have the number of locks that are held now, and the age of the
// oldest. Counters count grants, refusals, renewals, losses, degraded waiting, and failures of Redis,
// retried or returned. All but the last begin at 0 with the first grant. The README of this package
// lists them. The locks of [redlatch.Lead] have the attribute redlatch.lead. Pass the result to a
// constructor of redlatch with [redlatch.WithHooks], which may be given once more for other hooks.
//
// Share one result among all Lockers. Otherwise the age of the oldest lock covers only the locks of one
// result.
//
// Metrics are recorded with the ctx of the call, so they have exemplars if its span is sampled. That
// span, if it is recorded, gets the events "lock waiting", "lock acquired", "lock trouble", "lock
// released" and, if Unlock finds that the lock was lost, "lock lost". A span gets "lock trouble" once
// for each cause and node, however long the call waits. Renewals give it no events.
//
// The error matches [redlatch.ErrInvalid] if an option is invalid. Otherwise it is an error of the
// meter provider.
func Hooks(opts ...Option) (redlatch.Hooks, error) {
	c, err := newConfig(opts)
	if err != nil {
		return redlatch.Hooks{}, err
	}
	r := recorder{config: c, begun: new(sync.Map), told: &told{all: make(map[trouble]struct{})}}
	meter := c.meters.Meter(scope, metric.WithInstrumentationVersion(version()))
	histogram := func(name, text string, buckets metric.HistogramOption) metric.Float64Histogram {
		h, e := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(text), buckets)
		err = errors.Join(err, e)
		return h
	}
	counter := func(name, unit, text string) metric.Int64Counter {
		n, e := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(text))
		err = errors.Join(err, e)
		return n
	}
	r.wait = histogram("redlatch.lock.wait.duration", "Time from the call to the grant of a lock.", waits)
	r.hold = histogram("redlatch.lock.hold.duration", "Time from the grant of a lock to its end.", holds)
	r.grants = counter("redlatch.lock.grants", "{grant}", "Locks that were granted or adopted.")
	r.refusals = counter("redlatch.lock.refusals", "{refusal}",
		"Calls of Lock that had to wait because another owner had the key.")
	r.renewals = counter("redlatch.lock.renewals", "{renewal}", "Renewals of locks, including calls of Extend.")
	r.losses = counter("redlatch.lock.losses", "{loss}", "Locks that ended before they were released.")
	r.degrading = counter("redlatch.lock.degraded", "{event}",
		"Times that waiters began to poll because Redis refused SUBSCRIBE or PUBLISH.")
	r.troubles = counter("redlatch.trouble", "{event}",
		"Failures of Redis, retried or returned, and of leaders, at most one a second for one cause.")
	held, e := meter.Int64UpDownCounter("redlatch.lock.held", metric.WithUnit("{lock}"),
		metric.WithDescription("Locks that are held."))
	if err = errors.Join(err, e); err != nil {
		return redlatch.Hooks{}, err
	}
	r.held = held
	oldest := ages{held: make(map[attribute.Distinct]*group)}
	_, err = meter.Float64ObservableGauge("redlatch.lock.hold.oldest", metric.WithUnit("s"),
		metric.WithDescription("Time since the grant of the oldest lock that is held."),
		metric.WithFloat64Callback(oldest.observe))
	if err != nil {
		return redlatch.Hooks{}, err
	}
	return redlatch.Hooks{
		Acquired: func(ctx context.Context, e redlatch.Event) {
			at := r.event(e)
			r.begin(ctx, e)
			r.held.Add(ctx, 1, at)
			oldest.begin(r.set(e), e)
			r.grants.Add(ctx, 1, at)
			r.wait.Record(ctx, e.Elapsed.Seconds(), at)
			r.note(ctx, "lock acquired", e, fenceAttribute.Int64(int64(e.Fence)))
		},
		Waiting: func(ctx context.Context, e redlatch.Event) {
			r.refusals.Add(ctx, 1, r.event(e))
			r.note(ctx, "lock waiting", e)
		},
		Renewed: func(ctx context.Context, e redlatch.Event) { r.renewals.Add(ctx, 1, r.ended(e, "renewed")) },
		RenewFailed: func(ctx context.Context, e redlatch.Event) {
			r.renewals.Add(ctx, 1, r.ended(e, "renewed"))
		},
		Lost: func(ctx context.Context, e redlatch.Event) {
			r.losses.Add(ctx, 1, r.ended(e, "lost"))
			r.end(ctx, e, "lost")
			oldest.end(r.set(e), e)
		},
		Released: func(ctx context.Context, e redlatch.Event) {
			r.end(ctx, e, "released")
			oldest.end(r.set(e), e)
		},
		Degraded: func(ctx context.Context, e redlatch.Event) { r.degrading.Add(ctx, 1, r.event(e)) },
		Trouble: func(ctx context.Context, e redlatch.Event) {
			attrs := []attribute.KeyValue{causeAttribute.String(string(e.Cause))}
			if e.Node != "" {
				attrs = append(attrs, nodeAttribute.String(e.Node))
			}
			span := trace.SpanContextFromContext(ctx).SpanID()
			if span.IsValid() && r.told.first(trouble{span, e.Cause, e.Node}) {
				r.note(ctx, "lock trouble", e, attrs...)
			}
			attrs = append(attrs, strategyAttribute.String(string(e.Strategy)))
			r.troubles.Add(ctx, 1, r.metricAttributes(e.Key, attrs...))
		},
	}, nil
}

// note adds an event to the span in ctx, if that is recorded.
func (r *recorder) note(ctx context.Context, what string, e redlatch.Event, attrs ...attribute.KeyValue) {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		attrs = append(attrs, strategyAttribute.String(string(e.Strategy)))
		span.AddEvent(what, trace.WithAttributes(r.spanAttributes(e.Key, attrs...)...))
	}
}

// end records the end of a lock. The outcome is done if e has no error. A loss that no Unlock found
// is not about a call.
func (r *recorder) end(ctx context.Context, e redlatch.Event, done string) {
	r.held.Add(ctx, -1, r.event(e))
	r.hold.Record(ctx, e.Elapsed.Seconds(), r.ended(e, done))
	if e.Took > 0 || done == "released" {
		r.note(ctx, "lock "+done, e, outcomeAttribute.String(outcome(e.Err, done)), fenceAttribute.Int64(int64(e.Fence)))
	}
}

// begin begins the counters of e at 0. Otherwise the first loss would be the first value of its
// counter, and no increase.
func (r *recorder) begin(ctx context.Context, e redlatch.Event) {
	set := r.set(e)
	if _, begun := r.begun.LoadOrStore(set.Equivalent(), true); begun {
		return
	}
	for _, err := range []error{redlatch.ErrLost, redlatch.ErrMaxHold} {
		lost := redlatch.Event{Strategy: e.Strategy, Key: e.Key, Lead: e.Lead, Err: err}
		r.losses.Add(ctx, 0, r.ended(lost, ""))
	}
	r.refusals.Add(ctx, 0, metric.WithAttributeSet(set))
	r.renewals.Add(ctx, 0, r.ended(e, "renewed"))
	r.degrading.Add(ctx, 0, r.event(redlatch.Event{Strategy: e.Strategy}))
}

// event returns the attributes of e.
func (r *recorder) event(e redlatch.Event) metric.MeasurementOption {
	return metric.WithAttributeSet(r.set(e))
}

// set returns the attributes of e as a set.
func (r *recorder) set(e redlatch.Event) attribute.Set {
	return attribute.NewSet(r.withKey(attributesOf(e), e.Key)...)
}

// ended returns the attributes of e and its outcome. The outcome is done if e has no error.
func (r *recorder) ended(e redlatch.Event, done string) metric.MeasurementOption {
	return r.metricAttributes(e.Key, append(attributesOf(e), outcomeAttribute.String(outcome(e.Err, done)))...)
}

// attributesOf returns those of e that do not depend on its key. What Lead waits for and holds has
// one of its own, since it may last for as long as the process.
func attributesOf(e redlatch.Event) []attribute.KeyValue {
	return withLead([]attribute.KeyValue{strategyAttribute.String(string(e.Strategy))}, e.Lead)
}

// withLead adds the attribute of calls of Lead.
func withLead(attrs []attribute.KeyValue, lead bool) []attribute.KeyValue {
	if lead {
		attrs = append(attrs, leadAttribute.Bool(true))
	}
	return attrs
}
