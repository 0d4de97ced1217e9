//go:build unix

package schedulers_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// instance names the environment variable that makes this program an instance of a service. It has the network and the
// address of Redis, which of asynq's schedulers to run, and whether under Lead.
const instance = "REDLATCH_TEST_INSTANCE"

func TestMain(m *testing.M) {
	words := strings.Fields(os.Getenv(instance))
	if len(words) == 0 {
		redistest.Main(m)
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, words[0], words[1], words[2], words[3] == "led"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

// serve runs a scheduler until ctx ends, and prints the id of each task.
func serve(ctx context.Context, network, addr, kind string, led bool) error {
	run := func(ctx context.Context, _ *redlatch.Lock) error {
		s, err := newScheduler(kind, asynq.RedisClientOpt{Network: network, Addr: addr})
		if err != nil {
			return err
		}
		if err := s.Start(); err != nil {
			return err
		}
		<-ctx.Done()
		s.Shutdown()
		return nil
	}
	if !led {
		return run(ctx, nil)
	}
	client := redis.NewClient(&redis.Options{Network: network, Addr: addr})
	defer client.Close()
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithTTL(4*time.Second))
	if err != nil {
		return err
	}
	if err := redlatch.Lead(ctx, locker, "scheduler", run); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}

// A scheduler is what asynq's two have in common.
type scheduler interface {
	Start() error
	Shutdown()
}

// report is what the schedulers put into the queue, every second.
func report() (cron string, task *asynq.Task) { return "@every 1s", asynq.NewTask("report", nil) }

func newScheduler(kind string, conn asynq.RedisConnOpt) (scheduler, error) {
	opts := &asynq.SchedulerOpts{
		LogLevel: asynq.ErrorLevel,
		PostEnqueueFunc: func(info *asynq.TaskInfo, err error) {
			if err == nil {
				fmt.Println(info.ID)
			}
		},
	}
	if kind == "manager" {
		return asynq.NewPeriodicTaskManager(asynq.PeriodicTaskManagerOpts{
			RedisConnOpt: conn, SchedulerOpts: opts, PeriodicTaskConfigProvider: provider{},
		})
	}
	s := asynq.NewScheduler(conn, opts)
	_, err := s.Register(report())
	return s, err
}

// A provider tells a PeriodicTaskManager of the task.
type provider struct{}

func (provider) GetConfigs() ([]*asynq.PeriodicTaskConfig, error) {
	cron, task := report()
	return []*asynq.PeriodicTaskConfig{{Cronspec: cron, Task: task}}, nil
}

// A fleet is some instances of a service.
type fleet struct {
	server    *redistest.Server
	inspector *asynq.Inspector
	all       []*exec.Cmd

	mu   sync.Mutex // guards from
	from map[string]int
}

// start starts three instances.
func start(t *testing.T, kind, how string) *fleet {
	server := redistest.Start(t)
	inspector := asynq.NewInspector(asynq.RedisClientOpt{Network: server.Network(), Addr: server.Addr()})
	t.Cleanup(func() { _ = inspector.Close() })
	f := &fleet{server: server, inspector: inspector, from: make(map[string]int)}
	var read sync.WaitGroup
	for i := range 3 {
		cmd := exec.Command(os.Args[0]) //nolint:gosec // it is this program
		cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %s %s %s", instance, server.Network(), server.Addr(), kind, how))
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		f.all = append(f.all, cmd)
		read.Go(func() {
			for lines := bufio.NewScanner(out); lines.Scan(); {
				f.mu.Lock()
				f.from[lines.Text()] = i
				f.mu.Unlock()
			}
		})
	}
	t.Cleanup(func() {
		for _, cmd := range f.all {
			_ = cmd.Process.Kill()
		}
		read.Wait()
		for _, cmd := range f.all {
			_ = cmd.Wait()
		}
	})
	return f
}

// tasks waits until the queue has a number of tasks, and returns which instance has made each, in their order. That of a
// task which it had no time to print is -1.
func (f *fleet) tasks(t *testing.T, enough int) (from []int) {
	t.Helper()
	require.Eventually(t, func() bool {
		found, err := f.inspector.ListPendingTasks("default", asynq.PageSize(10*enough))
		if err != nil || len(found) < enough {
			return false // no task has made the queue yet
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		from = from[:0]
		for _, task := range found {
			i, printed := f.from[task.ID]
			if !printed {
				i = -1
			}
			from = append(from, i)
		}
		return from[len(from)-1] != -1
	}, 2*time.Minute, 20*time.Millisecond)
	return from
}

// terms returns the instances of tasks without repetitions.
func terms(from []int) []int {
	return slices.Compact(slices.DeleteFunc(slices.Clone(from), func(i int) bool { return i == -1 }))
}

// TestOneInstanceSchedules: also after the death of that instance, and after the next one was told to stop. Without Lead,
// all do.
func TestOneInstanceSchedules(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"scheduler", "manager"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			f := start(t, kind, "led")
			first := f.tasks(t, 5)
			require.Len(t, terms(first), 1)
			dead := f.all[first[len(first)-1]]
			require.NoError(t, dead.Process.Kill())

			second := f.tasks(t, len(first)+5)
			require.Len(t, terms(second), 2)
			stopped := f.all[second[len(second)-1]]
			require.NotSame(t, dead, stopped)
			require.NoError(t, stopped.Process.Signal(syscall.SIGTERM))

			third := f.tasks(t, len(second)+5)
			require.Len(t, terms(third), 3)
			require.GreaterOrEqual(t, len(third), 15)
		})
	}
	t.Run("without Lead", func(t *testing.T) {
		t.Parallel()
		f := start(t, "scheduler", "alone")
		require.Greater(t, len(terms(f.tasks(t, 15))), 3)
	})
}
