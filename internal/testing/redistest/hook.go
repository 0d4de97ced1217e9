package redistest

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"
)

// OnProcess is a hook that wraps each command of a client, alone or in a pipeline. It sends the
// commands of a pipeline one by one. It does not support transactions such as TxPipeline, which
// cannot be split. It also wraps the commands that open a connection.
type OnProcess func(next redis.ProcessHook) redis.ProcessHook

// DialHook returns next.
func (f OnProcess) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook wraps next by f.
func (f OnProcess) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return f(next) }

// ProcessPipelineHook sends the commands of a pipeline through f, each on its own and in their
// order. A command's error is its own: the commands behind it are sent all the same, as Redis would
// run them. The first error is returned.
//
// It calls f once more than ProcessHook does, so state that both ways share must be outside of f.
func (f OnProcess) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	process := f(func(ctx context.Context, cmd redis.Cmder) error {
		return next(ctx, []redis.Cmder{cmd})
	})
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var first error
		for _, cmd := range cmds {
			err := process(ctx, cmd)
			cmd.SetErr(err) // as a client does with a single command
			if first == nil {
				first = err
			}
		}
		return first
	}
}

// CountScripts counts the scripts that client sends from now on.
func CountScripts(client *redis.Client) *atomic.Int64 {
	var n atomic.Int64
	client.AddHook(OnProcess(func(next redis.ProcessHook) redis.ProcessHook {
		return func(ctx context.Context, cmd redis.Cmder) error {
			if strings.HasPrefix(cmd.Name(), "eval") {
				n.Add(1)
			}
			return next(ctx, cmd)
		}
	}))
	return &n
}
