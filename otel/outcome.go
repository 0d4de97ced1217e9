package redlatchotel

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// outcomes names errors, in the order in which they are looked for: some match several.
var outcomes = []struct {
	is   error
	name string
}{
	{redlatch.ErrInvalidOption, "invalid_option"},
	{errors.ErrUnsupported, "unsupported"},
	{redlatch.ErrNotAcquired, "not_acquired"},
	{redlatch.ErrMaxHold, "max_hold"},
	{redlatch.ErrLost, "lost"},
	{redlatch.ErrReleased, "already_released"},
	{redlatch.ErrNoQuorum, "no_quorum"},
	{redlatch.ErrNotReplicated, "not_replicated"},
	{redlatch.ErrUnavailable, "unavailable"},
}

// outcome names err in one of few ways, and calls nil done.
func outcome(err error, done string) string {
	if err == nil {
		return done
	}
	for _, o := range outcomes {
		if errors.Is(err, o.is) {
			return o.name
		}
	}
	return "error"
}

// callOutcome is outcome for a call with ctx, whose end it tells apart, unless Redis was the reason. It asks ctx,
// since the timeout of a dial matches context.DeadlineExceeded too.
func callOutcome(ctx context.Context, err error) string {
	end := ctx.Err()
	switch {
	case end == nil || !errors.Is(err, end) || errors.Is(err, redlatch.ErrUnavailable):
		return outcome(err, "granted")
	case errors.Is(end, context.DeadlineExceeded):
		return "deadline_exceeded"
	default:
		return "canceled"
	}
}

// reason says what is known of err beyond its outcome, as far as that can hold neither a key nor a
// token: what the network said, or the first word of what Redis said, which may quote arguments.
func reason(err error) string {
	var quorum *redlatch.QuorumError
	if errors.As(err, &quorum) {
		for _, answer := range quorum.Nodes {
			if why := reason(answer); why != "" {
				return why
			}
		}
	}
	var network *net.OpError
	var reply redis.Error
	switch {
	case errors.As(err, &network):
		return network.Error()
	case errors.As(err, &reply):
		word, _, _ := strings.Cut(reply.Error(), " ")
		return word
	default:
		return ""
	}
}
