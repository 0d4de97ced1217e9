package redlatch

import (
	"context"
	"io"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/node"
)

// TestUnlockOfALostChosenTokenDeletesNothing is rule 7: after a loss, the token may have been granted again. So
// Unlock of the lost lock leaves the key alone, also in a migration.
func TestUnlockOfALostChosenTokenDeletesNothing(t *testing.T) {
	for name, migrating := range map[string]bool{"SetNXPX": false, "Migration": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := bubbleRedis(t)
				l, err := NewSetNXPX(client)
				require.NoError(t, err)
				if migrating {
					_, old := bubbleRedis(t)
					from, err := NewSetNXPX(old)
					require.NoError(t, err)
					l, err = NewMigration(from, l)
					require.NoError(t, err)
				}
				lost := granted(t, l, WithToken("job-7"), WithTTL(time.Second), WithoutRenewal())
				time.Sleep(2 * time.Second) // the bubble's time
				next := granted(t, l, WithToken("job-7"))
				require.ErrorIs(t, lost.Unlock(t.Context()), ErrLost)
				require.True(t, m.Exists("k"))
				require.NoError(t, next.Unlock(t.Context()))
				require.False(t, m.Exists("k"))
			})
		})
	}
}

// lateAcquire sets k to the token mine on an empty server. The lease of the token is in the given state. The
// function that lateAcquire returns handles a late reply to the acquire.
func lateAcquire(t *testing.T, state int32) (*miniredis.Miniredis, func(node.Reply), *lockState) {
	t.Helper()
	m, _, n := oneNode(t)
	require.NoError(t, m.Set("k", "mine"))
	s := &lockState{}
	s.become(state)
	lock := mine()
	return m, func(r node.Reply) {
		got, err := readAcquire(r)
		s.late(n, r, got, err, func() { n.Post(context.Background(), quorumReleaseCall(&releaseParams{target: lock})) })
	}, s
}

// gaveUpReading is the outcome of a command whose connection the client closed before a reply came.
var gaveUpReading = node.Reply{Err: os.ErrDeadlineExceeded}

// TestAdoptedLockOutlivesItsParent is rule 4: after a lease is lost, somebody may have adopted its token. A late
// acquire is released only if it is known to have taken the key anew.
func TestAdoptedLockOutlivesItsParent(t *testing.T) {
	t.Parallel()
	m, late, _ := lateAcquire(t, lost)
	late(gaveUpReading)
	late(node.Reply{Value: int64(-7), Overtaken: true}) // the token held the key already
	late(node.Reply{Err: io.EOF, Overtaken: true})
	<-time.After(2 * firstLook)
	require.True(t, m.Exists("k"))
	late(node.Reply{Value: int64(7), Overtaken: true})
	require.Eventually(t, func() bool { return !m.Exists("k") }, 10*time.Second, time.Millisecond, "the late acquire is released")
}

// TestLateAcquireOfAChosenTokenIsLeft is rule 4: after Unlock the token may be in use again, so its key stays.
func TestLateAcquireOfAChosenTokenIsLeft(t *testing.T) {
	t.Parallel()
	m, client, _ := oneNode(t)
	made, err := NewSetNXPX(client)
	require.NoError(t, err)
	s := made.(*engine).strategy.(*setNXPX)
	state := &lockState{}
	state.become(over)
	p := &acquireParams{target: mine(), state: state}
	p.callerToken = true
	p.place, err = s.place("", "k")
	require.NoError(t, err)
	require.NoError(t, m.Set("k", "mine"))
	s.late(t.Context(), p, gaveUpReading)
	<-time.After(2 * firstLook)
	require.True(t, m.Exists("k"))
}
