package locktest

import (
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// Migration returns a Locker that locks under from and to.
func Migration(t *testing.T, from, to redlatch.Locker) redlatch.Locker {
	m, err := redlatch.NewMigration(from, to)
	return must(t, m, err)
}

// Pairs are pairs of Lockers that a migration may join, each on servers of its own or under a prefix
// of its own. Each uses up to three clients.
var Pairs = map[string]func(t *testing.T, c []*redis.Client, opts ...redlatch.Option) (from, to redlatch.Locker){
	"another prefix": func(t *testing.T, c []*redis.Client, opts ...redlatch.Option) (from, to redlatch.Locker) {
		return SetNXPX(t, c[0], opts...), SetNXPX(t, c[0], append(opts, redlatch.WithKeyPrefix("v2:"))...)
	},
	"another server": func(t *testing.T, c []*redis.Client, opts ...redlatch.Option) (from, to redlatch.Locker) {
		return SetNXPX(t, c[0], opts...), SetNXPX(t, c[1], opts...)
	},
	"LegacySetNX to SetNXPX": func(t *testing.T, c []*redis.Client, opts ...redlatch.Option) (from, to redlatch.Locker) {
		return LegacySetNX(t, c[0], opts...), SetNXPX(t, c[0], append(opts, redlatch.WithKeyPrefix("v2:"))...)
	},
	"SetNXPX to Redlock": func(t *testing.T, c []*redis.Client, opts ...redlatch.Option) (from, to redlatch.Locker) {
		return SetNXPX(t, c[0], opts...), Redlock(t, c, append(opts, redlatch.WithKeyPrefix("v2:"))...)
	},
	"Redlock to LegacySetNX": func(t *testing.T, c []*redis.Client, opts ...redlatch.Option) (from, to redlatch.Locker) {
		return Redlock(t, c, opts...), LegacySetNX(t, c[1], append(opts, redlatch.WithKeyPrefix("v2:"))...)
	},
}
