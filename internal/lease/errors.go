package lease

import (
	"errors"
	"fmt"

	"github.com/redlatch/redlatch/internal/clock"
	"github.com/redlatch/redlatch/internal/rediserr"
)

// Errors of a lease that has ended. Package redlatch exports them, and says what they mean.
var (
	ErrLost     = errors.New(rediserr.Prefix + "lock lost")
	ErrMaxHold  = fmt.Errorf("%w: held for as long as WithMaxHold allows", ErrLost)
	ErrReleased = errors.New(rediserr.Prefix + "lock already released")
)

var errExpired = fmt.Errorf("%w: expired", ErrLost)

// endError returns the error of a lease that ended after the extension, or the grant, of start.
func endError(why ending, start clock.Mono, trouble error) error {
	const clockTime = "15:04:05.000"
	switch why {
	case endUnlocked:
		return ErrReleased
	case endMaxHold:
		return ErrMaxHold
	case endGone:
		return trouble
	case endFailing:
		since := start.Time().Format(clockTime)
		return fmt.Errorf("%w: not extended since %s: %s", errExpired, since, rediserr.Text(trouble))
	case endSilent:
		return fmt.Errorf("%w: no reply from Redis since %s", errExpired, start.Time().Format(clockTime))
	case endDropped:
		return fmt.Errorf("%w: the handle was dropped without Unlock", errExpired)
	case endLate:
		return fmt.Errorf("%w: the process was too late to renew it", errExpired)
	}
	return errExpired
}
