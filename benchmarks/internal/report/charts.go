package report

import (
	"bytes"
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// chart is a figure of a section, as bars by case and peer.
type chart struct {
	file, title            string
	section, group, metric string
	log                    bool // on a logarithmic scale
}

var charts = []chart{
	{"pairs-plain.svg", "Lock and unlock a free key, plain client: pairs a second", "pairs", "Plain client", "rate", false},
	{"pairs-autopipeline.svg", "Lock and unlock a free key, AutoPipeline client: pairs a second", "pairs", "AutoPipeline client", "rate", false},
	{"hotkey-rate.svg", "One key, no hold: hand-offs a second", "hotkey", "No hold", "rate", false},
	{"hotkey-jain.svg", "One key, no hold: fairness (1: all are served alike)", "hotkey", "No hold", "jain", false},
	{"hotkey-longest.svg", "One key, no hold: longest wait", "hotkey", "No hold", "longest", true},
	{"hotkey-hold-longest.svg", "One key, held for 5 ms: longest wait", "hotkey", "Held for 5 ms", "longest", true},
	{"hotkey-commands.svg", "One key, no hold: commands that Redis runs a hand-off", "hotkey", "No hold", "commands", true},
	{"semaphore-rate.svg", "Permits of one key, 64 clients, no hold: hand-offs a second", "semaphore", "No hold", "rate", false},
	{"semaphore-longest.svg", "Permits of one key, 64 clients, held for 5 ms: longest wait", "semaphore", "Held for 5 ms", "longest", true},
	{"semaphore-free.svg", "Permits of a free key: pairs a second", "semaphore", "A free key", "rate", false},
	{"redlock-lock.svg", "Redlock, 5 nodes: time to lock, median", "redlock", "", "lock50", true},
	{"redlock-unlock.svg", "Redlock, 5 nodes: time to unlock, median", "redlock", "", "unlock50", true},
	{"renewal-goroutines.svg", "Locks that are renewed: goroutines, at most", "renewal", "", "peak", true},
	{"renewal-heap.svg", "Locks that are renewed: memory a lock", "renewal", "", "heap", false},
	{"roundtrip-lock.svg", "A longer way to Redis: time to lock, median", "roundtrip", "", "lock50", true},
}

// colours are those of the peers: one colour a peer in all charts.
var colours = map[string]color.Color{
	"two raw commands": color.RGBA{0x9e, 0x9e, 0x9e, 0xff},
	"redlatch":         color.RGBA{0xc6, 0x28, 0x28, 0xff},
	"redsync":          color.RGBA{0x15, 0x65, 0xc0, 0xff},
	"bsm/redislock":    color.RGBA{0xf9, 0xa8, 0x25, 0xff},
	"rueidislock":      color.RGBA{0x2e, 0x7d, 0x32, 0xff},
	"NewSemaphore":     color.RGBA{0x6a, 0x1b, 0x9a, 0xff},
	"NewSetNXPX":       color.RGBA{0xc6, 0x28, 0x28, 0xff}, // it is redlatch in other sections
}

const (
	chartWidth  = 24 * vg.Centimeter
	chartHeight = 9 * vg.Centimeter
	legendWidth = 38 * vg.Millimeter
	margin      = 3 * vg.Millimeter
	axisWidth   = 14 * vg.Millimeter // about: the figures of the axis differ in width

	plotWidth = chartWidth - legendWidth - axisWidth - 2*margin
	caseWidth = 0.8 // of the room that a case has
	widest    = 2 * vg.Centimeter
)

// draw writes the charts of what was measured into dir, and returns them by section.
func (r *Report) draw(dir string) (map[string][]chart, error) {
	drawn := make(map[string][]chart)
	for _, c := range charts {
		t := r.find(c.section)
		if t == nil {
			continue
		}
		p, legend, err := c.plot(t)
		if err != nil {
			return nil, fmt.Errorf("chart %s: %w", c.file, err)
		}
		svg := vgsvg.New(chartWidth, chartHeight)
		arrange(draw.New(svg), p, legend)
		var text bytes.Buffer
		if _, err := svg.WriteTo(&text); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), text.Bytes(), 0o644); err != nil {
			return nil, err
		}
		drawn[c.section] = append(drawn[c.section], c)
	}
	return drawn, nil
}

// arrange draws the plot and the legend to the right of it.
func arrange(canvas draw.Canvas, p *plot.Plot, legend plot.Legend) {
	canvas = draw.Crop(canvas, margin, -margin, margin, -margin)
	p.Draw(draw.Crop(canvas, 0, -legendWidth, 0, 0))
	legend.Draw(draw.Crop(canvas, canvas.Size().X-legendWidth+margin, 0, 0, -10*vg.Millimeter))
}

