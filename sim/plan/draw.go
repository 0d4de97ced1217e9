package plan

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"
)

const (
	ms = time.Millisecond
	s  = time.Second
)

// Draw draws a plan. An unknown theme is an error.
func Draw(name string, seed uint64) (*Plan, error) {
	i := slices.IndexFunc(themes, func(t theme) bool { return t.name == name })
	if i < 0 {
		return nil, fmt.Errorf("plan: there is no theme %q, but %v", name, Themes())
	}
	d := &draw{theme: themes[i], Plan: &Plan{Theme: name, Seed: seed}}
	d.world(d.stream(0, 0))
	d.operations()
	d.troubles()
	return d.Plan, nil
}

// A draw is a plan in the making.
type draw struct {
	*Plan
	theme
}

// stream returns random numbers that no other stream of the plan has.
func (d *draw) stream(kind, number int) random {
	return random{rand.New(rand.NewPCG(d.Seed, uint64(kind)<<32|uint64(number)))}
}

// random draws.
type random struct{ *rand.Rand }

func (r random) chance(percent int) bool { return r.IntN(100) < percent }

// between draws a duration in whole steps, so that some things happen at one instant.
func (r random) between(from, to, step time.Duration) time.Duration {
	return from + time.Duration(r.Int64N(int64((to-from)/step)+1))*step
}

func pick[T any](r random, from ...T) T { return from[r.IntN(len(from))] }

// world draws who is there.
func (d *draw) world(r random) {
	d.Length = r.between(3*s, 8*s, s)
	if len(d.pauses) > 0 {
		d.Length = 2 * time.Hour
	}
	d.Servers = 1
	for range d.processes[0] + r.IntN(d.processes[1]-d.processes[0]+1) {
		p := Process{Delay: pick(r, d.delays...), Retries: pick(r, 0, -1), Cluster: d.cluster}
		if d.jitters {
			p.Jitter = pick(r, 0, ms, 4*ms)
		}
		d.Processes = append(d.Processes, p)
	}
	kinds := slices.Clone(d.kinds)
	r.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, kind := range kinds[:1+r.IntN(min(2, len(kinds)))] {
		d.group(r, kind)
	}
}

// group adds a group, and its Lockers of each process.
func (d *draw) group(r random, kind Kind) {
	g := Group{Kind: kind, Servers: []int{0}}
	for i := range 1 + r.IntN(d.keys) {
		g.Keys = append(g.Keys, fmt.Sprintf(pick(r, "k%d", "{k}%d", "k %d"), i))
	}
	if kind == Migration {
		g.From, g.To = pick(r, SetNXPX, LegacySetNX), pick(r, SetNXPX, Redlock)
	}
	if kind == Redlock || g.To == Redlock {
		g.Servers = []int{0, 1, 2}
		if r.chance(25) {
			g.Servers = append(g.Servers, 3, 4)
		}
		d.Servers = max(d.Servers, len(g.Servers))
	}
	number, limit, newer := len(d.Groups), 1+r.IntN(4), r.chance(50)
	d.Groups = append(d.Groups, g)
	for p := range d.Processes {
		for range 1 + r.IntN(d.lockers) {
			l := Locker{Process: p, Group: number, Options: d.options(r, d, kind)}
			switch kind {
			case Semaphore:
				l.Limit = limit
				if r.chance(25) {
					l.Limit = 1 + r.IntN(5)
				}
			case Migration:
				l.Stage = Both
				if r.chance(30) {
					l.Stage = Old
					if newer {
						l.Stage = New
					}
				}
			}
			d.Lockers = append(d.Lockers, l)
			if kind == ReadWrite {
				l.Write = true
				d.Lockers = append(d.Lockers, l)
			}
		}
	}
}

// permits drops the options that a kind of Locker refuses.
func (o Options) permits(kind Kind) Options {
	if kind != SetNXPX {
		o.Polls = false
	}
	if kind == LegacySetNX || kind == Migration || kind == Redlock {
		o.Replicas = 0
	}
	if kind == LegacySetNX || kind == Migration {
		o.MinHold = 0
	}
	if o.MaxHold > 0 {
		o.MinHold = min(o.MinHold, o.MaxHold)
	}
	return o
}

// over returns the options of a call to a Locker with the options base.
func (o Options) over(base Options) Options {
	o.Fixed, o.Polls = o.Fixed || base.Fixed, o.Polls || base.Polls
	o.MaxHold, o.MinHold = cmp.Or(o.MaxHold, base.MaxHold), cmp.Or(o.MinHold, base.MinHold)
	o.Grace, o.MaxWait = cmp.Or(o.Grace, base.Grace), cmp.Or(o.MaxWait, base.MaxWait)
	if o.MaxHold > 0 {
		o.MaxHold = max(o.MaxHold, o.MinHold)
	}
	o.OpTimeout, o.Replicas = cmp.Or(o.OpTimeout, base.OpTimeout), cmp.Or(o.Replicas, base.Replicas)
	if o.Longest == 0 {
		o.Shortest, o.Longest = base.Shortest, base.Longest
	}
	return o
}

