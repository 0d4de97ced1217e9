package scripttest

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/race"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

var (
	seed      = flag.Uint64("scripttest.seed", 1, "of the first sequence; 0 chooses one at random")
	sequences = flag.Int("scripttest.sequences", 0, "of each strategy on each server; 0: enough to reach every branch, or a fifth with the race detector")
)

const (
	enough     = 100 // sequences to reach every branch
	stepsOfOne = 20
)

func TestMain(m *testing.M) { redistest.Main(m) }

// TestScriptsDoWhatTheModelDoes: in random sequences of scripts, faults and commands of other
// clients, each step gives the same reply, keys and messages on the model and on a server. The
// sequences reach every branch of every script. Miniredis counts branches. Unless
// -scripttest.sequences is set, the other servers play those sequences only that reached a new one.
func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-scripttest.seed %d", first)
	many := *sequences
	switch {
	case many == 0 && race.Detector():
		many = enough / 5
	case many == 0:
		many = enough
	}
	var mu sync.Mutex // guards counted
	var counted []*branches
	t.Run("families", func(t *testing.T) {
		for name, f := range families {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				var all, useful []uint64
				b := &branches{done: make(map[string]string)}
				s := newMiniredis(t, b)
				s.keys = f.keys
				for i := range uint64(many) {
					before := len(b.missing())
					s.plays(t, f, first+i)
					all = append(all, first+i)
					if len(b.missing()) < before {
						useful = append(useful, first+i)
					}
				}
				mu.Lock()
				counted = append(counted, b)
				mu.Unlock()
				if *sequences > 0 {
					useful = all
				}
				t.Logf("%d sequences, of which %d reach something new", len(all), len(useful))
				for on, made := range map[string]func(*testing.T) *backend{
					"redis":   newRedis,
					"Lua 5.1": func(t *testing.T) *backend { return newLua(t, "lua5.1") },
					"Lua 5.4": func(t *testing.T) *backend { return newLua(t, "lua5.4") },
				} {
					t.Run(on, func(t *testing.T) {
						t.Parallel()
						s := made(t)
						s.keys = f.keys
						for _, seed := range useful {
							s.plays(t, f, seed)
						}
					})
				}
			})
		}
	})
	if many < enough {
		return
	}
	for file := range paths(t) {
		run := slices.ContainsFunc(counted, func(b *branches) bool { return b.done[file] != "" })
		require.True(t, run, "no script of the model includes %s", file)
	}
	require.Empty(t, missingInAll(counted), "branches that no step has reached")
}

// plays compares the server with a model in one sequence.
func (s *backend) plays(t *testing.T, f family, seed uint64) {
	t.Helper()
	c := f.choose(seed)
	if how := s.differs(t, c.start, f.sequence(c, stepsOfOne)); how != "" {
		t.Fatalf("-scripttest.seed %d -scripttest.sequences 1:\n%s", seed, how)
	}
}

// differs returns how the server and a model differ first, or "".
func (s *backend) differs(t *testing.T, start int64, steps []step) (how string) {
	s.begin(t)
	m := &model{keys: make(map[string]*value), now: start}
	var log strings.Builder
	for _, st := range steps {
		m.pass(st.after, m.now+st.after*1000+st.jump)
		got := s.run(t, st, m)
		want := m.run(st)
		fmt.Fprintf(&log, "%s: %v\n", st, want)
		state, messages := s.after(t)
		got, want = fmt.Sprintf("%#v\n%s%q", got, state, messages), fmt.Sprintf("%#v\n%s%q", want, m.state(s.keys), m.messages)
		if got != want {
			return fmt.Sprintf("%sthe model:\n%s\nthe server:\n%s", &log, want, got)
		}
		m.messages = nil
	}
	return ""
}
