package node

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

var (
	errDial     = &net.OpError{Op: "dial", Err: errors.New("no route")}
	errSlowDial = &net.OpError{Op: "dial", Err: context.DeadlineExceeded} // the DialTimeout of the client is short
	errLoading  = answer("LOADING Redis is loading the dataset in memory")
	errTimeout  = &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
)

// TestEveryCallEndsOnceWithinItsTimeout: whatever the server does, alone or in a batch. Done may
// post the next call.
func TestEveryCallEndsOnceWithinItsTimeout(t *testing.T) {
	for name, serve := range map[string]func(i int64) error{
		"answers":           func(int64) error { return nil },
		"refuses":           func(int64) error { return answer("NOPERM no") },
		"is loading":        func(int64) error { return errLoading },
		"cannot be reached": func(int64) error { return errDial },
		"breaks":            func(int64) error { return io.EOF },
		"is slow":           func(i int64) error { time.Sleep(time.Duration(i%9) * 70 * time.Millisecond); return nil },
		"hangs":             func(int64) error { time.Sleep(time.Hour); return io.EOF },
		"hangs at times":    func(i int64) error { time.Sleep(time.Hour * time.Duration(i%2)); return []error{nil, nil, io.EOF}[i%3] },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sends, ended atomic.Int64
				n := answered(t, func(commands) error { return serve(sends.Add(1)) })
				var call func(i int, again bool)
				call = func(i int, again bool) {
					begin, timeout := time.Now(), time.Duration(i%50)*10*time.Millisecond
					c := within(Command("set"), timeout)
					c.Insists = i%30 == 0 && timeout > 0
					c.Done = func(Reply) {
						ended.Add(1)
						if took := time.Since(begin); took > timeout+tick {
							t.Errorf("timeout %v: it took %v", timeout, took)
						}
						if again {
							call(i, false)
						}
					}
					n.Post(t.Context(), c)
				}
				const callers = 100
				for i := range callers {
					time.Sleep(time.Duration(i%7) * time.Millisecond)
					call(i, true)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				require.EqualValues(t, 2*callers, ended.Load())
				requireIdle(t, n)
			})
		})
	}
}

// TestCallThatWasNotSentInTimeNeverIs: it is marked as not done, whether it waited in the mailbox
// or for a resend.
func TestCallThatWasNotSentInTimeNeverIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		for range n.most { // later calls wait in the mailbox
			post(n, Command("hold"))
			<-g.sent
		}
		insists := within(Command("del"), time.Second)
		insists.Insists = true
		sentLater := post(n, insists)
		require.True(t, isNotDone(do(n, within(Command("set"), time.Second)).Err))
		require.False(t, isNotDone((<-sentLater).Err))
		g.open()
		require.Equal(t, commands{{"del"}}, <-g.sent)
		time.Sleep(time.Minute)
		require.Empty(t, g.sent)
	})
	synctest.Test(t, func(t *testing.T) {
		sends := 0
		n := answered(t, func(commands) error { sends++; return errSlowDial })
		r := do(n, within(Command("set"), firstPause/4))
		require.True(t, isNotDone(r.Err))
		require.NotErrorIs(t, r.Err, context.DeadlineExceeded, "the ctx of no caller has ended")
		time.Sleep(time.Minute)
		require.Equal(t, 1, sends)
	})
}

