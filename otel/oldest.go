package redlatchotel

import (
	"context"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"

	"github.com/redlatch/redlatch"
)

// ages has the locks that are held now, or the calls that wait, for the metric of the oldest.
type ages struct {
	number atomic.Uint64 // of the newest call, which stands for its fence

	mu   sync.Mutex // guards the field below
	held map[attribute.Distinct]*group
}

// A group has the locks with the same attributes. It stays when all of them have ended, so that its
// age goes back to 0.
type group struct {
	attributes attribute.Set
	since      map[hold][]time.Time // one for each lock, in the order in which they were acquired
	early      map[hold]int         // locks whose end was reported before their Acquired
}

// hold is what tells locks apart in events. Locks without fences share one.
type hold struct {
	key   string
	fence uint64
}

// groupLocked returns the locks with the attributes of set.
func (a *ages) groupLocked(set attribute.Set) *group {
	g := a.held[set.Equivalent()]
	if g == nil {
		g = &group{attributes: set, since: make(map[hold][]time.Time), early: make(map[hold]int)}
		a.held[set.Equivalent()] = g
	}
	return g
}

// begin notes that the lock of e is held.
func (a *ages) begin(set attribute.Set, e redlatch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, k := a.groupLocked(set), hold{e.Key, e.Fence}
	if g.early[k] == 0 {
		g.since[k] = append(g.since[k], time.Now())
		return
	}
	if g.early[k]--; g.early[k] == 0 {
		delete(g.early, k)
	}
}

// end notes that the lock of e has ended.
func (a *ages) end(set attribute.Set, e redlatch.Event) {
	a.mu.Lock()
	defer a.mu.Unlock()
	g, k := a.groupLocked(set), hold{e.Key, e.Fence}
	switch since := g.since[k]; len(since) {
	case 0:
		g.early[k]++
	case 1:
		delete(g.since, k)
	default:
		g.since[k] = since[1:]
	}
}

// waiting has the calls that wait now, of all Lockers of a meter provider.
var waiting = struct {
	mu sync.Mutex // guards the field below
	by map[metric.MeterProvider]*ages
}{by: make(map[metric.MeterProvider]*ages)}

// waitingOf returns the calls that wait of the meter provider of c, and registers their metric.
func waitingOf(c config, meter metric.Meter) (*ages, error) {
	waiting.mu.Lock()
	defer waiting.mu.Unlock()
	shared := reflect.TypeOf(c.meters).Comparable()
	if shared && waiting.by[c.meters] != nil {
		return waiting.by[c.meters], nil
	}
	a := &ages{held: make(map[attribute.Distinct]*group)}
	_, err := meter.Float64ObservableGauge("redlatch.lock.wait.oldest", metric.WithUnit("s"),
		metric.WithDescription("Time since the beginning of the oldest call of Lock that has not returned."),
		metric.WithFloat64Callback(a.observe))
	if err != nil {
		return nil, err
	}
	if shared {
		waiting.by[c.meters] = a
	}
	return a, nil
}

// observe reports the age of the oldest lock of each group.
func (a *ages) observe(_ context.Context, o metric.Float64Observer) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for _, g := range a.held {
		age := time.Duration(0)
		for _, since := range g.since {
			age = max(age, now.Sub(since[0]))
		}
		o.Observe(age.Seconds(), metric.WithAttributeSet(g.attributes))
	}
	return nil
}
