package redlatchotel

import (
	"cmp"
	"fmt"
	"runtime/debug"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
)

// scope is the instrumentation scope of all metrics and spans.
const scope = "github.com/redlatch/redlatch/otel"

// version returns the version of this module in the program, or unknown.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		return versionIn(info)
	}
	return unknown
}

const unknown = "(unknown)"

// versionIn returns the version of this module in a program with this build info. Code that
// replaces a version is not that version.
func versionIn(info *debug.BuildInfo) string {
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path != scope {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		return cmp.Or(m.Version, unknown)
	}
	return unknown
}

// An Option changes what [Hooks] and [Locker] record, and where.
type Option func(*config)

// config is the result of the options.
type config struct {
	meters  metric.MeterProvider
	tracers trace.TracerProvider
	key     func(key string) string // nil: no key
	spanKey bool
}

// newConfig applies opts. The defaults are the global providers.
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

// WithKeyAttribute puts of(key) on metrics and spans as redlatch.key, unless it is empty. of must
// have few different results, since each makes new time series. Return the kind of the key, such as
// "orders" for "orders:42". The default is no such attribute.
func WithKeyAttribute(of func(key string) string) Option {
	return func(c *config) { c.key = of }
}

// WithSpanKey puts the whole key on spans, instead of the result of [WithKeyAttribute]. An
// attribute of spans can have any number of values. Metrics are not changed.
func WithSpanKey() Option {
	return func(c *config) { c.spanKey = true }
}

// metricAttributes returns attrs and the attribute of key for a metric, if there is one.
func (c *config) metricAttributes(key string, attrs ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(c.withKey(attrs, key)...))
}

// spanAttributes returns attrs and the attribute of key for a span, if there is one.
func (c *config) spanAttributes(key string, attrs ...attribute.KeyValue) []attribute.KeyValue {
	if c.spanKey {
		return append(attrs, keyAttribute.String(key))
	}
	return c.withKey(attrs, key)
}

// withKey adds the result of WithKeyAttribute for key. key is empty if an event has none.
func (c *config) withKey(attrs []attribute.KeyValue, key string) []attribute.KeyValue {
	if c.key != nil && key != "" {
		if kind := c.key(key); kind != "" {
			attrs = append(attrs, keyAttribute.String(kind))
		}
	}
	return attrs
}

// invalid returns an error that matches redlatch.ErrInvalid and says what is wrong.
func invalid(format string, args ...any) error {
	return fmt.Errorf("redlatchotel: "+format+": %w", append(args, redlatch.ErrInvalid)...)
}