// TestCallKnowsWhatMayHaveBeenCarriedOut: Resent and NotDone distinguish a send that surely did not
// reach the server, one that the server refused, and one whose outcome is unknown. A lasting
// refusal ends the call.
func TestCallKnowsWhatMayHaveBeenCarriedOut(t *testing.T) {
	for name, c := range map[string]struct {
		errs   []error
		resent bool
	}{
		"sent once":              {nil, false},
		"no route":               {[]error{errDial, errSlowDial}, false},
		"no connection free":     {[]error{redis.ErrPoolTimeout}, false},
		"refused":                {[]error{errLoading}, false},
		"cut":                    {[]error{io.EOF}, true},
		"silent":                 {[]error{errTimeout}, true},
		"cut, no route, refused": {[]error{io.EOF, errDial, errLoading}, true},
		"the hook of the client": {[]error{errors.New("circuit open")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := newGate(t)
				endsWith := func(last func(sent commands) error) Reply {
					errs := c.errs
					r := do(answered(t, func(sent commands) (err error) {
						if len(errs) == 0 {
							return last(sent)
						}
						err, errs = errs[0], errs[1:]
						return err
					}), within(Command("set"), time.Second))
					require.Equal(t, c.resent, r.Resent)
					return r
				}
				requireOK(t, c.resent, endsWith(func(commands) error { return nil }))
				r := endsWith(func(commands) error { return answer("NOPERM no") })
				require.True(t, rediserr.Answered(r.Err))
				require.False(t, isNotDone(r.Err), "a refusal is an answer")
				r = endsWith(func(commands) error { return redis.ErrClosed })
				require.ErrorIs(t, r.Err, redis.ErrClosed)
				require.Equal(t, !c.resent, isNotDone(r.Err))
				r = endsWith(g.pass)
				require.ErrorAs(t, r.Err, new(*rediserr.NoReply))
				require.False(t, isNotDone(r.Err), "it was under way")
			})
		})
	}
}

// TestInsistentCallIsSentForAMinuteMore: in the background, whatever the server says. Its outcome
// is unknown. A mistake ends the call at once, and if a right is missing, the background goes on:
// it may be given back.
func TestInsistentCallIsSentForAMinuteMore(t *testing.T) {
	forbidden, wrong := answer("NOPERM no"), answer("WRONGTYPE no")
	for name, c := range map[string]struct {
		insists bool
		fails   error         // while the server is down
		down    time.Duration // how long
		last    time.Duration // when the last send leaves, or up to two pauses after that
		err     string
	}{
		"the server returns":   {true, io.EOF, 20 * time.Second, 20 * time.Second, "no reply within 1s: EOF"},
		"words of a proxy":     {true, answer("upstream failure"), 20 * time.Second, 20 * time.Second, "still failing after 1s: upstream failure"},
		"it does not return":   {true, io.EOF, time.Hour, insistFor - lastPause, "no reply within 1s: EOF"},
		"no insistence":        {false, io.EOF, time.Hour, time.Second - 2*waitedPause, "no reply within 1s: EOF"},
		"a right is missing":   {true, forbidden, 20 * time.Second, 20 * time.Second, "NOPERM .*"},
		"it is not given back": {true, forbidden, time.Hour, insistFor - lastPause, "NOPERM .*"},
		"a mistake":            {true, wrong, time.Hour, 0, "WRONGTYPE .*"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last time.Duration
				begin := time.Now()
				n := answered(t, func(commands) error {
					if last = time.Since(begin); last < c.down {
						return c.fails
					}
					return nil
				})
				call := within(Command("del"), time.Second)
				call.Insists = c.insists
				r := do(n, call)
				require.Regexp(t, "^"+c.err+"$", r.Err)
				require.False(t, isNotDone(r.Err))
				require.LessOrEqual(t, time.Since(begin), time.Second+tick)
				time.Sleep(2 * insistFor)
				synctest.Wait()
				require.GreaterOrEqual(t, last, c.last)
				require.LessOrEqual(t, last, c.last+3*lastPause)
				requireIdle(t, n)
			})
		})
	}
}

