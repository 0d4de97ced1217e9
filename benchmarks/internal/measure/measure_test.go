package measure

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestMedianIsTheMiddleAndLeavesItsInputAlone(t *testing.T) {
	values := []float64{9, 1, 5}
	require.Equal(t, 5.0, Median(values))
	require.Equal(t, []float64{9, 1, 5}, values)
	require.Equal(t, 3.0, Median([]float64{1, 2, 4, 100}))
	require.True(t, math.IsNaN(Median(nil)))
}

func TestJainIsOneWhereAllAreServedAlikeAndAShareWhereOneIsServedAlone(t *testing.T) {
	require.Equal(t, 1.0, Jain([]int64{7, 7, 7}))
	require.Equal(t, 0.25, Jain([]int64{0, 9, 0, 0}))
	require.InDelta(t, 36.0/(3*14), Jain([]int64{1, 2, 3}), 1e-9)
	require.True(t, math.IsNaN(Jain([]int64{0, 0})))
	require.True(t, math.IsNaN(Jain(nil)))
}

func TestMean(t *testing.T) {
	require.Equal(t, 2.0, Mean([]float64{1, 1, 4}))
	require.True(t, math.IsNaN(Mean(nil)))
}

func TestQuantileIsWithinAHundredthOfTheTruth(t *testing.T) {
	var h, rest Histogram
	for i := 1; i <= 10_000; i++ {
		into := &h
		if i%3 == 0 {
			into = &rest
		}
		into.Add(time.Duration(i) * 37 * time.Microsecond)
	}
	h.Merge(&rest)
	require.Equal(t, 10_000, h.Count())
	require.Equal(t, 370*time.Millisecond, h.Longest())
	require.InDelta(t, 10_001.0/2*37e-6, h.Mean(), 1e-12)
	for _, q := range []float64{0.001, 0.1, 0.5, 0.99, 1} {
		want := q * 0.37
		require.InDelta(t, want, h.Quantile(q), want/100, "quantile %v", q)
	}
}

func TestHistogramTakesEveryDuration(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 127, 128, 129, 255, 256, time.Second, math.MaxInt64} {
		var h Histogram
		h.Add(d)
		require.InDelta(t, d.Seconds(), h.Quantile(0.5), d.Seconds()/100, "%d", d)
	}
	var h Histogram
	h.Add(-time.Second)
	require.Zero(t, h.Quantile(0.5))
	require.True(t, math.IsNaN(new(Histogram).Quantile(0.5)))
	require.True(t, math.IsNaN(new(Histogram).Mean()))
}

func TestCommandsOfClientsAreDistinguishedFromThoseInScripts(t *testing.T) {
	const info = "# CPU\r\nused_cpu_sys:1.500000\r\nused_cpu_user:0.250000\r\nused_cpu_sys_children:9.0\r\n" +
		"\r\n# Commandstats\r\ncmdstat_evalsha:calls=10,usec=1,usec_per_call=0.10\r\n" +
		"cmdstat_script|load:calls=1,usec=1\r\ncmdstat_get:calls=20,usec=1\r\ncmdstat_info:calls=99,usec=1\r\n"
	var u Usage
	NewMeter([]string{"evalsha", "script|load"}).readInfo(info, &u)
	require.Equal(t, 1750*time.Millisecond, u.RedisCPU)
	require.Equal(t, 31.0, u.Commands)
	require.Equal(t, 11.0, u.Direct)
}

func TestUsageIsTheDifferenceOfTwoReadings(t *testing.T) {
	start := Usage{ClientCPU: 1, RedisCPU: 2, Commands: 3, Direct: 4, Allocations: 5, Bytes: 6}
	end := Usage{ClientCPU: 11, RedisCPU: 22, Commands: 33, Direct: 44, Allocations: 55, Bytes: 66}
	require.Equal(t, Usage{ClientCPU: 10, RedisCPU: 20, Commands: 30, Direct: 40, Allocations: 50, Bytes: 60}, end.Since(start))
}

func TestWakeTakesTime(t *testing.T) {
	wake, err := Wake()
	require.NoError(t, err)
	require.Positive(t, wake)
}
