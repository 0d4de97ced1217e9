package node

import (
	"cmp"
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

// ends are the ways in which a call with a timeout of 1 s ends without a reply.
var ends = map[string]func(c *Call, cancel func()){
	"its ctx ends":   func(_ *Call, cancel func()) { cancel() },
	"it is canceled": func(c *Call, _ func()) { c.Cancel(errors.New("not needed")) },
	"it times out":   func(*Call, func()) { time.Sleep(time.Second) }, // of the bubble
}

// TestCallThatWasNeverSentNeverIs: it is known not to be done, and Late is not called.
func TestCallThatWasNeverSentNeverIs(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, g := gated(t)
				g.occupy(t, n)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := within(Command("set"), time.Second)
				c.Late = func(Reply) { t.Error("nothing was sent") }
				reply := make(chan Reply, 1)
				go func() { reply <- n.Do(ctx, c) }() // ends with the call
				synctest.Wait()
				end(c, cancel)
				r := <-reply
				require.ErrorAs(t, r.Err, new(*NotDone))
				require.False(t, r.Resent)
				g.open()
				time.Sleep(time.Minute)
				require.Empty(t, g.sent)
			})
		})
	}
}

// TestOutcomeOfACallUnderWayIsOpen: the outcome is unknown, and Late gets the reply when it
// comes. The call is not sent again.
func TestOutcomeOfACallUnderWayIsOpen(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, g := gated(t)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := within(Command("set"), time.Second)
				late := make(chan Reply, 10)
				c.Late = func(r Reply) { late <- r }
				reply := make(chan Reply, 1)
				go func() { reply <- n.Do(ctx, c) }() // ends with the call
				<-g.sent
				end(c, cancel)
				r := <-reply
				require.Error(t, r.Err)
				require.False(t, errors.As(r.Err, new(*NotDone)))
				require.Empty(t, late)
				g.open()
				requireOK(t, false, <-late)
				time.Sleep(time.Minute)
				require.Empty(t, g.sent)
				require.Empty(t, late)
				require.Equal(t, r, c.Reply(), "the reply does not change")
			})
		})
	}
}

// TestEndedCtxSendsNothing: a call whose ctx has ended is sent only if it persists.
func TestEndedCtxSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		cause := errors.New("shut down")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		r := n.Do(ctx, within(Command("set"), time.Second))
		require.ErrorAs(t, r.Err, new(*NotDone))
		require.ErrorIs(t, r.Err, context.Canceled)
		require.ErrorIs(t, r.Err, cause)
		require.Empty(t, g.sent)

		c := within(Command("del"), time.Second)
		c.OutlivesCaller = true
		r = n.Do(ctx, c)
		require.ErrorIs(t, r.Err, cause)
		require.False(t, errors.As(r.Err, new(*NotDone)))
		require.Len(t, <-g.sent, 1)
		g.open()
	})
}

// TestPersistentCallGoesOnWithoutItsCaller: the call continues for up to twice its timeout.
func TestPersistentCallGoesOnWithoutItsCaller(t *testing.T) {
	for name, leaves := range map[string]bool{"its ctx ends": true, "it times out": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin := time.Now()
				var down time.Duration // how long the server is down
				var last time.Duration // when the newest send left
				sends := 0
				n := answered(t, func(batch) error {
					sends, last = sends+1, time.Since(begin)
					if last < down {
						return io.EOF
					}
					return nil
				})
				do := func(persist bool) {
					begin, sends = time.Now(), 0
					ctx := t.Context()
					if leaves {
						var cancel func()
						ctx, cancel = context.WithTimeout(ctx, 700*time.Millisecond)
						defer cancel()
					}
					c := within(Command("del"), time.Second)
					c.OutlivesCaller = persist
					r := n.Do(ctx, c)
					if leaves {
						require.EqualError(t, r.Err, "context deadline exceeded: EOF")
						require.ErrorIs(t, r.Err, context.DeadlineExceeded)
						require.Equal(t, 700*time.Millisecond, time.Since(begin))
					} else {
						require.EqualError(t, r.Err, "no reply within 1s: EOF")
						require.Equal(t, time.Second, time.Since(begin))
					}
					require.False(t, errors.As(r.Err, new(*NotDone)))
					time.Sleep(time.Minute)
					synctest.Wait()
				}
				down = 1500 * time.Millisecond
				do(true)
				require.GreaterOrEqual(t, last, down, "it succeeded")
				require.Less(t, last, down+2*lastPause)

				down = time.Hour
				do(true)
				require.Greater(t, last, 1500*time.Millisecond)
				require.LessOrEqual(t, last, 2*time.Second)
				require.Less(t, sends, 100)

				do(false)
				require.LessOrEqual(t, last, time.Second)
			})
		})
	}
}

