package faultproxy

import (
	"bytes"
	"strings"
	"time"
)

// LoseReplies makes the proxy swallow the replies to the next n request chunks that contain
// a text, whatever its case; "" is in every chunk. The request is carried out: when its
// reply arrives the proxy ends its side towards Redis, and once Redis has read all there
// was and closed too, the client sees the end of the connection. What Redis sends next on
// the connection is taken for the reply.
//
// A chunk counts once, however many commands are in it, and so does a connection, whatever
// else is sent on it before the reply arrives. A later call replaces an earlier one, n = 0
// takes it back, and Heal does not. See [Proxy.Lost] for what really was lost.
func (p *Proxy) LoseReplies(n int, containing string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loseReplies = loss{n: n, text: []byte(strings.ToLower(containing))}
}

// LoseRequests makes the proxy close the connection instead of forwarding a request chunk,
// which therefore is not carried out, for the next n chunks that contain a text. It counts
// as [Proxy.LoseReplies] does, and comes first where both match.
func (p *Proxy) LoseRequests(n int, containing string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.loseRequests = loss{n: n, text: []byte(strings.ToLower(containing))}
}

// Silence holds back everything in both directions, the ends of connections too. Open
// connections stay open, and new ones are accepted and held silent.
func (p *Proxy) Silence() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
	p.changedLocked()
}

// SilenceOpen is [Proxy.Silence] for the connections that are open now: new ones work.
func (p *Proxy) SilenceOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.silent = true
	}
	p.changedLocked()
}

// Delay makes every reply chunk pass d after it arrived; d = 0 ends that. Requests pass at
// once, as does the end of a connection, and the order within a connection holds. A change
// applies to the replies in flight too.
func (p *Proxy) Delay(d time.Duration) {
	p.DelayFunc(func() time.Duration { return d })
}

// DelayFunc is like [Proxy.Delay] with a delay that f draws for each reply chunk, and again
// for those in flight when a fault is changed. Only one call of f runs at a time, so it must
// neither wait nor use the Proxy. A nil f is no delay.
func (p *Proxy) DelayFunc(f func() time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = f
	p.changedLocked()
}

// Refuse cuts all connections and has new ones refused until Heal.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuseLocked()
}

// Cut resets all connections. What they held is lost; new connections work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

// Heal ends Silence, SilenceOpen, Delay and Refuse. What was held back is delivered now, so a request
// reaches Redis even if its client has given it up.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.healLocked()
}

// HealDropping is like [Proxy.Heal], but what was held back is never delivered: its
// connections are cut. Connections that held nothing stay.
func (p *Proxy) HealDropping() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		if l.held > 0 {
			l.cutLocked()
		}
	}
	p.healLocked()
}

func (p *Proxy) healLocked() {
	p.silent, p.delay = false, nil
	for l := range p.links {
		l.silent = false
	}
	p.changedLocked()
	if p.listener != nil || p.closed {
		return
	}
	listener, err := listenAgain(p.addr)
	if err != nil {
		p.tb.Errorf("faultproxy: cannot listen again: %v", err)
		return
	}
	p.serveLocked(listener)
}

func (p *Proxy) refuseLocked() {
	if p.listener != nil {
		// Close fails only if it is called twice.
		_ = p.listener.Close()
		p.listener = nil
	}
	p.cutLocked()
}

func (p *Proxy) cutLocked() {
	for l := range p.links {
		l.cutLocked()
	}
}

// changedLocked has every held chunk look again at what holds it.
func (p *Proxy) changedLocked() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// loss is how many chunks with a text are still to be lost.
type loss struct {
	n    int
	text []byte // in lower case
}

// takes reports whether chunk is to be lost, and counts it.
func (l *loss) takes(chunk []byte) bool {
	if l.n <= 0 || !bytes.Contains(bytes.ToLower(chunk), l.text) {
		return false
	}
	l.n--
	return true
}
