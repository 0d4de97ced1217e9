package redlatch

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// probed reports whether t is the target of a probe.
func probed(t target) bool { return strings.HasPrefix(t.key, "k:") }

// TestMigrationProbeTakesTroubleForNoRefusal: if the probe fails with an error other than a refusal, it is repeated
// in the other order. If that works, the sides do not share the key.
func TestMigrationProbeTakesTroubleForNoRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		from, to := &scripted{}, &scripted{}
		to.onAcquire = func(_ context.Context, c *acquireParams) (acquireReply, error) {
			if probed(c.target) && to.acquires.Load() == 1 {
				return acquireReply{}, errors.New("connection reset")
			}
			return acquireReply{}, nil
		}
		m, err := NewMigration(scriptedLocker(t, from), scriptedLocker(t, to))
		require.NoError(t, err)
		require.NoError(t, granted(t, m).Unlock(t.Context()))
		require.Equal(t, from.acquires.Load(), from.releases.Load())
	})
}

// TestMigrationProbeHoldsFrom: if the probe's lock on from ends before to is granted, that grant proves nothing.
func TestMigrationProbeHoldsFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var holder string // both sides keep the key here
		var until time.Time
		one := func(delay func()) *scripted {
			return &scripted{
				onAcquire: func(_ context.Context, c *acquireParams) (acquireReply, error) {
					delay()
					if holder != "" && holder != c.token && time.Now().Before(until) {
						return acquireReply{}, ErrNotAcquired
					}
					holder, until = c.token, time.Now().Add(c.ttl)
					return acquireReply{}, nil
				},
				onRelease: func(_ context.Context, c *releaseParams) error {
					if holder != c.token {
						return ErrLost
					}
					holder = ""
					return nil
				},
			}
		}
		to := one(func() { time.Sleep(11 * time.Second) })
		m, err := NewMigration(scriptedLocker(t, one(func() {})), scriptedLocker(t, to, WithTTL(time.Minute)))
		require.NoError(t, err)
		_, err = m.TryLock(t.Context(), "k")
		require.ErrorIs(t, err, ErrInvalidOption)
		require.Empty(t, holder)
	})
}
