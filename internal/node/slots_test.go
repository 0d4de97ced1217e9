package node

import (
	"context"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// A reloading is a client that counts how often its slots are read, as one of a cluster that is
// embedded.
type reloading struct {
	*redis.Client
	reloads atomic.Int64
}

func (r *reloading) ReloadState(context.Context) { r.reloads.Add(1) }

// TestSlotsAreReadAgainAfterNoAnswer: once a second at most, while calls get no answer, or time
// out. Any answer proves that the server lives. No receiver waits for it.
func TestSlotsAreReadAgainAfterNoAnswer(t *testing.T) {
	refused := &net.OpError{Op: "dial", Err: io.ErrUnexpectedEOF}
	for name, c := range map[string]struct {
		outcome error // of each send
		silent  bool
		want    int64
	}{
		"answers":            {nil, false, 0},
		"refusals":           {answer("NOPERM no"), false, 0},
		"passing refusals":   {answer("TRYAGAIN later"), false, 1}, // the call times out
		"broken connections": {io.EOF, false, 5},
		"refused dials":      {refused, false, 5},
		"silence":            {nil, true, 2}, // of the call, and of the connection that is opened for later ones
	} {
		synctest.Test(t, func(t *testing.T) {
			g := newGate(t)
			if !c.silent {
				g.open()
			}
			r := &reloading{Client: answered(t, func(sent commands) error {
				_ = g.pass(sent)
				return c.outcome
			}).client.(*redis.Client)}
			do(New(r), within(Command("ping"), 4500*time.Millisecond))
			synctest.Wait()
			require.Equal(t, c.want, r.reloads.Load(), name)
			g.open()
		})
	}
}

// TestSlotsAreReadAgainBeforeASilentCallEnds: so the next call finds the server that has taken over.
func TestSlotsAreReadAgainBeforeASilentCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate(t)
		r := &reloading{Client: answered(t, g.pass).client.(*redis.Client)}
		got := post(New(r), within(Command("ping"), time.Second))
		time.Sleep(time.Second - 2*tick)
		require.Empty(t, got)
		require.EqualValues(t, 1, r.reloads.Load())
		g.open()
	})
}
