package history_test

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/proof/history"
)

// grant is a grant to token that was requested at call and returned at ret, with its fence.
func grant(token string, call, ret, until int64, fence uint64) history.Op {
	return history.Op{Kind: history.Grant, Key: "k", Token: token, Call: call, Return: ret, Until: until, Fence: fence}
}

func use(token string, call, ret, until int64) history.Op {
	return history.Op{Kind: history.Use, Key: "k", Token: token, Call: call, Return: ret, Until: until}
}

func release(token string, call, ret, until int64) history.Op {
	return history.Op{Kind: history.Release, Key: "k", Token: token, Call: call, Return: ret, Until: until}
}

func loss(token string, call, ret, until int64) history.Op {
	return history.Op{Kind: history.Loss, Key: "k", Token: token, Call: call, Return: ret, Until: until}
}

// released is a release of unknown outcome.
func released(token string, call, until int64) history.Op {
	op := release(token, call, math.MaxInt64, until)
	op.Unknown = true
	return op
}

// Of one owner, and of two.
var (
	lock     = history.Rules{Exclusion: true, Fences: true, Holders: 1}
	unfenced = history.Rules{Exclusion: true, Holders: 1}
	fences   = history.Rules{Fences: true, Holders: 1}
	permits  = history.Rules{Exclusion: true, Fences: true, Holders: 2}
	writers  = history.Rules{Exclusion: true, Fences: true, Writers: true}
)

// written is a grant to a writer.
func written(token string, call, ret, until int64, fence uint64) history.Op {
	op := grant(token, call, ret, until, fence)
	op.Writes = true
	return op
}

// TestSoundHistoriesPass: what a client sees late, or never, is no mistake.
func TestSoundHistoriesPass(t *testing.T) {
	for name, sound := range map[string]struct {
		rules history.Rules
		ops   []history.Op
	}{
		"handed on before the release has returned": {unfenced, []history.Op{
			grant("a", 0, 10, 100, 1), release("a", 20, 50, 100), grant("b", 5, 30, 100, 2), use("b", 31, 32, 100),
		}},
		"a crashed owner, whose lease was extended": {unfenced, []history.Op{
			grant("a", 0, 10, 100, 1), use("a", 150, 151, 200), grant("b", 20, 210, 300, 2), use("b", 220, 221, 300),
		}},
		"a process that was stopped while it looked": {lock, []history.Op{
			grant("a", 0, 10, 100, 1), use("a", 20, 500, 100), grant("b", 15, 120, 300, 2), use("b", 130, 131, 300),
		}},
		"a process that was stopped while it was granted a lock": {lock, []history.Op{
			grant("a", 0, 500, 100, 1), loss("a", 501, 502, 100), grant("b", 20, 130, 300, 2), use("b", 140, 141, 300),
		}},
		"a release that may have been carried out at once": {lock, []history.Op{
			grant("a", 0, 10, 100, 1), released("a", 20, 100), grant("b", 15, 30, 300, 2), loss("a", 40, 41, 100),
		}},
		"a release that may never have been carried out": {lock, []history.Op{
			grant("a", 0, 10, 100, 1), released("a", 20, 100), grant("b", 15, 130, 300, 2),
		}},
		"a release on its way when the lease ended": {lock, []history.Op{
			grant("a", 0, 10, 100, 1), grant("b", 15, 110, 300, 2), release("a", 90, 130, 100), use("b", 140, 141, 300),
		}},
		"two owners, if data is lost": {fences, []history.Op{
			grant("a", 0, 10, 100, 1), grant("b", 20, 30, 120, 2), use("a", 40, 41, 100), use("b", 40, 41, 120),
		}},
		"the next permit for each that was released or has ended": {permits, []history.Op{
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 900, 2), release("a", 20, 50, 100), grant("c", 5, 30, 150, 3),
			use("b", 31, 32, 900), use("c", 31, 32, 150), grant("d", 5, 160, 300, 4), use("b", 170, 171, 900), use("d", 170, 171, 300),
		}},
		"permits whose grants return in another order": {permits, []history.Op{
			grant("b", 0, 10, 100, 2), grant("a", 0, 20, 100, 1), use("a", 30, 31, 100), use("b", 30, 31, 100),
		}},
		"readers together, also with the fence of one who came before another": {writers, []history.Op{
			grant("a", 0, 10, 100, 5), grant("b", 15, 20, 100, 6), grant("c", 25, 30, 100, 5), use("a", 40, 41, 100), use("b", 40, 41, 100),
			use("c", 40, 41, 100), release("a", 50, 51, 100), release("b", 50, 51, 100), release("c", 60, 80, 100),
			written("w", 0, 70, 200, 7), use("w", 75, 76, 200), release("w", 90, 91, 200), grant("d", 90, 95, 200, 8),
		}},
		"a writer after a reader whose lease has ended": {writers, []history.Op{
			grant("a", 0, 10, 100, 5), written("w", 0, 110, 200, 6), loss("a", 120, 121, 100), use("w", 120, 121, 200),
		}},
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, history.Check(sound.ops, sound.rules, false)) })
	}
}

