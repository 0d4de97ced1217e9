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
)

var (
	errDial    = &net.OpError{Op: "dial", Err: errors.New("no route")}
	errLoading = answer("LOADING Redis is loading the dataset in memory")
	errTimeout = &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}
)

// TestEveryCallEndsOnceWithinItsTimeout: whatever the server does, alone or in a batch. [post] fails on a second reply.
func TestEveryCallEndsOnceWithinItsTimeout(t *testing.T) {
	for name, serve := range map[string]func(i int64) error{
		"answers":           func(int64) error { return nil },
		"refuses":           func(int64) error { return answer("NOPERM no") },
		"is loading":        func(int64) error { return errLoading },
		"cannot be reached": func(int64) error { return errDial },
		"breaks":            func(int64) error { return io.EOF },
		"is slow":           func(i int64) error { time.Sleep(time.Duration(i%9) * 70 * time.Millisecond); return nil },
		"hangs":             func(int64) error { time.Sleep(time.Hour); return io.EOF },
		"hangs at times": func(i int64) error {
			if i%3 == 0 {
				time.Sleep(time.Hour)
			}
			return []error{nil, io.EOF}[i%2]
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var sends, ended atomic.Int64
				n := answered(t, func(batch) error { return serve(sends.Add(1)) })
				const callers = 200
				for i := range callers {
					time.Sleep(time.Duration(i%7) * time.Millisecond)
					begin := time.Now()
					c := within(Command("set"), time.Duration(i%50)*10*time.Millisecond)
					timeout := c.Timeout
					c.Insists = i%30 == 0 && timeout > 0
					c.Done = func(Reply) {
						ended.Add(1)
						if took := time.Since(begin); took > timeout+tick {
							t.Errorf("timeout %v: it took %v", timeout, took)
						}
					}
					n.Post(t.Context(), c)
				}
				time.Sleep(2 * time.Hour)
				synctest.Wait()
				require.EqualValues(t, callers, ended.Load())
				requireIdle(t, n)
			})
		})
	}
}

// TestCallThatWasNotSentInTimeNeverIs: it is marked as not done, whether it waited in the mailbox or for a resend.
func TestCallThatWasNotSentInTimeNeverIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		g.occupy(n)
		r := do(n, within(Command("set"), time.Second))
		require.True(t, isNotDone(r.Err))
		require.EqualError(t, r.Err, "no reply within 1s")
		require.False(t, r.Resent)
		g.open()
		time.Sleep(time.Minute)
		require.Empty(t, g.sent)
	})
	synctest.Test(t, func(t *testing.T) {
		var sends atomic.Int64
		n := answered(t, func(batch) error { sends.Add(1); return errDial })
		require.True(t, isNotDone(do(n, within(Command("set"), firstPause/4)).Err))
		time.Sleep(time.Minute)
		require.EqualValues(t, 1, sends.Load())
	})
}

// TestOutcomeOfACallUnderWayIsUnknown: the call is not marked as not done, nor sent again. Its reply comes too late.
func TestOutcomeOfACallUnderWayIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		r := do(n, within(Command("set"), time.Second))
		require.ErrorAs(t, r.Err, new(*NoReply))
		require.False(t, isNotDone(r.Err))
		require.False(t, r.Resent)
		g.open()
		time.Sleep(time.Minute)
		require.Len(t, g.sent, 1)
	})
	synctest.Test(t, func(t *testing.T) {
		n := answeredBy(t, io.EOF, errDial, errDial, errDial, errDial, errDial, errDial)
		r := do(n, within(Command("set"), 100*time.Millisecond))
		require.False(t, isNotDone(r.Err), "its first send may have been carried out")
		require.True(t, r.Resent)
	})
}

// TestInsistentCallIsSentForAMinuteMore: in the background, whether it was sent before or not. Its outcome is unknown. A
// Redis that cannot save counts as one that is down, while its answer ends any other call.
func TestInsistentCallIsSentForAMinuteMore(t *testing.T) {
	misconf := answer("MISCONF Redis is configured to save RDB snapshots")
	for name, c := range map[string]struct {
		insists bool
		fails   error         // while the server is down
		down    time.Duration // how long
		last    time.Duration // when the last send leaves, or up to two pauses after that
		err     string
	}{
		"the server returns": {true, io.EOF, 20 * time.Second, 20 * time.Second, "no reply within 1s: EOF"},
		"it can save again":  {true, misconf, 20 * time.Second, 20 * time.Second, "still failing after 1s: MISCONF .*"},
		"it does not return": {true, io.EOF, time.Hour, time.Second + insistFor - 2*lastPause, "no reply within 1s: EOF"},
		"no insistence":      {false, io.EOF, time.Hour, time.Second - 2*lastPause, "no reply within 1s: EOF"},
		"a lasting refusal":  {false, misconf, time.Hour, 0, "MISCONF .*"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var last time.Duration
				begin := time.Now()
				n := answered(t, func(batch) error {
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
				require.LessOrEqual(t, time.Since(begin), time.Second)
				time.Sleep(2 * insistFor)
				synctest.Wait()
				require.GreaterOrEqual(t, last, c.last)
				require.LessOrEqual(t, last, c.last+2*lastPause)
				requireIdle(t, n)
			})
		})
	}
	t.Run("never sent in time", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			n, g := gated(t)
			g.occupy(n)
			for range 2 {
				c := within(Eval(increase, 1, "n"), time.Second)
				c.Insists = true
				require.False(t, isNotDone(do(n, c).Err))
				time.Sleep(insistFor - 3*time.Second/2) // at the end, no timeout passes in the instant in which the gate opens
			}
			g.open() // the first has ended
			require.Equal(t, batch{{"evalsha", increase.sha, "1", "n"}}, <-g.sent)
			time.Sleep(time.Minute)
			require.Empty(t, g.sent)
		})
	})
}

