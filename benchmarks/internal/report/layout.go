package report

import (
	"fmt"
	"slices"
)

// The places of a chart, in pixels. Names stand to the left of the plot, and figures to the right.
const (
	chartWidth  = 840
	margin      = 16
	plotLeft    = 160
	figureWidth = 76
	wordsWidth  = 140
	topHeight   = 84 // title, note and headings
	titleHeight = 26 // of a panel
	rowHeight   = 21
	panelGap    = 8
	axisHeight  = 30
)

// layout is where things are in a chart.
type layout struct {
	chart
	axis   axis
	right  float64 // of the plot
	bottom float64
}

// svg returns the picture of what is in t.
func (c chart) svg(t *Table) string {
	l := c.layout(t)
	s := newDrawing(c.title, chartWidth, l.bottom+axisHeight)
	l.head(s)
	y := float64(topHeight)
	for _, p := range c.panels {
		s.text(margin, y+17, "start", "strong", p.title)
		y += titleHeight
		rows := l.rows(t, p)
		l.grid(s, y, y+float64(len(rows))*rowHeight)
		for _, row := range rows {
			l.row(s, y+rowHeight/2, row)
			y += rowHeight
		}
		y += panelGap
	}
	for _, value := range l.axis.labels {
		s.text(l.x(value), l.bottom+10, "middle", "muted", l.unit.round(value))
	}
	return s.end()
}

func (c chart) layout(t *Table) layout {
	// A figure that nothing has been measured of has no column.
	c.marks = slices.DeleteFunc(slices.Clone(c.marks), func(m mark) bool { return len(c.valuesOf(t, m)) == 0 })
	l := layout{chart: c, axis: newAxis(c.values(t), c.log, c.least), bottom: topHeight}
	l.right = chartWidth - margin - float64(len(c.marks))*figureWidth
	if c.served {
		l.right -= wordsWidth
	}
	for _, p := range c.panels {
		l.bottom += titleHeight + float64(len(c.rows(t, p)))*rowHeight + panelGap
	}
	return l
}

// x returns where a value is.
func (l layout) x(value float64) float64 {
	return plotLeft + l.axis.at(value)*(l.right-plotLeft)
}

// figureX returns the right end of a column of figures.
func (l layout) figureX(i int) float64 { return l.right + float64(i+1)*figureWidth }

// head writes what stands above the panels. The headings of the columns are the legend too.
func (l layout) head(s *drawing) {
	s.text(margin, 28, "start", "title", l.title)
	s.text(margin, 48, "start", "muted", l.note)
	for i, m := range l.marks {
		end := l.figureX(i)
		if len(l.marks) == 1 {
			s.text(end, 76, "end", "muted", m.title)
			continue
		}
		start := end - textWidth(m.title)
		s.mark(m.shape, start-9, 72, "muted")
		s.text(start, 76, "start", "muted", m.title)
	}
}

// grid draws the lines of the axis from top to bottom.
func (l layout) grid(s *drawing, top, bottom float64) {
	for _, value := range l.axis.lines {
		s.line(l.x(value), top, l.x(value), bottom, "minor")
	}
	for _, value := range l.axis.labels {
		s.line(l.x(value), top, l.x(value), bottom, "grid")
	}
	if l.least > 0 {
		s.line(l.x(l.least), top, l.x(l.least), bottom, "least")
	}
}

// row draws the figures of a peer, with their middle at y.
func (l layout) row(s *drawing, y float64, row Row) {
	s.text(margin, y+4, "start", "", row.Peer)
	l.span(s, y, row)
	for i, m := range l.marks {
		f, ok := row.Figures[m.key]
		if ok && m.shape == bar {
			s.bar(plotLeft, y, l.x(f.Median), peerClass(row.Peer))
		} else if ok {
			s.mark(m.shape, l.x(f.Median), y, peerClass(row.Peer))
		}
		s.text(l.figureX(i), y+4, "end", "", row.cell(Metric{Key: m.key, Unit: l.unit}))
	}
	if l.served {
		s.text(l.figureX(len(l.marks)-1)+20, y+4, "start", "", servedWords(row))
	}
}

// span draws a line from the first figure to the last one.
func (l layout) span(s *drawing, y float64, row Row) {
	first, from := row.Figures[l.marks[0].key]
	last, to := row.Figures[l.marks[len(l.marks)-1].key]
	if from && to && len(l.marks) > 1 {
		s.line(l.x(first.Median), y, l.x(last.Median), y, "span "+peerClass(row.Peer))
	}
}

// servedWords says how long the last caller waited, or how many were not served within the measurement.
func servedWords(row Row) string {
	never, ok := row.Figures["never"]
	longest, measured := row.Figures["longest"]
	switch {
	case !ok:
		return ""
	case never.Median > 0:
		return fmt.Sprintf("%s not", Count.format(never.Median))
	case !measured:
		return "all"
	}
	return "all, within " + Seconds.format(longest.Median)
}
