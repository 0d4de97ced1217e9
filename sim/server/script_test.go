package server

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// place is where a script has failed, which servers name in several ways.
var place = regexp.MustCompile(`user_script:\d+: |,? script: .*$`)

// TestScriptsRunAsOnRedis compares replies with those of a real server.
func TestScriptsRunAsOnRedis(t *testing.T) {
	scripts := []string{
		"return 1", "return 3.99", "return -3.99", "return 'a'", "return ''", "return true", "return false", "return nil", "return",
		"return {}", "return {1, 'a', false, {2, {3}}, true}", "return {1, nil, 3}", "return {ok = 'FINE'}",
		"return {err = 'ODD words'}", "return redis.error_reply('ODD words')",
		"return redis.call('SET', 'k', 'v')", "return redis.call('GET', 'k')", "return redis.call('GET', 'none')",
		"return redis.call('SET', 'n', 12345678901234567)", "return redis.call('GET', 'n')",
		"redis.call('SET', 'n', 0.1) return redis.call('GET', 'n')",
		"redis.call('SET', 'n', 1e15) return redis.call('GET', 'n')",
		"redis.call('SET', 'n', 1e17) return redis.call('GET', 'n')",
		"return redis.call('ZADD', 'z', 900000000000000, 'a', '9e15', 'b', 1.5, 'c', -9000000000000000, '!')",
		"return redis.call('ZRANGE', 'z', 0, -1, 'WITHSCORES')", "return redis.call('ZRANGE', 'z', 0, -1)",
		"return redis.call('ZSCORE', 'z', 'a')", "return redis.call('ZSCORE', 'z', 'none')",
		"return redis.call('ZRANGEBYSCORE', 'z', '(1.5', '+inf', 'WITHSCORES')", "return redis.call('ZCARD', 'z')",
		"return redis.pcall('GET', 'z').err", "return redis.call('GET', 'z')", "return redis.call('NONE')",
		"return redis.pcall('NONE').err", "error('my words')", "created = 1 return 1",
		"return {KEYS[1] or 'none', ARGV[1] or 'none'}", "return #redis.call('TIME')", "return string.format('%.0f', 1e15 + 1)",
		"return math.max(1, 2) .. math.floor(2.5)", "return type(redis.call('SET', 'k', 'v'))", "return tonumber('12') + 1",
	}
	type reply struct {
		value any
		err   error
	}
	var got []reply
	serve(t, func(_ *testing.T, _ *Server, eval func(string) (any, error)) {
		for _, script := range scripts {
			value, err := eval(script)
			got = append(got, reply{value, err})
		}
	})
	client := redistest.Start(t).Client(t)
	for i, script := range scripts {
		want, wrong := client.Eval(t.Context(), script, nil).Result()
		assert.Equal(t, want, got[i].value, script)
		if assert.Equal(t, wrong == nil, got[i].err == nil, "%s: %v, %v", script, wrong, got[i].err) && wrong != nil {
			assert.Equal(t, place.ReplaceAllString(wrong.Error(), ""), place.ReplaceAllString(got[i].err.Error(), ""), script)
		}
	}
}
