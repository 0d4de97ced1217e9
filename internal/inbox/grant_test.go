package handoff

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestHandoverIsReadStrictly: the parser accepts what announce.lua publishes, and nothing else.
func TestHandoverIsReadStrictly(t *testing.T) {
	g, ok := parseGrant("1700000000 999999 220000000123 23 2000 redlatch:1 a token the key")
	require.True(t, ok)
	require.Equal(t, Grant{
		Token: "a token", Tick: 220000000123, At: 1700000000*time.Second + 999999*time.Microsecond,
	}, g)
	for _, good := range []string{
		"1 1 140737488355327 5 1 c xk", // the highest tick, 2^47 - 1
		"1 1 1 5 1 c x",                // the key is empty
		"1 1 1 6 1 -c xk", "8589934592 1 1 5 1 c xk",
	} {
		g, ok := parseGrant(good)
		require.True(t, ok, good)
		require.Equal(t, "x", g.Token, good)
	}
	for _, bad := range []string{
		"", "1 2 3 4", "1 1000000 1 5 1 c xk", "8589934593 1 1 5 1 c xk", "99999999999 1 1 5 1 c xk", "1 1 1 9 1 c xk", "1 1 -1 5 1 c xk",
		"1 1e3 1 5 1 c xk", "1 1 140737488355328 5 1 c xk", "1 1 9007199254740992 5 1 c xk", "1 1 1 -1 1 c xk", "1 1 1 3 1 c xk",
		"1 1 5 1 c xk", strings.Repeat("9", 400),
	} {
		_, ok := parseGrant(bad)
		require.False(t, ok, bad)
	}
}

// TestEntryNamesWhatAReleaseNeeds: an entry has the claim, the channel, and the token. A dash before the channel says that
// PUBSUB NUMSUB does not say whether the process listens.
func TestEntryNamesWhatAReleaseNeeds(t *testing.T) {
	require.Equal(t, "1500 redlatch:1 api-7/pid 12/a", Entry(1500*time.Millisecond, false, "redlatch:1", "api-7/pid 12/a"))
	require.Equal(t, "1 -redlatch:1 a", Entry(time.Millisecond, true, "redlatch:1", "a"))
	entry := Entry(time.Second, false, "redlatch:1", "api-7/pid 12/a")
	g, ok := parseGrant(fmt.Sprintf("1 1 1 %d %sk", len(entry), entry))
	require.True(t, ok)
	require.Equal(t, "api-7/pid 12/a", g.Token)
}

// FuzzHandover: no message makes the parser panic. A message that it accepts has the token that it returns.
func FuzzHandover(f *testing.F) {
	f.Add("1700000000 999999 220000000123 23 2000 redlatch:1 a token the key")
	f.Add("1 1 1 5")
	f.Fuzz(func(t *testing.T, message string) {
		g, ok := parseGrant(message)
		if ok && (!strings.Contains(message, " "+g.Token) || g.Tick >= 1<<47 || g.At < 0) {
			t.Errorf("%q was read as %+v", message, g)
		}
	})
}

// FuzzDeliveries: messages are cut, repeated, forged or corrupted. The genuine message is delivered each time that it
// comes. The lease of a delivery begins between the question and the arrival of the message.
func FuzzDeliveries(f *testing.F) {
	f.Add([]byte{}, "")
	f.Add([]byte{0, 0, 0, 0}, "")
	f.Add([]byte{1, 5, 1, 60, 0, 0}, "1 1 7 10 10 c tokenk")
	f.Add([]byte{2, 0, 2, 30, 0, 0, 3, 9, 4}, "1700000000 5 7 12 1000 c tokenl")
	f.Add([]byte{4, 4, 0, 0, 3, 0}, "1 0 0 0 0 k")
	f.Fuzz(func(t *testing.T, edits []byte, forged string) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer client.Close()
		s := NewSubscription(client, false)
		asked := clock.Now()
		passed := time.Duration(0) // on both clocks at once: this test is not about reading them one after the other
		var w Watch
		w.Sent(asked)
		entry := Entry(time.Second, false, s.Channel, "the token")
		delivered := 0
		s.Deliver = func(g Grant) {
			passed += time.Microsecond
			g.Arrived = clock.Instant{Mono: asked.Mono.Add(passed), Wall: asked.Wall + passed}
			if g.Token == "the token" && g.Tick == 220000000123 {
				delivered++
			}
			start := w.Started(g, 0.01)
			require.False(t, start.Mono.Before(asked.Mono))
			require.False(t, start.Mono.After(g.Arrived.Mono))
		}
		sent := fmt.Sprintf("%d 5 220000000123 %d %sk", time.Now().Unix(), len(entry), entry)
		next := func() (b byte) {
			if len(edits) > 0 {
				b, edits = edits[0], edits[1:]
			}
			return b
		}
		genuine := 0
		for len(edits) > 0 {
			message := sent
			switch kind, at := next()%5, int(next())%(len(sent)+1); kind {
			case 0:
				genuine++
			case 1:
				message = sent[:at]
			case 2:
				message = sent[at:]
			case 3:
				message = sent[:at] + string([]byte{next()}) + sent[at:]
			default:
				message = forged
			}
			s.received(&redis.Message{Payload: message})
		}
		require.GreaterOrEqual(t, delivered, genuine)
	})
}

