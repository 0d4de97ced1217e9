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

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

var (
	seed      = flag.Uint64("scripttest.seed", 1, "of the first sequence; 0 chooses one at random")
	sequences = flag.Int("scripttest.sequences", 0, "of each family on each server; 0: those that reach every branch")
)

const stepsOfOne = 20

// reaching are the seeds of the sequences that reach every branch. After a change of scripts,
// -scripttest.sequences 100 -v finds them anew.
var reaching = map[string][]uint64{
	"legacy":     {1, 2, 3, 5, 9, 12, 14, 17},
	"lock":       {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 15, 17, 20, 24, 28, 32, 36, 37, 41, 43, 48, 62, 70, 117, 120, 140, 230},
	"quorum":     {1, 2, 3, 4, 5, 6, 7, 15, 16, 17, 20, 35, 40, 60},
	"read-write": {1, 2, 3, 4, 5, 6, 8, 9, 11, 12, 14, 16, 17, 19, 21, 22, 23, 24, 25, 28, 29, 33, 41, 59, 61, 62, 63, 70, 89, 94, 126, 129, 131, 143, 292, 450},
	"semaphore":  {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 26, 27, 28, 29, 31, 37, 40, 46, 47, 58, 86, 88, 92, 99, 125, 190, 227, 582, 766},
}

func TestMain(m *testing.M) { redistest.Main(m) }

// TestScriptsDoWhatTheModelDoes: in random sequences of scripts, faults and commands of other
// clients, each step gives the same reply, keys and messages on the model and on a server. The
// sequences reach every branch of every script. Miniredis counts branches.
func TestScriptsDoWhatTheModelDoes(t *testing.T) {
	first := *seed
	if first == 0 {
		first = rand.Uint64()
	}
	t.Logf("-scripttest.seed %d", first)
	var mu sync.Mutex // guards counted
	var counted []*branches
	t.Run("families", func(t *testing.T) {
		for name, f := range families {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				seeds := reaching[name]
				if *sequences > 0 {
					seeds = nil
					for i := range uint64(*sequences) {
						seeds = append(seeds, first+i)
					}
				}
				var useful []uint64
				b := &branches{done: make(map[string]string)}
				s := newMiniredis(t, b)
				s.keys = f.keys
				for _, seed := range seeds {
					before := len(b.missing())
					s.plays(t, f, seed)
					if len(b.missing()) < before {
						useful = append(useful, seed)
					}
				}
				mu.Lock()
				counted = append(counted, b)
				mu.Unlock()
				t.Logf("%d sequences, of which these reach something new: %v", len(seeds), useful)
				for on, made := range map[string]func(*testing.T) *backend{
					"redis":   newRedis,
					"Lua 5.1": func(t *testing.T) *backend { return newLua(t, "lua5.1") },
					"Lua 5.4": func(t *testing.T) *backend { return newLua(t, "lua5.4") },
				} {
					t.Run(on, func(t *testing.T) {
						t.Parallel()
						s := made(t)
						s.keys = f.keys
						for _, seed := range seeds {
							s.plays(t, f, seed)
						}
					})
				}
			})
		}
	})
	if *sequences > 0 {
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
