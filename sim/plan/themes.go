package plan

import "time"

// A theme lets few things happen at once, so that the rules can be tight.
type theme struct {
	name      string
	kinds     []Kind // one or two of them
	processes [2]int // at least, at most
	lockers   int    // of a process and a group, at most
	keys      int    // of a group, at most
	delays    []time.Duration
	jitters   bool
	grid      time.Duration   // instants are multiples of it
	rate      int             // operations a second
	pauses    []time.Duration // between calls; nil: none
	bursts    int             // percent of the calls begin together with others
	burst     int             // so many at most
	own       int             // percent of the calls have options of their own
	calls     []Call          // nil: any
	options   func(random, *draw, Kind) Options
	patience  func(random, *draw) time.Duration
	steps     func(random, *draw, Locker) []Step
	faults    []Trouble
	every     time.Duration // one fault on average
	cluster   bool          // the clients are those of a Cluster
}

// Themes returns the names of all themes.
func Themes() (names []string) {
	for _, t := range themes {
		names = append(names, t.name)
	}
	return names
}

// Kinds returns the kinds of Lockers that a theme draws from.
func Kinds(name string) []Kind {
	for _, t := range themes {
		if t.name == name {
			return t.kinds
		}
	}
	return nil
}

var (
	anyKind = []Kind{SetNXPX, Semaphore, ReadWrite, LegacySetNX, Redlock, Migration}
	queued  = []Kind{SetNXPX, Semaphore, ReadWrite}
	anyCall = []Call{
		Lock, Lock, Lock, Lock, Lock, Lock, Lock, Lock, TryLock, TryLock, TryLock,
		Do, Do, Do, TryDo, DoAll, TryDoAll, Lead, Inspect,
	}
	locks = []Call{Lock, Lock, Lock, TryLock, Do}

	near    = []time.Duration{0, 50 * time.Microsecond, 200 * time.Microsecond}
	far     = []time.Duration{200 * time.Microsecond, ms, 5 * ms}
	network = []Trouble{Slow, SlowDials, Refuse, Reset, Requests, Replies, Requests, Replies, Hole, HalfOpen, Deaf}
)

