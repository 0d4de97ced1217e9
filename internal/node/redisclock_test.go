package node

import (
	"errors"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/quick"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// TestWhatRunsByTheLatestTimeRunsBeforeTheDeadline: however long the answer with the time was under
// way, and whatever the clocks say. The time that is lost is that of its way back, and a tenth of
// the timeout.
func TestWhatRunsByTheLatestTimeRunsBeforeTheDeadline(t *testing.T) {
	require.NoError(t, quick.Check(func(epoch, said, back, left uint32, timeout uint16) bool {
		skew := 365*24*time.Hour + time.Duration(epoch) // of the clock of Redis, which says now + skew
		read := time.Duration(said)                     // when Redis read its clock, to the µs
		arrived := read + time.Duration(back)
		deadline := arrived + time.Duration(left)
		var a clockOffset
		a.told(clock.Redis((read + skew).Truncate(time.Microsecond)), clock.Mono(arrived))
		latest := time.Duration(a.latest(clock.Mono(arrived), clock.Mono(deadline-time.Duration(timeout)/10)))*time.Microsecond - skew
		end := deadline - time.Duration(timeout)/10
		return latest <= end && latest > end-time.Duration(back)-2*time.Microsecond
	}, &quick.Config{MaxCount: 20_000}))
}

// creates returns a call of a script that has to run by the latest time. Its words: eval, the
// script, 1, key, latest, "x".
func creates(key string) *Call {
	c := within(Eval(increase, 1, key), time.Second)
	c.AppendLatest()
	c.Append("x")
	return c
}

// late is the answer of a script that came too late, on a server whose clock is ahead by skew.
func late(skew time.Duration) replies {
	now := time.Now().Add(skew).UnixMicro()
	return replies{[]any{"late", now / 1e6, now % 1e6}}
}

// byClock answers such a call as a script does on a server whose clock is ahead by skew.
func byClock(sent commands, skew time.Duration) error {
	if latest, _ := strconv.ParseInt(sent[0][4], 10, 64); latest < time.Now().Add(skew).UnixMicro() {
		return late(skew)
	}
	return nil
}

// TestCallSaysUntilWhenItMayCreate: nine tenths of its timeout, by the clock of Redis, however
// often it is sent. While the clock is unknown, the call says 0 and has the source of the script,
// which the server may not have. The refusal says the time.
func TestCallSaysUntilWhenItMayCreate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const skew = -time.Hour
		var fails []error
		var sent commands
		n := answered(t, func(b commands) (err error) {
			time.Sleep(5 * time.Millisecond) // the way there; the way back takes no time
			sent = append(sent, b[0])
			if len(fails) > 0 {
				err, fails = fails[0], fails[1:]
				return err
			}
			return byClock(b, skew)
		})
		for i, c := range []struct {
			fails []error // of the first sends
			verbs []string
		}{
			{nil, []string{"eval", "eval"}},
			{nil, []string{"evalsha"}},
			{[]error{io.EOF, answer("NOSCRIPT No matching script")}, []string{"evalsha", "evalsha", "eval"}},
			{nil, []string{"eval", "eval"}}, // an hour later
		} {
			time.Sleep(25 * time.Minute)
			latest := strconv.FormatInt(time.Now().Add(skew+900*time.Millisecond).UnixMicro(), 10)
			sent, fails = nil, c.fails
			requireOK(t, c.fails != nil, do(n, creates("k")))
			var want commands
			for _, verb := range c.verbs {
				script := map[string]any{"eval": increase.source, "evalsha": increase.sha}[verb]
				want = append(want, []string{verb, script.(string), "1", "k", latest, "x"})
			}
			if i%3 == 0 {
				want[0][4] = "0"
			}
			require.Equal(t, want, sent)
		}
	})
}

