package rig

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatWasStartedEndsInReverseHoweverFEnds(t *testing.T) {
	mistake := errors.New("mistake")
	for name, end := range map[string]func(tb testing.TB) error{
		"nil":    func(testing.TB) error { return nil },
		"error":  func(testing.TB) error { return mistake },
		"fatal":  func(tb testing.TB) error { tb.Fatal("no port left"); return nil },
		"skip":   func(tb testing.TB) error { tb.Skip("no server"); return nil },
		"errorf": func(tb testing.TB) error { tb.Errorf("proxy %d", 3); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			var ended []int
			err := Run(func(tb testing.TB) error {
				require.NoError(t, tb.Context().Err())
				tb.Cleanup(func() { ended = append(ended, 1) })
				tb.Cleanup(func() { ended = append(ended, 2) })
				return end(tb)
			})
			require.Equal(t, []int{2, 1}, ended)
			switch name {
			case "nil":
				require.NoError(t, err)
			case "error":
				require.ErrorIs(t, err, mistake)
			case "fatal":
				require.EqualError(t, err, "no port left")
			case "skip":
				require.EqualError(t, err, "no server")
			case "errorf":
				require.EqualError(t, err, "proxy 3")
			}
		})
	}
}

func TestAnotherPanicGoesOn(t *testing.T) {
	ended := false
	require.PanicsWithValue(t, "bug", func() {
		_ = Run(func(tb testing.TB) error {
			tb.Cleanup(func() { ended = true })
			panic("bug")
		})
	})
	require.True(t, ended)
}
