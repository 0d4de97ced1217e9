package node

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/faultproxy"
	"github.com/redlatch/redlatch/internal/redistest"
)

// TestEndedCallThatFailsIsLate: the connection breaks after the call has ended. Late gets the error,
// and nothing is sent again.
func TestEndedCallThatFailsIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent, cut := make(chan batch, 10), make(chan struct{})
		n := answered(t, func(b batch) error {
			sent <- b
			<-cut
			return io.EOF
		})
		late := make(chan Reply, 10)
		c := within(Command("set"), time.Second)
		c.Late = func(r Reply) { late <- r }
		p := post(t.Context(), n, c)
		<-sent
		c.Cancel(errors.New("not needed"))
		require.Error(t, p.wait(t).Err)
		require.Empty(t, late)
		close(cut)
		r := <-late
		require.ErrorIs(t, r.Err, io.EOF)
		require.True(t, r.Resent)
		time.Sleep(time.Minute)
		require.Empty(t, late)
		require.Empty(t, sent)
		requireIdle(t, n)
	})
}

// TestCallWithoutAReplySaysThatItWasSent: its first send may have been carried out.
func TestCallWithoutAReplySaysThatItWasSent(t *testing.T) {
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sends, hang := 0, make(chan struct{})
				n := answered(t, func(batch) error {
					if sends++; sends == 1 {
						return io.EOF
					}
					<-hang
					return nil
				})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				c := within(Command("set"), time.Second)
				reply := make(chan Reply, 1)
				go func() { reply <- n.Do(ctx, c) }() // ends with the call
				time.Sleep(500 * time.Millisecond)
				synctest.Wait()
				end(c, cancel)
				r := <-reply
				require.Error(t, r.Err)
				require.True(t, r.Resent)
				close(hang)
			})
		})
	}
}

// TestPersistentCallThatWasNeverSentIsOpen: another call continues it, so its outcome is
// unknown.
func TestPersistentCallThatWasNeverSentIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		g.occupy(t, n)
		c := within(Command("del"), time.Second)
		c.OutlivesCaller = true
		r := n.Do(t.Context(), c)
		require.ErrorAs(t, r.Err, new(*NoReply))
		require.False(t, errors.As(r.Err, new(*NotDone)))
		require.Empty(t, g.sent)
		g.open()
		require.Equal(t, batch{{"del"}}, <-g.sent)
		time.Sleep(time.Minute)
		require.Empty(t, g.sent)
	})
}

// TestContinuedReleaseEndsInTime: the release continues for its timeout once more and no longer, even
// beside a call that times out much later.
func TestContinuedReleaseEndsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		begin := time.Now()
		var ends []time.Duration
		n.Trouble = func(error) { ends = append(ends, time.Since(begin)) }
		g.occupy(t, n)
		c := within(Command("del"), time.Second)
		c.OutlivesCaller = true
		require.ErrorAs(t, n.Do(t.Context(), c).Err, new(*NoReply))
		time.Sleep(30 * time.Second)
		synctest.Wait()
		require.Equal(t, []time.Duration{time.Second, 2 * time.Second}, ends)
		g.open()
	})
}

// TestDialThatTimesOutIsNotTheCallersEnd: the error of a dial that timed out matches
// context.DeadlineExceeded. The error of the call does not, since no ctx of the caller has ended.
func TestDialThatTimesOutIsNotTheCallersEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dial := *errDial
		dial.Err = context.DeadlineExceeded
		n := answered(t, func(batch) error { return &dial })
		r := n.Do(t.Context(), within(Command("get"), time.Second))
		require.ErrorAs(t, r.Err, new(*NoReply))
		require.NotErrorIs(t, r.Err, context.DeadlineExceeded)
	})
}

// TestCallBehindOneThatTimesOutIsSent: even if the call has taken the place of another one in the
// meantime.
func TestCallBehindOneThatTimesOutIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		begin := time.Now()
		post(t.Context(), n, ordered("k", "first", time.Minute))
		<-g.sent
		second := post(t.Context(), n, ordered("k", "second", time.Hour))
		third := post(t.Context(), n, ordered("k", "third", time.Hour))
		second.Cancel(errors.New("not needed"))
		require.Equal(t, batch{{"third"}}, <-g.sent)
		require.Equal(t, time.Minute, time.Since(begin).Truncate(time.Second))
		g.open()
		requireOK(t, false, third.wait(t))
	})
}

// TestCallsInTheMailboxFollowAStuckCourier: they are sent once a stuck courier is replaced. No further
// call has to be posted for that.
func TestCallsInTheMailboxFollowAStuckCourier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, g := gated(t)
		var stuck []*posted
		for range couriers {
			stuck = append(stuck, post(t.Context(), n, within(Command("stuck"), time.Hour)))
			<-g.sent
		}
		next := post(t.Context(), n, within(Command("next"), time.Hour))
		synctest.Wait()
		require.Empty(t, g.sent)
		stuck[0].Cancel(errors.New("not needed"))
		synctest.Wait()
		require.Len(t, g.sent, 1)
		require.Equal(t, batch{{"next"}}, <-g.sent)
		g.open()
		requireOK(t, false, next.wait(t))
	})
}

