package redlatchotel_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch"
	redlatchotel "github.com/redlatch/redlatch/otel"
)

// must keeps the examples short: they run on an embedded Redis that answers.
func must(err error) {
	if err != nil {
		panic(err)
	}
}

// record sets global providers that keep what they receive. The function that it returns ends that.
func record() (*sdkmetric.ManualReader, *tracetest.SpanRecorder, func()) {
	reader, spans := sdkmetric.NewManualReader(), tracetest.NewSpanRecorder()
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))
	return reader, spans, func() {
		otel.SetMeterProvider(noop.NewMeterProvider())
		otel.SetTracerProvider(tracenoop.NewTracerProvider())
	}
}

// newLocker is the code that the README shows.
func newLocker(client redis.UniversalClient) (redlatch.Locker, error) {
	hooks, err := redlatchotel.Hooks() // records to the global providers
	if err != nil {
		return nil, err
	}
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithHooks(hooks))
	if err != nil {
		return nil, err
	}
	return redlatchotel.Locker(locker, redlatchotel.WithSpanKey())
}

func Example() {
	reader, spans, end := record()
	defer end()
	server := miniredis.NewMiniRedis()
	must(server.Start())
	defer server.Close()
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	ctx := context.Background()

	locker, err := newLocker(client)
	must(err)
	lock, err := locker.Lock(ctx, "orders:42", redlatch.WithOwner("api-7"))
	must(err)
	_, err = locker.TryLock(ctx, "orders:42")
	fmt.Println(err)
	must(lock.Unlock(ctx))

	for _, span := range spans.Ended() {
		fmt.Println("span:", span.Name(), span.Status().Code)
	}
	var metrics metricdata.ResourceMetrics
	must(reader.Collect(ctx, &metrics))
	for _, m := range metrics.ScopeMetrics[0].Metrics {
		fmt.Println("metric:", m.Name, m.Unit)
	}
	// Unordered output:
	// redlatch: try lock "orders:42": held by "api-7"
	// span: lock acquire Unset
	// span: lock try Unset
	// span: lock unlock Unset
	// metric: redlatch.lock.grants {grant}
	// metric: redlatch.lock.refusals {refusal}
	// metric: redlatch.lock.renewals {renewal}
	// metric: redlatch.lock.losses {loss}
	// metric: redlatch.lock.degraded {event}
	// metric: redlatch.lock.waiting {call}
	// metric: redlatch.lock.wait.oldest s
	// metric: redlatch.lock.wait.duration s
	// metric: redlatch.lock.hold.duration s
	// metric: redlatch.lock.held {lock}
	// metric: redlatch.lock.hold.oldest s
	// metric: redlatch.operation.duration s
}

// Keys are unbounded, so metrics do not have them. They have the kind of the key if an option says
// how to derive it.
func ExampleWithKeyAttribute() {
	kind := func(key string) string {
		kind, _, _ := strings.Cut(key, ":")
		return kind
	}
	_, err := redlatchotel.Hooks(redlatchotel.WithKeyAttribute(kind))
	fmt.Println(kind("orders:42"), err)
	// Output:
	// orders <nil>
}

// trimmed returns text without the indentation of its lines.
func trimmed(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimSpace(line)
	}
	return strings.Join(lines, "\n")
}

// TestREADMECodeIsCompiled: this file contains each block of Go code, so that the code compiles
// and runs.
func TestREADMECodeIsCompiled(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	source, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	require.NotEmpty(t, blocks)
	for _, block := range blocks {
		require.Contains(t, trimmed(string(source)), trimmed(block[1]))
	}
}

// TestREADMEListsEveryMetric: it lists each metric with its unit, and no others.
func TestREADMEListsEveryMetric(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	b := newLab(t)
	hooks, err := redlatchotel.Hooks(b.opts...)
	require.NoError(t, err)
	for _, hook := range []func(context.Context, redlatch.Event){
		hooks.Acquired, hooks.Waiting, hooks.Renewed, hooks.RenewFailed, hooks.Lost, hooks.Released, hooks.Degraded,
		hooks.Trouble,
	} {
		hook(t.Context(), redlatch.Event{})
	}
	_, err = b.locker(t, nil, nil).Lock(t.Context(), "k")
	require.NoError(t, err)
	listed := make(map[string]string)
	rows := regexp.MustCompile("(?m)^\\| `(redlatch\\.[a-z.]+)` \\|[^|]*\\| `([^`]+)` \\|")
	for _, row := range rows.FindAllStringSubmatch(string(readme), -1) {
		listed[row[1]] = row[2]
	}
	recorded := make(map[string]string)
	for name, m := range b.metrics(t) {
		recorded[name] = m.Unit
	}
	require.Equal(t, recorded, listed)
}

// isLook reports whether a command of redlatch only looks whether a lock that somebody waits for is free.
func isLook(cmd redis.Cmder) bool {
	args := cmd.Args()
	return len(args) > 5 && strings.HasPrefix(cmd.Name(), "eval") && args[len(args)-1] == "again"
}