// TestHandedLeaseNeverBeginsAfterRedisGranted checks the promise of the start formula: a lease that
// was handed over is not trusted for longer than Redis keeps the key. That holds for any offset
// between the clocks, any drift and any delay of the message, even if Redis's clock was set back in
// the meantime. If that clock was set forward, the error is at most the delay of the message, since
// no lease begins after the message has arrived.
func TestHandedLeaseNeverBeginsAfterRedisGranted(t *testing.T) {
	const factor = 0.01
	scale := func(n uint32, most time.Duration) time.Duration {
		return time.Duration(float64(most) * float64(n) / math.MaxUint32)
	}
	base := clock.Now()
	here := func(d time.Duration) clock.Instant {
		return clock.Instant{Mono: base.Mono.Add(d), Wall: base.Wall + d}
	}
	property := func(asked, told, granted, arrived, drift, offset, stepped uint32) bool {
		// In true time, in order: the question leaves, Redis is asked, Redis grants, the message arrives.
		t0 := scale(asked, time.Second)
		s0 := t0 + scale(told, time.Second)
		s1 := s0 + scale(granted, 20*time.Second)
		end := s1 + scale(arrived, 5*time.Second)
		rate := 1 + factor*(2*float64(drift)/math.MaxUint32-1)*0.99 // of Redis's clock
		there := func(d time.Duration) time.Duration {
			return scale(offset, 1000*time.Hour) + time.Duration(float64(d)*rate)
		}
		at := there(s1)
		back := scale(stepped, time.Hour)
		for _, at := range []time.Duration{at, at - min(back, at-1)} { // also with a clock set back
			start := handedAt(here(end), here(t0), there(s0), at, factor)
			if start.Mono.Sub(base.Mono) > s1+time.Microsecond || start.Mono.Sub(base.Mono) > end {
				return false
			}
		}
		unasked := handedAt(here(end), here(t0), 0, at, factor)
		return unasked.Mono.Sub(base.Mono) <= s1
	}
	require.NoError(t, quick.Check(property, &quick.Config{MaxCount: 200_000}))
}

// TestHandedLeaseKeepsMostOfItsTTL: the formula must not be so careful that nothing is left. A
// second after the last look, with clocks of the same rate, it costs no more than the two trips and
// the drift of that second.
func TestHandedLeaseKeepsMostOfItsTTL(t *testing.T) {
	base := clock.Now()
	arrived := clock.Instant{Mono: base.Mono.Add(1002 * time.Millisecond), Wall: base.Wall + 1002*time.Millisecond}
	start := handedAt(arrived, base, time.Hour, time.Hour+time.Second, 0.01)
	require.Equal(t, 12*time.Millisecond, arrived.Since(start))
}

// TestSleptOverItsTurn: only the wall clock moved on while the machine slept.
func TestSleptOverItsTurn(t *testing.T) {
	base := clock.Now()
	arrived := clock.Instant{Mono: base.Mono.Add(time.Millisecond), Wall: base.Wall + time.Minute}
	start := handedAt(arrived, base, time.Hour, time.Hour+500*time.Microsecond, 0.01)
	require.Greater(t, arrived.Since(start), 59*time.Second)
}