// operations draws calls, alone and in bursts that begin together.
func (d *draw) operations() {
	n := 0
	for at, burst := time.Duration(0), 0; at < d.Length; burst++ {
		r := d.stream(1, burst)
		first := Op{At: at, Locker: r.IntN(len(d.Lockers))}
		first.Keys = []string{pick(r, d.Groups[d.Lockers[first.Locker].Group].Keys...)}
		size := 1
		if r.chance(d.bursts) {
			size = 2 + r.IntN(d.burst-1)
		}
		for range size {
			d.Ops = append(d.Ops, d.operation(d.stream(2, n), n, first))
			n++
		}
		at += r.between(0, time.Duration(2*size)*s/time.Duration(d.rate), d.grid)
		if len(d.pauses) > 0 {
			at += pick(r, d.pauses...)
		}
	}
}

// operation draws a call of the burst that begins with first.
func (d *draw) operation(r random, n int, first Op) Op {
	o := first
	o.Number = n
	group := d.Lockers[o.Locker].Group
	if r.chance(60) { // another Locker of the group
		var others []int
		for i, l := range d.Lockers {
			if l.Group == group {
				others = append(others, i)
			}
		}
		o.Locker = pick(r, others...)
	}
	l := d.Lockers[o.Locker]
	o.Call = d.call(r)
	if keys := d.Groups[group].Keys; o.Call == DoAll || o.Call == TryDoAll {
		o.Keys = slices.Clone(keys)
		r.Shuffle(len(keys), func(i, j int) { o.Keys[i], o.Keys[j] = o.Keys[j], o.Keys[i] })
		o.Keys = o.Keys[:1+r.IntN(len(keys))]
	}
	if o.Call.asks() && r.chance(d.own) {
		own := d.options(r, d, d.Groups[group].Kind).over(l.Options)
		if o.Call == Lead {
			own.MaxWait = 0 // it is refused
		}
		o.Own, l.Options = &own, own
	}
	o.Patience, o.Cancels = d.patience(r, d), r.chance(30)
	o.Watches, o.Heeds = r.chance(85), r.chance(60)
	if o.Call.asks() {
		o.Steps = d.steps(r, d, l)
	}
	if l.Limit > 0 && o.Call.asks() && r.chance(25) {
		o.Limit = 1 + r.IntN(5)
	}
	if o.Call.Runs() && r.chance(40) {
		o.Ending = pick(r, Fails, Fails, Stops, Panics, Exits, Unlocks)
	}
	return o
}

func (d *draw) call(r random) Call {
	calls := d.calls
	if calls == nil {
		calls = anyCall
	}
	return pick(r, calls...)
}

// troubles draws faults, which end before d.Length.
func (d *draw) troubles() {
	if len(d.faults) == 0 {
		return
	}
	n := 0
	for at := d.every; at < d.Length-100*ms; n++ {
		r := d.stream(3, n)
		f := Fault{Number: n, At: at, What: pick(r, d.faults...)}
		f.Process, f.Server = r.IntN(len(d.Processes)), r.IntN(d.Servers)
		f.For = r.between(5*ms, 65*ms, d.grid)
		if r.chance(20) {
			f.For = r.between(500*ms, 3*s, 10*ms)
		}
		f.For = min(f.For, d.Length-at)
		f.N, f.A, f.B = 1+r.IntN(4), r.chance(50), r.chance(50)
		f.D = r.between(ms, 80*ms, ms)
		d.detail(r, &f)
		d.Faults = append(d.Faults, f)
		at += r.between(0, 2*d.every, d.grid)
	}
}

// detail draws what only some faults have.
func (d *draw) detail(r random, f *Fault) {
	switch f.What {
	case SlowDials:
		f.D = r.between(10*ms, 1500*ms, 10*ms)
	case Reset, Flush, Delete, Close:
		f.For = 0
	case Freeze:
		f.For = min(r.between(500*ms, 4*s, 10*ms), d.Length-f.At)
	case Says:
		a := pick(r, answers...)
		f.Text, f.N = a.text, a.to
		if d.cluster && r.chance(70) {
			f.Text, f.N = fmt.Sprintf("%s 1 %s", pick(r, "MOVED", "ASK"), Addr(f.Server)), toThird
		}
	case ClockStep:
		f.For, f.D = 0, r.between(ms, 3*s, ms)
		if d.name != "loss" { // a step forward loses locks, and fences break with steps back and lost data
			f.D = -f.D
		}
	case ClockRate:
		f.Rate = 1 + float64(r.IntN(181)-90)/10000
	case Return: // within 20 ms, ticks come back
		f.D = r.between(20*ms, 200*ms, ms)
		if r.chance(30) {
			f.D = r.between(200*ms, 2*s, 10*ms)
		}
		f.D = min(f.D, f.At)
	case Restart:
		f.A = f.A && d.name == "loss"
	}
	if f.What == Delete {
		g := pick(r, d.Groups...)
		f.Text = g.prefix(d.Plan) + pick(r, g.Keys...)
	}
}

// prefix is that of the keys of a group.
func (g Group) prefix(p *Plan) string {
	return Prefix(slices.IndexFunc(p.Groups, func(o Group) bool { return &o.Keys[0] == &g.Keys[0] }))
}

// Addr is the address of a server.
func Addr(server int) string { return fmt.Sprintf("192.0.2.%d:6379", 1+server) }

// Prefix is the key prefix of a group.
func Prefix(group int) string { return fmt.Sprintf("g%d:", group) }

// Read reads a plan from a file; - is the standard input.
func Read(file string) (*Plan, error) {
	if file == "-" {
		file = os.Stdin.Name()
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	p := new(Plan)
	return p, json.Unmarshal(text, p)
}
