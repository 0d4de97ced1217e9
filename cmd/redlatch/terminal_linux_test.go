package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/faultproxy"
	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// session is a program with a terminal.
type session struct {
	*exec.Cmd
	t        *testing.T
	keyboard io.Writer

	mu     sync.Mutex // guards the field below
	screen bytes.Buffer
}

// openSession starts cmd on a terminal of its own.
func openSession(t *testing.T, cmd *exec.Cmd) *session {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skip("there are no terminals here: ", err)
	}
	var number, lock uint32
	for request, value := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &lock} {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(unsafe.Pointer(value)))
		require.Zero(t, errno)
	}
	terminal, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	require.NoError(t, err)
	s := &session{Cmd: cmd, t: t, keyboard: keyboard}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = terminal, terminal, terminal
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	require.NoError(t, cmd.Start())
	terminal.Close()
	read := make(chan struct{})
	go func() { // ends when nobody has the terminal open any more; the test waits for it
		defer close(read)
		b := make([]byte, 1000)
		for {
			n, err := keyboard.Read(b)
			if err != nil {
				return
			}
			s.mu.Lock()
			s.screen.Write(b[:n])
			s.mu.Unlock()
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // cmd leads the session, so all its other processes get SIGHUP
		<-read
		keyboard.Close()
	})
	return s
}

// shell starts an interactive shell.
func shell(t *testing.T, redisURL string) *session {
	t.Helper()
	cmd := exec.Command("sh", "-i")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "PS1=", "REDIS_URL=" + redisURL, "R=" + binary(t), sleepless}
	return openSession(t, cmd)
}

func (s *session) keys(text string) {
	s.t.Helper()
	_, err := io.WriteString(s.keyboard, text)
	require.NoError(s.t, err)
}

// shows waits until the screen has text n times.
func (s *session) shows(text string, n int) {
	s.t.Helper()
	for end := time.Now().Add(longest); ; <-time.After(2 * time.Millisecond) {
		s.mu.Lock()
		screen := s.screen.String()
		s.mu.Unlock()
		if strings.Count(screen, text) >= n {
			return
		}
		require.True(s.t, time.Now().Before(end), "no %q on the screen:\n%s", text, screen)
	}
}

// code waits for the end and returns the exit status.
func (s *session) code() int {
	_ = s.Wait()
	return s.ProcessState.ExitCode()
}

// TestCommandUsesTheTerminal: the command reads from the terminal, is stopped by Ctrl-Z together
// with redlatch, continues with fg, and is interrupted by Ctrl-C. Then the shell has the terminal
// again.
func TestCommandUsesTheTerminal(t *testing.T) {
	t.Parallel()
	r := onMiniredis(t)
	s := shell(t, r.url)
	s.keys(`"$R" run -ttl 1m k -- sh -c 'while read -r x; do echo got:$x; done'` + "\n")
	s.keys("one\n")
	s.shows("got:one", 1)
	s.keys("\x1a")
	s.shows("Stopped", 1)
	s.keys("echo shell:$((40 + 2))\n")
	s.shows("shell:42", 1)
	require.NotEmpty(t, r.holds(t))
	s.keys("fg\n")
	s.shows("run -ttl 1m", 3)
	s.keys("two\n")
	s.shows("got:two", 1)
	s.keys("\x03") // also empties the buffer of the terminal
	locktest.Eventually(t, "released", func() bool { return r.holds(t) == "" })
	s.keys("echo status:$?\n")
	s.shows("status:130", 1)
	s.keys("exit 5\n")
	require.Equal(t, 5, s.code())
}

// TestPipelineKeepsTheTerminal: a command that does not read from the terminal leaves it to the
// rest of the pipeline.
func TestPipelineKeepsTheTerminal(t *testing.T) {
	t.Parallel()
	r := onMiniredis(t)
	s := shell(t, r.url)
	s.keys(`"$R" run -ttl 1m k -- sh -c 'echo out; exec sleep 60' | (read -r x; read -r y </dev/tty; echo read:$x:$y; cat)` + "\n")
	locktest.Eventually(t, "locked", func() bool { return r.holds(t) != "" })
	s.keys("typed\n")
	s.shows("read:out:typed", 1)
	s.keys("\x03")
	locktest.Eventually(t, "released", func() bool { return r.holds(t) == "" })
	s.keys("exit 5\n")
	require.Equal(t, 5, s.code())
}