// TestReplyToACallThatWasLeftIsLate: Late gets the reply once, and only if it was not reported before.
func TestReplyToACallThatWasLeftIsLate(t *testing.T) {
	for name, before := range map[string]bool{"before the reply": true, "after the reply": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, g := gated(t)
				late := make(chan Reply, 10)
				c := within(Command("set"), time.Second)
				c.Late = func(r Reply) { late <- r }
				p := post(t.Context(), n, c)
				<-g.sent
				if before {
					c.Unwatch()
				}
				g.open()
				requireOK(t, false, p.wait(t))
				synctest.Wait()
				c.Unwatch()
				time.Sleep(time.Minute)
				require.Equal(t, before, len(late) == 1)
			})
		})
	}
}

// TestCallThatWasLeftGoesOn: it is sent, and sent again after an error, although nobody waits for it.
func TestCallThatWasLeftGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := answeredBy(t, io.EOF, errLoading)
		late := make(chan Reply, 10)
		c := within(Command("set"), time.Second)
		c.Late = func(r Reply) { late <- r }
		post(t.Context(), n, c)
		c.Unwatch()
		requireOK(t, true, <-late)
	})
}

// TestCancelComesTooLateForAReply: a reply that was reported does not change.
func TestCancelComesTooLateForAReply(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := answeredBy(t)
		p := post(t.Context(), n, within(Command("set"), time.Second))
		require.NoError(t, p.wait(t).Err)
		p.Cancel(errors.New("not needed"))
		requireOK(t, false, p.Reply())
	})
}

// TestCallKnowsWhatMayHaveBeenCarriedOut: Resent and NotDone distinguish a send that
// surely did not reach the server, one that the server refused, and one whose outcome is unknown.
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
				r := answeredBy(t, c.errs...).Do(t.Context(), within(Command("set"), time.Second))
				requireOK(t, c.resent, r)

				r = answeredBy(t, append(c.errs, redis.ErrClosed)...).Do(t.Context(), within(Command("set"), time.Second))
				require.ErrorIs(t, r.Err, redis.ErrClosed)
				require.Equal(t, c.resent, r.Resent)
				require.Equal(t, !c.resent, errors.As(r.Err, new(*NotDone)))

				r = answeredBy(t, append(c.errs, answer("OOM no memory"))...).Do(t.Context(), within(Command("set"), time.Second))
				require.True(t, Answered(r.Err))
				require.Equal(t, c.resent, r.Resent)
				require.False(t, errors.As(r.Err, new(*NotDone)), "a refusal is an answer")
			})
		})
	}
}

// TestDialThatTimesOutIsTriedAgain: a client whose DialTimeout is short gives up before the call does.
func TestDialThatTimesOutIsTriedAgain(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, timeout := new(net.Dialer).DialContext(ctx, "tcp", listener.Addr().String())
	require.ErrorIs(t, timeout, context.DeadlineExceeded, "the error of package net")
	synctest.Test(t, func(t *testing.T) {
		r := answeredBy(t, timeout).Do(t.Context(), within(Command("set"), time.Second))
		requireOK(t, false, r)
	})
}

// TestLateKnowsOnceOfASendThatMayStillRun: the client gave up a connection on which the command
// may still be in flight. The caller gets the reply to the next send, and Late is called once.
func TestLateKnowsOnceOfASendThatMayStillRun(t *testing.T) {
	for name, c := range map[string]struct {
		errs []error
		may  bool
	}{
		"silent":          {[]error{errTimeout, errTimeout, errTimeout}, true},
		"cut and silent":  {[]error{io.EOF, errTimeout}, true},
		"cut":             {[]error{io.EOF, io.EOF}, false},
		"never connected": {[]error{errDial, &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, redis.ErrPoolTimeout}, false},
		"refused":         {[]error{errLoading}, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				late := make(chan Reply, 10)
				call := within(Command("set"), time.Second)
				call.Late = func(r Reply) { late <- r }
				r := answeredBy(t, c.errs...).Do(t.Context(), call)
				require.NoError(t, r.Err)
				synctest.Wait()
				if !c.may {
					require.Empty(t, late)
					return
				}
				require.Len(t, late, 1)
				r = <-late
				require.True(t, MayStillRun(r.Err))
				require.True(t, r.Resent)
			})
		})
	}
}

