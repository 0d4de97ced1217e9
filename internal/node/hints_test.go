package node

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestAnswersSayWhatToDo: a hint stands behind what Redis says, wherever in a script and by whatever version of
// Redis it is said. Other errors stay as they are.
func TestAnswersSayWhatToDo(t *testing.T) {
	for said, want := range map[string]string{
		"CROSSSLOT Keys in request don't hash to the same slot": "CROSSSLOT Keys in request don't hash to the same slot " +
			"(a proxy or cluster that shards keys: use a cluster client, or a WithKeyPrefix with a hash tag such as {locks}:)",
		"NOPERM no rights script: f_1, on @user_script:57.":                                    "NOPERM no rights (SECURITY.md has the rights that a lock needs)",
		"ERR Error running script (call to f_1): @user_script:57: @user_script: 57: -OOM full": "OOM full (Redis is full: raise its maxmemory)",
		"ERR The user executing the script can't run this":                                     "ERR The user executing the script can't run this (SECURITY.md has the rights that a lock needs)",
		"@user_script: 46: -NOPERM no rights":                                                  "NOPERM no rights (SECURITY.md has the rights that a lock needs)",
		"ERR the fence register x holds something else":                                        "ERR the fence register x holds something else",
	} {
		err := Explain(answer(said))
		require.EqualError(t, err, want)
		require.ErrorIs(t, err, answer(said))
	}
	other := errors.New("NOPERM, somebody says")
	require.Same(t, other, Explain(other))
	require.NoError(t, Explain(nil))
}
