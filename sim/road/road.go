// Package road has the network of a simulated world: connections in memory, in a bubble of
// testing/synctest, with faults. It starts no goroutine.
package road

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/testing/pipe"
)

// A Road leads from one process to one server. Faults may overlap in time.
type Road struct {
	Delay, Jitter time.Duration // of each direction

	addr   pipe.Addr
	accept func(net.Conn) error // hands a connection to the server

	mu      sync.Mutex // guards the fields below
	rng     *rand.Rand
	links   map[*link]struct{}
	slow    time.Duration // added to each delay
	dialing time.Duration // how long a dial takes
	refused int           // faults that refuse dials
	holes   int           // faults that answer no dial
	losses  []*loss
	deaf    int // faults that drop messages of subscriptions
	dials   int
	healed  chan struct{} // closed when holes becomes 0
}

// A loss loses requests or replies of commands that are chosen at random.
type loss struct {
	left     int
	requests bool
	silent   bool // the connection stays open, and nothing arrives any more
}

// New returns a road to a server at addr, which is an IP address and a port.
func New(addr string, seed uint64, accept func(net.Conn) error) *Road {
	return &Road{
		addr: pipe.Addr(addr), accept: accept, rng: rand.New(rand.NewPCG(seed, 1)), links: make(map[*link]struct{}),
	}
}

func (r *Road) errDial(err error) error {
	return &net.OpError{Op: "dial", Net: "tcp", Addr: r.addr, Err: os.NewSyscallError("connect", err)}
}

// Dial opens a connection. It heeds ctx.
func (r *Road) Dial(ctx context.Context, _, _ string) (net.Conn, error) {
	for {
		if ctx.Err() != nil {
			return nil, r.errDial(ctx.Err())
		}
		r.mu.Lock()
		refused, healed, wait := r.refused > 0, r.healed, r.delayLocked()*2+r.dialing
		if r.holes == 0 {
			healed = nil
		}
		r.mu.Unlock()
		switch {
		case healed != nil:
			select {
			case <-healed:
			case <-ctx.Done():
			}
			continue
		case refused:
			return nil, r.errDial(syscall.ECONNREFUSED)
		}
		if wait > 0 {
			select {
			case <-time.After(wait):
			case <-ctx.Done():
				return nil, r.errDial(ctx.Err())
			}
		}
		return r.open()
	}
}

// open makes a link.
func (r *Road) open() (net.Conn, error) {
	r.mu.Lock()
	r.dials++
	l := &link{road: r, toServer: new(pipe.Pipe), toClient: new(pipe.Pipe)}
	client := pipe.Addr(fmt.Sprintf("10.0.0.1:%d", 10000+r.dials))
	r.links[l] = struct{}{}
	r.mu.Unlock()
	server := &end{Conn: pipe.Conn{In: l.toServer, Local: r.addr, Remote: client}, write: l.reply}
	server.close = func() { l.close(l.toServer, l.toClient) }
	if err := r.accept(server); err != nil {
		r.forget(l)
		return nil, r.errDial(err)
	}
	own := &end{Conn: pipe.Conn{In: l.toClient, Local: client, Remote: r.addr}, write: l.request}
	own.close = func() { l.close(l.toClient, l.toServer) }
	return own, nil
}

func (r *Road) forget(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

// delayLocked draws the delay of one direction.
func (r *Road) delayLocked() time.Duration {
	d := r.Delay + r.slow
	if r.Jitter > 0 {
		d += time.Duration(r.rng.Int64N(int64(r.Jitter)))
	}
	return d
}

// Slow adds d to each delay.
func (r *Road) Slow(d time.Duration) (heal func()) { return r.add(&r.slow, d) }

// SlowDials has each dial take longer by d.
func (r *Road) SlowDials(d time.Duration) (heal func()) { return r.add(&r.dialing, d) }

func (r *Road) add(to *time.Duration, d time.Duration) (heal func()) {
	change := func(d time.Duration) {
		r.mu.Lock()
		defer r.mu.Unlock()
		*to += d
	}
	change(d)
	return func() { change(-d) }
}

// Refuse refuses dials.
func (r *Road) Refuse() (heal func()) { return r.count(&r.refused) }

// Deafen drops the messages of subscriptions, and the replies to their PINGs.
func (r *Road) Deafen() (heal func()) { return r.count(&r.deaf) }

func (r *Road) count(n *int) (heal func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		*n--
	}
}

// LoseRequests loses n commands, each with all that follows it on its connection. The connection is
// closed then, or silent.
func (r *Road) LoseRequests(n int, silent bool) (heal func()) {
	return r.lose(&loss{left: n, requests: true, silent: silent})
}

// LoseReplies loses the replies to n commands, which are carried out.
func (r *Road) LoseReplies(n int, silent bool) (heal func()) {
	return r.lose(&loss{left: n, silent: silent})
}

func (r *Road) lose(x *loss) (heal func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.losses = append(r.losses, x)
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.losses = slices.DeleteFunc(r.losses, func(o *loss) bool { return o == x })
	}
}