// plot returns the chart of the figures in t, and its legend.
func (c chart) plot(t *Table) (*plot.Plot, plot.Legend, error) {
	legend := plot.NewLegend()
	legend.Top, legend.Left, legend.YPosition = true, true, draw.PosCenter
	legend.TextStyle.Font.Size = 9
	legend.Padding, legend.ThumbnailWidth = vg.Millimeter, 3*vg.Millimeter
	m, ok := t.metric(c.metric)
	if !ok {
		return nil, legend, fmt.Errorf("section %s has no figure %s", t.Section, c.metric)
	}
	inGroup := func(row Row) bool { return row.Group == c.group }
	cases, peers := t.distinct(Row.name, inGroup), t.distinct(Row.peer, inGroup)
	if len(cases) == 0 {
		return nil, legend, fmt.Errorf("section %s has no group %q", t.Section, c.group)
	}
	s := c.scale(t)
	p := plot.New()
	p.Title.Text = c.title
	if s.log {
		p.Title.Text += " (logarithmic)"
	}
	p.Title.Padding = 4 * vg.Millimeter
	p.Y.Tick.Marker = s.ticks(m.Unit)
	p.Y.Min, p.Y.Max = 0, s.height(s.top)*1.08 // with room for the figures
	p.NominalX(cases...)
	p.X.Min, p.X.Max = -0.5, float64(len(cases))-0.5
	width := min(plotWidth/vg.Length(len(cases))*caseWidth/vg.Length(len(peers)), widest)
	grid := plotter.NewGrid()
	grid.Vertical.Width = 0
	p.Add(grid)
	for i, peer := range peers {
		offset := (float64(i) - float64(len(peers)-1)/2) * float64(width)
		heights := make(plotter.Values, len(cases))
		labels := plotter.XYLabels{XYs: make(plotter.XYs, len(cases)), Labels: make([]string, len(cases))}
		for j, name := range cases {
			labels.XYs[j].X = float64(j)
			if f, ok := t.figure(c.group, name, peer, c.metric); ok {
				heights[j] = s.height(f.Median)
				labels.XYs[j].Y, labels.Labels[j] = heights[j], m.Unit.format(f.Median)
			} else {
				labels.Labels[j] = "–"
			}
		}
		bars, err := plotter.NewBarChart(heights, width)
		if err != nil {
			return nil, legend, err
		}
		bars.Color, bars.LineStyle.Width, bars.Offset = colours[peer], 0, vg.Length(offset)
		figures, err := plotter.NewLabels(labels)
		if err != nil {
			return nil, legend, err
		}
		figures.Offset = vg.Point{X: vg.Length(offset), Y: vg.Millimeter / 2}
		for j := range figures.TextStyle {
			figures.TextStyle[j].XAlign = -0.5
			figures.TextStyle[j].Font.Size = 7
		}
		p.Add(bars, figures)
		legend.Add(peer, bars)
	}
	return p, legend, nil
}

// scale is how values become heights.
type scale struct {
	log         bool
	bottom, top float64 // the values at the ends
}

// scale returns a scale with room for all that the chart shows. A logarithmic scale begins at the
// power of ten below the least value.
func (c chart) scale(t *Table) scale {
	s := scale{log: c.log, bottom: math.Inf(1)}
	for _, row := range t.Rows {
		if f, ok := row.Figures[c.metric]; ok && row.Group == c.group && f.Median > 0 {
			s.bottom, s.top = min(s.bottom, f.Median), max(s.top, f.Median)
		}
	}
	switch {
	case s.top == 0:
		s.bottom, s.top = 0, 1
		s.log = false
	case s.log:
		s.bottom = math.Pow(10, math.Ceil(math.Log10(s.bottom))-1)
	default:
		s.bottom = 0
	}
	return s
}

func (s scale) height(value float64) float64 {
	switch {
	case !s.log:
		return value
	case value <= s.bottom:
		return 0
	}
	return math.Log10(value / s.bottom)
}

// ticks returns the marks of the axis.
func (s scale) ticks(unit Unit) plot.Ticker {
	return plot.TickerFunc(func(low, high float64) []plot.Tick {
		var ticks []plot.Tick
		if s.log {
			for i := 0; float64(i) <= high; i++ {
				ticks = append(ticks, plot.Tick{Value: float64(i), Label: unit.format(s.bottom * math.Pow(10, float64(i)))})
			}
			return ticks
		}
		ticks = plot.DefaultTicks{}.Ticks(low, high)
		for i := range ticks {
			if ticks[i].Label != "" {
				ticks[i].Label = unit.format(ticks[i].Value)
			}
		}
		return ticks
	})
}

func init() {
	plot.DefaultFont = font.Font{Typeface: "Liberation", Variant: "Sans"}
	plotter.DefaultFont = plot.DefaultFont
}
