package report

import (
	"math"
	"strconv"
	"strings"
)

// Unit says how a figure reads. Figures are kept in the base unit.
type Unit string

// The units of all figures.
const (
	Seconds Unit = "s"     // a duration
	Rate    Unit = "1/s"   // per second
	Count   Unit = "1"     // how many
	Bytes   Unit = "B"     // memory
	Index   Unit = "index" // between 0 and 1
	Ratio   Unit = "ratio" // of two figures
	Share   Unit = "share" // of all, between 0 and 1
	Cores   Unit = "cores" // CPU seconds a second
)

// format returns value with three significant digits, as far as its unit makes sense of them.
func (u Unit) format(value float64) string {
	switch u {
	case Seconds:
		switch {
		case value == 0:
			return "0"
		case value < 0.9995e-3:
			return digits(sixDigits(value*1e6)) + " µs"
		case value < 0.9995:
			return digits(sixDigits(value*1e3)) + " ms"
		}
		return digits(value) + " s"
	case Bytes:
		if value >= 9999.5 {
			return digits(value/1024) + " KiB"
		}
		return digits(value) + " B"
	case Index, Ratio:
		return strconv.FormatFloat(value, 'f', 2, 64)
	case Share:
		return digits(sixDigits(value*100)) + " %"
	case Cores:
		return strconv.FormatFloat(value, 'f', 3, 64)
	}
	return digits(value)
}

// round returns value as format does, without zeros at the end of its fraction.
func (u Unit) round(value float64) string {
	number, unit, _ := strings.Cut(u.format(value), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	return strings.TrimSpace(number + " " + unit)
}

// digits returns value with three significant digits, and with separators of thousands.
func digits(value float64) string {
	if value < 0 {
		return "−" + digits(-value)
	}
	rounded := value
	places := 0
	switch {
	case value >= 999.5:
		step := math.Pow(10, math.Floor(math.Log10(value))-2)
		rounded = math.Round(value/step) * step
	case value == math.Trunc(value) || value >= 99.95:
	case value >= 9.995:
		places = 1
	case value >= 0.9995:
		places = 2
	default:
		places = 3
	}
	whole, fraction, _ := strings.Cut(strconv.FormatFloat(rounded, 'f', places, 64), ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction == "" {
		return whole
	}
	return whole + "." + fraction
}
