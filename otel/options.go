package redlatchotel

import (
	"fmt"
	"runtime/debug"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
)

// scope is the name under which everything is recorded.
const scope = "github.com/redlatch/redlatch/otel"

// version returns that of this module in the program, or what stands for none.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return versionIn(info)
	}
	return unknown
}

const unknown = "(unknown)"

// versionIn returns the version of this module in a program that was built so.
func versionIn(info *debug.BuildInfo) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == scope && m.Version != "" {
			return m.Version
		}
	}
	return unknown
}

// An Option changes what [Hooks] and [Locker] record and where to.
type Option func(*config)

// config is what the options come to.
type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	key     func(key string) string // nil: no key
	spanKey bool
}

// newConfig applies opts to the global providers.
func newConfig(opts []Option) (config, error) {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for i, opt := range opts {
		if opt == nil {
			return c, invalid("option %d is nil", i)
		}
		opt(&c)
	}
	switch {
	case c.meters == nil:
		return c, invalid("WithMeterProvider(nil)")
	case c.tracers == nil:
		return c, invalid("WithTracerProvider(nil)")
	}
	return c, nil
}

// WithMeterProvider sets where metrics go. The default is the global provider.
func WithMeterProvider(p metric.MeterProvider) Option {
	return func(c *config) { c.meters = p }
}

// WithTracerProvider sets where the spans of [Locker] go. The default is the global provider.
func WithTracerProvider(p trace.TracerProvider) Option {
	return func(c *config) { c.tracers = p }
}

// WithKeyAttribute puts of(key) on metrics and spans as redlatch.key, or nothing where that is
// empty. of must have few results, since each makes time series of its own: return the kind of the
// key, as "orders" for "orders:42". The default is no such attribute.
func WithKeyAttribute(of func(key string) string) Option {
	return func(c *config) { c.key = of }
}

// WithSpanKey puts the whole key on spans, which bear values without bound, instead of what
// [WithKeyAttribute] makes of it. Metrics are not changed.
func WithSpanKey() Option {
	return func(c *config) { c.spanKey = true }
}

// metricAttributes returns attrs and what is to be said of key on a metric.
func (c *config) metricAttributes(key string, attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(c.withKey(attrs, key)...))
}

// spanAttributes returns attrs and what is to be said of key on a span.
func (c *config) spanAttributes(key string, attrs ...attribute.KeyValue) []attribute.KeyValue {
	if c.spanKey {
		return append(attrs, keyAttribute.String(key))
	}
	return c.withKey(attrs, key)
}

// withKey adds what WithKeyAttribute makes of key, which is empty where an event is of no key.
func (c *config) withKey(attrs []attribute.KeyValue, key string) []attribute.KeyValue {
	if c.key != nil && key != "" {
		if kind := c.key(key); kind != "" {
			attrs = append(attrs, keyAttribute.String(kind))
		}
	}
	return attrs
}

// invalid returns an error that matches redlatch.ErrInvalidOption and says what is wrong.
func invalid(format string, args ...any) error {
	return fmt.Errorf("redlatchotel: "+format+": %w", append(args, redlatch.ErrInvalidOption)...)
}
