package faultproxy

import (
	"context"
	"io"
	"net"
	"slices"
	"sync"
	"time"
)

const (
	chunkSize = 64 << 10       // the most data that one Read returns
	queueSize = 1024           // replies that a link keeps; later ones stay unread
	silence   = 24 * time.Hour // ended by a change
)

// link is a client's connection and its connection to the target.
//
// One goroutine forwards the requests. The replies have a reader, which queues them, and a writer,
// since the delay of a reply begins when it arrives, whatever is still held back before it.
type link struct {
	proxy  *Proxy
	client *net.TCPConn
	ctx    context.Context //nolint:containedctx // done when the link is over
	cancel func()

	// The proxy's mu guards the fields below.
	server net.Conn // nil until the target is reached
	held   int      // chunks that were read and not yet passed on
	losing bool     // the next reply is to be dropped
	silent bool     // by SilenceOpen
}

// run forwards chunks until Redis has closed its side or the link is over.
func (l *link) run() {
	// The link owns the goroutines below. They end when it is over, and run waits for them.
	var wg sync.WaitGroup
	defer func() {
		l.end()
		wg.Wait()
	}()
	replies := make(chan chunk, queueSize)
	if server, err := l.dial(); err != nil {
		l.queue(replies, chunk{})
	} else {
		wg.Go(func() { l.forwardRequests(server) })
		wg.Go(func() { l.readReplies(server, replies) })
	}
	l.writeReplies(replies)
}

// dial connects the link to the target.
func (l *link) dial() (net.Conn, error) {
	p := l.proxy
	var dialer net.Dialer
	p.mu.Lock()
	network, target := p.network, p.target
	p.mu.Unlock()
	server, err := dialer.DialContext(l.ctx, network, target)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if l.ctx.Err() != nil {
		_ = server.Close()
		return nil, net.ErrClosed
	}
	l.server = server
	return server, nil
}

func (l *link) forwardRequests(server net.Conn) {
	buf := make([]byte, chunkSize)
	for {
		n, err := l.client.Read(buf)
		l.keep()
		switch {
		case !l.pass(chunk{}):
			return
		case n > 0 && !l.forward(buf[:n]):
			l.end()
			return
		}
		// The end of the replies reports a server that has exited.
		_, _ = server.Write(buf[:n])
		if err != nil {
			closeWrite(server)
			return
		}
	}
}

func (l *link) readReplies(server net.Conn, replies chan<- chunk) {
	buf := make([]byte, chunkSize)
	for {
		n, err := server.Read(buf)
		switch {
		case n == 0:
		case l.dropReply():
			// The reply may be that of an earlier request. Redis carries out all requests that it
			// has read before it closes too, so its end says that the request was carried out.
			closeWrite(server)
			_, _ = io.Copy(io.Discard, server)
			err = io.EOF
		default:
			l.queue(replies, chunk{bytes: slices.Clone(buf[:n]), arrived: time.Now()})
		}
		if err != nil {
			l.queue(replies, chunk{})
			return
		}
	}
}

// queue adds c to the replies, unless the link is over.
func (l *link) queue(replies chan<- chunk, c chunk) {
	l.keep()
	select {
	case replies <- c:
	case <-l.ctx.Done():
	}
}

func (l *link) writeReplies(replies <-chan chunk) {
	for {
		select {
		case c := <-replies:
			if !l.pass(c) || len(c.bytes) == 0 {
				return
			}
			// A client that is gone gets no replies, but its requests are still forwarded.
			_, _ = l.client.Write(c.bytes)
		case <-l.ctx.Done():
			return
		}
	}
}

// forward reports whether a request may be forwarded.
func (l *link) forward(request []byte) bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.loseRequests.takes(request) {
		p.lost++
		return false
	}
	if !l.losing && p.loseReplies.takes(request) {
		l.losing = true
	}
	return true
}

// dropReply reports whether the reply that has arrived is to be lost, and counts it.
func (l *link) dropReply() bool {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.losing {
		l.proxy.lost++
	}
	return l.losing
}

// end closes both connections, as their peers would.
func (l *link) end() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.endLocked()
}

// cutLocked is end with a reset for the client.
func (l *link) cutLocked() {
	// A connection that is already closed has no linger to set.
	_ = l.client.SetLinger(0)
	l.endLocked()
}

func (l *link) endLocked() {
	l.cancel()
	delete(l.proxy.links, l)
	// No caller can use the error of a failed close.
	_ = l.client.Close()
	if l.server != nil {
		_ = l.server.Close()
	}
}

// closeWrite ends the requests and leaves the replies open.
func closeWrite(server net.Conn) {
	if half, ok := server.(interface{ CloseWrite() error }); ok {
		_ = half.CloseWrite()
	}
}

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

// pass waits until c, which was kept, is neither silenced nor delayed. It reports false when the
// link is over.
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
