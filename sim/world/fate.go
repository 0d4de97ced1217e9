package world

import (
	"time"

	"github.com/redlatch/redlatch/sim/plan"
	"github.com/redlatch/redlatch/sim/road"
	"github.com/redlatch/redlatch/sim/server"
)

// suffer has a fault begin at its time, and end.
func (w *world) suffer(f plan.Fault) {
	restore := func() {}
	if f.What == plan.Return {
		time.Sleep(f.At - f.D - time.Since(w.start))
		restore = w.servers[f.Server].Save()
	}
	time.Sleep(f.At - time.Since(w.start))
	restore()
	heal := w.begin(f)
	time.Sleep(f.For)
	for _, h := range heal {
		h()
	}
}

// begin begins a fault, and returns what ends it.
func (w *world) begin(f plan.Fault) (heal []func()) {
	r, s := w.roads[f.Process][f.Server], w.servers[f.Server]
	one := func(h func()) []func() { return []func(){h} }
	switch f.What {
	case plan.Slow:
		return one(r.Slow(f.D))
	case plan.SlowDials:
		return one(r.SlowDials(f.D))
	case plan.Refuse:
		return one(r.Refuse())
	case plan.Reset:
		r.Reset(f.A)
	case plan.Requests:
		return one(r.LoseRequests(f.N, f.A))
	case plan.Replies:
		return one(r.LoseReplies(f.N, f.A))
	case plan.Hole:
		return one(r.Hole(road.Both, false, f.A))
	case plan.HalfOpen:
		side := road.Requests
		if f.B {
			side = road.Replies
		}
		return one(r.Hole(side, true, f.A))
	case plan.Freeze:
		for _, r := range w.roads[f.Process] {
			heal = append(heal, r.Hole(road.Both, false, f.A))
		}
	case plan.Close:
		for _, client := range w.clients[f.Process] {
			_ = client.Close()
		}
	case plan.Deaf:
		return one(r.Deafen())
	case plan.Stop:
		for _, roads := range w.roads {
			heal = append(heal, roads[f.Server].Hole(road.Requests, false, false))
		}
	case plan.Return:
		for _, roads := range w.roads {
			roads[f.Server].Reset(true)
		}
	case plan.Restart:
		for _, roads := range w.roads {
			roads[f.Server].Reset(true)
			heal = append(heal, roads[f.Server].Refuse())
		}
		s.ForgetScripts()
		if f.A {
			s.Flush()
		}
	case plan.Says:
		return one(s.Say(server.Answer{Text: f.Text, To: server.Kind(f.N)}))
	case plan.Alone:
		return one(s.Alone())
	case plan.Mute:
		return one(s.Mute())
	case plan.ClockStep:
		s.Step(f.D)
	case plan.ClockRate:
		return one(s.Rate(f.Rate))
	case plan.Flush:
		s.Flush()
	case plan.Delete:
		s.Delete(f.Text)
	}
	return heal
}
