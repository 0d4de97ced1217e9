package lease

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/testing/explore"
)

var errFailed, errGone = errors.New("failed"), errors.New("gone")

var (
	whyNames     = []string{"none", "unlocked", "maxhold", "fixed", "failing", "silent", "dropped", "late", "gone"}
	releaseNames = []string{"refuse", "pass", "give", "give if there", "give nothing", "stay", "keep"}
)

// A scenario is a lease whose events, at instants, are read from a file. The output is what is
// decided.
//
//	new [asked D] [minhold D] [maxhold D] [timeout D] [grace D] [renews] [passes]    with a TTL of 9 s
//	begin LENGTH [CHECK [SENT]]          sent before; the time until Next
//	tick [dropped]                       what to send, and the time until Next, unless the lease has ended
//	send KIND [TTL]                      TTL, timeout and what a node restores, that is not 0
//	done, gone, fail                     of the oldest extension under way: the end of the lease, and the time until Next
//	swap                                 the two oldest extensions under way
//	expect HANDLE, join HANDLE           of a seat of its own, which shares the lease. Its name is a letter
//	unlock HANDLE [AFTER]                how it goes on, and the time to keep others out
//	doubt ASKED                          whether a renewal is due, and the time until Next, unless the lease has ended
//	leave                                after the extension of an unlock that says keep
//	serve, notpassed, end HANDLE, settle, share, judge, left, holds HANDLE, open HANDLE, young
//	wall D, mono D                       moves a clock
type scenario struct {
	core
	zero       clock.Instant
	mono, wall time.Duration // of the clocks, beside the time of the row
	sent       []Extension
	seats      map[string]*seatCore
}

// seat returns the seat of a handle, and its number there.
func (s *scenario) seat(handle string) (*seatCore, int) {
	name := strings.TrimLeft(handle, "0123456789")
	if s.seats[name] == nil {
		s.seats[name] = new(seatCore)
	}
	number, _ := strconv.Atoi(handle)
	return s.seats[name], number
}

func (s *scenario) at(d time.Duration) clock.Instant {
	return clock.Instant{Mono: s.zero.Mono.Add(d + s.mono), Wall: s.zero.Wall + d + s.wall}
}

func (s *scenario) play(words []string) []string {
	if words[0] == "new" {
		s.new(words)
		return nil
	}
	at, err := time.ParseDuration(words[0])
	if err != nil {
		return []string{err.Error()}
	}
	if out := s.event(at, words[1:]); out != "" {
		return []string{out}
	}
	return nil
}

func (s *scenario) new(words []string) {
	a := explore.Words(words)
	*s = scenario{zero: clock.Now(), seats: make(map[string]*seatCore), core: core{passable: a.Has("passes"), Config: &Config{
		TTL: 9 * time.Second, Asked: a.Duration("asked"), MaxHold: a.Duration("maxhold"), MinHold: a.Duration("minhold"),
		Timeout: time.Second, Grace: a.Duration("grace"), Renews: a.Has("renews"),
	}}}
	if !a.Has("asked") {
		s.Asked = s.TTL
	}
	if a.Has("timeout") {
		s.Timeout = a.Duration("timeout")
	}
}

// event carries out an event, and returns the output.
func (s *scenario) event(at time.Duration, words []string) string {
	now := s.at(at)
	durations := [4]time.Duration{}
	for i, w := range words {
		durations[i], _ = time.ParseDuration(w)
	}
	first := ""
	if len(words) > 1 {
		first = words[1]
	}
	seat, handle := s.seat(first)
	next := func() string {
		if s.why != endNone {
			return ""
		}
		return s.next(now, first != "dropped").String()
	}
	switch words[0] {
	case "begin":
		s.begin(s.at(at-durations[3]), now, durations[1], durations[2])
		return next()
	case "tick":
		return strings.TrimSuffix(map[bool]string{false: "nothing", true: "renewal"}[s.tick(now, first != "dropped")]+", "+next(), ", ")
	case "send":
		ttl, keep := durations[2], time.Duration(0)
		if first == "keep" {
			ttl, keep = keep, ttl
		}
		x := s.send(ttl, keep, now)
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
		if goes := s.extended(&x, now, err, words[0] == "gone", 0.5); goes != (s.why == endNone) {
			return "Extended reports what is not so"
		}
		if s.why != endNone {
			return ""
		}
		return s.until().Sub(s.zero.Mono).String() + ", " + next()
	case "doubt":
		due := s.doubt(s.at(durations[1]).Mono)
		return strings.TrimSuffix(map[bool]string{false: "nothing", true: "due"}[due]+", "+next(), ", ")
	case "unlock":
		return goesOn(s.unlock(seat, handle, now, durations[min(2, len(words)-1)]))
	case "leave":
		return goesOn(s.leave(now))
	case "expect":
		s.expect()
	case "join":
		return strconv.FormatBool(s.join(now))
	case "open":
		seat.dropsMinHold = true
	case "serve":
		return strconv.Itoa(s.serve(seat))
	case "notpassed":
		s.notPassed()
	case "end":
		s.endBy(seat, handle, errGone)
	case "settle":
		s.settle()
	case "share":
		s.reveal()
	case "judge":
		goes := s.judge(now)
		why, start, err := s.ended()
		if goes != (why == endNone) || start != s.start.Mono || (why == endGone) != errors.Is(err, errGone) || why == endFailing && !errors.Is(err, errFailed) {
			return "Ended reports what is not so"
		}
		return whyNames[why]
	case "left":
		return s.timeLeft(now).String()
	case "holds":
		return strconv.FormatBool(seat.holds(handle))
	case "young":
		return strconv.FormatBool(s.isYoung())
	case "wall":
		s.wall += durations[1]
	case "mono":
		s.mono += durations[1]
	default:
		return "no such event"
	}
	return ""
}

func goesOn(r release, keep time.Duration) string {
	if r == giveBack || keep > 0 {
		return fmt.Sprintf("%s %v", releaseNames[r], keep)
	}
	return releaseNames[r]
}

func TestScenarios(t *testing.T) { explore.Scenarios(t, new(scenario).play) }
