package node

import (
	"fmt"
	"io"
	"strconv"
	"sync"
	"testing"
	"testing/quick"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

func TestLatestIsNineTenthsOfTheTimeoutOnTheClockOfRedis(t *testing.T) {
	var a ahead
	require.Zero(t, a.latest(time.Hour, time.Second), "an unknown clock")
	for _, c := range []struct {
		redis, now        time.Duration // an answer with this time arrived then
		deadline, timeout time.Duration
		want              int64
	}{
		{time.Hour, 0, time.Second, time.Second, 3600_900_000},
		{time.Hour, time.Minute, time.Minute + 10*time.Second, 10 * time.Second, 3609_000_000},
		{time.Hour, time.Second, time.Second, 0, 3600_000_000},
		{time.Minute, 0, time.Second, time.Second, 60_900_000}, // Redis was set back
		{time.Second, time.Hour, time.Hour + time.Second, time.Second, 1_900_000},
		{time.Hour, 0, 10 * time.Microsecond, 19 * time.Nanosecond, 3600_000_009}, // whole µs
	} {
		a.told(c.redis, c.now)
		require.Equal(t, c.want, a.latest(c.deadline, c.timeout), "only the newest answer counts: %+v", c)
	}
}

// TestWhatRunsByTheLatestTimeRunsBeforeTheDeadline: however long the answer with the time was under way, and whatever the
// clocks say. The time that is lost is that of its way back.
func TestWhatRunsByTheLatestTimeRunsBeforeTheDeadline(t *testing.T) {
	require.NoError(t, quick.Check(func(epoch, said, back, left uint32, timeout uint16) bool {
		skew := 365*24*time.Hour + time.Duration(epoch) // of the clock of Redis, which says now + skew
		read := time.Duration(said)                     // when Redis read its clock, to the µs
		arrived := read + time.Duration(back)
		deadline := arrived + time.Duration(left)
		var a ahead
		a.told((read + skew).Truncate(time.Microsecond), arrived)
		latest := time.Duration(a.latest(deadline, time.Duration(timeout)))*time.Microsecond - skew
		end := deadline - time.Duration(timeout)/10
		return latest <= end && latest > end-time.Duration(back)-2*time.Microsecond
	}, &quick.Config{MaxCount: 20_000}))
}

func TestTooLateIsReadFromNoOtherAnswer(t *testing.T) {
	for _, c := range []struct {
		value any
		redis time.Duration
		late  bool
	}{
		{[]any{"late", int64(3600), int64(7)}, time.Hour + 7*time.Microsecond, true},
		{[]any{"late", int64(0), int64(0)}, 0, true},
		{nil, 0, false},
		{"late", 0, false},
		{int64(1), 0, false},
		{[]any{}, 0, false},
		{[]any{"late", int64(1)}, 0, false},
		{[]any{"late", int64(1), int64(2), int64(3)}, 0, false},
		{[]any{"held", int64(1), int64(2)}, 0, false},
		{[]any{[]any{"late"}, int64(1), int64(2)}, 0, false},
		{[]any{int64(5000), "late", int64(1)}, 0, false},
		{[]any{"late", "1", int64(0)}, 0, false},
		{[]any{"late", int64(0), nil}, 0, false},
	} {
		redis, late := tooLate(c.value)
		require.Equal(t, c.late, late, "%v", c.value)
		if late {
			require.Equal(t, c.redis, redis)
		}
	}
}

// creates returns a call of a script that has to run by the latest time. Its words: eval, the script, 1, key, latest, "x".
func creates(key string, timeout time.Duration) *Call {
	c := within(Eval(increase, 1, key), timeout)
	c.AppendLatest()
	c.Append("x")
	return c
}

// byClock answers a batch of such calls as a script on a server whose clock is ahead by skew.
func byClock(t *testing.T, sent batch, skew time.Duration) (texts answers) {
	t.Helper()
	now := time.Now().Add(skew).UnixMicro()
	for _, words := range sent {
		latest, err := strconv.ParseInt(words[4], 10, 64)
		if err != nil || words[5] != "x" {
			t.Errorf("%v, %v", words, err)
		}
		text := "+OK"
		if latest < now {
			text = late(now)
		}
		texts = append(texts, text)
	}
	return texts
}

// late is the answer of a script that came too late, on a server whose clock says now.
func late(now int64) string {
	return fmt.Sprintf("*3\r\n$4\r\nlate\r\n:%d\r\n:%d", now/1e6, now%1e6)
}

// TestLateAnswerIsRepeatedWithItsTime: while the clock is unknown, the call says 0 and has the source of the script, which
// the server may not have. The answer teaches the clock, and the calls behind it need one send.
func TestLateAnswerIsRepeatedWithItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const skew = -time.Hour
		sent := make(chan batch, 10)
		n := answered(t, func(b batch) error {
			time.Sleep(5 * time.Millisecond) // the way there; the way back takes no time
			sent <- b
			return byClock(t, b, skew)
		})
		latest := func() string { return strconv.FormatInt(time.Now().Add(skew+900*time.Millisecond).UnixMicro(), 10) }
		want := latest()
		requireOK(t, false, do(n, creates("k", time.Second)))
		require.Equal(t, batch{{"eval", increase.source, "1", "k", "0", "x"}}, <-sent)
		require.Equal(t, batch{{"eval", increase.source, "1", "k", want, "x"}}, <-sent)
		for range 2 {
			time.Sleep(time.Minute)
			want = latest()
			requireOK(t, false, do(n, creates("k", time.Second)))
			require.Equal(t, batch{{"evalsha", increase.sha, "1", "k", want, "x"}}, <-sent)
		}
		require.Empty(t, sent)
	})
}

