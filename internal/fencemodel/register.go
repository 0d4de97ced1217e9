package fencemodel

// The register is how one Redis mints the fences of all its locks, after each grant:
//
//	fence = register + 1
//	if fence < now − slack:  fence = now
//	register = fence
//
// What must hold: a fence is higher than all before it, unless the register was lost since, or increments of
// it, as at a fail-over, and less than
//
//	slack + (the furthest that any clock was ahead) − (how far this one is ahead)
//
// has passed since the last grant before the loss.
//
// Why it does: let a clock that is ahead by o show t + o at the time t. No two grants take place within one
// microsecond, so a fence of t is at most t + the largest o up to then: it is the clock, or one more than a
// fence of before. And it is at least t + o − slack, whatever has become of the register.

// slack is how far the register may lag behind the clock, in µs. That saves most grants a second write.
const slack = 10_000

// registerRules are the register or a variant of it. The zero value is the register.
type registerRules struct {
	noFloor    bool // it is only a counter
	clockOnly  bool // it is only a clock
	noCounter  bool // within the slack the register is not incremented
	addedSlack bool // the floor is now + slack
	wideSlack  bool // the register may lag by twice the slack
}

// mint returns the fence of a grant at the time now of the server, which is the new register.
func (r registerRules) mint(register, now int64) int64 {
	fence, floor, lag := register+1, now, int64(slack)
	if r.noCounter {
		fence = register
	}
	if r.addedSlack {
		floor += slack
	}
	if r.wideSlack {
		lag *= 2
	}
	if r.clockOnly || fence < now-lag && !r.noFloor {
		return floor
	}
	return fence
}
