package redlatchotel

import (
	"context"
	"errors"
	"net"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// outcomes are the names of errors. An error that matches several has the first of their names.
var outcomes = []struct {
	is   error
	name string
}{
	{redlatch.ErrInvalid, "invalid"},
	{errors.ErrUnsupported, "unsupported"},
	{redlatch.ErrNotAcquired, "not_acquired"},
	{redlatch.ErrMaxHold, "max_hold"},
	{redlatch.ErrLost, "lost"},
	{redlatch.ErrReleased, "already_released"},
	{redlatch.ErrNoQuorum, "no_quorum"},
	{redlatch.ErrNotReplicated, "not_replicated"},
	{redlatch.ErrUnavailable, "unavailable"},
}

// outcome returns the name of err, or done if err is nil. There are few names, for attributes of
// metrics.
func outcome(err error, done string) string {
	if err == nil {
		return done
	}
	for _, o := range outcomes {
		if errors.Is(err, o.is) {
			return o.name
		}
	}
	return other
}

// other is the name of an error that is not in outcomes.
const other = "error"

// callOutcome is outcome for a call with ctx. If only the end of ctx is known of the error, it
// returns how ctx ended. It checks ctx itself, since the timeout of a dial also matches
// context.DeadlineExceeded.
func callOutcome(ctx context.Context, err error) string {
	name, end := outcome(err, "granted"), ctx.Err()
	switch {
	case name != other || end == nil || !errors.Is(err, end):
		return name
	case errors.Is(end, context.DeadlineExceeded):
		return "deadline_exceeded"
	default:
		return "canceled"
	}
}

// reason returns what is known of err beyond its outcome, without any key or token. That is the
// text of a network error, or the first word of an error of Redis. The other words may quote
// arguments.
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