// TestCallKnowsWhatMayHaveBeenCarriedOut: Resent and NotDone distinguish a send that surely did not reach the
// server, one that the server refused, and one whose outcome is unknown. A lasting refusal ends the call.
func TestCallKnowsWhatMayHaveBeenCarriedOut(t *testing.T) {
	for name, c := range map[string]struct {
		errs   []error
		resent bool
	}{
		"sent once":              {nil, false},
		"no route":               {[]error{errDial, errDial}, false},
		"no connection free":     {[]error{redis.ErrPoolTimeout}, false},
		"refused":                {[]error{errLoading}, false},
		"cut":                    {[]error{io.EOF}, true},
		"silent":                 {[]error{errTimeout}, true},
		"cut, no route, refused": {[]error{io.EOF, errDial, errLoading}, true},
		"the hook of the client": {[]error{errors.New("circuit open")}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := do(answeredBy(t, c.errs...), within(Command("set"), time.Second))
				requireOK(t, c.resent, r)

				r = do(answeredBy(t, append(c.errs, redis.ErrClosed)...), within(Command("set"), time.Second))
				require.ErrorIs(t, r.Err, redis.ErrClosed)
				require.Equal(t, c.resent, r.Resent)
				require.Equal(t, !c.resent, isNotDone(r.Err))

				r = do(answeredBy(t, append(c.errs, answer("OOM no memory"))...), within(Command("set"), time.Second))
				require.True(t, Answered(r.Err))
				require.Equal(t, c.resent, r.Resent)
				require.False(t, isNotDone(r.Err), "a refusal is an answer")
			})
		})
	}
}

// TestDialThatTimesOutIsTriedAgain: a client whose DialTimeout is short gives up before the call does. The error of
// package net matches context.DeadlineExceeded. That of the call does not, since no ctx of a caller has ended.
func TestDialThatTimesOutIsTriedAgain(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, timeout := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	require.ErrorIs(t, timeout, context.DeadlineExceeded)
	synctest.Test(t, func(t *testing.T) {
		requireOK(t, false, do(answeredBy(t, timeout), within(Command("set"), time.Second)))
		r := do(answered(t, func(batch) error { return timeout }), within(Command("set"), time.Second))
		require.ErrorAs(t, r.Err, new(*NoReply))
		require.NotErrorIs(t, r.Err, context.DeadlineExceeded)
	})
}

// TestNoReplySaysWhy: the error names the timeout, and why the call was last resent. If it was not, the error names the
// trouble of another call on the node, unless the server has answered since then.
func TestNoReplySaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang, cut := make(chan struct{}), new(atomic.Bool)
		defer close(hang)
		n := answered(t, func(b batch) error {
			switch word := b[0][0]; {
			case word == "cut", word == "cut once" && !cut.Swap(true):
				return io.EOF
			case word != "ping":
				<-hang
			}
			return nil
		})
		r := do(n, within(Command("hang"), time.Second))
		require.EqualError(t, r.Err, "no reply within 1s")
		require.True(t, Silence(r.Err))
		require.NoError(t, trouble(n))

		own := post(n, within(Command("cut once"), time.Second))
		synctest.Wait()
		require.ErrorIs(t, trouble(n), io.EOF)
		requireOK(t, false, do(n, Command("ping")))
		require.NoError(t, trouble(n))
		require.EqualError(t, (<-own).Err, "no reply within 1s: EOF", "the answer was to another call")
		require.EqualError(t, do(n, within(Command("hang"), time.Second)).Err, "no reply within 1s")

		r = do(n, within(Command("cut"), 50*time.Millisecond))
		require.EqualError(t, r.Err, "no reply within 50ms: EOF")
		require.ErrorIs(t, r.Err, io.EOF)
		require.EqualError(t, do(n, within(Command("hang"), time.Second)).Err, "no reply within 1s: EOF", "of another call")
	})
}

// TestTroubleIsEachSendThatIsRetriedAndEachTimeout: nothing else is reported.
func TestTroubleIsEachSendThatIsRetriedAndEachTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outcomes := []error{io.EOF, errLoading, nil, answer("NOPERM no")}
		n := answered(t, func(batch) (err error) {
			if len(outcomes) == 0 {
				time.Sleep(2 * time.Second) // longer than the call
				return nil
			}
			err, outcomes = outcomes[0], outcomes[1:]
			return err
		})
		var reported []string
		n.Trouble = func(err error) { reported = append(reported, err.Error()) }
		requireOK(t, true, do(n, Command("get")))
		require.Error(t, do(n, Command("get")).Err)
		require.Error(t, do(n, within(Command("get"), time.Second)).Err)
		require.Equal(t, []string{"EOF", errLoading.Error(), "no reply within 1s"}, reported)
		requireIdle(t, n)
	})
}

// TestSecondCommandIsPartOfItsCall: if the first command was carried out and the second was refused for a
// passing reason, the call is sent again, and does not count as not done.
func TestSecondCommandIsPartOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		n := answered(t, func(batch) error {
			if time.Since(begin) > 700*time.Millisecond {
				return nil
			}
			return answers{"+OK", "-BUSY Redis is busy running a script."}
		})
		call := func() *Call {
			c := within(Command("set"), 500*time.Millisecond)
			c.Then = []any{"wait", 1, 100}
			return c
		}
		r := do(n, call())
		require.ErrorContains(t, r.Err, "still failing after 500ms: BUSY")
		require.False(t, isNotDone(r.Err), "its first command was carried out")
		r = do(n, call())
		requireOK(t, true, r)
		require.Equal(t, &Reply{Value: "OK"}, r.Then)
	})
}
