package redlatchgocron_test

import (
	"sync"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	redlatchgocron "github.com/redlatch/redlatch/gocron"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

const (
	every = 200 * time.Millisecond // between two ticks of the job
	splay = 20 * time.Millisecond  // between two instances in a tick
)

// fleet is a number of instances. Each has a scheduler with the same job, and ticks one splay after
// the instance before.
type fleet struct {
	schedulers []gocron.Scheduler

	mu      sync.Mutex // guards the fields below
	runs    []int      // the instances, in the order of their runs
	skipped []error
}

// start adds an instance whose first tick is at first. It calls job in each run.
func (f *fleet) start(t *testing.T, first time.Time, job func(), opts ...gocron.SchedulerOption) {
	t.Helper()
	s, err := gocron.NewScheduler(opts...)
	require.NoError(t, err)
	i := len(f.schedulers)
	f.schedulers = append(f.schedulers, s)
	_, err = s.NewJob(gocron.DurationJob(every),
		gocron.NewTask(func() {
			f.mu.Lock()
			f.runs = append(f.runs, i)
			f.mu.Unlock()
			job()
		}),
		gocron.WithName("report"),
		gocron.WithStartAt(gocron.WithStartDateTime(first)),
		gocron.WithEventListeners(gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.skipped = append(f.skipped, err)
		})),
	)
	require.NoError(t, err)
	s.Start()
}

// stop shuts all schedulers down. While they wait for jobs, the time of a synctest bubble does not
// pass.
func (f *fleet) stop(t *testing.T) {
	t.Helper()
	for _, s := range f.schedulers {
		require.NoError(t, s.Shutdown())
	}
}

// take returns the instances that ran the job since the last call.
func (f *fleet) take() []int {
	f.mu.Lock()
	defer f.mu.Unlock()
	runs := f.runs
	f.runs = nil
	return runs
}

// refusals returns the errors of the runs that were skipped since the last call.
func (f *fleet) refusals() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	skipped := f.skipped
	f.skipped = nil
	return skipped
}

// locked starts three instances. Each has its own Locker on client.
func locked(t *testing.T, client *redis.Client, minHold time.Duration, job func(), opts ...redlatch.Option) *fleet {
	t.Helper()
	var f fleet
	first := time.Now().Add(every)
	for i := range 3 {
		l, err := redlatch.NewSetNXPX(client)
		require.NoError(t, err)
		locker, err := redlatchgocron.NewLocker(l, minHold, opts...)
		require.NoError(t, err)
		f.start(t, first.Add(time.Duration(i)*splay), job, gocron.WithDistributedLocker(locker))
	}
	time.Sleep(every - splay) // until one splay before the first tick
	return &f
}