// TestSuspendedCommandDoesNotGoOnWithoutItsLock: the lock is lost while redlatch is stopped.
func TestSuspendedCommandDoesNotGoOnWithoutItsLock(t *testing.T) {
	t.Parallel()
	r := onMiniredis(t)
	s := shell(t, r.url)
	s.keys(`"$R" run -ttl 6s k -- sh -c 'trap "echo wo\"\"ken" TERM; while read -r x; do echo got:$x; done'` + "\n")
	s.keys("one\n")
	s.shows("got:one", 1)
	s.keys("\x1a")
	s.shows("Stopped", 1)
	locktest.Eventually(t, "expired", func() bool { return r.holds(t) == "" })
	s.keys("fg\n")
	s.shows("lock lost", 1)
	s.keys("echo status:$?\n")
	s.shows("status:70", 1)
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotContains(t, s.screen.String(), "woken")
}

// TestStoppedCommandGoesOnWithoutATerminal: whoever stops it by TSTP can continue it by CONT. The lock
// is held meanwhile, and once it is lost, the command does not continue.
func TestStoppedCommandGoesOnWithoutATerminal(t *testing.T) {
	t.Parallel()
	r := onMiniredis(t)
	stopped := func(pid int) func() bool { return func() bool { return isStopped(strconv.Itoa(pid)) } }
	cmd := redlatchCmd(t, r.url, "run", "-ttl", "6s", "k", "--", "sh", "-c", "echo $$; while read -r x; do echo got:$x; done")
	in := pipe(t, cmd)
	p := start(t, cmd)
	pid := p.group()
	for range 2 {
		p.signal(syscall.SIGTSTP)
		locktest.Eventually(t, "stopped", stopped(pid))
		require.NotEmpty(t, r.holds(t))
		_, err := io.WriteString(in, "one\n")
		require.NoError(t, err)
		p.signal(syscall.SIGCONT)
		require.Equal(t, "got:one", p.line())
	}
	p.signal(syscall.SIGTSTP)
	locktest.Eventually(t, "stopped", stopped(pid))
	require.NoError(t, r.client.Del(t.Context(), "k").Err())
	_, err := io.WriteString(in, "two\n")
	require.NoError(t, err)
	locktest.Eventually(t, "noticed", func() bool { return strings.Contains(p.errors(), "lock lost") })
	p.signal(syscall.SIGCONT)
	require.Equal(t, exitLost, p.code())
	for line := range p.lines {
		require.NotEqual(t, "got:two", line)
	}
}

// TestCommandThatHasJustStartedCanBeStopped: the signal comes as soon as the command runs. It would stop redlatch, which renews
// the lock, if that had not asked for the signal before.
func TestCommandThatHasJustStartedCanBeStopped(t *testing.T) {
	t.Parallel()
	r := onMiniredis(t)
	for range 20 {
		cmd := redlatchCmd(t, r.url, "run", "k", "--", "sh", "-c", "kill -TSTP $PPID; echo $$; read -r x; echo got:$x")
		in := pipe(t, cmd)
		p := start(t, cmd)
		locktest.Eventually(t, "the command is stopped", func() bool {
			threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", p.Process.Pid))
			return err == nil && slices.ContainsFunc(threads, func(thread string) bool {
				children, err := os.ReadFile(thread)
				return err == nil && isStopped(strings.TrimSpace(string(children)))
			})
		})
		p.signal(syscall.SIGCONT)
		p.group()
		_, err := io.WriteString(in, "one\n")
		require.NoError(t, err)
		require.Equal(t, "got:one", p.line())
		require.Zero(t, p.code())
	}
}

// isStopped reports whether a signal has stopped a process.
func isStopped(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err == nil && strings.Contains(string(stat), ") T ")
}

