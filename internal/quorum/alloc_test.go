package quorum

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnOperationAllocatesItsAnswersOnly(t *testing.T) {
	token := New(7)
	var o Op
	var room [16]Effect
	allocs := testing.AllocsPerRun(100, func() {
		token.release = nil
		for _, e := range token.Begin(&o, Acquire, 0, room[:0]) {
			var more [16]Effect
			token.Answer(e, Answer{Outcome: Held, Holder: "x", Left: 1}, more[:0])
		}
		_, _, _ = o.Soonest(), o.Split(), o.Result()
		_, _, _ = o.Status()
	})
	require.Equal(t, Refused, o.Result())
	require.LessOrEqual(t, allocs, 1.0)
}
