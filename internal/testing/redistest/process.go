package redistest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const (
	socketName = "s"
	pidName    = "pid"

	startLimit = time.Minute
	startPoll  = 2 * time.Millisecond
)

// guard is the shell that is the parent of redis-server. Its stdin is a pipe that only the test
// process holds. It waits for one of two events:
//
//  1. A line: kill the server.
//  2. The end of the pipe, which even a killed test process causes: kill the server and remove its
//     directory.
//
// The config file is empty. A sentinel writes to it and does not start without it.
//
// guard ignores the signals that a terminal sends to all processes, so that it still runs at the
// end. It waits for its child only after the kill, so no other process can have the pid by then.
const guard = `
trap '' HUP INT QUIT TERM
dir=$1
server=$2
shift 2
: >>"$dir/conf"
"$server" "$dir/conf" "$@" </dev/null 2>&1 &
exec >/dev/null 2>&1
read -r order || abandoned=yes
kill -KILL $!
wait $!
[ -z "$abandoned" ] || rm -rf "$dir"
`

// process is one run of redis-server.
type process struct {
	dir   string
	shell *exec.Cmd
	order io.WriteCloser
	log   bytes.Buffer  // its output; read it when gone is closed
	gone  chan struct{} // closed when redis-server has exited
}

// launch runs program, a redis-server, in dir and returns once it answers. After an error nothing runs.
func launch(dir, program string, args []string) (*process, error) {
	shell := exec.Command("sh", "-c", guard, "redistest", dir, program,
		"--unixsocket", filepath.Join(dir, socketName),
		"--pidfile", filepath.Join(dir, pidName))
	shell.Args = append(shell.Args, args...)
	shell.Dir = dir
	order, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	output, err := shell.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := shell.Start(); err != nil {
		return nil, err
	}
	p := &process{dir: dir, shell: shell, order: order, gone: make(chan struct{})}
	// The process owns this goroutine. It ends when redis-server, which alone holds the other end,
	// has exited. kill waits for it.
	go func() {
		defer close(p.gone)
		_, _ = io.Copy(&p.log, output)
	}()
	if err := p.await(); err != nil {
		p.kill()
		return nil, fmt.Errorf("%w:\n%s", err, &p.log)
	}
	return p, nil
}

// await returns once the server answers PING on its socket.
func (p *process) await() error {
	tooLate := time.After(startLimit)
	for !p.answers() {
		select {
		case <-p.gone:
			return errors.New("redis-server has exited")
		case <-tooLate:
			return fmt.Errorf("redis-server does not answer after %v", startLimit)
		case <-time.After(startPoll):
		}
	}
	return nil
}

// answers reports whether the server is there and has loaded its data.
func (p *process) answers() bool {
	conn, err := net.Dial("unix", filepath.Join(p.dir, socketName))
	if err != nil {
		return false
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(time.Second)); err != nil {
		return false
	}
	if _, err := io.WriteString(conn, "PING\r\n"); err != nil {
		return false
	}
	reply, err := bufio.NewReader(conn).ReadString('\n')
	return err == nil && reply == "+PONG\r\n"
}

// kill ends the process and returns when it is gone. It must be called once.
func (p *process) kill() {
	// Errors are ignored: a shell that has exited has killed the server too.
	_, _ = io.WriteString(p.order, "\n")
	<-p.gone
	_ = p.shell.Wait()
}

// signal sends the named signal to redis-server itself, not to its shell.
func (p *process) signal(name string) error {
	pid, err := os.ReadFile(filepath.Join(p.dir, pidName))
	if err != nil {
		return err
	}
	return Signal(strings.TrimSpace(string(pid)), name)
}

// Signal sends the named signal. The shell knows its number on every platform; package syscall does
// not.
func Signal(pid, name string) error {
	return exec.Command("sh", "-c", `kill -s "$1" "$2"`, "redistest", name, pid).Run()
}
