package faultproxy

import "time"

const (
	// queueSize is how many replies a link keeps. Later ones stay unread.
	queueSize = 1024

	silence = 24 * time.Hour // ended by a change
)

// chunk is the result of one Read.
type chunk struct {
	bytes   []byte    // empty for the end of the stream
	arrived time.Time // zero for requests and ends, which are not delayed
}

// keep counts a chunk that was read.
func (l *link) keep() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.held++
}

// pass waits until c, which was kept, is neither silenced nor delayed. It reports false when the link is over.
func (l *link) pass(c chunk) bool {
	var (
		due     time.Time
		setting chan struct{} // the proxy's value of changed when due was drawn
	)
	for {
		p := l.proxy
		p.mu.Lock()
		if setting != p.changed {
			setting, due = p.changed, c.arrived
			switch {
			case p.silent || l.silent:
				due = time.Now().Add(silence)
			case !c.arrived.IsZero() && p.delay != nil:
				due = due.Add(p.delay())
			}
		}
		over, wait := l.ctx.Err() != nil, time.Until(due)
		if wait <= 0 {
			l.held--
		}
		p.mu.Unlock()
		if over || wait <= 0 {
			return !over
		}
		select {
		case <-time.After(wait):
		case <-setting:
		case <-l.ctx.Done():
		}
	}
}
