package history_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/proof/history"
)

var all = history.Rules{Exclusion: true, Fences: true}

// grant is a grant to token that was requested at call and returned at ret, with its fence.
func grant(token string, call, ret, until int64, fence uint64) history.Op {
	return history.Op{Kind: history.Grant, Key: "k", Token: token, Call: call, Return: ret, Until: until, Fence: fence}
}

// did is another operation of token's owner.
func did(kind history.Kind, token string, call, ret, until int64) history.Op {
	return history.Op{Kind: kind, Key: "k", Token: token, Call: call, Return: ret, Until: until}
}

func use(token string, call, ret, until int64) history.Op {
	return did(history.Use, token, call, ret, until)
}

func release(token string, call, ret, until int64) history.Op {
	return did(history.Release, token, call, ret, until)
}

func adopt(token string, call, ret, until int64, fence uint64) history.Op {
	op := grant(token, call, ret, until, fence)
	op.Kind = history.Adopt
	return op
}

// keeping is a release with a min hold.
func keeping(token string, call, ret, until, kept int64) history.Op {
	op := release(token, call, ret, until)
	op.Kept = kept
	return op
}

func loss(token string, call, ret, until int64) history.Op {
	return did(history.Loss, token, call, ret, until)
}

// unknown is op with an unknown outcome.
func unknown(op history.Op) history.Op {
	op.Unknown = true
	return op
}

// blurred is op by a clock that is not that of the history.
func blurred(op history.Op) history.Op {
	op.Blurred = true
	return op
}

func TestSoundHistoriesPass(t *testing.T) {
	for name, ops := range map[string][]history.Op{
		"nothing": nil,
		"one after the other": {
			grant("a", 0, 10, 100, 1), use("a", 11, 12, 100), release("a", 20, 30, 100),
			grant("b", 5, 40, 140, 2), use("b", 41, 42, 140), release("b", 50, 60, 140),
		},
		"handed on before the release has returned": {
			grant("a", 0, 10, 100, 1), release("a", 20, 50, 100), grant("b", 5, 30, 100, 2), use("b", 31, 32, 100),
		},
		"a crashed owner": {
			grant("a", 0, 10, 100, 1), use("a", 90, 95, 100), grant("b", 20, 110, 200, 2), use("b", 120, 121, 200),
		},
		"a lease that was extended": {
			grant("a", 0, 10, 100, 1), use("a", 150, 151, 200), grant("b", 20, 210, 300, 2), loss("a", 205, 206, 200),
		},
		"a process that was stopped while it looked": {
			grant("a", 0, 10, 100, 1), use("a", 20, 500, 100), grant("b", 15, 120, 300, 2), use("b", 130, 131, 300),
		},
		"a release that may have been carried out at once": {
			grant("a", 0, 10, 100, 1), unknown(release("a", 20, history.Never, 100)), grant("b", 15, 30, 300, 2),
		},
		"a release that may never have been carried out": {
			grant("a", 0, 10, 100, 1), unknown(release("a", 20, history.Never, 100)), grant("b", 15, 130, 300, 2),
		},
		"a release on its way when the lease ended": {
			grant("a", 0, 10, 100, 1), grant("b", 15, 110, 300, 2), release("a", 90, 130, 100), use("b", 140, 141, 300),
		},
		"a lock that may have been granted": {
			unknown(grant("?", 0, history.Never, 0, 0)), grant("a", 0, 10, 100, 1), release("a", 20, 30, 100),
		},
		"an owner whose clock ran ahead": {
			blurred(grant("a", 0, 10, 5000, 1)), blurred(loss("a", 20, 21, 5000)), grant("b", 15, 40, 100, 2),
		},
		"a process that was stopped while it was granted a lock": {
			grant("a", 0, 500, 100, 1), loss("a", 501, 502, 100), grant("b", 20, 130, 300, 2), use("b", 140, 141, 300),
		},
		"a lock that was adopted": {
			grant("a", 0, 10, 100, 1), adopt("a", 20, 30, 300, 2), loss("a", 101, 102, 100), use("a", 200, 201, 300),
			release("a", 210, 220, 300), grant("b", 15, 230, 400, 3),
		},
		"a loss, since another handle has released the lock": {
			grant("a", 0, 10, 100, 1), adopt("a", 20, 30, 300, 2), release("a", 40, 50, 300), loss("a", 60, 61, 100),
		},
		"an adopter whose clock runs ahead": {
			grant("a", 0, 10, 100, 1), blurred(adopt("a", 20, 30, 9000, 2)), blurred(use("a", 150, 151, 9000)),
			grant("b", 15, 230, 400, 3),
		},
		"a grant after a min hold": {
			grant("a", 0, 10, 300, 1), keeping("a", 20, 30, 300, 90), grant("b", 15, 91, 200, 2), use("b", 100, 101, 200),
		},
		"a release after the min hold": {
			grant("a", 0, 10, 300, 1), keeping("a", 20, 30, 300, 15), grant("b", 12, 31, 200, 2), use("b", 100, 101, 200),
		},
		"a min hold that may have begun": {
			grant("a", 0, 10, 100, 1), unknown(keeping("a", 20, history.Never, 100, 90)), grant("b", 15, 95, 200, 2),
		},
		"other keys are other locks": {
			grant("a", 0, 10, 100, 5), {Kind: history.Grant, Key: "l", Token: "b", Call: 20, Return: 30, Until: 100, Fence: 1},
		},
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, history.Check(ops, all).Err()) })
	}
}

