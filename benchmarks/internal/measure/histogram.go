package measure

import (
	"math"
	"math/bits"
	"time"
)

// precision is how many bits of a duration are kept below its highest one: 6 make a bucket 1.6 %
// wide at most, and its middle 0.8 % wrong.
const precision = 6

// Histogram counts durations in buckets of a constant relative width. It has a fixed size and
// allocates nothing, so that it does not affect the measurement. It is for one goroutine; the zero
// value is empty.
type Histogram struct {
	buckets [(64 - precision) << precision]uint32
	count   uint64
	sum     time.Duration
	longest time.Duration
}

// Add counts d; a negative one, which a stepped clock may make, counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.buckets[bucket(uint64(d))]++
	h.count++
	h.sum += d
	h.longest = max(h.longest, d)
}

// Merge counts what other has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
	h.sum += other.sum
	h.longest = max(h.longest, other.longest)
}

// Count returns how many durations were added.
func (h *Histogram) Count() int { return int(h.count) }

// Mean returns the mean of all durations, exactly, in seconds. It is NaN if there are none.
func (h *Histogram) Mean() float64 { return h.sum.Seconds() / float64(h.count) }

// Longest returns the longest duration, exactly.
func (h *Histogram) Longest() time.Duration { return h.longest }

// Quantile returns the duration that the share q of all does not exceed, in seconds. It is NaN if
// there are none.
func (h *Histogram) Quantile(q float64) float64 {
	if h.count == 0 {
		return math.NaN()
	}
	rank := uint64(math.Ceil(q * float64(h.count)))
	var seen uint64
	for i, n := range h.buckets {
		if seen += uint64(n); seen >= rank && n > 0 {
			return min(middle(i), float64(h.longest)) / float64(time.Second)
		}
	}
	return h.longest.Seconds()
}

// bucket returns where d is counted: exactly below 2^precision, else by its highest bits.
func bucket(d uint64) int {
	shift := bits.Len64(d) - 1 - precision
	if shift < 0 {
		return int(d)
	}
	return shift<<precision + int(d>>shift)
}

// middle returns the duration that stands for bucket i, in nanoseconds.
func middle(i int) float64 {
	shift := max(i>>precision-1, 0)
	low := i - shift<<precision
	return (float64(low) + 0.5*float64(min(shift, 1))) * math.Exp2(float64(shift))
}
