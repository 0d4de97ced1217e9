package faultproxy

import "time"

// queueSize is how many chunks a direction keeps. Later data stay unread.
const queueSize = 1024

// chunk is the result of one Read.
type chunk struct {
	bytes   []byte    // empty for the end of the stream
	arrived time.Time // zero for requests and ends, which are not delayed
}

// queue adds c to one direction, unless the link is over.
func (l *link) queue(direction chan<- chunk, c chunk) {
	l.proxy.mu.Lock()
	l.held++
	l.proxy.mu.Unlock()
	select {
	case direction <- c:
	case <-l.done:
	}
}

// next returns the oldest chunk of a direction once nothing holds it back. It reports false if the link is over.
func (l *link) next(direction <-chan chunk) (chunk, bool) {
	select {
	case c := <-direction:
		return c, l.pass(c)
	case <-l.done:
		return chunk{}, false
	}
}

// pass waits until c is neither silenced nor delayed. It reports false when the link is
// over.
func (l *link) pass(c chunk) bool {
	var (
		due     time.Time
		setting chan struct{} // the proxy's value of changed when due was drawn
	)
	for {
		p := l.proxy
		p.mu.Lock()
		if l.over {
			p.mu.Unlock()
			return false
		}
		if setting != p.changed {
			setting, due = p.changed, c.arrived
			if !c.arrived.IsZero() && p.delay != nil {
				due = due.Add(p.delay())
			}
		}
		silent, wait := p.silent || l.silent, time.Until(due)
		if !silent && wait <= 0 {
			l.held--
			p.mu.Unlock()
			return true
		}
		p.mu.Unlock()
		l.hold(setting, silent, wait)
	}
}

// hold returns when the wait is over, the setting has changed or the link is over. A silent
// wait has no end of its own.
func (l *link) hold(setting <-chan struct{}, silent bool, wait time.Duration) {
	var due <-chan time.Time
	if !silent {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		due = timer.C
	}
	select {
	case <-due:
	case <-setting:
	case <-l.done:
	}
}
