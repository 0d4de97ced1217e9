// Package measure has what a measurement is made of: statistics, and the meters of this process
// and of Redis.
package measure

import (
	"math"
	"slices"
)

// Median returns the middle of the values, or the mean of the two in the middle; NaN for none. It
// leaves the slice as it is.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	half := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[half]
	}
	return (sorted[half-1] + sorted[half]) / 2
}

// Mean returns the mean of the values, or NaN for none.
func Mean(values []float64) float64 {
	var sum float64
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// Jain returns Jain's index of fairness over how often each was served:
//
//	(Σ n)² / (count × Σ n²)
//
// It is 1 if all were served alike, 1/count if only one was served, and NaN if nobody was served.
func Jain(served []int64) float64 {
	var sum, squares float64
	for _, n := range served {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	if squares == 0 {
		return math.NaN()
	}
	return sum * sum / (float64(len(served)) * squares)
}