func TestEachRuleIsChecked(t *testing.T) {
	for name, bad := range map[string]struct {
		rules history.Rules
		ops   []history.Op
	}{
		"two owners": {unfenced, []history.Op{
			grant("a", 0, 10, 100, 1), grant("b", 20, 30, 120, 2),
		}},
		"two owners, the first of whom still uses the lock": {lock, []history.Op{
			grant("a", 0, 10, 100, 1), use("a", 40, 41, 100), released("a", 50, 100), grant("b", 20, 30, 120, 2),
		}},
		"a grant after its own end": {lock, []history.Op{
			grant("a", 0, 10, 300, 1), use("a", 200, 201, 300), grant("b", 20, 500, 100, 2),
		}},
		"use after the end": {unfenced, []history.Op{grant("a", 0, 10, 100, 1), use("a", 101, 102, 100)}},
		"use after the release": {unfenced, []history.Op{
			grant("a", 0, 10, 100, 1), release("a", 20, 30, 100), use("a", 40, 41, 100),
		}},
		"use without a grant":   {unfenced, []history.Op{use("a", 0, 10, 100)}},
		"release by a stranger": {lock, []history.Op{grant("a", 0, 10, 100, 1), release("b", 20, 30, 100)}},
		"second release, of a lock that another has": {lock, []history.Op{
			grant("a", 0, 10, 200, 1), release("a", 20, 30, 200), grant("b", 40, 50, 300, 2), release("a", 60, 70, 200),
		}},
		"loss before the end": {lock, []history.Op{grant("a", 0, 10, 100, 1), loss("a", 20, 21, 100)}},
		"grant before the end of an extended lease": {unfenced, []history.Op{
			grant("a", 0, 10, 100, 1), use("a", 20, 21, 200), grant("b", 25, 150, 300, 2),
		}},
		"one fence twice": {fences, []history.Op{
			grant("a", 0, 10, 100, 7), release("a", 20, 30, 100), grant("b", 40, 50, 140, 7),
		}},
		"a fence that is older":      {fences, []history.Op{grant("a", 0, 10, 100, 7), grant("b", 40, 50, 140, 6)}},
		"a fence that nobody issued": {fences, []history.Op{grant("a", 0, 10, 100, 0)}},
		"a permit too many": {permits, []history.Op{
			grant("a", 0, 10, 100, 1), grant("b", 20, 30, 100, 2), grant("c", 40, 50, 100, 3),
		}},
		"a permit too many, when only one lease has ended": {permits, []history.Op{
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 900, 2), grant("c", 5, 110, 300, 3), grant("d", 5, 120, 300, 4),
		}},
		"a writer beside a reader": {writers, []history.Op{
			grant("a", 0, 10, 100, 1), written("w", 20, 30, 100, 2),
		}},
		"a reader beside a writer": {writers, []history.Op{
			written("w", 0, 10, 100, 1), grant("a", 20, 30, 100, 2), use("w", 40, 41, 100),
		}},
		"two writers": {writers, []history.Op{
			written("w", 0, 10, 100, 1), written("v", 20, 30, 100, 2),
		}},
		"a reader with the fence of an earlier writer": {writers, []history.Op{
			written("w", 0, 10, 100, 3), release("w", 20, 30, 100), grant("a", 40, 50, 100, 3),
		}},
		"a reader with a fence below that of an earlier writer": {writers, []history.Op{
			grant("a", 0, 10, 100, 2), release("a", 11, 12, 100), written("w", 15, 20, 100, 3), release("w", 25, 30, 100), grant("b", 40, 50, 100, 2),
		}},
		"a writer with a fence below that of an earlier reader": {writers, []history.Op{
			grant("a", 0, 10, 100, 4), release("a", 20, 30, 100), written("w", 40, 50, 100, 3),
		}},
		"a reader that uses its lock while a writer works": {writers, []history.Op{
			grant("a", 0, 10, 100, 1), release("a", 20, 30, 100), written("w", 40, 50, 100, 2), use("a", 60, 61, 100),
		}},
		"one fence for two permits": {permits, []history.Op{grant("a", 0, 10, 100, 7), grant("b", 0, 20, 100, 7)}},
	} {
		t.Run(name, func(t *testing.T) {
			require.EqualError(t, history.Check(bad.ops, bad.rules, false), `the history of "k" breaks the rules`)
		})
	}
}
