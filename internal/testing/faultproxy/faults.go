package faultproxy

import (
	"bytes"
	"strings"
	"time"
)

// LoseReplies makes the proxy drop the replies to the next n request chunks that contain text, in
// upper or lower case; "" is in every chunk. The requests are carried out. When such a reply
// arrives, the proxy ends its side towards Redis. Once Redis has read everything and closed too,
// the client sees the end of the connection. The next data that Redis sends on the connection
// counts as the reply.
//
// A chunk counts once, however many commands are in it, and so does a connection, whatever else is
// sent on it before the reply. A later call replaces an earlier one, n = 0 ends the fault, and Heal
// does not. [Proxy.Lost] counts what was lost.
func (p *Proxy) LoseReplies(n int, containing string) {
	p.change(func() { p.loseReplies = loss{n, []byte(strings.ToLower(containing))} })
}

// LoseRequests makes the proxy close the connection instead of forwarding a request chunk, for the
// next n chunks that contain text. The request is not carried out. It counts as [Proxy.LoseReplies]
// does, and takes precedence if both match.
func (p *Proxy) LoseRequests(n int, containing string) {
	p.change(func() { p.loseRequests = loss{n, []byte(strings.ToLower(containing))} })
}

// Silence holds back everything in both directions, including the ends of connections. Open
// connections stay open. New ones are accepted and held silent.
func (p *Proxy) Silence() { p.change(func() { p.silent = true }) }

// SilenceOpen is [Proxy.Silence] for the connections that are open now. New ones work.
func (p *Proxy) SilenceOpen() {
	p.change(func() {
		for l := range p.links {
			l.silent = true
		}
	})
}

// Delay delays every reply chunk by d; d = 0 ends that. Requests and the ends of connections are
// not delayed, and the order within a connection holds. A change also applies to replies in flight.
func (p *Proxy) Delay(d time.Duration) { p.DelayFunc(func() time.Duration { return d }) }

// DelayFunc is like [Proxy.Delay] with a delay that f returns for each reply chunk, and again for
// chunks in flight when a fault changes. Only one call of f runs at a time. It must neither wait
// nor use the Proxy.
func (p *Proxy) DelayFunc(f func() time.Duration) { p.change(func() { p.delay = f }) }

// Refuse cuts all connections and refuses new ones until Heal.
func (p *Proxy) Refuse() { p.change(p.refuseLocked) }

// Cut resets all connections. What they held back is lost. New connections work.
func (p *Proxy) Cut() { p.change(p.cutLocked) }

// PointAt makes new connections reach the Redis at target. Open ones stay where they are.
func (p *Proxy) PointAt(network, target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.target = network, target
}

// Heal ends Silence, SilenceOpen, Delay and Refuse. What was held back is delivered now, so a
// request reaches Redis even if its client has given up.
func (p *Proxy) Heal() { p.change(p.healLocked) }

// HealDropping is like [Proxy.Heal], but what was held back is never delivered: its connections are
// cut. Connections that held nothing back stay.
func (p *Proxy) HealDropping() {
	p.change(func() {
		for l := range p.links {
			if l.held > 0 {
				l.cutLocked()
			}
		}
		p.healLocked()
	})
}

// change calls f, which changes the faults, and wakes every held chunk.
func (p *Proxy) change(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *Proxy) healLocked() {
	p.silent, p.delay = false, nil
	for l := range p.links {
		l.silent = false
	}
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
