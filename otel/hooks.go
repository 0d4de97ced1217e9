// Package redlatchotel records what happens to the locks of package redlatch by OpenTelemetry.
//
// [Hooks] are the metrics, [Locker] adds spans and what only the caller of a Locker can measure.
// Either works without the other. The token of a lock is never recorded, and its key only where an
// option asks for it.
package redlatchotel

import (
	"context"
	"errors"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

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
	errorAttribute     = attribute.Key("error.type")
)

var (
	// waits starts where a lock that is free is granted, below a millisecond on a near Redis, and
	// ends where somebody has noticed.
	waits = metric.WithExplicitBucketBoundaries(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25,
		0.5, 1, 2.5, 5, 10, 30, 60)
	// holds reaches to jobs of hours, which renewal allows.
	holds = metric.WithExplicitBucketBoundaries(0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300,
		900, 3600, 14400)
)

// recorder keeps the instruments of one Hooks.
type recorder struct {
	config
	wait, hold                                              metric.Float64Histogram
	grants, refusals, renewals, losses, degrading, troubles metric.Int64Counter
	held                                                    metric.Int64UpDownCounter
}

// Hooks returns [redlatch.Hooks] that record metrics: histograms of how long was waited for locks
// and how long they were held, how many are held now, and counters of grants, refusals, renewals, losses, degraded
// waiting and trouble that was ridden out. The package's README lists them. Give them to a constructor of redlatch by
// [redlatch.WithHooks], with others by [redlatch.JoinHooks].
//
// A hook has no context, so metrics carry no exemplars. The error is redlatch.ErrInvalidOption for
// an option that cannot work, or that of the meter provider.
func Hooks(opts ...Option) (redlatch.Hooks, error) {
	c, err := newConfig(opts)
	if err != nil {
		return redlatch.Hooks{}, err
	}
	r := recorder{config: c}
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
	r.refusals = counter("redlatch.lock.refusals", "{refusal}", "Calls of Lock that had to wait, since another owner had the key.")
	r.renewals = counter("redlatch.lock.renewals", "{renewal}", "Renewals of locks, those by Extend included.")
	r.losses = counter("redlatch.lock.losses", "{loss}", "Locks that ended before they were released.")
	r.degrading = counter("redlatch.lock.degraded", "{event}", "Times that waiters began to poll, since Redis does not tell them of their turn.")
	r.troubles = counter("redlatch.trouble", "{event}", "Failures that were ridden out, by cause and node, once a second for one at most.")
	held, e := meter.Int64UpDownCounter("redlatch.lock.held", metric.WithUnit("{lock}"), metric.WithDescription("Locks that are held."))
	if err = errors.Join(err, e); err != nil {
		return redlatch.Hooks{}, err
	}
	r.held = held
	return redlatch.Hooks{
		Acquired: func(e redlatch.Event) {
			at := r.event(e)
			r.held.Add(context.Background(), 1, at)
			r.grants.Add(context.Background(), 1, at)
			r.wait.Record(context.Background(), e.Elapsed.Seconds(), at)
		},
		Waiting:     func(e redlatch.Event) { r.refusals.Add(context.Background(), 1, r.event(e)) },
		Renewed:     func(e redlatch.Event) { r.renewals.Add(context.Background(), 1, r.ended(e, "renewed")) },
		RenewFailed: func(e redlatch.Event) { r.renewals.Add(context.Background(), 1, r.ended(e, "renewed")) },
		Lost: func(e redlatch.Event) {
			at := r.ended(e, "lost")
			r.held.Add(context.Background(), -1, r.event(e))
			r.losses.Add(context.Background(), 1, at)
			r.hold.Record(context.Background(), e.Elapsed.Seconds(), at)
		},
		Released: func(e redlatch.Event) {
			r.held.Add(context.Background(), -1, r.event(e))
			r.hold.Record(context.Background(), e.Elapsed.Seconds(), r.ended(e, "released"))
		},
		Degraded: func(e redlatch.Event) { r.degrading.Add(context.Background(), 1, r.event(e)) },
		Trouble: func(e redlatch.Event) {
			attrs := []attribute.KeyValue{strategyAttribute.String(e.Strategy), causeAttribute.String(e.Cause)}
			if e.Node != "" {
				attrs = append(attrs, nodeAttribute.String(e.Node))
			}
			r.troubles.Add(context.Background(), 1, r.metricAttributes(e.Key, attrs...))
		},
	}, nil
}

// event returns the attributes of e.
func (r *recorder) event(e redlatch.Event) metric.MeasurementOption {
	return r.metricAttributes(e.Key, strategyAttribute.String(e.Strategy))
}

// ended returns the attributes of e with its outcome, which is done where it carries no error.
func (r *recorder) ended(e redlatch.Event, done string) metric.MeasurementOption {
	return r.metricAttributes(e.Key, strategyAttribute.String(e.Strategy), outcomeAttribute.String(outcome(e.Err, done)))
}
