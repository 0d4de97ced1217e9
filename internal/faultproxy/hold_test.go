package faultproxy

import (
	"io"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	echoX = "*2\r\n$4\r\nECHO\r\n$1\r\nx\r\n"
	x     = "$1\r\nx\r\n"
	set   = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n"
)

func TestSilencedRequestReachesRedisAfterItsClientHasGone(t *testing.T) {
	m, p := front(t)
	p.Silence()
	conn := dial(t, p)
	send(t, conn, set)
	require.NoError(t, conn.Close())
	// The request and the end of its connection.
	eventually(t, func() bool { return held(p) == 2 })
	require.False(t, m.Exists("k"))
	require.Zero(t, p.Requests())

	p.Heal()
	eventually(t, func() bool { return m.Exists("k") })
	require.Equal(t, 1, p.Requests())
	eventually(t, func() bool { return p.Connections() == 0 })
}

func TestSilenceHoldsNewConnectionsAndReplies(t *testing.T) {
	m, p := front(t)
	p.Delay(time.Hour)
	asked := dial(t, p)
	send(t, asked, ping)
	eventually(t, func() bool { return held(p) == 1 && p.Requests() == 1 })
	p.Silence()
	p.Delay(0)
	fresh := dial(t, p)
	send(t, fresh, set)
	require.ErrorIs(t, readError(t, asked, 20*time.Millisecond), os.ErrDeadlineExceeded)
	require.ErrorIs(t, readError(t, fresh, 20*time.Millisecond), os.ErrDeadlineExceeded)
	require.False(t, m.Exists("k"))
	require.Equal(t, 2, p.Connections())

	p.Heal()
	requireReply(t, asked, pong)
	requireReply(t, fresh, "+OK\r\n")
}

func TestSilenceOpenHoldsNoNewConnections(t *testing.T) {
	m, p := front(t)
	old := dial(t, p)
	send(t, old, ping)
	requireReply(t, old, pong)
	p.SilenceOpen()
	send(t, old, set)
	fresh := dial(t, p)
	send(t, fresh, ping)
	requireReply(t, fresh, pong)
	require.ErrorIs(t, readError(t, old, 20*time.Millisecond), os.ErrDeadlineExceeded)
	require.False(t, m.Exists("k"))

	p.Heal()
	requireReply(t, old, "+OK\r\n")
	p.SilenceOpen()
	send(t, fresh, set)
	eventually(t, func() bool { return held(p) == 1 })
	p.HealDropping()
	require.Error(t, readError(t, fresh, limit))
	send(t, old, ping)
	requireReply(t, old, pong)
}

func TestSilenceHidesTheEndOfTheServer(t *testing.T) {
	m, p := front(t)
	conn := dial(t, p)
	send(t, conn, ping)
	requireReply(t, conn, pong)
	p.Silence()
	m.Close()
	unreachable := dial(t, p)
	require.ErrorIs(t, readError(t, conn, 20*time.Millisecond), os.ErrDeadlineExceeded)
	require.ErrorIs(t, readError(t, unreachable, 20*time.Millisecond), os.ErrDeadlineExceeded)

	p.Heal()
	require.ErrorIs(t, readError(t, conn, limit), io.EOF)
	require.ErrorIs(t, readError(t, unreachable, limit), io.EOF)
}

func TestHealDroppingDiscardsWhatWasHeldAndNothingElse(t *testing.T) {
	m, p := front(t)
	idle, talker := dial(t, p), dial(t, p)
	eventually(t, func() bool { return p.Connections() == 2 })
	p.Silence()
	send(t, talker, set)
	eventually(t, func() bool { return held(p) == 1 })

	p.HealDropping()
	require.Error(t, readError(t, talker, limit))
	require.Equal(t, 1, p.Connections())
	send(t, idle, ping)
	requireReply(t, idle, pong)
	require.Equal(t, 1, p.Requests())
	require.False(t, m.Exists("k"))
}

func TestDelayHoldsRepliesOnly(t *testing.T) {
	m, p := front(t)
	conn := dial(t, p)
	const delay = 30 * time.Millisecond
	p.Delay(delay)
	start := time.Now()
	send(t, conn, set)
	requireReply(t, conn, "+OK\r\n")
	require.GreaterOrEqual(t, time.Since(start), delay)

	p.Delay(time.Hour)
	require.NoError(t, m.Set("k", "old"))
	send(t, conn, set)
	eventually(t, func() bool { v, _ := m.Get("k"); return v == "v" })
}

func TestDelayedRepliesAreInFlightTogether(t *testing.T) {
	_, p := front(t)
	conn := dial(t, p)
	p.Delay(time.Hour)
	send(t, conn, ping)
	eventually(t, func() bool { return held(p) == 1 && p.Requests() == 1 })
	send(t, conn, echoX)
	eventually(t, func() bool { return held(p) == 2 && p.Requests() == 2 })
	p.Heal()
	requireReply(t, conn, pong+x)
}

func TestShorterDelayDoesNotOvertake(t *testing.T) {
	_, p := front(t)
	conn := dial(t, p)
	const long = 50 * time.Millisecond
	delays := make(chan time.Duration, 2)
	delays <- long
	delays <- 0
	p.DelayFunc(func() time.Duration { return <-delays })
	start := time.Now()
	send(t, conn, ping)
	eventually(t, func() bool { return held(p) == 1 && p.Requests() == 1 })
	send(t, conn, echoX)
	requireReply(t, conn, pong+x)
	require.GreaterOrEqual(t, time.Since(start), long)
	require.Empty(t, delays)
}

func TestNewDelayAppliesToRepliesInFlight(t *testing.T) {
	for name, end := range map[string]func(p *Proxy){
		"Delay":     func(p *Proxy) { p.Delay(0) },
		"DelayFunc": func(p *Proxy) { p.DelayFunc(nil) },
		"Heal":      func(p *Proxy) { p.Heal() },
	} {
		t.Run(name, func(t *testing.T) {
			_, p := front(t)
			conn := dial(t, p)
			p.Delay(time.Hour)
			send(t, conn, ping)
			eventually(t, func() bool { return held(p) == 1 && p.Requests() == 1 })
			end(p)
			requireReply(t, conn, pong)
		})
	}
}
