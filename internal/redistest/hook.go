package redistest

import "github.com/redis/go-redis/v9"

// OnProcess is a hook that wraps what a client does with a single command, and nothing else.
type OnProcess func(next redis.ProcessHook) redis.ProcessHook

// DialHook leaves dialling as it is.
func (f OnProcess) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook is f.
func (f OnProcess) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return f(next) }

// ProcessPipelineHook leaves pipelines as they are.
func (f OnProcess) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}
