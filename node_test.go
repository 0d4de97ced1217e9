package redlatch

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// answers is what a client says to the first commands, without sending them.
type answers struct{ next chan error }

func (a answers) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		select {
		case err := <-a.next:
			cmd.SetErr(err)
			return err
		default:
			return next(ctx, cmd)
		}
	}
}

// TestSendKnowsWhatMayHaveBeenCarriedOut is rules 3 and 7: a command counts as never sent only if no
// send of it can have been carried out.
func TestSendKnowsWhatMayHaveBeenCarriedOut(t *testing.T) {
	dial := &net.OpError{Op: "dial", Err: errors.New("no route")}
	loading := redis.ErrNoScript // any answer of Redis
	for name, c := range map[string]struct {
		errs  []error
		clean bool
	}{
		"closed":            {[]error{redis.ErrClosed}, true},
		"no route, closed":  {[]error{dial, dial, redis.ErrClosed}, true},
		"lost, then closed": {[]error{io.EOF, redis.ErrClosed}, false},
		"lost, no route":    {[]error{dial, io.EOF, dial, redis.ErrClosed}, false},
		"refused":           {[]error{loading}, false},
	} {
		t.Run(name, func(t *testing.T) {
			_, n := oneNode(t)
			a := answers{make(chan error, len(c.errs))}
			for _, err := range c.errs {
				a.next <- err
			}
			n.client.AddHook(redistest.OnProcess(a.ProcessHook))
			j := n.start(context.Background(), func(j *job, _ *claim) (grant, error) {
				_, _, err := j.send(nil, []any{"ping"})
				return grant{}, err
			}, &claim{bound: time.Minute}, form{})
			<-j.ended
			require.ErrorIs(t, j.err, c.errs[len(c.errs)-1])
			require.Equal(t, c.clean, errors.As(j.err, new(*undone)))
		})
	}
}

// heldBack keeps the first script of a client back until it is let go.
type heldBack struct {
	arrived, let chan struct{}
}

func (h heldBack) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") {
			select {
			case h.arrived <- struct{}{}:
				<-h.let
				return next(context.Background(), cmd) // go-redis does not heed ctx on the wire
			default:
			}
		}
		return next(ctx, cmd)
	}
}

// TestFullDuplexPipelineIsNotNear is rule 8: a full window blocks who submits. What counts is the pipeline
// that is used, and not the one that is given.
func TestFullDuplexPipelineIsNotNear(t *testing.T) {
	for _, full := range []bool{false, true} {
		client := redis.NewClient(&redis.Options{})
		t.Cleanup(func() { _ = client.Close() })
		deferred, err := client.AsyncAutoPipelineWithOptions(&redis.AutoPipelineOptions{FullDuplex: full, FullDuplexWindow: 64})
		require.NoError(t, err)
		blocking, err := client.AutoPipeline()
		require.NoError(t, err)
		require.False(t, blocking.Config().FullDuplex)
		require.Equal(t, full, nearBy(deferred) == nil)
		require.Equal(t, full, nearBy(blocking) == nil)
	}
}

// TestLostSetIsNotForgotten is rule 4: the plain SET was carried out though its reply was lost, and the
// script that was to tell never left: that the lock was surely not taken is not known then.
func TestLostSetIsNotForgotten(t *testing.T) {
	m, n := oneNode(t)
	lost := false
	n.client.AddHook(redistest.OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if cmd.Name() == "evalsha" {
				return redis.ErrClosed
			}
			err := next(ctx, cmd)
			if cmd.Name() == "set" && !lost {
				lost, err = true, io.EOF
			}
			return err
		}
	}))
	c := quorumClaim(0)
	c.fenced = false
	_, err := n.do(t.Context(), acquire, c, form{})
	require.ErrorIs(t, err, redis.ErrClosed)
	require.False(t, surelyNot(err))
	m.CheckGet(t, "k", "mine")
}

// TestStragglerThatLandsAfterTheCleanUpIsReleased is rule 4: the clean-up of an attempt found
// nothing, and only then does its acquire arrive.
func TestStragglerThatLandsAfterTheCleanUpIsReleased(t *testing.T) {
	m, n := oneNode(t)
	l, err := NewSetNXPX(n.client, WithTTL(time.Hour))
	require.NoError(t, err)
	warm, err := l.TryLock(t.Context(), "warm") // the scripts are loaded
	require.NoError(t, err)
	require.NoError(t, warm.Unlock(t.Context()))
	h := heldBack{make(chan struct{}, 1), make(chan struct{})}
	n.client.AddHook(redistest.OnProcess(h.ProcessHook))
	_, err = l.TryLock(t.Context(), "k", WithOpTimeout(50*time.Millisecond))
	require.ErrorContains(t, err, "no reply within 50ms")
	require.False(t, m.Exists("k"))
	close(h.let)
	require.Eventually(t, func() bool { return m.Exists("{k}:fence:k") }, 10*time.Second, time.Millisecond, "it landed")
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond)
}

// TestJobInLineTellsWhatTroublesItsNode: an operation that never got its turn says what the one before
// it met.
func TestJobInLineTellsWhatTroublesItsNode(t *testing.T) {
	_, n := oneNode(t)
	refused := &net.OpError{Op: "dial", Err: errors.New("connection refused")}
	var over atomic.Bool
	n.client.AddHook(redistest.OnProcess(func(redis.ProcessHook) redis.ProcessHook {
		return func(context.Context, redis.Cmder) error {
			if over.Load() {
				return redis.ErrClosed
			}
			return refused
		}
	}))
	k := place{key: "k"}
	first := n.start(t.Context(), release, &claim{place: k, bound: time.Hour}, form{last: true, ordered: true})
	second := n.start(t.Context(), acquire, &claim{place: k, bound: 100 * time.Millisecond}, form{ordered: true})
	<-second.ended
	over.Store(true)
	<-first.ended
	require.EqualError(t, second.err, "no reply within 100ms: dial: connection refused")
}

// TestLateTimerHidesNoSilence is rule 15: a job that finds out by itself that its time is over says as
// much of its node as one that the timer ends.
func TestLateTimerHidesNoSilence(t *testing.T) {
	_, n := oneNode(t)
	began, end := make(chan struct{}), make(chan struct{})
	j := n.start(t.Context(), func(*job, *claim) (grant, error) {
		close(began)
		<-end
		return grant{}, redis.ErrPoolTimeout
	}, &claim{place: place{key: "k"}, bound: time.Hour}, form{})
	<-began
	require.False(t, n.crew.silent())
	n.crew.mu.Lock()
	j.deadline = time.Now().Add(-time.Nanosecond)
	n.crew.mu.Unlock()
	close(end)
	<-j.ended
	require.True(t, n.crew.silent())
}
