package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/locktest"
)

// adopter is an environment variable. It makes a process of this binary the parent of all orphans
// below it, as PID 1 of a container is: "self" the redlatch of the test, "parent" a process that
// starts redlatch and reaps only that.
const adopter = "REDLATCH_TEST_ADOPTER"

func init() {
	who := os.Getenv(adopter)
	if who == "" {
		return
	}
	const setChildSubreaper = 36
	if _, _, errno := syscall.Syscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		panic(errno)
	}
	if who == "self" {
		return // TestMain goes on with redlatch
	}
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Env = append(os.Environ(), adopter+"=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		panic(err)
	}
	os.Exit(cmd.ProcessState.ExitCode())
}

// adopted returns a command for start that runs "redlatch run" and a script. who adopts the orphans
// of the script.
func adopted(t *testing.T, who, url string, flags []string, script string) *exec.Cmd {
	t.Helper()
	args := append(append([]string{"run"}, flags...), "k", "--", "sh", "-c", script)
	cmd := redlatchCmd(t, url, args...)
	cmd.Env = append(cmd.Env, adopter+"="+who)
	return cmd
}

// TestLossEndsARunBesideZombies: In a container, nobody may reap the children that COMMAND leaves.
// They stay in its group as zombies.
func TestLossEndsARunBesideZombies(t *testing.T) {
	t.Parallel()
	for _, who := range []string{"self", "parent"} {
		for name, flags := range map[string][]string{"with a grace": brief, "without a grace": {"-ttl", "6s", "-grace", "0"}} {
			for leads, leader := range map[string]string{"leader ignores SIGTERM": "", "leader has ended": "exit 0"} {
				t.Run(who+"/"+name+"/"+leads, func(t *testing.T) {
					t.Parallel()
					s := onMiniredis(t)
					p := start(t, adopted(t, who, s.url, flags, stubborn(leader)))
					p.group()
					p.expect("ready", "ready")
					require.NoError(t, s.client.Del(t.Context(), "k").Err())
					require.Equal(t, exitLost, p.code())
					p.gone()
				})
			}
		}
	}
}

// TestOrphansAreReaped: as PID 1 of a container, run reaps what COMMAND leaves, and is not held up
// by it.
func TestOrphansAreReaped(t *testing.T) {
	t.Parallel()
	s := onMiniredis(t)
	cmd := adopted(t, "self", s.url, patient, `(sh -c 'echo $$' &); read -r x; exit 3`)
	in := pipe(t, cmd)
	p := start(t, cmd)
	orphan, err := strconv.Atoi(p.line())
	require.NoError(t, err)
	locktest.Eventually(t, "reaped", func() bool { return errors.Is(syscall.Kill(orphan, 0), syscall.ESRCH) })
	require.NoError(t, in.Close())
	require.Equal(t, 3, p.code())
}