// TestNoReplySaysWhy: the error names the timeout and the last error of the call, or of another call on its
// node.
func TestNoReplySaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := gated(t)
		r := n.Do(t.Context(), within(Command("get"), time.Second))
		require.EqualError(t, r.Err, "no reply within 1s")
		var timeout net.Error
		require.ErrorAs(t, r.Err, &timeout)
		require.True(t, timeout.Timeout())

		n = answered(t, func(batch) error { return io.EOF })
		r = n.Do(t.Context(), within(Command("get"), 50*time.Millisecond))
		require.EqualError(t, r.Err, "no reply within 50ms: EOF")
		require.ErrorIs(t, r.Err, io.EOF)

		// An ordered call that waits for its turn has no error of its own.
		left := make(chan error, 1)
		left <- io.EOF
		hang := make(chan struct{})
		n = answered(t, func(batch) error {
			select {
			case err := <-left:
				return err
			case <-hang:
				return nil
			}
		})
		first, second := within(Command("get"), time.Hour), within(Command("get"), time.Second)
		first.Key, first.Ordered, second.Key, second.Ordered = "k", true, "k", true
		one := post(t.Context(), n, first)
		time.Sleep(time.Second)
		r = post(t.Context(), n, second).wait(t)
		require.EqualError(t, r.Err, "no reply within 1s: EOF")
		close(hang)
		requireOK(t, true, one.wait(t))

		// A reply to another call does not end the trouble of this one.
		left <- io.EOF
		silent := make(chan struct{})
		n = answered(t, func(b batch) error {
			if b[0][0] == "ping" {
				return nil
			}
			select {
			case err := <-left:
				return err
			case <-silent:
				return nil
			}
		})
		one = post(t.Context(), n, within(Command("get"), time.Second))
		synctest.Wait()
		requireOK(t, false, n.Do(t.Context(), within(Command("ping"), time.Second)))
		require.EqualError(t, one.wait(t).Err, "no reply within 1s: EOF")
		close(silent)
	})
}

func TestTroubleIsEachSendThatIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := answeredBy(t, io.EOF, errLoading)
		var reported []error
		n.Trouble = func(err error) { reported = append(reported, err) }
		requireOK(t, true, n.Do(t.Context(), within(Command("get"), time.Second)))
		require.Len(t, reported, 2)
		require.ErrorIs(t, reported[0], io.EOF)
		require.ErrorContains(t, reported[1], "LOADING")
	})
}

// TestReplyOfTheServerEndsTheTrouble: a later call that gets no reply at all does not name an error from
// before the reply.
func TestReplyOfTheServerEndsTheTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan error, 2)
		answers <- io.EOF
		answers <- nil
		n := answered(t, func(batch) error { return <-answers })
		requireOK(t, true, n.Do(t.Context(), within(Command("get"), time.Second)))
		r := n.Do(t.Context(), within(Command("get"), time.Second))
		require.EqualError(t, r.Err, "no reply within 1s")
		close(answers)
	})
}

// TestSecondCommandIsPartOfItsCall: if the first command was carried out and the second was refused for a
// passing reason, the call is sent again, and does not count as not done.
func TestSecondCommandIsPartOfItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var busy atomic.Bool
		busy.Store(true)
		n := answered(t, func(batch) error {
			if busy.Load() {
				return answers{"+OK", "-BUSY Redis is busy running a script."}
			}
			return nil
		})
		call := func() *Call {
			c := within(Command("set"), time.Second)
			c.Then = []any{"wait", 1, 100}
			return c
		}
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		r := n.Do(ctx, call())
		require.ErrorIs(t, r.Err, context.DeadlineExceeded)
		require.ErrorContains(t, r.Err, "BUSY")
		require.False(t, errors.As(r.Err, new(*NotDone)), "its first command was carried out")

		time.AfterFunc(100*time.Millisecond, func() { busy.Store(false) })
		r = n.Do(t.Context(), call())
		requireOK(t, true, r)
		require.Equal(t, &Reply{Value: "OK"}, r.Then)
	})
}

// TestReleaseIsTriedAgainWhereRedisCannotSave: the same answer ends any other call.
func TestReleaseIsTriedAgainWhereRedisCannotSave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var saves atomic.Bool
		n := answered(t, func(batch) error {
			if saves.Load() {
				return nil
			}
			return answers{"-MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk."}
		})
		r := n.Do(t.Context(), within(Command("del"), time.Second))
		require.ErrorContains(t, r.Err, "MISCONF")
		time.AfterFunc(300*time.Millisecond, func() { saves.Store(true) })
		c := within(Command("del"), time.Second)
		c.OutlivesCaller = true
		requireOK(t, false, n.Do(t.Context(), c))
	})
}

// TestCutShortSaysWhatIsWrongWithTheNode: a call that ctx ends in the mailbox says why another call was last
// resent, unless the server has answered since then.
func TestCutShortSaysWhatIsWrongWithTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		g.occupy(t, n)
		for _, trouble := range []error{nil, io.ErrUnexpectedEOF} {
			n.mu.Lock()
			n.trouble = trouble
			n.mu.Unlock()
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			cut, ok := errors.AsType[*CutShort](n.Do(ctx, within(Command("get", "k"), time.Minute)).Err)
			cancel()
			require.True(t, ok)
			require.Equal(t, trouble == nil, cut.Silent)
			require.Equal(t, cmp.Or(trouble, errSilent), cut.Trouble)
		}
	})
}