// drawLocked returns a loss that one of so many commands meets, and which of them does.
func (r *Road) drawLocked(requests bool, commands int) (x *loss, at int) {
	for _, x := range r.losses {
		if x.requests == requests && x.left > 0 && r.rng.IntN(2) == 0 {
			x.left--
			return x, r.rng.IntN(commands)
		}
	}
	return nil, 0
}

// Reset closes all connections. What is under way arrives, or is lost.
func (r *Road) Reset(lost bool) {
	for _, l := range r.all() {
		l.cut(lost)
	}
}

func (r *Road) all() []*link {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := make([]*link, 0, len(r.links))
	for l := range r.links {
		all = append(all, l)
	}
	return all
}

// A Side is a direction that a hole swallows.
type Side int

// The sides.
const (
	Both Side = iota
	Requests
	Replies
)

// Hole holds back what is sent on a side. Dials are answered only when it has healed, unless open is
// set: then only connections that are open now are held. When it heals, what was held arrives,
// unless drop is set: then these connections are closed.
func (r *Road) Hole(side Side, open, drop bool) (heal func()) {
	held := r.all()
	r.mu.Lock()
	if !open {
		if r.holes++; r.holes == 1 {
			r.healed = make(chan struct{})
		}
	}
	r.mu.Unlock()
	hold := func(is bool) {
		for _, l := range held {
			if side != Replies {
				l.toServer.Hold(is)
			}
			if side != Requests {
				l.toClient.Hold(is)
			}
		}
	}
	hold(true)
	return func() {
		if drop {
			for _, l := range held {
				l.cut(true)
			}
		}
		hold(false)
		r.mu.Lock()
		defer r.mu.Unlock()
		if !open {
			if r.holes--; r.holes == 0 {
				close(r.healed)
			}
		}
	}
}

// A link is a connection.
type link struct {
	road               *Road
	toServer, toClient *pipe.Pipe
	part               []byte // of a command that was not written to its end
	subscribed         bool   // guarded by road.mu
	requests           int    // delivered; guarded by road.mu
	replies            int    // guarded by road.mu
	losing             *loss  // has chosen a reply, or a request; guarded by road.mu
	loses              int    // the number of that reply
	mute               bool   // nothing that the server writes arrives; guarded by road.mu
	dead               bool   // nothing that the client writes arrives
}

// close ends reads here at once, and those at the other end behind what was sent.
func (l *link) close(in, out *pipe.Pipe) {
	l.road.forget(l)
	in.Reset(net.ErrClosed)
	out.Finish(io.EOF, l.road.Delay)
}

// cut breaks the connection.
func (l *link) cut(lost bool) {
	l.road.forget(l)
	for _, p := range []*pipe.Pipe{l.toServer, l.toClient} {
		if lost {
			p.Reset(errReset)
		} else {
			p.Finish(errReset, 0)
		}
	}
}

var errReset = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}

// request carries what the client writes. Commands arrive whole.
func (l *link) request(b []byte) (int, error) {
	if l.toServer.Ended() {
		return 0, &net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}
	}
	l.part = append(l.part, b...)
	whole, lengths, subscribes := commands(l.part)
	if whole == 0 {
		return len(b), nil
	}
	sent := slices.Clone(l.part[:whole])
	l.part = l.part[:copy(l.part, l.part[whole:])]
	r := l.road
	r.mu.Lock()
	l.subscribed = l.subscribed || subscribes
	delay := r.delayLocked()
	if l.dead {
		r.mu.Unlock()
		return len(b), nil
	}
	var broken *loss
	if !l.subscribed && l.losing == nil {
		if x, at := r.drawLocked(true, len(lengths)); x != nil {
			broken, lengths = x, lengths[:at]
			sent = sent[:sum(lengths)]
		} else if x, at := r.drawLocked(false, len(lengths)); x != nil {
			l.losing, l.loses = x, l.requests+at
		}
	}
	l.requests += len(lengths)
	l.dead = broken != nil
	r.mu.Unlock()
	if len(sent) > 0 {
		l.toServer.Send(sent, delay)
	}
	if broken != nil && !broken.silent {
		l.cut(false)
	}
	return len(b), nil
}

func sum(lengths []int) (n int) {
	for _, length := range lengths {
		n += length
	}
	return n
}

// reply carries what the server writes: the reply to one command, or a message.
func (l *link) reply(b []byte) (int, error) {
	r := l.road
	r.mu.Lock()
	if x := l.losing; x != nil && l.replies >= l.loses {
		first := !l.mute
		l.mute = true
		r.mu.Unlock()
		if first && !x.silent {
			l.cut(false)
		}
		return len(b), nil
	}
	l.replies++
	dropped := l.mute || l.subscribed && r.deaf > 0
	delay := r.delayLocked()
	r.mu.Unlock()
	if !dropped {
		l.toClient.Send(slices.Clone(b), delay)
	}
	return len(b), nil
}
