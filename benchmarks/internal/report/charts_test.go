package report

import (
	"encoding/xml"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// picture is what the tests look at in an SVG.
type picture struct {
	Width   float64  `xml:"width,attr"`
	Height  float64  `xml:"height,attr"`
	Texts   []text   `xml:"text"`
	Circles []circle `xml:"circle"`
	Lines   []line   `xml:"line"`
	Rects   []struct {
		X     float64 `xml:"x,attr"`
		Width float64 `xml:"width,attr"`
	} `xml:"rect"`
}

type text struct {
	X      float64 `xml:"x,attr"`
	Y      float64 `xml:"y,attr"`
	Anchor string  `xml:"text-anchor,attr"`
	Class  string  `xml:"class,attr"`
	Text   string  `xml:",chardata"`
}

type circle struct {
	X     float64 `xml:"cx,attr"`
	Y     float64 `xml:"cy,attr"`
	Class string  `xml:"class,attr"`
}

type line struct {
	X     float64 `xml:"x1,attr"`
	Y     float64 `xml:"y1,attr"`
	Class string  `xml:"class,attr"`
}

// span returns where the text begins and ends, in a wide font.
func (t text) span() (from, to float64) {
	width := textWidth(t.Text)
	switch t.Class {
	case "title":
		width = 10 * float64(utf8.RuneCountInString(t.Text))
	case "strong":
		width *= 1.1
	}
	switch t.Anchor {
	case "end":
		return t.X - width, t.X
	case "middle":
		return t.X - width/2, t.X + width/2
	}
	return t.X, t.X + width
}

func parse(t *testing.T, svg string) picture {
	t.Helper()
	var p picture
	require.NoError(t, xml.Unmarshal([]byte(svg), &p))
	return p
}

// texts returns what stands in the row of a peer, from left to right.
func (p picture) texts(peer string) []string {
	var row []string
	i := slices.IndexFunc(p.Texts, func(t text) bool { return t.Text == peer })
	for _, t := range p.Texts {
		if t.Y == p.Texts[i].Y {
			row = append(row, t.Text)
		}
	}
	return row
}

// crowded returns a table with the longest figures, for a chart.
func crowded(c chart) *Table {
	t := &Table{Section: c.section}
	for _, p := range c.panels {
		for i, peer := range []string{"two raw commands", "redlatch", "bsm/redislock"} {
			r := row(t, p.group, p.name, peer)
			for j, m := range c.marks {
				r.Add(Sample{m.key: []float64{123e-6, 0.1234, 1.23}[i] * float64(1+j)})
			}
			r.Add(Sample{"never": float64(i) * 511})
		}
	}
	return t
}

func TestNoTextOfAChartIsCutOrMeetsAnother(t *testing.T) {
	for _, c := range charts {
		p := parse(t, c.svg(crowded(c)))
		for i, a := range p.Texts {
			from, to := a.span()
			require.GreaterOrEqual(t, from, 0.0, "%s: %s", c.file, a.Text)
			require.LessOrEqual(t, to, p.Width, "%s: %s", c.file, a.Text)
			require.Less(t, a.Y, p.Height, "%s: %s", c.file, a.Text)
			for _, b := range p.Texts[i+1:] {
				left, right := b.span()
				apart := to <= left || right <= from || max(a.Y-b.Y, b.Y-a.Y) >= 14
				require.True(t, apart, "%s: %q and %q", c.file, a.Text, b.Text)
			}
		}
	}
}

// crowdOf returns a chart of callers with one panel, and its table.
func crowdOf(samples map[string]Sample) (chart, *Table) {
	t := new(Table)
	for _, peer := range []string{"redsync", "redlatch"} {
		row(t, "g", "c", peer).Add(samples[peer])
	}
	return chart{title: "Callers", panels: cases("g", "c"), marks: served, unit: Share, served: true}, t
}

func TestCallersThatWereNeverServedShortenTheBar(t *testing.T) {
	c, table := crowdOf(map[string]Sample{
		"redlatch": {"longest": 0.1, "never": 0, "served": 1},
		"redsync":  {"longest": 2, "never": 48, "served": 0.25},
	})
	p := parse(t, c.svg(table))
	require.Equal(t, []string{"redlatch", "100 %", "all, within 100 ms"}, p.texts("redlatch"))
	require.Equal(t, []string{"redsync", "25 %", "48 not"}, p.texts("redsync"))
	bars := p.Rects[1:]
	require.Len(t, bars, 2)
	require.InDelta(t, bars[0].Width, 4*bars[1].Width, 0.4, "the best comes first")
}

func TestFigureOfNothingHasNoColumn(t *testing.T) {
	table := new(Table)
	row(table, "g", "c", "redlatch").Add(Sample{"trips": 2, "trips99": 3})
	row(table, "g", "c", "redsync").Add(Sample{"trips": 2.5})
	c := chart{
		title: "Trips", panels: cases("g", "c"), unit: Ratio,
		marks: []mark{{"median", "trips", dot}, {"mean", "mean", tick}, {"99 %", "trips99", ring}},
	}
	p := parse(t, c.svg(table))
	require.Equal(t, []string{"redlatch", "2.00", "3.00"}, p.texts("redlatch"))
	require.Equal(t, []string{"redsync", "2.50", "–"}, p.texts("redsync"))
}

func TestDotsOnALogarithmicAxisArePowersApart(t *testing.T) {
	table := new(Table)
	row(table, "g", "c", "redlatch").Add(Sample{"lock50": 0.01, "lock99": 1})
	row(table, "g", "c", "redsync").Add(Sample{"lock50": 0.1})
	c := chart{
		title: "Waits", panels: cases("g", "c"), unit: Seconds, log: true,
		marks: []mark{{"median", "lock50", dot}, {"99 %", "lock99", ring}},
	}
	p := parse(t, c.svg(table))
	var places []float64
	for _, d := range p.Circles {
		if strings.Contains(d.Class, "redlatch") || strings.Contains(d.Class, "redsync") {
			places = append(places, d.X)
		}
	}
	require.Len(t, places, 3)
	require.Equal(t, float64(plotLeft), places[0])
	require.InDelta(t, (places[1]-places[0])/2, places[2]-places[0], 0.2)
	require.Len(t, p.Rects, 1, "the background: a bar would begin at an arbitrary value")
}

func TestBarsBeginAtZero(t *testing.T) {
	table := new(Table)
	row(table, "g", "c", "redlatch").Add(Sample{"rate": 1000})
	row(table, "g", "c", "redsync").Add(Sample{"rate": 500})
	c := chart{title: "Rate", panels: cases("g", "c"), marks: []mark{{"pairs/s", "rate", bar}}, unit: Rate}
	bars := parse(t, c.svg(table)).Rects[1:]
	require.Len(t, bars, 2)
	require.Equal(t, float64(plotLeft), bars[0].X)
	require.InDelta(t, bars[0].Width, 2*bars[1].Width, 0.2)
}

func TestChartWithoutFiguresIsLeftOut(t *testing.T) {
	r := sample()
	require.Len(t, r.drawn(), len(charts))
	r.Tables = r.Tables[:1]
	for _, c := range r.drawn() {
		require.Equal(t, r.Tables[0].Section, c.section)
	}
	for i := range r.Tables[0].Rows {
		r.Tables[0].Rows[i].Figures = nil
	}
	require.Empty(t, r.drawn())
}

func TestChartHasColoursForBothBackgrounds(t *testing.T) {
	c, table := crowdOf(map[string]Sample{"redlatch": {"served": 1}})
	_, dark, found := strings.Cut(c.svg(table), "@media (prefers-color-scheme: dark)")
	require.True(t, found)
	for _, peer := range columns {
		require.Contains(t, dark, fmt.Sprintf(".%s {", peerClass(peer)))
	}
}

func TestAxisHasRoundValuesAndRoomForAll(t *testing.T) {
	for _, c := range []struct {
		values    []float64
		log       bool
		least     float64
		low, high float64
		labels    []float64
	}{
		{[]float64{2.1, 3.7}, false, 2, 0, 4, []float64{0, 1, 2, 3, 4}},
		{[]float64{1.2}, false, 2, 0, 2, []float64{0, 0.5, 1, 1.5, 2}},
		{[]float64{0}, false, 0, 0, 1, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{[]float64{0}, true, 0, 0, 1, []float64{0, 0.2, 0.4, 0.6, 0.8, 1}},
		{[]float64{0.03, 0.7, 0}, true, 0, 0.02, 1, []float64{0.02, 0.05, 0.1, 0.2, 0.5, 1}},
		{[]float64{55e-6, 7.7}, true, 0, 5e-5, 10, []float64{1e-4, 1e-3, 1e-2, 1e-1, 1, 10}},
		{[]float64{1, 1e10}, true, 0, 1, 1e10, []float64{1, 1e2, 1e4, 1e6, 1e8, 1e10}},
		{[]float64{10}, true, 0, 5, 20, []float64{5, 10, 20}},
	} {
		a := newAxis(c.values, c.log, c.least)
		require.Equal(t, []float64{c.low, c.high}, []float64{a.low, a.high}, "%v", c.values)
		require.Equal(t, c.labels, a.labels, "%v", c.values)
		require.Zero(t, a.at(c.low))
		require.Equal(t, 1.0, a.at(c.high))
	}
}

func TestLabelsOfAnAxisHaveNoZerosThatSayNothing(t *testing.T) {
	require.Equal(t, "0", Index.round(0))
	require.Equal(t, "0.2", Index.round(0.2))
	require.Equal(t, "10 µs", Seconds.round(1e-5))
	require.Equal(t, "100 ms", Seconds.round(0.1))
	require.Equal(t, "1,000", Rate.round(1000))
}