func TestEachRuleIsChecked(t *testing.T) {
	exclusion, fences := history.Rules{Exclusion: true}, history.Rules{Fences: true}
	for name, bad := range map[string]struct {
		rule history.Rules
		ops  []history.Op
	}{
		"two owners": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), grant("b", 20, 30, 120, 2),
		}},
		"two owners, the first of whom still uses the lock": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), unknown(release("a", 5, history.Never, 100)),
			grant("b", 20, 30, 120, 2), use("b", 31, 32, 120), use("a", 40, 41, 100),
		}},
		"a grant after its own end": {exclusion, []history.Op{
			grant("a", 0, 10, 300, 1), use("a", 200, 201, 300), grant("b", 20, 500, 100, 2),
		}},
		"use after the end": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), use("a", 101, 102, 100),
		}},
		"use after the release": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), release("a", 20, 30, 100), use("a", 40, 41, 100),
		}},
		"use without a grant": {exclusion, []history.Op{
			use("a", 0, 10, 100),
		}},
		"use while another owns, by a blurred clock": {exclusion, []history.Op{
			blurred(grant("a", 0, 10, 0, 1)), grant("b", 20, 30, 100, 2), use("b", 31, 32, 100),
			blurred(use("a", 40, 41, 0)), use("b", 50, 51, 100),
		}},
		"release by a stranger": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), release("b", 20, 30, 100),
		}},
		"second release, of a lock that another has": {exclusion, []history.Op{
			grant("a", 0, 10, 200, 1), release("a", 20, 30, 200), grant("b", 40, 50, 300, 2), release("a", 60, 70, 200),
		}},
		"loss before the end": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), loss("a", 20, 21, 100),
		}},
		"grant before the end of an extended lease": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), use("a", 20, 21, 200), grant("b", 25, 150, 300, 2),
		}},
		"a lock that an adopter still has": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), adopt("a", 20, 30, 300, 2), loss("a", 101, 102, 100), grant("b", 15, 120, 400, 3),
			use("a", 130, 131, 300),
		}},
		"a loss of an adopter that nobody released": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), adopt("a", 20, 30, 300, 2), loss("a", 101, 102, 100), loss("a", 120, 121, 300),
		}},
		"a lock that was adopted after its release": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), release("a", 20, 30, 100), adopt("a", 40, 50, 140, 2),
		}},
		"a grant within a min hold": {exclusion, []history.Op{
			grant("a", 0, 10, 300, 1), keeping("a", 20, 30, 300, 90), grant("b", 15, 89, 200, 2),
		}},
		"a grant within a min hold that may have begun": {exclusion, []history.Op{
			grant("a", 0, 10, 100, 1), unknown(keeping("a", 20, history.Never, 100, 90)), grant("b", 15, 80, 200, 2),
		}},
		"a lock that was adopted within its min hold": {exclusion, []history.Op{
			grant("a", 0, 10, 300, 1), keeping("a", 20, 30, 300, 90), adopt("a", 40, 50, 200, 2),
		}},
		"an adopter with the fence of its parent": {fences, []history.Op{
			grant("a", 0, 10, 100, 7), adopt("a", 40, 50, 140, 7),
		}},
		"one fence twice": {fences, []history.Op{
			grant("a", 0, 10, 100, 7), release("a", 20, 30, 100), grant("b", 40, 50, 140, 7),
		}},
		"a fence that is older": {fences, []history.Op{
			grant("a", 0, 10, 100, 7), grant("b", 40, 50, 140, 6),
		}},
		"a fence that nobody issued": {fences, []history.Op{
			grant("a", 0, 10, 100, 0),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			verdict := history.Check(bad.ops, bad.rule)
			require.Error(t, verdict.Err())
			require.Equal(t, []string{"k"}, verdict.Bad)
			if bad.rule == exclusion {
				require.NoError(t, history.Check(bad.ops, fences).Err(), "the other rule allows it")
			}
		})
	}
}

