package behavior_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
)

// TestReleaseIsSentAgain: it is sent again if its first send may have been carried out, or may still be. Unlock succeeds
// if there is a reply in time. In any case the key is gone soon.
func TestReleaseIsSentAgain(t *testing.T) {
	t.Parallel()
	strategies := map[string]func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error){
		"SetNXPX":     redlatch.NewSetNXPX,
		"LegacySetNX": redlatch.NewLegacySetNX,
		"Redlock": func(c redis.UniversalClient, opts ...redlatch.Option) (redlatch.Locker, error) {
			return redlatch.NewRedlock([]redis.UniversalClient{c}, opts...)
		},
	}
	for fault, f := range map[string]struct {
		inject func(p *faultproxy.Proxy)
		heal   func(p *faultproxy.Proxy)
		silent bool // Unlock waits for its whole op timeout
	}{
		"the request is lost": {
			inject: func(p *faultproxy.Proxy) { p.LoseRequests(1, "evalsha") },
		},
		"the reply is lost": {
			inject: func(p *faultproxy.Proxy) { p.LoseReplies(1, "evalsha") },
		},
		"the request is held and its connection cut": {
			inject: (*faultproxy.Proxy).Silence, heal: func(p *faultproxy.Proxy) { p.Cut(); p.Heal() }, silent: true,
		},
		"the request is held and comes late": {
			inject: (*faultproxy.Proxy).Silence, heal: (*faultproxy.Proxy).Heal, silent: true,
		},
	} {
		for name, strategy := range strategies {
			for _, adopted := range []bool{true, false} {
				t.Run(fault+", "+name+map[bool]string{true: ", adopted", false: ""}[adopted], func(t *testing.T) {
					t.Parallel()
					direct, p, client := behindProxy(t)
					timeout := 10 * time.Second // Unlock ends sooner
					if f.silent {
						timeout = time.Second
					}
					l, err := strategy(client, longTTL, redlatch.WithoutRenewal(), redlatch.WithOpTimeout(timeout))
					require.NoError(t, err)
					require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context())) // the scripts are loaded
					lock := mustLock(t, l, "k")
					if adopted {
						lock, err = l.Adopt(t.Context(), "k", lock.Token())
						require.NoError(t, err)
					}
					f.inject(p)
					err = lock.Unlock(t.Context())
					if f.silent {
						require.Error(t, err)
						require.NotErrorIs(t, err, redlatch.ErrLost)
						f.heal(p)
					} else {
						require.NoError(t, err)
					}
					gone(t, direct, "k")
				})
			}
		}
	}
}