// TestSecondLateAnswerEndsTheCall: so does one for which there is no time. The call was not done unless an earlier send may
// have been carried out.
func TestSecondLateAnswerEndsTheCall(t *testing.T) {
	for name, c := range map[string]struct {
		takes []time.Duration // each send
		cut   bool            // the first send
	}{
		"twice":                    {[]time.Duration{0, 0}, false},
		"twice behind a cut send":  {[]time.Duration{0, 0, 0}, true},
		"early, and then too late": {[]time.Duration{0, 950 * time.Millisecond}, false},
		"at nine tenths":           {[]time.Duration{900 * time.Millisecond}, false},
		"barely in time":           {[]time.Duration{890 * time.Millisecond, 0}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sends := 0
				n := answered(t, func(batch) error {
					sends++
					time.Sleep(c.takes[sends-1])
					if c.cut && sends == 1 {
						return io.EOF
					}
					return answers{late(time.Now().UnixMicro())}
				})
				r := do(n, creates("k", time.Second))
				require.ErrorAs(t, r.Err, new(*NoReply))
				require.ErrorIs(t, r.Err, map[bool]error{false: errTooLate, true: io.EOF}[c.cut])
				require.True(t, Unavailable(r.Err))
				require.Equal(t, !c.cut, isNotDone(r.Err))
				require.Equal(t, c.cut, r.Resent)
				require.Len(t, c.takes, sends)
				require.False(t, silent(n), "it was an answer")
				requireIdle(t, n)
			})
		})
	}
}

// TestResendHasItsOwnWords: hooks may keep the words that were sent. The time stays that of the deadline of the call.
func TestResendHasItsOwnWords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sends := 0
		n := answered(t, func(b batch) error {
			switch sends++; sends {
			case 1, 3, 5:
				return io.EOF
			case 6:
				return answer("NOSCRIPT No matching script")
			}
			return byClock(t, b, time.Hour)
		})
		kept := &keeper{}
		n.client.AddHook(kept.hook())
		for range 2 { // cut, late, cut, done; and then cut, not there, done
			requireOK(t, true, do(n, creates("k", time.Second)))
			time.Sleep(time.Second)
		}
		kept.requireUnchanged(t)
		var verbs, latest []string
		for _, words := range kept.said {
			if len(words) == 6 { // else it belongs to the handshake
				verbs, latest = append(verbs, words[0]), append(latest, words[4])
			}
		}
		require.Equal(t, []string{"eval", "eval", "eval", "eval", "evalsha", "evalsha", "eval"}, verbs)
		require.Equal(t, []string{"0", "0", latest[2], latest[2], latest[4], latest[4], latest[4]}, latest)
		require.Less(t, latest[2], latest[4])
	})
}

// TestConcurrentCallsOnTwoClocks: the servers of a cluster have clocks that differ. Each call succeeds with at most two
// sends, since the second has the time of its own server.
func TestConcurrentCallsOnTwoClocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		sends, late := make(map[string]int), make(map[string]int) // by key, and by server
		skew := map[string]time.Duration{":1": time.Hour, ":2": -time.Hour}
		n := clustered(t, func() ([]redis.ClusterSlot, error) { return half(true), nil }, func(port string, b batch) error {
			time.Sleep(time.Millisecond)
			said := byClock(t, b, skew[port])
			mu.Lock()
			defer mu.Unlock()
			sends[b[0][3]]++
			if said[0] != "+OK" {
				late[port]++
			}
			return said
		})
		var all sync.WaitGroup
		for i := range 20 {
			all.Go(func() {
				for j := range 20 {
					for _, slot := range []string{"foo", "bar"} {
						if r := do(n, creates(fmt.Sprintf("{%s}%d-%d", slot, i, j), time.Second)); r.Err != nil || r.Resent {
							t.Errorf("%+v", r)
						}
					}
				}
			})
		}
		all.Wait()
		require.Len(t, sends, 2*20*20)
		for key, times := range sends {
			require.LessOrEqual(t, times, 2, key)
		}
		require.Len(t, late, 2)
	})
}

// TestCommandThatIsCarriedOutAfterItsCallCreatesNothing: the server is stopped when a call is sent, and resumes after its timeout.
func TestCommandThatIsCarriedOutAfterItsCallCreatesNothing(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	n, direct := New(s.Client(t)), s.Client(t)
	script := NewScript(`
		local t = redis.call('TIME')
		redis.call('INCR', 'runs')
		if tonumber(ARGV[1]) < t[1] * 1000000 + t[2] then return {'late', tonumber(t[1]), tonumber(t[2])} end
		return redis.call('SET', KEYS[1], 'v').ok`)
	call := func(key string, timeout time.Duration) *Call {
		c := within(Eval(script, 1, key), timeout)
		c.AppendLatest()
		return c
	}
	requireOK(t, false, do(n, call("k", limit)))
	requireOK(t, false, do(n, call("k", limit)))
	s.Pause()
	require.ErrorAs(t, do(n, call("never", 200*time.Millisecond)).Err, new(*NoReply))
	s.Resume()
	eventually(t, "the script has run", func() bool { return direct.Get(t.Context(), "runs").Val() == "4" })
	require.Zero(t, direct.Exists(t.Context(), "never").Val())
	requireOK(t, false, do(n, call("k", limit)))
}
