package redlatchotel_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
)

// clientSpans instruments the client. It returns a function that returns the ended spans of its
// scripts, alone or in pipelines.
func (b *lab) clientSpans(t *testing.T, opts ...redisotel.TracingOption) func() []sdktrace.ReadOnlySpan {
	t.Helper()
	opts = append([]redisotel.TracingOption{redisotel.WithTracerProvider(b.tracer)}, opts...)
	require.NoError(t, redisotel.InstrumentTracing(b.client, opts...))
	return func() (found []sdktrace.ReadOnlySpan) {
		for _, s := range b.spans.Ended() {
			if strings.Contains(s.InstrumentationScope().Name, "redisotel") && strings.Contains(s.Name(), "eval") {
				found = append(found, s)
			}
		}
		return found
	}
}

// request begins a request, which has a span.
func (b *lab) request(t *testing.T) context.Context {
	ctx, span := b.tracer.Tracer("app").Start(t.Context(), "request")
	t.Cleanup(func() { span.End() })
	return ctx
}

// waits has a call of Lock wait for key, and look for it again.
func (b *lab) waits(t *testing.T, l redlatch.Locker, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(b.request(t), 4*time.Second) // a look comes after one
	defer cancel()
	_, err := l.Lock(ctx, key)
	require.ErrorIs(t, err, redlatch.ErrNotAcquired)
}

// TestEverySpanOfAPipelineHasAParent: if each caller has a span. It is that of one of the calls in
// the pipeline.
func TestEverySpanOfAPipelineHasAParent(t *testing.T) {
	t.Parallel()
	b := newLab(t)
	spans := b.clientSpans(t)
	l := b.locker(t, nil, nil)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 20 {
				ctx := b.request(t)
				lock, err := l.Lock(ctx, fmt.Sprint("k", i))
				if err == nil {
					err = lock.Unlock(ctx)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	pipelines := 0
	for _, s := range spans() {
		require.True(t, s.Parent().IsValid(), "%s", s.Name())
		if strings.HasPrefix(s.Name(), "redis.pipeline") {
			pipelines++
		}
	}
	require.Positive(t, pipelines)
}

// TestStatementsHaveKeysAndNoTokens: db.statement has the key as the program wrote it, and an
// address in place of each token. WithDBStatement(false) leaves it out.
func TestStatementsHaveKeysAndNoTokens(t *testing.T) {
	t.Parallel()
	for _, records := range []bool{true, false} {
		t.Run(fmt.Sprint(records), func(t *testing.T) {
			t.Parallel()
			b := newLab(t)
			spans := b.clientSpans(t, redisotel.WithDBStatement(records))
			l := b.locker(t, nil, nil, redlatch.WithOwner("alice"))
			lock, err := l.Lock(b.request(t), "orders:42")
			require.NoError(t, err)
			b.waits(t, l, "orders:42")
			require.NoError(t, lock.Unlock(b.request(t)))
			require.NotEmpty(t, spans())
			for _, s := range spans() {
				statement, recorded := attributes(s)["db.statement"]
				require.Equal(t, records, recorded)
				require.Equal(t, records, strings.Contains(statement, " orders:42 "))
				require.NotContains(t, statement, "alice/", "that is how tokens begin")
			}
		})
	}
}

// TestRenewalsAndLooksCanBeLeftOut: as the README says.
func TestRenewalsAndLooksCanBeLeftOut(t *testing.T) {
	t.Parallel()
	for _, leavesOut := range []bool{false, true} {
		t.Run(fmt.Sprint(leavesOut), func(t *testing.T) {
			t.Parallel()
			b := newLab(t)
			var opts []redisotel.TracingOption
			if leavesOut {
				opts = []redisotel.TracingOption{
					redisotel.WithTracerProvider(sdktrace.NewTracerProvider(
						sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())), sdktrace.WithSpanProcessor(b.spans))),
					redisotel.WithCommandFilter(isLook),
				}
			}
			spans := b.clientSpans(t, opts...)
			renewed := make(chan struct{}, 100)
			l := b.locker(t, nil, nil, redlatch.WithHooks(redlatch.Hooks{Renewed: func(context.Context, redlatch.Event) { renewed <- struct{}{} }}))
			ctx := b.request(t)
			lock, err := l.Lock(ctx, "k", redlatch.WithTTL(6*time.Second))
			require.NoError(t, err)
			<-renewed
			b.waits(t, l, "k")
			require.NoError(t, lock.Unlock(ctx))
			var roots, looks int
			for _, s := range spans() {
				if !s.Parent().IsValid() {
					roots++
				}
				if strings.HasSuffix(attributes(s)["db.statement"], " again") {
					looks++
				}
			}
			require.Equal(t, leavesOut, roots == 0, "renewals")
			require.Equal(t, leavesOut, looks == 0)
			require.NotEmpty(t, spans(), "those of the calls")
		})
	}
}
