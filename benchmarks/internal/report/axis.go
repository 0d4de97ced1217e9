package report

import (
	"math"
	"slices"
	"strconv"
)

// axis is how values become places: from 0 at its low end to 1 at its high one.
type axis struct {
	log       bool
	low, high float64
	lines     []float64 // values with a thin line
	labels    []float64 // values with a line and a label
}

// newAxis returns an axis with room for the values and the least one that there can be.
func newAxis(values []float64, log bool, least float64) axis {
	high := max(slices.Max(values), least)
	positive := slices.DeleteFunc(slices.Clone(values), func(v float64) bool { return v <= 0 })
	if log && len(positive) > 0 {
		return logAxis(slices.Min(positive), high)
	}
	return linearAxis(high)
}

// linearAxis returns an axis from zero, with up to five steps of 1, 2 or 5 times a power of ten.
func linearAxis(high float64) axis {
	if high <= 0 {
		high = 1
	}
	step := roundUp(high / 5)
	a := axis{high: math.Ceil(high/step) * step}
	for i := 0.0; i*step <= a.high*(1+1e-9); i++ {
		a.labels = append(a.labels, sixDigits(i*step))
	}
	return a
}

// labelled is how many powers of ten may have a label.
const labelled = 7

// logAxis returns an axis with lines at the multiples of the powers of ten. It begins and ends at 1,
// 2 or 5 times one. A short axis has labels at all of these, and a longer one at each power, or at
// every second one, and so on.
func logAxis(low, high float64) axis {
	a := axis{log: true, low: roundDown(low), high: roundUp(high)}
	if a.low == a.high {
		a.low, a.high = roundDown(a.low*0.9), roundUp(a.high*1.1)
	}
	first, last := exponent(a.low), exponent(a.high)
	decades := math.Log10(a.high / a.low)
	every := 1 + (last-first)/labelled
	for e := first; e <= last; e++ {
		for digit := 1; digit <= 9; digit++ {
			value := power(digit, e)
			if value < a.low || value > a.high {
				continue
			}
			a.lines = append(a.lines, value)
			few := decades <= 2 && (digit == 1 || digit == 2 || digit == 5)
			if few || digit == 1 && (e-first)%every == 0 {
				a.labels = append(a.labels, value)
			}
		}
	}
	return a
}

// at returns the place of a value, which an end of the axis bounds.
func (a axis) at(value float64) float64 {
	place := value / a.high
	if a.log {
		place = math.Log(max(value, a.low)/a.low) / math.Log(a.high/a.low)
	}
	return min(max(place, 0), 1)
}

// power returns digit times ten to the e, as exactly as it can be.
func power(digit, e int) float64 {
	value, _ := strconv.ParseFloat(strconv.Itoa(digit)+"e"+strconv.Itoa(e), 64)
	return value
}

// exponent returns the power of ten that is not above value.
func exponent(value float64) int {
	e := int(math.Floor(math.Log10(value)))
	if power(1, e+1) <= value {
		e++
	}
	return e
}

// roundUp returns the least 1, 2 or 5 times a power of ten that is not below value.
func roundUp(value float64) float64 {
	e := exponent(value)
	for _, digit := range []int{1, 2, 5} {
		if power(digit, e) >= value {
			return power(digit, e)
		}
	}
	return power(1, e+1)
}

// roundDown returns the greatest 1, 2 or 5 times a power of ten that is not above value.
func roundDown(value float64) float64 {
	e := exponent(value)
	for _, digit := range []int{5, 2} {
		if power(digit, e) <= value {
			return power(digit, e)
		}
	}
	return power(1, e)
}
