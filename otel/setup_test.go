package redlatchotel_test

import (
	"context"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
	redlatchotel "github.com/redlatch/redlatch/otel"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// patience is an op timeout for a busy machine.
var patience = redlatch.WithOpTimeout(4 * time.Second)

// lab is a Redis in this process, and what is recorded about its locks.
type lab struct {
	server *miniredis.Miniredis
	client *redis.Client
	reader *sdkmetric.ManualReader
	spans  *tracetest.SpanRecorder
	opts   []redlatchotel.Option // record to reader and spans
	tracer *sdktrace.TracerProvider
}

func newLab(t *testing.T) *lab {
	t.Helper()
	b := &lab{server: miniredis.RunT(t), reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	b.client = redis.NewClient(&redis.Options{Addr: b.server.Addr()})
	t.Cleanup(func() { _ = b.client.Close() })
	b.tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(b.spans))
	b.opts = []redlatchotel.Option{
		redlatchotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(b.reader))),
		redlatchotel.WithTracerProvider(b.tracer),
	}
	return b
}

// locker returns a Locker whose hooks and spans are recorded.
func (b *lab) locker(t *testing.T, hookOpts, spanOpts []redlatchotel.Option, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	hooks, err := redlatchotel.Hooks(append(hookOpts, b.opts...)...)
	require.NoError(t, err)
	inside, err := redlatch.NewSetNXPX(b.client, append([]redlatch.Option{redlatch.WithHooks(hooks), patience}, opts...)...)
	require.NoError(t, err)
	l, err := redlatchotel.Locker(inside, append(spanOpts, b.opts...)...)
	require.NoError(t, err)
	return l
}

// metrics returns what was recorded so far, by name.
func (b *lab) metrics(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, b.reader.Collect(context.Background(), &all))
	named := make(map[string]metricdata.Metrics)
	for _, scope := range all.ScopeMetrics {
		require.Equal(t, "github.com/redlatch/redlatch/otel", scope.Scope.Name)
		for _, m := range scope.Metrics {
			named[m.Name] = m
		}
	}
	return named
}

// meter returns the scope of the metrics, of which there must be one.
func (b *lab) meter(t *testing.T) instrumentation.Scope {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, b.reader.Collect(context.Background(), &all))
	require.Len(t, all.ScopeMetrics, 1)
	return all.ScopeMetrics[0].Scope
}

// count returns how often a metric was recorded with exactly these attributes.
func (b *lab) count(t *testing.T, name string, attrs ...attribute.KeyValue) (n int64) {
	t.Helper()
	want := attribute.NewSet(attrs...)
	switch data := b.metrics(t)[name].Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			if p.Attributes.Equals(&want) {
				n += p.Value
			}
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			if p.Attributes.Equals(&want) {
				n += int64(p.Count)
			}
		}
	}
	return n
}

// exemplar returns the trace of the newest exemplars of a histogram, which must be of one trace.
func (b *lab) exemplar(t *testing.T, name string) (id trace.TraceID) {
	t.Helper()
	for _, p := range b.metrics(t)[name].Data.(metricdata.Histogram[float64]).DataPoints {
		for _, e := range p.Exemplars {
			require.True(t, !id.IsValid() || id == trace.TraceID(e.TraceID), "two traces")
			id = trace.TraceID(e.TraceID)
		}
	}
	return id
}

// span returns the ended span with that name, of which there must be one.
func (b *lab) span(t *testing.T, name string) sdktrace.ReadOnlySpan {
	t.Helper()
	found := b.spansNamed(name)
	require.Len(t, found, 1, "%q", name)
	return found[0]
}

// spansNamed returns the ended spans with that name, in the order of their ends.
func (b *lab) spansNamed(name string) (found []sdktrace.ReadOnlySpan) {
	for _, s := range b.spans.Ended() {
		if s.Name() == name {
			found = append(found, s)
		}
	}
	return found
}

// attributes returns the attributes of a span, as text.
func attributes(s sdktrace.ReadOnlySpan) map[string]string {
	said := make(map[string]string)
	for _, a := range s.Attributes() {
		said[string(a.Key)] = a.Value.Emit()
	}
	return said
}

var (
	setNXPX = attribute.String("redlatch.strategy", "setnxpx")
	cause   = attribute.Key("redlatch.cause")
	node    = attribute.Key("redlatch.node")
	outcome = attribute.Key("redlatch.outcome")
	op      = attribute.Key("redlatch.operation")
)
