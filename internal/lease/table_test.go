package lease

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
)

// A row is an event at a time, and what is decided: "3s tick: renewal, 6.898s".
//
//	begin LENGTH [CHECK [SENT]]          sent before; the time until Next
//	tick [dropped]                       what to send, and the time until Next, unless the lease has ended
//	send KIND [TTL]                      TTL, timeout and what a node restores, that is not 0
//	done, gone, fail                     of the oldest extension under way: the end of the lease, and the time until Next
//	unlock HANDLE [AFTER]                how it goes on, and the time to keep others out
//	serve, notpassed, end HANDLE, settle, share, judge, left
//	wall D, mono D                       moves a clock
type table struct {
	name   string
	config Config
	rows   string
}

var renewed = Config{TTL: 9 * time.Second, Asked: 9 * time.Second, Timeout: time.Second, Renews: true, Passes: true}

func with(change func(*Config)) Config {
	c := renewed
	change(&c)
	return c
}

var (
	fixed   = with(func(c *Config) { c.Renews = false })
	minHold = with(func(c *Config) { c.Asked, c.MinHold, c.Passes = 20*time.Second, 20*time.Second, false })
	maxHold = with(func(c *Config) { c.MaxHold, c.Passes = 15*time.Second, false })
)

var tables = []table{
	{"it is renewed each third of the TTL", renewed, `
		0s begin 8.998s 0s 500ms: 1.25s
		1.5s tick: nothing, 1s
		2.5s tick: renewal, 5.998s
		2.6s send renewal: 9s, 1s, restore 9s
		2.7s done: 11.598s, 2.9s
		5.6s tick: renewal, 5.998s
		5.6s tick: nothing, 5.998s
		5.6s send renewal: 9s, 1s, restore 9s
		11.598s tick: nothing
		11.598s judge: silent
		12s done:
		12s judge: silent`},
	{"a drift that leaves little", with(func(c *Config) { c.Drift = 0.5 }), `
		0s begin 4.498s: 1.1245s
		1.1245s tick: nothing, 1.1245s
		2.249s tick: renewal, 2.249s
		2.249s send renewal: 9s, 562.25ms, restore 9s
		2.249s done: 6.747s, 2.249s`},
	{"an attempt gets a quarter of what is left, and a failed one is repeated", renewed, `
		0s begin 8.998s: 1.5s
		1.5s tick: nothing, 1.5s
		7s tick: renewal, 1.998s
		7s send renewal: 9s, 499.5ms, restore 9s
		7.5s fail: 8.998s, 249.75ms
		7.74s tick: nothing, 9.75ms
		7.74975s tick: renewal, 1.24825s
		8.95s send renewal: 9s, 50ms, restore 9s
		8.98s fail: 8.998s, 18ms
		9s judge: failing`},
	{"nothing comes in time", renewed, `
		0s begin 8.998s: 1.5s
		8.998s judge: late
		8.998s left: 0s
		9s tick: nothing
		9s send renewal: 9s, 50ms
		9s done:`},
	{"a dropped handle is not renewed", renewed, `
		0s begin 8.998s: 1.5s
		1.5s tick: nothing, 1.5s
		3s tick dropped: nothing, 5.998s
		8.998s tick dropped: nothing
		8.998s judge: late`},
	{"a fixed lease", fixed, `
		0s begin 8.998s: 8.998s
		8s send call 4s: 4s, 249.5ms, restore 4s
		8s done: 11.998s, 3.998s
		8s send call 2s: 2s, 999.5ms, restore 4s
		8s done: 11.998s, 3.998s
		11.997999999s judge: none
		11.997999999s left: 1ns
		11.998s judge: fixed`},
	{"Extend renews, if it is for the TTL, and ends no renewal under way", renewed, `
		0s begin 8.998s: 1.5s
		1s settle:
		1s send call 8.999s: 8.999s, 1s, restore 8.999s
		1s done: 9.997s, 2s
		2s send call 9s: 9s, 1s, restore 9s
		2s done: 10.998s, 3s
		3s send call 1h: 1h0m0s, 1s, restore 1h0m0s
		3s fail: 10.998s, 2s
		5s tick: renewal, 5.998s
		5s send renewal: 9s, 1s, restore 9s
		5s send call 1h: 1h0m0s, 1s, restore 1h0m0s
		6s tick: nothing, 4.998s
		6s gone:
		6s judge: gone
		6s done:
		7s end 0:
		7s judge: gone`},
	{"an older reply moves no renewal", renewed, `
		0s begin 8.998s: 1.5s
		1s settle:
		1s send call 9s: 9s, 1s, restore 9s
		2s send call 20s: 20s, 1s, restore 20s
		3s swap:
		3s done: 21.998s, 2s
		3s done: 21.998s, 2s`},
	{"replies change places, and the wall clock was set back between the requests", fixed, `
		0s begin 8.998s: 8.998s
		1s send call 1s: 1s, 1s, restore 8s
		1s wall -1h:
		2s send call 9s: 9s, 1s, restore 9s
		3s swap:
		3s done: 10.998s, 7.998s
		3s done: 10.998s, 7.998s`},
	{"replies change places, and the machine has slept between the requests", fixed, `
		0s begin 8.998s: 8.998s
		1s send call 11s: 11s, 1s, restore 11s
		1s wall 5s:
		2s send call 9s: 9s, 499.5ms, restore 9s
		3s swap:
		3s done: 10.998s, 7.998s
		3s done: 10.998s, 7.998s`},
	{"a check", fixed, `
		0s begin 8.998s 2s: 2s
		1.9s tick: nothing, 100ms
		2s tick: check, 6.998s
		2.1s send check: 1ms, 1s
		2.2s fail: 8.998s, 500ms
		2.7s tick: check, 6.298s
		2.7s send check: 1ms, 1s
		2.7s done: 8.998s, 6.298s`},
	{"an extension takes the place of a check", fixed, `
		0s begin 8.998s 1s: 1s
		500ms send call 9s: 9s, 1s, restore 9s
		500ms done: 9.498s, 500ms
		1s send call 9s: 9s, 1s, restore 9s
		1.1s done: 9.998s, 8.898s`},
	{"a renewal before its check", renewed, `
		0s begin 8.998s 4s: 1.5s
		3s tick: renewal, 5.998s
		3s send renewal: 9s, 1s, restore 9s
		3s fail: 8.998s, 500ms`},
	{"a short timeout limits the pause", with(func(c *Config) { c.Timeout = 100 * time.Millisecond }), `
		0s begin 500ms: 10ms
		20ms tick: renewal, 480ms
		20ms send renewal: 9s, 480ms, restore 9s
		20ms fail: 500ms, 50ms`},
	{"a claim", renewed, `
		0s begin 2s 0s 100ms: 10ms
		10ms tick: nothing, 10ms
		20ms tick: renewal, 1.88s
		20ms send check: 1ms, 470ms
		20ms send renewal: 9s, 1.88s, restore 9s
		1.88s swap:
		1.88s fail: 1.9s, 20ms
		1.88s tick: nothing, 20ms
		1.89s send renewal: 9s, 50ms, restore 9s
		1.89s done: 1.9s, 10ms
		1.89s done: 10.888s, 3s
		5s send renewal: 9s, 1s, restore 9s`},
	{"a claim that Extend ends", minHold, `
		0s begin 2s: 10ms
		0s settle:
		0s send renewal: 20s, 2s, restore 20s
		0s send call 19.999s: 19.999s, 500ms, restore 19.999s
		0s swap:
		0s done: 19.997s, 20ms
		0s send renewal: 20s, 19.997s, restore 20s
		0s send call 20s: 20s, 1s, restore 20s
		0s fail: 19.997s, 500ms
		0s fail: 19.997s, 500ms
		0s done: 19.998s, 500ms
		0s send renewal: 9s, 1s, restore 20s`},
	{"a length that is no claim", renewed, `
		0s begin 8.998s: 1.5s`},
	{"a length that is almost one", renewed, `
		0s begin 8.997999999s: 10ms`},
	{"a maximum hold", maxHold, `
		0s begin 8.998s: 1.5s
		3s tick: renewal, 5.998s
		3s send renewal: 9s, 1s, restore 9s
		3s done: 11.998s, 3s
		8s send call 1h: 7.002s, 999.5ms, restore 7.002s
		8s done: 15s, 3s
		12s send renewal: 3.002s, 750ms, restore 3.002s
		14.999999999s judge: none
		15s judge: maxhold`},
	{"a maximum hold that was not reached", maxHold, `
		0s begin 8.998s: 1.5s
		9s judge: late`},
	{"either clock ends it", fixed, `
		0s begin 8.998s: 8.998s
		1s wall 7s: 
		1s left: 998ms
		1s mono 1h: 
		1s left: 0s
		1s mono -2h: 
		1s judge: none
		1s wall 998ms: 
		1s judge: fixed
		1s wall -1h: 
		1s judge: fixed`},
	{"Unlock", renewed, `
		0s unlock 0: refuse
		0s begin 8.998s: 1.5s
		1s unlock 1: refuse
		1s unlock 0 1.5ms: give 2ms
		1s judge: unlocked
		1s left: 0s
		1s unlock 0: refuse
		1s end 0:
		9s tick: nothing
		9s judge: unlocked`},
	{"a turn", renewed, `
		0s begin 8.998s: 1.5s
		1s unlock 0: pass
		1s unlock 0: refuse
		1s holds 0: false
		1.5s tick: nothing, 1ms
		1.5s end 0:
		1.5s judge: none
		1.5s left: 7.498s
		1.5s serve: 1
		1.5s holds 1: true
		1.5s holds 0: false
		1.5s end 0:
		1.5s unlock 0: refuse
		1.5s unlock 1: pass
		1.5s settle:
		1.5s serve: 2
		1.5s unlock 2: give 0s
		1.5s judge: unlocked`},
	{"a turn that is not passed on", renewed, `
		0s begin 8.998s: 1.5s
		1s unlock 0: pass
		10s judge: none
		10s tick: nothing, 1ms
		10s notpassed:
		10s judge: unlocked
		10s holds 0: true
		10s unlock 0: refuse`},
	{"a lease that ends between two handles", renewed, `
		0s begin 8.998s: 1.5s
		1s unlock 0: pass
		10s serve: 1
		10s judge: late
		10s unlock 1: clear
		10s unlock 1: refuse`},
	{"what is not passed on: after a tick", renewed, `
		0s begin 8.998s: 1.5s
		1s tick: nothing, 2s
		1s unlock 0: give 0s`},
	{"what is not passed on: with a time", renewed, `
		0s begin 8.998s: 1.5s
		1s unlock 0 1ns: give 1ms`},
	{"what is not passed on: without a line", maxHold, `
		0s begin 8.998s: 1.5s
		1s unlock 0: give 0s`},
	{"what is not passed on: a known token", renewed, `
		0s begin 8.998s: 1.5s
		1s share:
		1s settle:
		1s shared: true
		1s unlock 0: give 0s`},
	{"an adopted lock", renewed, `
		0s share:
		0s begin 8.998s: 3s
		9s unlock 0: leave
		9s unlock 0: refuse
		9s judge: late`},
	{"the other side of a migration ends", renewed, `
		0s end 0:
		0s begin 8.998s: 1.5s
		0s young: true
		0s settle:
		0s young: false
		0s end 1:
		0s judge: none
		0s end 0:
		0s judge: gone
		1s unlock 0: clear
		1s judge: gone`},
	{"a minimum hold", minHold, `
		0s begin 19.998s 0s 1s: 1s
		1s wall 10s:
		1s unlock 0: give 19s`},
	{"a minimum hold and a wall clock that was set back", minHold, `
		0s begin 19.998s: 1.5s
		1s wall -1h:
		1s unlock 0 3s: give 20s`},
	{"a minimum hold and a longer time", minHold, `
		0s begin 19.998s: 1.5s
		1s unlock 0 19.0001s: give 19.001s`},
}

