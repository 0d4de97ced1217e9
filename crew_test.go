package redlatch

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOnlyWhatNobodyWaitedForIsUndone is rule 4: a straggler is undone, and a grant that was handed
// out is not, though its lease may have ended again before the job has.
func TestOnlyWhatNobodyWaitedForIsUndone(t *testing.T) {
	for name, late := range map[string]bool{"in time": false, "a straggler": true} {
		t.Run(name, func(t *testing.T) {
			undone := make(chan struct{}, 1)
			c := &claim{life: new(life), bound: time.Second}
			n := newNode(nil, mostJobs)
			j := &job{
				Context: t.Context(), node: n, claim: c, ended: make(chan struct{}),
				form: form{undo: func(*job, *claim) (grant, error) {
					undone <- struct{}{}
					return grant{}, nil
				}},
			}
			if late {
				j.settle(grant{}, context.Canceled)
			}
			c.life.state.Store(lifeReleased)
			j.land(grant{}, nil)
			require.Equal(t, late, c.life.undone.Load())
			if late {
				<-undone
			}
		})
	}
}
