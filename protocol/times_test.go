package protocol_test

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
)

// A window has TIME before the state of a vector was written and after the call, in µs. A vector has placeholders for
// times, which README.md explains.
type window struct{ from, to int64 }

const (
	epoch = 1767225600 // the start of 2026, in s
	zero  = int64(9e15)
	slack = 1000 // µs
)

var placeholder = regexp.MustCompile(`\{(now|mark|tick|vote|s|us|left|age|until)([+-]\d+)?\}`)

// clocks has what placeholders stand for that grow with TIME, in µs.
var clocks = map[string]func(t int64) int64{
	"now":  func(t int64) int64 { return t },
	"mark": func(t int64) int64 { return t - zero },
	"tick": func(t int64) int64 { return (t - epoch*1_000_000) / 4 },
	"vote": func(t int64) int64 { return (t/1_000_000 - epoch) * 250_000 },
	"s":    func(t int64) int64 { return t / 1_000_000 },
}

// fill puts times into a text that is sent.
func (w window) fill(text string) string {
	return placeholder.ReplaceAllStringFunc(text, func(p string) string {
		parts := placeholder.FindStringSubmatch(p)
		n, _ := strconv.ParseInt(parts[2], 10, 64)
		return strconv.FormatInt(clocks[parts[1]](w.from)+n, 10)
	})
}

// bounds returns what a placeholder may stand for in what is read.
func (w window) bounds(name string, n int64) (least, most int64) {
	took := w.to - w.from + slack
	switch name {
	case "us":
		return 0, 999_999
	case "left": // ms
		return n - took/1000 - 1, n + 1
	case "age": // µs
		return n, n + took
	case "until": // ms until the second n after this one ends
		end := (w.from/1_000_000 + n + 1) * 1000
		return end - (w.to+slack)/1000 - 1, end - (w.from-slack)/1000 + 1
	}
	return clocks[name](w.from-slack) + n, clocks[name](w.to+slack) + n
}

// matches reports whether a text is what a pattern says.
func (w window) matches(pattern, got string) bool {
	form, at := "^", 0
	places := placeholder.FindAllStringSubmatchIndex(pattern, -1)
	for _, p := range places {
		form += regexp.QuoteMeta(pattern[at:p[0]]) + `(-?\d+)`
		at = p[1]
	}
	found := regexp.MustCompile(form + regexp.QuoteMeta(pattern[at:]) + "$").FindStringSubmatch(got)
	if found == nil {
		return false
	}
	for i, p := range placeholder.FindAllStringSubmatch(pattern, -1) {
		n, _ := strconv.ParseInt(p[2], 10, 64)
		v, err := strconv.ParseInt(found[i+1], 10, 64)
		if least, most := w.bounds(p[1], n); err != nil || v < least || v > most {
			return false
		}
	}
	return true
}

// named returns a placeholder for a number that depends on TIME, or "". Votes are ticks of whole seconds.
func (w window) named(v int64, votes bool) string {
	for _, name := range []string{"now", "mark", "s", "tick", "vote"} {
		reach := map[string]int64{"now": 1e10, "mark": 1e10, "s": 1e5, "tick": 25e8, "vote": 25e8}[name]
		clock := clocks[name]
		if away := v - clock(w.to); max(away, -away) > reach || name == "tick" && votes {
			continue
		}
		return shown(name, roundest(v-clock(w.to), v-clock(w.from)))
	}
	return ""
}

func shown(name string, n int64) string {
	if n == 0 {
		return "{" + name + "}"
	}
	return fmt.Sprintf("{%s%+d}", name, n)
}

// roundest returns the integer in a range with the most zeros at its end.
func roundest(least, most int64) int64 {
	for unit := int64(1e12); unit > 1; unit /= 10 {
		n := int64(math.Ceil(float64(least)/float64(unit))) * unit
		if n <= most {
			return n
		}
	}
	return least
}

// namedScore is named for a score, which may have a half. Other scores stay as they are.
func (w window) namedScore(score float64) string {
	whole := math.Floor(score)
	half := strings.TrimPrefix(strconv.FormatFloat(score-whole, 'f', -1, 64), "0")
	if name := w.named(int64(whole), false); name != "" {
		return name + half
	}
	return strconv.FormatFloat(score, 'f', -1, 64)
}