// permits are the rules of a semaphore of that limit.
func permits(limit int) history.Rules {
	return history.Rules{Exclusion: true, Fences: true, Holders: limit}
}

func TestSoundHistoriesOfSemaphoresPass(t *testing.T) {
	for name, ops := range map[string][]history.Op{
		"as many as the limit": {
			grant("a", 0, 10, 100, 1), grant("b", 11, 20, 100, 2), use("a", 30, 31, 100), use("b", 30, 31, 100),
			release("b", 40, 50, 100), release("a", 40, 50, 100),
		},
		"the next for each that left": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 100, 2), release("a", 20, 50, 100),
			grant("c", 5, 30, 150, 3), use("b", 31, 32, 100), use("c", 31, 32, 150), release("b", 40, 50, 100),
			grant("d", 5, 60, 150, 4), use("c", 70, 71, 150), use("d", 70, 71, 150),
		},
		"the next when a lease has ended": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 900, 2), grant("c", 5, 110, 300, 3), use("b", 120, 121, 900),
			use("c", 120, 121, 300),
		},
		"grants that return in another order": {
			grant("b", 0, 10, 100, 2), grant("a", 0, 20, 100, 1), use("a", 30, 31, 100), use("b", 30, 31, 100),
		},
		"a permit that may have been granted": {
			unknown(grant("?", 0, history.Never, 0, 0)), grant("a", 0, 10, 100, 1), grant("b", 0, 10, 100, 2),
			release("a", 20, 30, 100), grant("c", 40, 50, 100, 3),
		},
		"a release that may have been carried out": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 100, 2), unknown(release("a", 20, history.Never, 100)),
			grant("c", 5, 30, 200, 3), use("b", 31, 32, 100), release("b", 40, 50, 100), grant("d", 45, 60, 200, 4),
		},
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, history.Check(ops, permits(2)).Err()) })
	}
}

