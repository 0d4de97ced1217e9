package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// diffsOf returns what mutants change, one line before and after each.
func diffsOf(all []mutant) (out []string) {
	for _, m := range all {
		c := m.what()
		out = append(out, strings.Trim(c.function+": "+c.before+" => "+c.after, " "))
	}
	return out
}

// TestGoIsChangedInOnePlace: each mutant has one fault.
func TestGoIsChangedInOnePlace(t *testing.T) {
	found, err := goMutants("x.go", `package x

import "sync"

const pause = 4 * second

func (n *node[T]) load(i int) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.open && i < 3 {
		n.count++
	}
	all := n.of[1]
	return !all.ready(true)
}
`)
	require.NoError(t, err)
	require.Equal(t, []string{
		": const pause = 4 * second => const pause = 4 / second",
		": const pause = 4 * second => const pause = 8 * second",
		"node.load: if n.open && i < 3 { => if !n.open && i < 3 {",
		"node.load: if n.open && i < 3 { => if n.open && i >= 3 {",
		"node.load: if n.open && i < 3 { => if n.open && i <= 3 {",
		"node.load: if n.open && i < 3 { => if n.open && i < 6 {",
		"node.load: n.count++ =>",
		"node.load: return !all.ready(true) => return all.ready(true)",
		"node.load: return !all.ready(true) => return !all.ready(false)",
	}, diffsOf(found))
}

// TestLuaIsChangedInOnePlace: not in comments and strings, and not what others need to be declared.
func TestLuaIsChangedInOnePlace(t *testing.T) {
	require.Equal(t, []string{
		": local left = redis.call('PTTL', KEYS[1]) - 2 -- 7 and more => local left = redis.call('PTTL', KEYS[1]) + 2 -- 7 and more",
		": local left = redis.call('PTTL', KEYS[1]) - 2 -- 7 and more => local left = redis.call('PTTL', KEYS[1]) - 4 -- 7 and more",
		"ends: if not late then redis.call('DEL', KEYS[1]) end => if late then redis.call('DEL', KEYS[1]) end",
		"ends: if not late then redis.call('DEL', KEYS[1]) end =>",
		"ends: return left == -1 or nil => return left ~= -1 or nil",
		"ends: return left == -1 or nil => return left == -2 or nil",
		"ends: return left == -1 or nil => return left == -1 and nil",
		": left = nil =>",
	}, diffsOf(luaMutants("x.lua", `-- 1 and 2
local left = redis.call('PTTL', KEYS[1]) - 2 -- 7 and more

local function ends(late)
  if not late then redis.call('DEL', KEYS[1]) end
  return left == -1 or nil
end
left = redis.call('GET', KEYS[2]
  .. 'and')
left = nil
`)))
}

// TestEveryMutantIsAChange, and not two of a file are the same.
func TestEveryMutantIsAChange(t *testing.T) {
	all, err := mutantsOf("../../..")
	require.NoError(t, err)
	require.Greater(t, len(all), 1000)
	type edit struct {
		file, with string
		from, to   int
	}
	seen := make(map[edit]bool)
	for _, m := range all {
		e := edit{m.file, m.with, m.from, m.to}
		require.NotEqual(t, m.source[m.from:m.to], m.with, m.diff())
		require.False(t, seen[e], m.diff())
		seen[e] = true
	}
}

// TestEquivalentsHaveReasons, each one.
func TestEquivalentsHaveReasons(t *testing.T) {
	_, err := parseEquivalents(equivalents)
	require.NoError(t, err)
	_, err = parseEquivalents("a.go f\n- x\n+ y\n")
	require.Error(t, err)
	got, err := parseEquivalents("a.go T.f\n- x\n+ y\nNobody sees it.\n\nb.lua \n- z\n+\nNor that.\n")
	require.NoError(t, err)
	require.Equal(t, map[change]bool{{"a.go", "T.f", "x", "y"}: true, {"b.lua", "", "z", ""}: true}, got)
}
