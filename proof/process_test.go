package proof

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/proof/history"
)

// clientPlan, when set, makes this test binary a process of clients that follows it.
const clientPlan = "REDLATCH_PROOF_CLIENT"

// plan is the input of a process of clients.
type plan struct {
	Strategy string
	Addrs    []string
	Keys     []string
	Seed     uint64
	FirstID  int
	Bound    time.Duration // how long a wait may last after the end of the work
}

// news is one report of a process of clients, in a line of its own.
type news struct {
	Op    *history.Op
	Stuck string
}

// process is a process of clients as its world sees it.
type process struct {
	plan   plan
	tell   func(news)
	died   func() // called after a kill
	cmd    *exec.Cmd
	stdin  io.Closer
	busy   sync.Mutex     // its holder may stop or kill the process
	reader sync.WaitGroup // of the reports
}

// startProcess runs clients in a process of their own until stop, and passes on what they report. The
// process does not outlive its test.
func (w *world) startProcess(p plan, tell func(news)) *process {
	at := &process{plan: p, tell: tell}
	at.start()
	w.tb.Cleanup(func() { _ = at.cmd.Process.Kill() }) // it has ended, unless the test failed
	return at
}

// start runs the process.
func (p *process) start() {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clientPlan+"="+string(must1(json.Marshal(p.plan))))
	cmd.Stderr = os.Stderr
	p.stdin = must1(cmd.StdinPipe())
	stdout := must1(cmd.StdoutPipe())
	must(cmd.Start())
	p.cmd = cmd
	// Ends with the process; stop and kill wait for it.
	p.reader.Go(func() {
		for lines := json.NewDecoder(stdout); ; {
			var n news
			if lines.Decode(&n) != nil {
				return
			}
			p.tell(n)
		}
	})
}

// kill ends the process at once. Whatever it did without reporting it is unknown.
func (p *process) kill() {
	p.signal(syscall.SIGKILL)
	p.reader.Wait()
	_ = p.cmd.Wait() // it was killed
	p.died()
	p.plan.Seed++
}

// signal sends the process a signal.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// stop lets the process finish its work, and returns once the process has reported everything.
func (p *process) stop() error {
	_ = p.stdin.Close() // the end of stdin tells the process to stop
	p.reader.Wait()
	return p.cmd.Wait()
}

// beClients is the main function of a process of clients. It ends a while after its stdin.
func beClients(text string) {
	var p plan
	must(json.Unmarshal([]byte(text), &p))
	s, _ := strategyCalled(p.Strategy)
	var clients []redis.UniversalClient
	for _, addr := range p.Addrs {
		clients = append(clients, redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true}))
	}
	l, err := s.make(clients, s.defaults())
	must(err)

	out := bufio.NewWriter(os.Stdout)
	var mu sync.Mutex // guards lines
	lines := json.NewEncoder(out)
	tell := func(n news) {
		mu.Lock()
		defer mu.Unlock()
		must(lines.Encode(n))
		must(out.Flush())
	}
	working, enough := context.WithCancel(context.Background())
	bound, late := context.WithCancel(context.Background())
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		enough()
		time.AfterFunc(p.Bound, late)
	}()
	var crew sync.WaitGroup
	for i := range siteCrew {
		w := &worker{
			id: p.FirstID + i, locker: l, peers: []peer{{locker: l}}, keys: p.Keys,
			ttl: s.ttl, opTimeout: s.opTimeout, keeps: s.keeps, quorum: s.quorum, overstays: s.overstays, crowded: s.crowded,
			rng: rand.New(rand.NewPCG(p.Seed, uint64(i))), born: p.Seed,
			record: func(op history.Op) { tell(news{Op: &op}) },
			stuck:  func(complaint string) { tell(news{Stuck: complaint}) },
		}
		crew.Go(func() { w.run(working, bound) })
	}
	crew.Wait()
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func must1[T any](v T, err error) T {
	must(err)
	return v
}