// TestSecondLateAnswerEndsTheCall: so does one for which there is no time. The call was not done
// unless an earlier send may have been carried out.
func TestSecondLateAnswerEndsTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		takes []time.Duration // each send
		cut   bool            // the first send
	}{
		"twice":                    {[]time.Duration{0, 0}, false},
		"twice behind a cut send":  {[]time.Duration{0, 0, 0}, true},
		"early, and then too late": {[]time.Duration{0, 950 * time.Millisecond}, false},
		"at nine tenths":           {[]time.Duration{900 * time.Millisecond}, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			sends := 0
			n := answered(t, func(commands) error {
				sends++
				time.Sleep(c.takes[sends-1])
				if c.cut && sends == 1 {
					return io.EOF
				}
				return late(0)
			})
			r := do(n, creates("k"))
			require.ErrorIs(t, r.Err, map[bool]error{false: errTooLate, true: io.EOF}[c.cut], name)
			require.True(t, rediserr.Unavailable(r.Err))
			require.Equal(t, []bool{!c.cut, c.cut}, []bool{isNotDone(r.Err), r.Resent}, name)
			require.Len(t, c.takes, sends, name)
			require.False(t, silent(n), "it was an answer")
			requireIdle(t, n)
		})
	}
}

// TestLateCallThatKeepsSomethingIsSentOnceMoreWithTheTime: the clock of Redis was set forward since the node learned
// it, or the call was late indeed. The send that follows the answer says that the time is known, and no other.
func TestLateCallThatKeepsSomethingIsSentOnceMoreWithTheTime(t *testing.T) {
	for name, c := range map[string]struct {
		step    time.Duration   // of the clock of Redis
		takes   time.Duration   // the first send
		answers []error         // to the sends from the second on
		said    []time.Duration // the latest time of each send, less the deadline by the clock as it is then
	}{
		"set forward":         {5 * time.Second, 0, []error{nil}, []time.Duration{-5 * time.Second, 0}},
		"late indeed":         {0, 950 * time.Millisecond, []error{nil}, []time.Duration{0, 0}},
		"cut once more":       {5 * time.Second, 0, []error{io.EOF, nil}, []time.Duration{-5 * time.Second, 0, 0}},
		"cut, and late again": {0, 0, []error{io.EOF, late(0), nil}, []time.Duration{0, 0, 0, 0}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var step, takes time.Duration
			var sent []int64
			n := answered(t, func(b commands) error {
				latest, _ := strconv.ParseInt(b[0][4], 10, 64)
				sent = append(sent, latest)
				time.Sleep(takes)
				takes = 0
				switch i := len(sent) - 2; {
				case i < 0:
					return late(step)
				case c.answers[i] == nil || errors.Is(c.answers[i], io.EOF):
					return c.answers[i]
				}
				return late(step)
			})
			n.clock.told(clock.Redis(time.Now().UnixNano()), clock.MonoNow())
			step, takes = c.step, c.takes
			limit := time.Now().Add(900 * time.Millisecond)
			call := creates("k")
			call.KeepsFrom()
			requireOK(t, name[:3] == "cut", do(n, call))
			require.Len(t, sent, len(c.said), name)
			for i, after := range c.said {
				want := limit.Add(step + after).UnixMicro()
				if known := i > 0 && (i == 1 || !errors.Is(c.answers[i-2], io.EOF)); known {
					want = -want
				}
				require.Equal(t, want, sent[i], "%s, send %d", name, i)
			}
		})
	}
}

// TestServersOfAClientHaveClocksOfTheirOwn: if calls on two servers are refused at a time, the second send of
// each has the time of its own server. Later calls succeed, too.
func TestServersOfAClientHaveClocksOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		skew := map[string]time.Duration{"one": time.Hour, "two": -time.Hour}
		way := map[string]time.Duration{"one": time.Millisecond, "two": 2 * time.Millisecond}
		begin := time.Now()
		var mu sync.Mutex // guards said
		said := map[string]int64{}
		n := answered(t, func(sent commands) error {
			key := sent[0][3]
			time.Sleep(way[key])
			mu.Lock()
			said[key], _ = strconv.ParseInt(sent[0][4], 10, 64)
			mu.Unlock()
			return byClock(sent, skew[key])
		})
		n.together, n.several = 1, true
		one, two := post(n, creates("one")), post(n, creates("two"))
		requireOK(t, false, <-one)
		requireOK(t, false, <-two)
		for key, by := range skew {
			require.Equal(t, begin.Add(900*time.Millisecond+by).UnixMicro(), said[key], key)
		}
		for i := range 20 {
			requireOK(t, false, do(n, creates([]string{"one", "two"}[i%2])))
		}
	})
}
