package locktest

import "sync"

// A Peak counts how many goroutines are inside now, and the most there were.
type Peak struct {
	mu        sync.Mutex // guards the fields below
	now, most int
}

// Enter counts one more.
func (p *Peak) Enter() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now++
	p.most = max(p.most, p.now)
}

// Leave counts one less.
func (p *Peak) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.now--
}

// Most returns the most that were inside at once.
func (p *Peak) Most() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.most
}
