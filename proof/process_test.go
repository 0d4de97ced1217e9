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
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/proof/history"
)

// clientPlan, when set, makes this test binary a process of clients that follows it.
const clientPlan = "REDLATCH_PROOF_CLIENT"

// plan is what a process of clients is told.
type plan struct {
	Strategy string
	Addrs    []string
	Keys     []string
	Seed     uint64
	FirstID  int
	Bound    time.Duration // how long a wait may last once no more work is wanted
}

// news is what a process of clients tells, a line each.
type news struct {
	Op    *history.Op
	Stuck string
}

// process is a process of clients as its world sees it.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	busy   sync.Mutex     // who holds it may stop the process
	reader sync.WaitGroup // of what it tells
}

// start runs clients in a process of their own until its stop, and passes on what they tell. It does
// not outlive its test.
func (w *world) startProcess(p plan, tell func(news)) *process {
	text, err := json.Marshal(p)
	require.NoError(w.tb, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), clientPlan+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(w.tb, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(w.tb, err)
	require.NoError(w.tb, cmd.Start())
	at := &process{cmd: cmd, stdin: stdin}
	w.tb.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended, but where the test failed
	// Ends with the process; stop waits for it.
	at.reader.Go(func() {
		for lines := json.NewDecoder(stdout); ; {
			var n news
			if lines.Decode(&n) != nil {
				return
			}
			tell(n)
		}
	})
	return at
}

// signal sends the process a signal.
func (p *process) signal(s syscall.Signal) { _ = p.cmd.Process.Signal(s) }

// stop has the process finish what it is doing, and returns when it has told everything.
func (p *process) stop() error {
	_ = p.stdin.Close() // it says all there is to say
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
	l, err := s.make(clients)
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
			id: p.FirstID + i, locker: l, keys: p.Keys, ttl: s.ttl, overstays: s.overstays,
			rng:    rand.New(rand.NewPCG(p.Seed, uint64(i))),
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