var themes = []theme{
	{
		name: "calm", kinds: anyKind, processes: [2]int{2, 3}, lockers: 2, keys: 3, delays: append(near, far...), grid: ms,
		rate: 40, bursts: 20, burst: 6, own: 8, options: usual, patience: patient, steps: work,
	},
	{
		name: "network", kinds: anyKind, processes: [2]int{2, 3}, lockers: 1, keys: 2, delays: near, jitters: true, grid: ms,
		rate: 30, bursts: 20, burst: 6, own: 5, options: usual, patience: patient, steps: work,
		faults: network, every: 120 * ms,
	},
	{
		name: "servers", kinds: anyKind, processes: [2]int{2, 3}, lockers: 1, keys: 2, delays: near, jitters: true, grid: ms,
		rate: 30, bursts: 20, burst: 6, own: 5, options: usual, patience: patient, steps: work,
		faults: []Trouble{Says, Says, Says, Restart, Stop, Mute, Alone}, every: 250 * ms,
	},
	{
		name: "clocks", kinds: anyKind, processes: [2]int{2, 3}, lockers: 1, keys: 2, delays: near, jitters: true, grid: ms,
		rate: 30, bursts: 20, burst: 6, own: 5, options: brief, patience: patient, steps: long,
		faults: []Trouble{ClockStep, ClockRate, ClockRate, Slow}, every: 300 * ms,
	},
	{
		name: "loss", kinds: anyKind, processes: [2]int{2, 3}, lockers: 1, keys: 2, delays: near, jitters: true, grid: ms,
		rate: 30, bursts: 20, burst: 6, own: 5, options: usual, patience: patient, steps: work,
		faults: []Trouble{Flush, Delete, Restart, ClockStep}, every: 400 * ms,
	},
	{
		name: "cohort", kinds: []Kind{ReadWrite}, processes: [2]int{1, 2}, lockers: 1, keys: 2, delays: near, grid: 10 * ms,
		rate: 60, bursts: 70, burst: 16, own: 3, calls: locks, options: brief, patience: patient, steps: together,
		faults: []Trouble{Delete, Delete, Reset}, every: time.Second,
	},
	{
		name: "return", kinds: queued, processes: [2]int{4, 6}, lockers: 1, keys: 1, delays: near, grid: ms,
		rate: 60, bursts: 20, burst: 6, calls: []Call{Lock, Lock, Lock, Do},
		options: fleeting, patience: patient, steps: brisk,
		faults: []Trouble{Return}, every: 1500 * ms,
	},
	{
		name: "frozen", kinds: queued, processes: [2]int{4, 6}, lockers: 1, keys: 1, delays: near, grid: ms,
		rate: 60, bursts: 20, burst: 6, calls: []Call{Lock, Lock, Lock, Do},
		options: fleeting, patience: patient, steps: brisk,
		faults: []Trouble{Freeze}, every: 500 * ms,
	},
	{
		name: "close", kinds: anyKind, processes: [2]int{3, 5}, lockers: 1, keys: 2, delays: near, grid: ms,
		rate: 60, bursts: 20, burst: 6, own: 5, options: fleeting, patience: patient, steps: work,
		faults: []Trouble{Close}, every: 2 * time.Second,
	},
	{
		name: "overstay", kinds: anyKind, processes: [2]int{2, 3}, lockers: 1, keys: 3, delays: append(far, 8*ms), grid: ms,
		rate: 15, bursts: 20, burst: 4, own: 20, options: brief, patience: patient, steps: long,
	},
	{
		name: "instant", kinds: anyKind, processes: [2]int{1, 3}, lockers: 1, keys: 2, delays: near[:1], grid: 50 * ms,
		rate: 40, bursts: 60, burst: 10, own: 10, options: brief, patience: onTheGrid, steps: together,
	},
	{
		name: "ctx", kinds: anyKind, processes: [2]int{2, 3}, lockers: 1, keys: 2, delays: []time.Duration{ms}, grid: ms,
		rate: 60, bursts: 30, burst: 6, own: 5, options: usual, patience: hasty, steps: work,
		calls: []Call{Lock, Lock, Lock, TryLock, TryLock, TryLock, Do, TryDo, DoAll, TryDoAll, Lead, Inspect},
	},
	{
		name: "keep", kinds: []Kind{SetNXPX, Semaphore, ReadWrite, Redlock}, processes: [2]int{2, 3}, lockers: 1, keys: 3,
		delays: near, grid: ms, rate: 20, bursts: 20, burst: 4, own: 20, options: keeping, patience: patient, steps: keeps,
	},
	{
		name: "hours", kinds: []Kind{SetNXPX, Semaphore, ReadWrite, Redlock}, processes: [2]int{6, 8}, lockers: 1, keys: 10,
		delays: near, grid: ms, rate: 10, pauses: []time.Duration{0, 0, 0, s, 20 * s, 10 * time.Minute, time.Hour},
		bursts: 60, burst: 8, own: 10, options: keeping, patience: patient, steps: keepsLong,
		calls: []Call{Lock, Lock, Lock, Lock, TryLock, Do, DoAll, Inspect, Forget},
	},
	{
		name: "crowd", kinds: queued, processes: [2]int{2, 3}, lockers: 1, keys: 1, delays: near, grid: 10 * ms,
		rate: 80, bursts: 50, burst: 40, options: usual, patience: patient, steps: brisk,
		calls: []Call{Lock, Lock, Lock, Lock, Do},
	},
	{
		name: "versions", kinds: queued, processes: [2]int{3, 4}, lockers: 2, keys: 2, delays: near, grid: ms,
		rate: 40, bursts: 30, burst: 8, own: 20, options: mixed, patience: patient, steps: work,
		faults: []Trouble{Says, Deaf}, every: 2 * time.Second,
	},
	{
		name: "cluster", kinds: anyKind, processes: [2]int{2, 3}, lockers: 1, keys: 3, delays: append(near, 8*ms),
		jitters: true, grid: ms, rate: 40, bursts: 40, burst: 12, own: 5, options: usual, patience: patient, steps: work,
		faults: append([]Trouble{Says, Says, Says, Says, Says, Says, Restart, Stop}, network...), every: 200 * ms,
		cluster: true,
	},
}

// An answer of a server, and the kind of commands that gets it: see server.Answer.
type answerText struct {
	text string
	to   int
}

