package behavior_test

import "sync"

// A peak counts how many goroutines are inside now, and the most there were.
type peak struct {
	mu        sync.Mutex // guards the fields below
	now, most int
}

// enter counts one more.
func (p *peak) enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now++
	p.most = max(p.most, p.now)
}

// leave counts one less.
func (p *peak) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now--
}

// highest returns the most that were inside at once.
func (p *peak) highest() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}