// TestUnlockAsksOnATerminal: only a yes releases the lock, or ends the min hold.
func TestUnlockAsksOnATerminal(t *testing.T) {
	t.Parallel()
	r := onMiniredis(t)
	lock := locktest.MustLock(t, r.locker(t, locktest.LongTTL), "k", redlatch.WithMinHold(time.Hour))
	asks := func(shown, question string) {
		t.Helper()
		for _, c := range []struct {
			answer string
			code   int
		}{{"n\n", exitDeclined}, {"\x04", exitDeclined}, {"y\n", 0}} {
			require.NotEmpty(t, r.holds(t))
			s := openSession(t, redlatchCmd(t, r.url, "unlock", "k"))
			s.shows(shown, 1)
			s.shows(question, 1)
			s.keys(c.answer)
			require.Equal(t, c.code, s.code())
		}
		require.Empty(t, r.holds(t))
	}
	asks(`"k" is held by other`, "release it? [y/N]")
	require.ErrorIs(t, lock.Unlock(t.Context()), redlatch.ErrLost)
	lock = locktest.MustLock(t, r.locker(t, locktest.LongTTL), "k", redlatch.WithMinHold(time.Hour))
	require.NoError(t, lock.Unlock(t.Context()))
	asks(`"k" is held by nobody; its min hold keeps others out for another `, "end its min hold? [y/N]")
}

// TestListUsesTheTerminal: it reports its progress while it takes longer than a second, and with
// -watch it renews the table in place.
func TestListUsesTheTerminal(t *testing.T) {
	t.Parallel()
	r := onMiniredis(t)
	locktest.MustLock(t, r.locker(t, locktest.LongTTL), "import")
	for i := range 300 {
		require.NoError(t, r.client.Set(t.Context(), fmt.Sprint("foreign:", i), "x", 0).Err())
	}
	proxy := faultproxy.New(t, r.network, r.addr)
	proxy.Delay(700 * time.Millisecond) // each page is two trips
	s := openSession(t, redlatchCmd(t, "redis://"+proxy.Addr(), "list"))
	s.shows(" keys read, ", 1)
	s.shows("\r\x1b[KKEY ", 1)
	s.shows("import ", 1)
	s.shows("1 lock, 0 waiters; 302 keys read in ", 1)
	require.Zero(t, s.code())

	s = openSession(t, redlatchCmd(t, r.url, "list", "-watch"))
	s.shows("\x1b[H\x1b[2JKEY ", 2)
	s.keys("\x03")
	require.NotZero(t, s.code())
}

// TestListStaysOnTheScreen: with more locks than rows and keys that are longer than a row, -watch
// shows those for which somebody waits, at one place of the terminal.
func TestListStaysOnTheScreen(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	l := s.locker(t, locktest.LongTTL)
	name := func(i int) string { return fmt.Sprintf("orders:%03d:%s:end", i, strings.Repeat("x", 100)) }
	const locks, columns, rows = 40, 90, 12
	for i := range locks {
		locktest.MustLock(t, l, name(i))
	}
	locktest.WaitInLine(t, s.locker(t), name(30))
	terminal := openSession(t, redlatchCmd(t, s.url, "list", "-watch"))
	terminal.resize(columns, rows)
	const top = "\x1b[H\x1b[2J"
	terminal.shows(top, 4)
	terminal.mu.Lock()
	frames := strings.Split(terminal.screen.String(), top)
	terminal.mu.Unlock()
	frame := strings.ReplaceAll(strings.ReplaceAll(frames[3], "\x1b[K", ""), "\r", "")
	lines := strings.Split(frame, "\n") // the last one is that of the cursor
	require.Len(t, lines, rows, frame)
	require.Regexp(t, `^orders:030:x+…x+:end +lock `, lines[1])
	require.Regexp(t, `^orders:000:x+…x+:end +lock `, lines[2])
	require.Equal(t, "and 32 more", lines[rows-3])
	require.Regexp(t, `^40 locks, 1 waiter; `, lines[rows-2])
	for _, line := range lines {
		require.Less(t, len([]rune(line)), columns, line)
	}
}

// resize sets the size of the terminal.
func (s *session) resize(columns, rows uint16) {
	s.t.Helper()
	size := struct{ rows, columns, width, height uint16 }{rows: rows, columns: columns}
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, s.keyboard.(*os.File).Fd(), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size)))
	require.Zero(s.t, errno)
}