// TestEndedCtxNeverSends: even if a courier is about to read the mailbox.
func TestEndedCtxNeverSends(t *testing.T) {
	t.Parallel()
	var sent atomic.Int64
	n := answered(t, func(batch) error {
		sent.Add(1)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 2000 {
				if err := n.Do(ctx, within(Command("set"), time.Minute)).Err; !errors.As(err, new(*NotDone)) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	requireIdle(t, n)
	require.Zero(t, sent.Load())
}

// A sick server does not answer the first command, so its node is silent. It answers each later send with the
// error from the channel of that send.
type sickServer struct {
	sent    chan batch
	answers []chan error // by send, after the first command
}

func newSickServer(t *testing.T, answers int) (*Node, *sickServer) {
	t.Helper()
	s := &sickServer{sent: make(chan batch, 10), answers: make([]chan error, answers)}
	for i := range s.answers {
		s.answers[i] = make(chan error, 1)
	}
	var sends atomic.Int64
	n := answered(t, func(b batch) error {
		i := sends.Add(1) - 2
		if i < 0 {
			time.Sleep(2 * time.Second)
			return io.EOF
		}
		s.sent <- b
		return <-s.answers[i]
	})
	require.Error(t, n.Do(t.Context(), within(Command("ping"), time.Second)).Err)
	require.True(t, n.Silent())
	time.Sleep(time.Millisecond)
	return n, s
}

// TestCallThatGoesOnWithoutItsFirstSend: the first send may have been carried out. Its
// outcome is reported late, and ends the call only if it is the reply.
func TestCallThatGoesOnWithoutItsFirstSend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newSickServer(t, 2)
		late := make(chan Reply, 10)
		c := within(Command("set"), time.Second)
		c.Late = func(r Reply) { late <- r }
		p := post(t.Context(), n, c)
		<-s.sent
		<-s.sent
		s.answers[0] <- io.EOF
		require.ErrorIs(t, (<-late).Err, io.EOF)
		time.Sleep(200 * time.Millisecond)
		require.Empty(t, p.report)
		require.Empty(t, s.sent)
		s.answers[1] <- nil
		requireOK(t, true, p.wait(t))
		time.Sleep(time.Minute)
		require.Empty(t, late)
		require.Empty(t, s.sent)
		requireIdle(t, n)
	})
	synctest.Test(t, func(t *testing.T) {
		n, s := newSickServer(t, 2)
		p := post(t.Context(), n, within(Command("set"), time.Second))
		<-s.sent
		<-s.sent
		s.answers[1] <- nil
		requireOK(t, true, p.wait(t))
		s.answers[0] <- nil
		requireIdle(t, n)
	})
}

// TestFirstReplyEndsACall: whichever send it answers.
func TestFirstReplyEndsACall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newSickServer(t, 2)
		p := post(t.Context(), n, within(Command("set"), time.Second))
		<-s.sent
		<-s.sent
		s.answers[0] <- nil
		requireOK(t, true, p.wait(t))
		s.answers[1] <- nil
		requireIdle(t, n)
	})
}

// TestSendThatWasLeftBehindFreesNoLane: the call has ended, but another send of it may still be
// carried out.
func TestSendThatWasLeftBehindFreesNoLane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newSickServer(t, 3)
		first := post(t.Context(), n, ordered("k", "first", time.Minute))
		<-s.sent
		<-s.sent
		first.Cancel(errors.New("not needed"))
		next := post(t.Context(), n, ordered("k", "next", time.Minute))
		s.answers[0] <- io.EOF
		synctest.Wait()
		require.Empty(t, s.sent)
		s.answers[1] <- nil
		require.Equal(t, batch{{"next"}}, <-s.sent)
		s.answers[2] <- nil
		requireOK(t, false, next.wait(t))
		requireIdle(t, n)
	})
}

// TestSendThatWasLeftBehindIsOvertaken: the next call for the key may be carried out before the send that
// its call has left behind.
func TestSendThatWasLeftBehindIsOvertaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newSickServer(t, 2)
		late := make(chan Reply, 10)
		c := ordered("k", "first", time.Second)
		c.Late = func(r Reply) { late <- r }
		p := post(t.Context(), n, c)
		<-s.sent
		<-s.sent
		s.answers[1] <- nil
		r := p.wait(t)
		requireOK(t, true, r)
		require.False(t, r.Overtaken, "it returned in its turn")
		s.answers[0] <- nil
		requireIdle(t, n)
		require.True(t, (<-late).Overtaken)
	})
}

// TestCallThatACourierStillHasIsNotReused: otherwise the outcome of its other send would change another call.
func TestCallThatACourierStillHasIsNotReused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, s := newSickServer(t, 3)
		s.answers[1] <- nil
		requireOK(t, true, n.Do(t.Context(), within(Command("set"), time.Second)))
		next := post(t.Context(), n, within(Command("get"), 10*time.Second))
		synctest.Wait()
		s.answers[0] <- nil
		require.ErrorAs(t, next.wait(t).Err, new(*NoReply), "it times out")
		s.answers[2] <- nil
		requireIdle(t, n)
	})
}

// TestDeferredCommandHoldsUpNoTimeout: the courier waits for a command of a deferred pipeline before
// it takes the node's mutex, which timeouts need.
func TestDeferredCommandHoldsUpNoTimeout(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	p := faultproxy.New(t, s.Network(), s.Addr())
	o := p.Options()
	o.ReadTimeout = -1
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	deferred, err := client.AsyncAutoPipeline()
	require.NoError(t, err)
	n := New(deferred)
	require.NoError(t, n.Do(t.Context(), within(Command("ping"), limit)).Err)
	p.Silence()
	defer p.Cut() // the client gives up
	reply := make(chan Reply, 1)
	go func() { reply <- n.Do(t.Context(), within(Command("ping"), 100*time.Millisecond)) }() // ends in time
	select {
	case r := <-reply:
		require.ErrorContains(t, r.Err, "no reply within 100ms")
	case <-time.After(limit / 4):
		require.Fail(t, "the call did not end")
	}
}
