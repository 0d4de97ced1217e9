package fencemodel

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// life is the result of a random sequence of events for a register.
type life struct {
	guarded int // grants after a loss, late enough that a higher fence is promised
	lower   int // grants after a loss that were too early and got a lower fence
	broken  bool
}

// live plays grants, losses, failovers and steps of the clocks. Times are in µs.
func live(r registerRules, seed uint64) (all life) {
	random := rand.New(rand.NewPCG(seed, 0))
	now := int64(1_800_000_000_000_000)
	ahead := func() int64 { return random.Int64N(100_000) - 50_000 } // up to 50 ms, either way
	offsets := [2]int64{ahead(), ahead()}
	server := 0
	history := []int64{0}       // of the register, since it was last empty
	furthest := int64(-1 << 62) // that a clock was ahead at any grant so far
	var highest int64           // fence
	var lost bool               // since the last grant that promised a higher fence
	var lostAt, last int64      // the last grant before the loss, and the last of all
	for range 60 {
		switch random.IntN(8) {
		case 0: // a failover, which may lose increments
			server = 1 - server
			fallthrough
		case 1: // a restart with an older data set, or without one
			lost, lostAt = true, last
			history = history[:1+random.IntN(len(history))]
			if random.IntN(4) == 0 {
				history = history[:1]
			}
		case 2: // a step, forward or back
			offsets[server] = ahead()
		case 3:
			now += random.Int64N(4 * slack)
		}
		now += 1 + random.Int64N(slack/10)
		if random.IntN(3) == 0 {
			now += slack - slack/10
		}
		offset := offsets[server]
		before := history[len(history)-1]
		fence := r.mint(before, now+offset)
		enough := !lost || now-lostAt > slack+furthest-offset
		switch {
		case fence <= before: // whatever was lost, each fence is above the register
			all.broken = true
		case fence > highest:
		case enough:
			all.broken = true
		default:
			all.lower++
		}
		if lost && enough {
			all.guarded++
			lost = false
		}
		highest, furthest, last = max(highest, fence), max(furthest, offset), now
		history = append(history, fence)
	}
	return all
}

// TestRegisterFencesGrow: each fence is higher than all before it, except after the losses that register.go describes.
func TestRegisterFencesGrow(t *testing.T) {
	from := rand.Uint64()
	var guarded, lower int
	for i := range uint64(20_000) {
		all := live(registerRules{}, from+i)
		require.False(t, all.broken, "life %d", from+i)
		guarded += all.guarded
		lower += all.lower
	}
	t.Logf("from %d: %d grants after a loss, and %d that were too early", from, guarded, lower)
	require.Positive(t, guarded)
	require.Positive(t, lower, "no grant came too early, so the exception was not tested")
}

// TestWrongRegistersAreCaught: each wrong variant breaks the property of the register.
func TestWrongRegistersAreCaught(t *testing.T) {
	for name, rules := range map[string]registerRules{
		"no floor":                         {noFloor: true},
		"a clock and no counter":           {clockOnly: true},
		"a floor without a count above it": {noCounter: true},
		"a slack that is added":            {addedSlack: true},
		"a register that lags for longer":  {wideSlack: true},
	} {
		t.Run(name, func(t *testing.T) {
			from := rand.Uint64()
			for i := range uint64(20_000) {
				if live(rules, from+i).broken {
					t.Logf("caught by life %d of %d", i+1, from)
					return
				}
			}
			t.Error("not caught")
		})
	}
}
