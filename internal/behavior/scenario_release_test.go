package behavior_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/faultproxy"
)

// TestReleaseOfAChosenTokenIsSentOnce: if its first send may have been carried out, or may still
// be, a second one could delete the token's next lock. So it is not sent again, and Unlock fails. A release
// with a fresh token is sent again.
func TestReleaseOfAChosenTokenIsSentOnce(t *testing.T) {
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
		done   bool // the first send is carried out
		silent bool // Unlock waits for its whole op timeout
	}{
		"the request is lost": {
			inject: func(p *faultproxy.Proxy) { p.LoseRequests(1, "evalsha") },
		},
		"the reply is lost": {
			inject: func(p *faultproxy.Proxy) { p.LoseReplies(1, "evalsha") }, done: true,
		},
		"the request is held and its connection cut": {
			inject: (*faultproxy.Proxy).Silence, heal: func(p *faultproxy.Proxy) { p.Cut(); p.Heal() }, silent: true,
		},
		"the request is held and comes late": {
			inject: (*faultproxy.Proxy).Silence, heal: (*faultproxy.Proxy).Heal, silent: true, done: true,
		},
	} {
		for name, strategy := range strategies {
			for _, chosen := range []bool{true, false} {
				t.Run(fault+", "+name+map[bool]string{true: ", a chosen token", false: ", a fresh token"}[chosen], func(t *testing.T) {
					t.Parallel()
					direct, p, client := behindProxy(t)
					carriedOut := func() (calls int) { // scripts that the server has run
						info, err := direct.InfoMap(t.Context(), "commandstats").Result()
						require.NoError(t, err)
						_, err = fmt.Sscanf(info["Commandstats"]["cmdstat_evalsha"], "calls=%d,", &calls)
						require.NoError(t, err)
						return calls
					}
					opts := []redlatch.Option{longTTL, redlatch.WithoutRenewal()}
					l, err := strategy(client, append(opts, patience)...)
					require.NoError(t, err)
					require.NoError(t, mustLock(t, l, "warm").Unlock(t.Context())) // the scripts are loaded
					timeout := 10 * time.Second                                    // Unlock ends sooner
					if chosen || f.silent {
						timeout = time.Second
					}
					opts = append(opts, redlatch.WithOpTimeout(timeout))
					if chosen {
						opts = append(opts, redlatch.WithToken("job-7"))
					}
					lock := mustLock(t, l, "k", opts...)
					before := carriedOut()
					f.inject(p)
					err = lock.Unlock(t.Context())
					if chosen || f.silent {
						require.Error(t, err)
						require.NotErrorIs(t, err, redlatch.ErrLost)
					} else {
						require.NoError(t, err)
					}
					if f.heal != nil {
						f.heal(p)
					}
					if !chosen {
						gone(t, direct, "k")
						require.Greater(t, carriedOut(), before)
						return
					}
					select { // a release may continue for its timeout once more
					case <-time.After(3 * timeout / 2):
					case <-t.Context().Done():
					}
					if f.done {
						require.Equal(t, before+1, carriedOut(), "the release was sent once")
						require.Zero(t, direct.Exists(t.Context(), "k").Val())
					} else {
						require.Equal(t, before, carriedOut(), "the release was not sent again")
						require.Equal(t, int64(1), direct.Exists(t.Context(), "k").Val())
					}
					// The next two locks of the token are granted, and released by an Unlock that succeeds.
					require.NoError(t, mustLock(t, l, "k", redlatch.WithToken("job-7")).Unlock(t.Context()))
					next := mustLock(t, l, "k", redlatch.WithToken("job-7"))
					require.NoError(t, next.Extend(t.Context(), time.Hour))
					require.NoError(t, next.Unlock(t.Context()))
					gone(t, direct, "k")
				})
			}
		}
	}
}
