package report

import (
	"fmt"
	"html"
	"strings"
	"unicode/utf8"
)

// style has the colours on light and on dark backgrounds. The chart has a background of its own,
// because a page may be dark in a browser that is not. A peer has one colour in all charts.
const style = `
text { font: 12px -apple-system, "Segoe UI", Helvetica, Arial, "Liberation Sans", sans-serif; fill: #1f2328 }
text.title { font-size: 16px; font-weight: 600 }
text.strong { font-weight: 600 }
text.muted { fill: #59636e }
.background { fill: #ffffff }
.grid { stroke: #c3ccd5 }
.minor { stroke: #e6eaef; stroke-width: 0.6 }
.least { stroke: #59636e; stroke-dasharray: 4 3 }
.span { stroke: currentColor; stroke-width: 2; opacity: 0.45 }
.ring { fill: #ffffff; stroke: currentColor; stroke-width: 2 }
.tick { stroke: currentColor; stroke-width: 2.5 }
.muted { color: #59636e }
.raw { color: #7d8590 }
.redlatch { color: #c62828 }
.redsync { color: #1565c0 }
.redislock { color: #b35900 }
.rueidislock { color: #2e7d32 }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc }
text.muted { fill: #9198a1 }
.background, .ring { fill: #0d1117 }
.grid { stroke: #3d444d }
.minor { stroke: #21262d }
.least { stroke: #9198a1 }
.muted, .raw { color: #9198a1 }
.redlatch { color: #ff7b72 }
.redsync { color: #58a6ff }
.redislock { color: #f0b72f }
.rueidislock { color: #56d364 }
}
`

// peerClass returns the class of a peer in style.
func peerClass(peer string) string {
	switch peer {
	case "redlatch", "redsync", "rueidislock":
		return peer
	case "bsm/redislock":
		return "redislock"
	}
	return "raw"
}

// textWidth returns about how wide a text of the usual size is, and rather more.
func textWidth(text string) float64 { return 7 * float64(utf8.RuneCountInString(text)) }

// drawing is an SVG.
type drawing struct{ strings.Builder }

func newDrawing(title string, width, height float64) *drawing {
	s := new(drawing)
	fmt.Fprintf(s, `<svg xmlns="http://www.w3.org/2000/svg" width="%g" height="%g" viewBox="0 0 %g %g" role="img">`+"\n",
		width, height, width, height)
	fmt.Fprintf(s, "<title>%s</title>\n<style>%s</style>\n", html.EscapeString(title), style)
	fmt.Fprintf(s, `<rect class="background" width="%g" height="%g" rx="6"/>`+"\n", width, height)
	return s
}

func (s *drawing) end() string {
	s.WriteString("</svg>\n")
	return s.String()
}

// text writes text whose anchor is start, middle or end.
func (s *drawing) text(x, y float64, anchor, class, text string) {
	if text != "" {
		fmt.Fprintf(s, `<text x="%.1f" y="%.1f" text-anchor="%s" class="%s">%s</text>`+"\n", x, y, anchor, class, html.EscapeString(text))
	}
}

func (s *drawing) line(x1, y1, x2, y2 float64, class string) {
	fmt.Fprintf(s, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" class="%s"/>`+"\n", x1, y1, x2, y2, class)
}

// bar draws a bar from left to right, with its middle at y.
func (s *drawing) bar(left, y, right float64, class string) {
	fmt.Fprintf(s, `<rect x="%.1f" y="%.1f" width="%.1f" height="13" fill="currentColor" class="%s"/>`+"\n", left, y-6.5, right-left, class)
}

// mark draws a shape with its middle at x and y.
func (s *drawing) mark(m shape, x, y float64, class string) {
	switch m {
	case ring:
		fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="4" class="ring %s"/>`+"\n", x, y, class)
	case tick:
		s.line(x, y-6, x, y+6, "tick "+class)
	default:
		fmt.Fprintf(s, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="currentColor" class="%s"/>`+"\n", x, y, class)
	}
}