const (
	toScripts = iota
	toWrites
	toGrowth
	toPublish
	toSubscribe
	toThird
)

var answers = []answerText{
	{"LOADING Redis is loading the dataset in memory", toScripts},
	{"BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", toScripts},
	{"READONLY You can't write against a read only replica.", toWrites},
	{"NOREPLICAS Not enough good replicas to write.", toWrites},
	{"MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk.", toWrites},
	{"OOM command not allowed when used memory > 'maxmemory'.", toGrowth},
	{"ERR upstream failure", toScripts},
	{"ERR no upstream host", toScripts},
	{"NOAUTH Authentication required.", toScripts},
	{"NOPERM User default has no permissions to run the 'publish' command", toPublish},
	{"NOPERM User default has no permissions to run the 'subscribe' command", toSubscribe},
}

// usual options: most have a long TTL and few others.
func usual(r random, _ *draw, kind Kind) Options {
	o := Options{TTL: pick(r, s, 2*s, 3*s, 10*s)}
	o.Fixed = r.chance(15)
	o.Polls = r.chance(8)
	if r.chance(8) {
		o.MaxHold = r.between(50*ms, 2*s, 10*ms)
	}
	if r.chance(5) {
		o.MinHold = r.between(ms, 300*ms, ms)
	}
	if r.chance(30) {
		o.OpTimeout = r.between(100*ms, s, 50*ms)
	}
	if r.chance(5) {
		o.Replicas = r.between(5*ms, 50*ms, ms)
	}
	if r.chance(10) {
		o.Grace = r.between(ms, 300*ms, ms)
	}
	if r.chance(10) {
		o.MaxWait = r.between(ms, 3*s, ms)
	}
	if r.chance(15) {
		o.Shortest, o.Longest = r.between(ms, 20*ms, ms), r.between(20*ms, 200*ms, ms)
	}
	return o.permits(kind)
}

// brief options: leases end often.
func brief(r random, d *draw, kind Kind) Options {
	o := Options{TTL: r.between(200*ms, s, max(d.grid, 50*ms)), OpTimeout: r.between(150*ms, 300*ms, 50*ms)}
	o.Fixed = r.chance(50)
	if r.chance(30) {
		o.MaxHold = r.between(50*ms, 500*ms, max(d.grid, 50*ms))
	}
	if r.chance(10) {
		o.Grace = r.between(ms, 50*ms, ms)
	}
	if r.chance(15) {
		o.MaxWait = r.between(max(d.grid, 50*ms), s, max(d.grid, 50*ms))
	}
	return o.permits(kind)
}

// fleeting options: what comes back with older data, and nobody asks for, ends soon.
func fleeting(r random, _ *draw, kind Kind) Options {
	return Options{TTL: pick(r, 2*s, 3*s), Fixed: r.chance(15)}.permits(kind)
}

// keeping options: min holds, and those of usual.
func keeping(r random, d *draw, kind Kind) Options {
	o := usual(r, d, kind)
	if r.chance(40) {
		o.MinHold = r.between(10*ms, 1500*ms, 10*ms)
	}
	return o.permits(kind)
}

// mixed options: Lockers that poll, and claims of all lengths.
func mixed(r random, d *draw, kind Kind) Options {
	o := usual(r, d, kind)
	o.Polls, o.Fixed = r.chance(30), r.chance(40)
	return o.permits(kind)
}

// patient callers wait for seconds, most of them.
func patient(r random, d *draw) time.Duration {
	if r.chance(20) {
		return r.between(0, 100*ms, d.grid)
	}
	return r.between(5*s, 20*s, 100*ms)
}

// onTheGrid is the patience of callers whose waits end with others.
func onTheGrid(r random, d *draw) time.Duration {
	if r.chance(50) {
		return r.between(d.grid, s, d.grid)
	}
	return r.between(5*s, 10*s, d.grid)
}

// hasty callers leave at each instant of a command.
func hasty(r random, _ *draw) time.Duration {
	if r.chance(35) {
		return r.between(2*s, 6*s, ms)
	}
	return r.between(0, 12*ms, ms/2)
}