func TestEachRuleOfASemaphoreIsChecked(t *testing.T) {
	for name, ops := range map[string][]history.Op{
		"one holder too many": {
			grant("a", 0, 10, 100, 1), grant("b", 20, 30, 100, 2), grant("c", 40, 50, 100, 3),
		},
		"one holder too many, since a release took another's permit": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 100, 2), release("a", 20, 30, 100), grant("c", 40, 50, 100, 3),
			grant("d", 60, 70, 100, 4), use("b", 80, 81, 100),
		},
		"one holder too many, when only one lease has ended": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 900, 2), grant("c", 5, 110, 300, 3), grant("d", 5, 120, 300, 4),
		},
		"one holder too many before an extended lease has ended": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 900, 2), use("a", 20, 21, 200), grant("c", 25, 150, 300, 3),
		},
		"one fence twice": {
			grant("a", 0, 10, 100, 7), grant("b", 0, 20, 100, 7),
		},
		"a fence that is older": {
			grant("a", 0, 10, 100, 7), grant("b", 20, 30, 100, 6),
		},
		"one holder too many within a min hold": {
			grant("a", 0, 10, 300, 1), grant("b", 0, 12, 300, 2), keeping("a", 20, 30, 300, 90), grant("c", 40, 50, 300, 3),
		},
		"use after the release": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 100, 2), release("a", 20, 30, 100), use("a", 40, 41, 100),
		},
		"use after the end": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 200, 2), use("a", 101, 102, 100),
		},
		"release by a stranger": {
			grant("a", 0, 10, 100, 1), release("b", 20, 30, 100),
		},
		"loss before the end": {
			grant("a", 0, 10, 100, 1), grant("b", 0, 10, 100, 2), loss("a", 20, 21, 100),
		},
	} {
		t.Run(name, func(t *testing.T) { require.Error(t, history.Check(ops, permits(2)).Err()) })
	}
}

// TestUnknownOutcomesDoNotHideAnOwnerTooMany: a history with many of them is judged soon, also if it breaks the rules.
func TestUnknownOutcomesDoNotHideAnOwnerTooMany(t *testing.T) {
	var ops []history.Op
	for i := range int64(300) {
		token, at := fmt.Sprint("t", i), 100*i
		ops = append(ops, grant(token, at, at+5, at+80, uint64(i+1)), unknown(release(token, at+10, history.Never, at+80)))
		ops = append(ops, unknown(grant("?"+token, at, history.Never, 0, 0)))
	}
	for limit := 1; limit <= 3; limit++ {
		require.NoError(t, history.Check(ops, permits(limit)).Err(), "limit %d", limit)
		bad := slices.Clone(ops)
		for i := range limit + 1 {
			bad = append(bad, grant(fmt.Sprint("bad", i), 40000, 40010+int64(i), 40100, uint64(1000+i)))
		}
		verdict := history.Check(bad, permits(limit))
		require.Error(t, verdict.Err(), "limit %d", limit)
		require.Empty(t, verdict.Slow, "limit %d", limit)
	}
}

// TestUsedGrantIsNotLeftOut: a grant of unknown outcome happened if somebody used it.
func TestUsedGrantIsNotLeftOut(t *testing.T) {
	ops := []history.Op{unknown(grant("a", 0, history.Never, 0, 0)), use("a", 40, 41, 100), grant("b", 10, 20, 100, 1), use("b", 60, 61, 100)}
	require.Error(t, history.Check(ops, all).Err())
	require.NoError(t, history.Check(ops[:2], all).Err())
}

// TestSemaphoreOfOneIsALock: the rules of both are the same.
func TestSemaphoreOfOneIsALock(t *testing.T) {
	two := []history.Op{grant("a", 0, 10, 100, 1), grant("b", 20, 30, 100, 2)}
	require.Error(t, history.Check(two, permits(1)).Err())
	require.NoError(t, history.Check(two, permits(2)).Err())
	require.NoError(t, history.Check(two[:1], permits(1)).Err())
}

func TestPictureShowsWhatWasWrong(t *testing.T) {
	verdict := history.Check([]history.Op{
		grant("a", 0, 10, 100, 1), grant("b", 20, 30, 120, 2),
		{Kind: history.Grant, Key: "a good {key}", Token: "c", Return: 1, Until: 2, Fence: 1},
	}, all)
	files, err := verdict.Draw(t.TempDir())
	require.NoError(t, err)
	require.Len(t, files, 1)
	page, err := os.ReadFile(files[0])
	require.NoError(t, err)
	require.True(t, strings.Contains(string(page), "grant b fence 2"))
}
