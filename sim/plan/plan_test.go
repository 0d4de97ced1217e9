package plan

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

func drawn(t *testing.T, theme string, seed uint64) *Plan {
	t.Helper()
	p, err := Draw(theme, seed)
	require.NoError(t, err)
	return p
}

func TestASeedIsAPlan(t *testing.T) {
	for _, theme := range Themes() {
		require.Equal(t, drawn(t, theme, 1), drawn(t, theme, 1))
		require.NotEqual(t, drawn(t, theme, 1), drawn(t, theme, 2))
	}
	_, err := Draw("none", 1)
	require.Error(t, err)
}

// TestPlansCanBePlayed: operations and faults begin and end in time, and name what is there.
func TestPlansCanBePlayed(t *testing.T) {
	calls, acts, troubles, kinds := make(map[Call]bool), make(map[Act]bool), make(map[Trouble]bool), make(map[Kind]bool)
	for _, theme := range Themes() {
		for seed := range uint64(60) {
			p := drawn(t, theme, seed)
			for _, o := range p.Ops {
				require.Less(t, o.At, p.Length)
				group := p.Lockers[o.Locker].Group
				require.Subset(t, p.Groups[group].Keys, o.Keys)
				calls[o.Call] = true
				for _, x := range o.Steps {
					acts[x.Act] = true
					if x.Act == Adopt {
						require.Equal(t, group, p.Lockers[x.Locker].Group)
					}
				}
			}
			for _, f := range p.Faults {
				require.LessOrEqual(t, f.At+f.For, p.Length)
				require.Less(t, f.Process, len(p.Processes))
				require.Less(t, f.Server, p.Servers)
				troubles[f.What] = true
			}
			for _, g := range p.Groups {
				kinds[g.Kind] = true
			}
			require.Equal(t, theme == "loss" && p.Loses(), p.Loses() && theme != "cohort" && theme != "return", theme)
		}
	}
	require.Len(t, calls, 9)
	require.Len(t, acts, 8)
	require.Len(t, troubles, 21)
	require.Len(t, kinds, 6)
}

func TestPlanIsReadAsItWasWritten(t *testing.T) {
	for _, theme := range Themes() {
		p, file := drawn(t, theme, 3), filepath.Join(t.TempDir(), "plan")
		text, err := json.Marshal(p)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(file, text, 0o600))
		q, err := Read(file)
		require.NoError(t, err)
		require.Equal(t, p, q)
	}
	_, err := Read("none")
	require.Error(t, err)
}
