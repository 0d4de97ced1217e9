package fencemodel

// The register is how one Redis mints the fences of all its locks, after each grant:
//
//	fence = register + 1
//	if fence < now − slack:  fence = now
//	register = fence
//
// What must hold: a fence is higher than all fences before it. There is one exception. A failover or a restart may
// lose the register or some of its increments. Then a fence may be lower if less time than
//
//	slack + (the furthest that any clock was ahead) − (how far this clock is ahead)
//
// has passed since the last grant before the loss.
//
// Why it holds: let a clock that is ahead by o show t + o at the time t. No two grants take place within one
// microsecond. So a fence that is minted at t is at most t + (the largest o so far), since it is the time of a clock, or
// one more than an earlier fence. It is also at least t + o − slack, whatever happened to the register.

// slack is how far the register may lag behind the clock, in µs. With it, most grants need no second write.
const slack = 10_000

// registerRules select the register or a variant of it. The zero value is the register.
type registerRules struct {
	noFloor    bool // the register is only a counter
	clockOnly  bool // the fence is always the clock
	noCounter  bool // within the slack the register is not incremented
	addedSlack bool // the floor is now + slack
	wideSlack  bool // the register may lag by twice the slack
}

// mint returns the fence of a grant when the server's clock shows now. The fence is also the new register.
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