var errFailed, errGone = errors.New("failed"), errors.New("gone")

var (
	whyNames     = [...]string{"none", "unlocked", "maxhold", "fixed", "failing", "silent", "late", "gone"}
	kindNames    = [...]string{"nothing", "call", "renewal", "check"}
	releaseNames = [...]string{"refuse", "pass", "give", "clear", "leave"}
)

// A script carries out the rows of a table.
type script struct {
	Lease
	zero       clock.Instant
	mono, wall time.Duration // of the clocks, beside the time of the row
	sent       []Extension
}

func (s *script) at(d time.Duration) clock.Instant {
	return clock.Instant{Mono: s.zero.Mono.Add(d + s.mono), Wall: s.zero.Wall + d + s.wall}
}

func (s *script) row(at time.Duration, words []string) string {
	now := s.at(at)
	durations := [4]time.Duration{}
	for i, w := range words {
		durations[i], _ = time.ParseDuration(w)
	}
	first := ""
	if len(words) > 1 {
		first = words[1]
	}
	handle, _ := strconv.Atoi(first)
	next := func() string {
		if s.why != None {
			return ""
		}
		return s.Next(now, first != "dropped").String()
	}
	switch words[0] {
	case "begin":
		s.Begin(s.at(at-durations[3]), now, durations[1], durations[2])
		return next()
	case "tick":
		return strings.TrimSuffix(kindNames[s.Tick(now, first != "dropped")]+", "+next(), ", ")
	case "send":
		k := Call
		for k != Nothing && kindNames[k] != first {
			k = (k + 1) % Kind(len(kindNames))
		}
		x := s.Send(k, durations[2], now)
		s.sent = append(s.sent, x)
		out := fmt.Sprintf("%v, %v, restore %v", x.TTL, x.Timeout, x.Restore)
		return strings.TrimSuffix(out, ", restore 0s")
	case "swap":
		s.sent[0], s.sent[1] = s.sent[1], s.sent[0]
		return ""
	case "done", "gone", "fail":
		x := s.sent[0]
		s.sent = s.sent[1:]
		err := map[string]error{"gone": errGone, "fail": errFailed}[words[0]]
		if goes := s.Extended(&x, now, err, words[0] == "gone", 0.5); goes != (s.why == None) {
			return "Extended reports what is not so"
		}
		if s.why != None {
			return ""
		}
		return s.Until().Sub(s.zero.Mono).String() + ", " + next()
	case "unlock":
		r, keep := s.Unlock(handle, now, durations[min(2, len(words)-1)])
		if r == Give {
			return fmt.Sprintf("give %v", keep)
		}
		return releaseNames[r]
	case "serve":
		return strconv.Itoa(s.Serve(now))
	case "notpassed":
		s.NotPassed()
	case "end":
		s.End(handle, errGone)
	case "settle":
		s.Settle()
	case "share":
		s.Share()
	case "judge":
		goes := s.Judge(now)
		why, start, err := s.Ended()
		if goes != (why == None) || start != s.start.Mono || (why == Gone) != errors.Is(err, errGone) || why == Failing && !errors.Is(err, errFailed) {
			return "Ended reports what is not so"
		}
		return whyNames[why]
	case "left":
		return s.Left(now).String()
	case "holds":
		return strconv.FormatBool(s.Holds(handle))
	case "young":
		return strconv.FormatBool(s.Young())
	case "shared":
		return strconv.FormatBool(s.stage == shared)
	case "wall":
		s.wall += durations[1]
	case "mono":
		s.mono += durations[1]
	default:
		return "no such event"
	}
	return ""
}

func TestTables(t *testing.T) {
	for _, tt := range tables {
		t.Run(tt.name, func(t *testing.T) {
			s := script{Lease: Lease{Config: tt.config}, zero: clock.Now()}
			for row := range strings.Lines(strings.TrimSpace(tt.rows)) {
				row = strings.TrimSpace(row)
				event, want, _ := strings.Cut(row, ":")
				words := strings.Fields(event)
				at, err := time.ParseDuration(words[0])
				if err != nil {
					t.Fatal(err)
				}
				if got := s.row(at, words[1:]); got != strings.TrimSpace(want) {
					t.Fatalf("%s: %s", event, got)
				}
			}
		})
	}
}