// TestCallIsSentOnceMore at the time that it names, however it ended before: a release that was
// overtaken by an acquire finds the lock then. Only the first outcome is reported. What the release
// creates is not created again: it comes too late for that.
func TestCallIsSentOnceMore(t *testing.T) {
	for name, c := range map[string]struct {
		fails error
		lasts time.Duration
		again time.Duration
		sends []time.Duration
	}{
		"done":             {nil, 0, 3 * time.Second, []time.Duration{0, 3 * time.Second}},
		"behind its limit": {nil, 0, time.Millisecond, []time.Duration{0, 900 * time.Millisecond}},
		"refused":          {answer("WRONGTYPE no"), time.Hour, 3 * time.Second, []time.Duration{0, 3 * time.Second}},
		"once":             {nil, 0, 0, []time.Duration{0}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var sends []time.Duration
				n := answered(t, func(commands) error {
					now := time.Since(begin)
					sends = append(sends, now)
					if now < c.lasts {
						return c.fails
					}
					return nil
				})
				call := within(Command("del"), time.Second)
				call.Insists = true
				if c.again > 0 {
					call.Again = clock.MonoNow().Add(c.again)
				}
				r := do(n, call)
				require.Equal(t, c.fails != nil, r.Err != nil)
				require.False(t, r.Resent)
				time.Sleep(2 * insistFor)
				synctest.Wait()
				require.Equal(t, c.sends, sends)
				requireIdle(t, n)
			})
		})
	}
	synctest.Test(t, func(t *testing.T) { // it fails for some time, which ends after the time that it names
		begin, last := time.Now(), time.Duration(0)
		n := answered(t, func(commands) error {
			if last = time.Since(begin); last < 5*time.Second {
				return io.EOF
			}
			return nil
		})
		call := within(Command("del"), time.Second)
		call.Insists, call.Again = true, clock.MonoNow().Add(2*time.Second)
		require.Error(t, do(n, call).Err)
		time.Sleep(2 * insistFor)
		synctest.Wait()
		require.GreaterOrEqual(t, last, 5*time.Second)
		require.LessOrEqual(t, last, 5*time.Second+3*lastPause)
		requireIdle(t, n)
	})
}

// TestTroubleIsEachSendThatIsRetriedAndEachTimeout: nothing else is reported. The error of a call
// that timed out says why it was last resent. If it was not, the error names the trouble of another
// call, unless the server has answered since then.
func TestTroubleIsEachSendThatIsRetriedAndEachTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, cut := newGate(t), false
		n := answered(t, func(sent commands) error {
			switch sent[0][0] {
			case "cut once":
				if !cut {
					cut = true
					return io.EOF
				}
			case "refuse":
				return answer("NOPERM no")
			case "ping":
				return nil
			}
			return hang.pass(sent)
		})
		var reported []string
		n.Trouble = func(err error) { reported = append(reported, err.Error()) }
		require.Error(t, do(n, Command("refuse")).Err)
		own := post(n, within(Command("cut once"), time.Second))
		synctest.Wait()
		other := post(n, within(Command("hang"), 500*time.Millisecond))
		require.EqualError(t, (<-other).Err, "no reply within 500ms: EOF")
		_, trouble := n.Health()
		require.ErrorIs(t, trouble, io.EOF)
		requireOK(t, false, do(n, Command("ping")))
		_, trouble = n.Health()
		require.NoError(t, trouble)
		require.EqualError(t, (<-own).Err, "no reply within 1s: EOF", "the answer was to another call")
		time.Sleep(time.Second) // the first answer is long ago
		require.EqualError(t, do(n, within(Command("hang"), time.Second)).Err, "no reply within 1s")
		require.Equal(t, []string{"EOF", "no reply within 500ms: EOF", "no reply within 1s: EOF", "no reply within 1s"}, reported)
	})
}

// TestSecondCommandIsPartOfItsCall: if the first command was carried out and the second was refused
// for a passing reason, the call is sent again, and does not count as not done.
func TestSecondCommandIsPartOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		n := answered(t, func(commands) error {
			if time.Since(begin) > 700*time.Millisecond {
				return nil
			}
			return replies{"OK", answer("BUSY Redis is busy running a script.")}
		})
		r := do(n, within(waits(Command("set")), 500*time.Millisecond))
		require.ErrorContains(t, r.Err, "still failing after 500ms: BUSY")
		require.False(t, isNotDone(r.Err), "its first command was carried out")
		r = do(n, within(waits(Command("set")), 500*time.Millisecond))
		requireOK(t, true, r)
		require.Equal(t, &Reply{Value: "OK"}, r.Then)
	})
}