// pause is how long a caller works.
func pause(r random) time.Duration {
	switch n := r.IntN(100); {
	case n < 45:
		return 0
	case n < 80:
		return r.between(0, 30*ms, ms/2)
	case n < 96:
		return r.between(0, 200*ms, ms)
	}
	return r.between(0, 3*s, 10*ms)
}

// work is what most callers do.
func work(r random, d *draw, l Locker) (steps []Step) {
	for range r.IntN(3) {
		steps = append(steps, Step{After: pause(r) / 2, Act: Check})
	}
	if r.chance(12) {
		steps = append(steps, some(r, d, l, pause(r)/2))
	}
	end := Step{After: pause(r) / 2, Act: Unlock}
	if r.chance(5) {
		end.Act = UnlockTwice
	}
	if r.chance(3) {
		end.Act, end.For = UnlockAfter, r.between(ms, 400*ms, ms)
	}
	if r.chance(2) && l.Fixed && l.TTL <= 3*s {
		end.Act = Abandon
	}
	return append(steps, end)
}

// some is what some callers do under a lock.
func some(r random, d *draw, l Locker, after time.Duration) Step {
	x := Step{After: after, Act: pick(r, Extend, Extend, Share, Adopt)}
	if r.chance(20) {
		x.Patience = r.between(0, 5*ms, ms/2)
	}
	if d.Groups[l.Group].Kind == Migration && x.Act == Adopt {
		x.Act = Extend // nobody can adopt its locks
	}
	x.For = r.between(ms, 2*l.TTL, ms)
	if l.Grace > 0 {
		x.For += l.Grace + 5*ms // else nothing is left
	}
	if x.Act == Adopt {
		x.For = r.between(0, 200*ms, ms)
		x.Locker = d.adopter(r, l)
	}
	return x
}

// adopter draws a Locker that may adopt the tokens of l.
func (d *draw) adopter(r random, l Locker) int {
	var able []int
	for i, o := range d.Lockers {
		if o.Group == l.Group && o.Write == l.Write {
			able = append(able, i)
		}
	}
	return pick(r, able...)
}

// long holds outlast leases.
func long(r random, d *draw, l Locker) (steps []Step) {
	for range 1 + r.IntN(3) {
		steps = append(steps, Step{After: r.between(0, l.TTL, ms), Act: Check})
	}
	if r.chance(30) {
		steps = append(steps, some(r, d, l, r.between(0, l.TTL, ms)))
	}
	end := Step{After: r.between(0, l.TTL/2, ms), Act: pick(r, Unlock, Unlock, Unlock, UnlockTwice)}
	if r.chance(15) && l.Fixed {
		end.Act = Abandon
	}
	return append(steps, end)
}

// together is what ends at the same instant as other things.
func together(r random, d *draw, l Locker) (steps []Step) {
	if r.chance(20) {
		steps = append(steps, some(r, d, l, r.between(0, 100*ms, d.grid)))
	}
	end := Step{After: r.between(0, 300*ms, d.grid), Act: Unlock}
	if r.chance(40) {
		end.After = pick(r, l.TTL, l.TTL+d.grid, 2*l.TTL)
	}
	if r.chance(20) {
		end.Act, end.For = pick(r, UnlockTwice, UnlockAfter, UnlockAfter), r.between(d.grid, s, d.grid)
	}
	return append(steps, end)
}

// keeps ends with a keep, mostly.
func keeps(r random, d *draw, l Locker) (steps []Step) {
	steps = work(r, d, l)
	if end := &steps[len(steps)-1]; r.chance(50) && end.Act == Unlock {
		end.Act, end.For = UnlockAfter, r.between(ms, 2*s, ms)
	}
	return steps
}

// keepsLong ends with a keep of up to a minute, often, or holds the lock for as long.
func keepsLong(r random, d *draw, l Locker) (steps []Step) {
	steps = keeps(r, d, l)
	switch end := &steps[len(steps)-1]; {
	case end.Act == UnlockAfter:
		end.For = r.between(ms, time.Minute, ms)
	case r.chance(20):
		end.After += r.between(0, time.Minute, s)
	}
	return steps
}

// brisk work is short.
func brisk(r random, _ *draw, _ Locker) []Step {
	return []Step{{After: pick(r, 0, 0, 0, ms, 2*ms, 5*ms), Act: Unlock}}
}
