package node

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// ms returns an instant.
func ms(n int) clock.Mono { return clock.Mono(time.Hour).Add(time.Duration(n) * time.Millisecond) }

const middle = 0.5 // random: a pause has its whole length

// rounds returns when the next rounds leave, with a call each.
func (i *illness) rounds(n int, waited bool) (pauses []time.Duration) {
	for range n {
		at := i.round
		i.left(1, waited, at, middle)
		pauses = append(pauses, i.round.Sub(at).Round(time.Millisecond))
	}
	return pauses
}

// TestPauseOfAnIllServerDoubles: up to 100 ms while somebody waits, and up to a second while nobody
// does. It is random by a half, but never longer than a second.
func TestPauseOfAnIllServerDoubles(t *testing.T) {
	var i illness
	i.fail(false, ms(0), middle)
	require.Equal(t, ms(4), i.round)
	i.fail(false, ms(1), 0) // of a call that was under way
	require.Equal(t, ms(4), i.round)
	require.Equal(t, []time.Duration{
		8 * time.Millisecond, 16 * time.Millisecond, 32 * time.Millisecond, 64 * time.Millisecond,
		100 * time.Millisecond, 100 * time.Millisecond,
	}, i.rounds(6, true))
	require.Equal(t, []time.Duration{200 * time.Millisecond, 400 * time.Millisecond, 800 * time.Millisecond, time.Second}, i.rounds(4, false))
	at := i.last
	i.hasten(false, ms(100))
	require.Equal(t, at.Add(waitedPause), i.round)
	i.left(1, false, at, 1)
	require.Equal(t, at.Add(time.Second), i.round)
	i.since = at
	for random, pause := range map[float64]time.Duration{0: 50 * time.Millisecond, 1: 150 * time.Millisecond} {
		i.left(1, true, at, random)
		require.Equal(t, at.Add(pause), i.round)
	}
}

// TestPauseOfALongIllnessGrowsToASecond: while somebody waits, to a fifth of its age. A new renewal does not wait for so
// long. Nor does a call of which half has passed, if no round has left since it was posted.
func TestPauseOfALongIllnessGrowsToASecond(t *testing.T) {
	var i illness
	i.fail(false, ms(0), middle)
	i.rounds(6, true)
	for age, pause := range map[int]int{500: 100, 1000: 200, 4000: 800, 5000: 1000, 60_000: 1000} {
		now := ms(age)
		i.pause = lastPause
		i.left(1, true, now, middle)
		require.Equal(t, ms(age+pause), i.round)
		i.left(1, false, now, middle)
		i.hasten(false, now)
		require.Equal(t, ms(age+pause), i.round)
		i.hurry(ms(age-1), ms(age+10))
		require.Equal(t, ms(age+pause), i.round, "a round has left since")
		i.hurry(now, ms(age+10))
		require.Equal(t, now.Add(i.most(ms(age+10))/2), i.round)
		i.left(1, true, now, middle)
		i.hasten(true, now)
		require.Equal(t, ms(age+100), i.round)
	}
}

// TestRoundsStayCloseWhileTheClientRefusesCallsItself: also in a long illness. Once a failure is another one, the pause
// grows.
func TestRoundsStayCloseWhileTheClientRefusesCallsItself(t *testing.T) {
	var i illness
	i.fail(false, ms(0), middle)
	i.pause = lastPause
	for age, free := range map[int]bool{20_000: true, 21_000: false} {
		i.failed = ms(age - 1000) // the illness goes on
		i.fail(free, ms(age), middle)
		i.left(1, true, ms(age), middle)
		require.Equal(t, free, i.round == ms(age).Add(waitedPause), age)
	}
}

// TestRoundsAreCloseAgainWhenAParkedCallHasComeThrough: others may, too. If they do not, the pause doubles as at first.
func TestRoundsAreCloseAgainWhenAParkedCallHasComeThrough(t *testing.T) {
	var i illness
	i.fail(false, ms(0), middle)
	i.pause = lastPause
	i.left(1, true, ms(9000), middle)
	i.hope(ms(9100))
	require.Equal(t, ms(9104), i.round)
	require.Equal(t, []time.Duration{8 * time.Millisecond, 16 * time.Millisecond}, i.rounds(2, true))
}

// TestKindThatGetsThroughIsNotParked: for a second after one of it was carried out, while others
// fail. What was carried out before the server fell ill does not count.
func TestKindThatGetsThroughIsNotParked(t *testing.T) {
	var i illness
	parked := func(at int) (kinds []kind) {
		for k := range kind(3) {
			if i.parks(k, ms(at)) {
				kinds = append(kinds, k)
			}
		}
		return kinds
	}
	i.pass(asks, false, ms(0))
	require.Empty(t, parked(0))
	i.fail(false, ms(0), middle)
	require.Equal(t, []kind{keeps, gives, asks}, parked(1))
	i.pass(asks, false, ms(10))
	require.Equal(t, []kind{keeps, gives}, parked(1010))
	require.Equal(t, []kind{keeps, gives, asks}, parked(1011))
	i.fail(false, ms(1500), middle)
	i.pass(gives, false, ms(1600))
	require.Equal(t, []kind{keeps, asks}, parked(1600))
}

// TestServerIsWellWhenItCarriesOutWhatItRefused: or if nothing is left. If it fails again within
// two seconds, the illness goes on, with its pause.
func TestServerIsWellWhenItCarriesOutWhatItRefused(t *testing.T) {
	for name, ends := range map[string]func(i *illness, now clock.Mono){
		"carried out":  func(i *illness, now clock.Mono) { i.pass(asks, true, now) },
		"nothing left": func(i *illness, now clock.Mono) { i.left(0, false, now, middle) },
	} {
		for again, pause := range map[int]time.Duration{2100: waitedPause, 2101: firstPause} {
			var i illness
			i.fail(false, ms(0), middle)
			i.rounds(6, true)
			i.fail(false, ms(100), middle)
			ends(&i, ms(200))
			require.False(t, i.ill, name)
			i.fail(false, ms(again), middle)
			require.Equal(t, ms(again).Add(pause), i.round, name)
		}
	}
}

// TestRoundsOfAWellServerAreBounded: what fails without saying that the whole server does is sent
// again 250 times a second at most, 16 at once.
func TestRoundsOfAWellServerAreBounded(t *testing.T) {
	var i illness
	sent := 0
	for i.leaves(failedAsks, sent, sent) {
		sent++
	}
	require.Equal(t, 16, sent)
	i.left(sent, true, ms(0), middle)
	require.Equal(t, ms(64), i.round)
	i.left(1, true, ms(64), middle)
	require.Equal(t, ms(68), i.round)
}

// TestRoundOfAnIllServer: all new renewals and one new call of each other kind, or else one call
// that has failed.
func TestRoundOfAnIllServer(t *testing.T) {
	for _, c := range []struct{ parked, leave [ranks]int }{
		{[ranks]int{5, 5, 5, 5, 5, 5}, [ranks]int{5, 1, 1}},
		{[ranks]int{0, 0, 5, 5, 5, 5}, [ranks]int{0, 0, 1}},
		{[ranks]int{0, 0, 0, 5, 5, 5}, [ranks]int{0, 0, 0, 1}},
		{[ranks]int{0, 0, 0, 0, 0, 5}, [ranks]int{0, 0, 0, 0, 0, 1}},
	} {
		i, all, left := illness{ill: true}, 0, [ranks]int{}
		for rank := range c.parked {
			for left[rank] < c.parked[rank] && i.leaves(rank, left[rank], all) {
				left[rank]++
				all++
			}
		}
		require.Equal(t, c.leave, left)
	}
}
