package node

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// TestSlowCallsDoNotHoldUpOthers: many calls on a slow node of a client wait at once for
// replicas that do not exist. Calls on the other node of that client succeed meanwhile.
func TestSlowCallsDoNotHoldUpOthers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{0, 1, 4} { // 0 is go-redis' default
		t.Run(fmt.Sprint("PoolSize ", size), func(t *testing.T) {
			t.Parallel()
			s := redistest.Start(t)
			o := s.Options()
			o.PoolSize = size
			client := redis.NewClient(o)
			t.Cleanup(func() { _ = client.Close() })
			fast, slow := New(client), NewSlow(client)
			direct := s.Client(t)
			var calls []*posted
			for i := range 100 {
				c := within(Command("set", fmt.Sprint("k", i), 1), time.Minute)
				c.Then = []any{"wait", 1, 1000}
				calls = append(calls, post(t.Context(), slow, c))
			}
			eventually(t, "some of the calls wait", func() bool { return blocked(t, direct) > 0 })
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for range 10 {
						if err := fast.Do(t.Context(), within(Command("ping"), limit)).Err; err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			eventually(t, "other calls still wait, for several seconds in all", func() bool { return blocked(t, direct) > 0 })
			for _, p := range slices.Backward(calls[1:]) { // each courier that is freed takes the next call
				p.Cancel(errors.New("not needed"))
			}
			r := calls[0].wait(t)
			requireOK(t, false, r)
			require.Equal(t, int64(0), r.Then.Value)
			require.ErrorAs(t, calls[99].wait(t).Err, new(*NotDone))
			requireIdle(t, slow)
			require.Zero(t, direct.Exists(t.Context(), "k99").Val())
		})
	}
}

// blocked returns how many clients wait in a command.
func blocked(t *testing.T, direct *redis.Client) (n int) {
	t.Helper()
	info, err := direct.InfoMap(t.Context(), "clients").Result()
	require.NoError(t, err)
	_, err = fmt.Sscan(info["Clients"]["blocked_clients"], &n)
	require.NoError(t, err)
	return n
}

// TestSlowServerHoldsUpNobodyForLonger: one command occupies the whole server. Each caller gets
// its reply or times out in time.
func TestSlowServerHoldsUpNobodyForLonger(t *testing.T) {
	t.Parallel()
	s := redistest.Start(t)
	direct := s.Client(t)
	// While the script runs for this long, the server answers nothing. Then it takes SCRIPT KILL.
	require.NoError(t, direct.ConfigSet(t.Context(), "lua-time-limit", "600").Err())
	n := New(s.Client(t))
	require.NoError(t, n.Do(t.Context(), within(Command("ping"), limit)).Err)
	slow := post(t.Context(), n, within(Eval(NewScript("while true do end"), 0), limit))
	var wg sync.WaitGroup
	var patient, impatient sync.Map
	for i := range 64 {
		wg.Go(func() {
			begin := time.Now()
			if i%2 == 0 {
				patient.Store(i, n.Do(t.Context(), within(Command("ping"), limit)).Err)
				return
			}
			impatient.Store(i, n.Do(t.Context(), within(Command("ping"), 100*time.Millisecond)).Err)
			if took := time.Since(begin); took > 400*time.Millisecond+limit/10 {
				t.Errorf("it took %v", took)
			}
		})
	}
	eventually(t, "the command has ended", func() bool { return direct.ScriptKill(t.Context()).Err() == nil })
	wg.Wait()
	patient.Range(func(_, err any) bool { require.Nil(t, err); return true })
	require.ErrorContains(t, slow.wait(t).Err, "Script killed by user")
	requireIdle(t, n)
}
