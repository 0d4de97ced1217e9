package system_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/locktest"
	"github.com/redlatch/redlatch/internal/redistest"
)

// aclLines returns the rights that SECURITY.md gives to the user of each strategy, by the strategy's
// name, as ACL SETUSER takes them.
func aclLines(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile("../../SECURITY.md")
	require.NoError(t, err)
	found := regexp.MustCompile(`(?m)^ACL SETUSER (\w+) on >secret (.*)$`).FindAllStringSubmatch(string(text), -1)
	lines := make(map[string][]string)
	for _, line := range found {
		lines[line[1]] = strings.Fields(line[2])
	}
	require.Len(t, lines, 4, "a line for each strategy")
	return lines
}

// A grantee is a Redis user with certain rights, on servers of its own.
type grantee struct {
	redlatch.Locker // it sends every command as that user

	nodes   []*redis.Client // with all rights
	waiting chan redlatch.Event
	polling chan error // why its waiters had to poll
	permits bool       // it is a semaphore of two
	mints   bool       // its fences come from a register
}

func newGrantee(t *testing.T, strategy string, rights []string) *grantee {
	t.Helper()
	g := &grantee{waiting: make(chan redlatch.Event, 10), polling: make(chan error, 10)}
	nodes := map[string]int{"SetNXPX": 1, "Semaphore": 1, "LegacySetNX": 1, "Redlock": 3}[strategy]
	require.NotZero(t, nodes, strategy)
	var clients []redis.UniversalClient
	for range nodes {
		s := redistest.Start(t)
		client := redis.NewClient(s.User(t, append([]string{"allchannels"}, rights...)...)) // the default of Redis 6.2
		t.Cleanup(func() { _ = client.Close() })
		g.nodes, clients = append(g.nodes, s.Client(t)), append(clients, client)
	}
	opts := []redlatch.Option{redlatch.WithKeyPrefix("lock:"), locktest.Patience, redlatch.WithHooks(redlatch.Hooks{
		Waiting:  func(e redlatch.Event) { g.waiting <- e },
		Degraded: func(e redlatch.Event) { g.polling <- e.Err },
	})}
	var err error
	switch strategy {
	case "SetNXPX":
		g.Locker, err = redlatch.NewSetNXPX(clients[0], opts...)
	case "Semaphore":
		g.Locker, err = redlatch.NewSemaphore(clients[0], 2, opts...)
		g.permits = true
	case "LegacySetNX":
		g.Locker, err = redlatch.NewLegacySetNX(clients[0], opts...)
	case "Redlock":
		g.Locker, err = redlatch.NewRedlock(clients, opts...)
	}
	require.NoError(t, err)
	g.mints = strategy == "SetNXPX" || g.permits
	return g
}

// refused returns what the servers refused to the user, such as "command zadd" and "key k".
func (g *grantee) refused(t *testing.T) (refusals []string) {
	t.Helper()
	for _, node := range g.nodes {
		entries, err := node.ACLLog(t.Context(), 1000).Result()
		require.NoError(t, err)
		for _, e := range entries {
			// The CLIENT commands by which go-redis introduces itself may be refused.
			if e.Username == "locks" && !strings.HasPrefix(e.Object, "client") {
				refusals = append(refusals, e.Reason+" "+e.Object)
			}
		}
	}
	return refusals
}

// useLocks uses every operation of a lock, until ctx ends or one of them fails.
func (g *grantee) useLocks(ctx context.Context) error {
	if g.permits {
		other, err := g.leaveOne(ctx)
		if err != nil {
			return err
		}
		defer other.Unlock(ctx) //nolint:errcheck // the rights that it needs are needed below too
	}
	lock, err := g.TryLock(ctx, "k")
	if err != nil {
		return err
	}
	for had := int64(0); len(g.nodes) > 1 && had == 0; { // the slowest node may not have granted yet
		if had, err = g.nodes[0].Del(ctx, "lock:k").Result(); err != nil {
			return err
		}
	}
	if err := lock.Extend(ctx, time.Minute); err != nil { // it restores the lock on that node
		return err
	}
	for has := int64(0); len(g.nodes) > 1 && has == 0; { // that node may be the slowest
		if has, err = g.nodes[0].Exists(ctx, "lock:k").Result(); err != nil {
			return err
		}
	}

	brief, giveUp := context.WithCancel(ctx)
	defer giveUp()
	left := g.wait(brief)
	if err := g.queued(ctx); err != nil {
		return err
	}
	giveUp()
	if given := <-left; given.err == nil {
		return fmt.Errorf("a lock that is held was granted: %s", given.lock.Token())
	}

	served := g.wait(ctx)
	if err := g.queued(ctx); err != nil {
		return err
	}
	if err := g.lookedAgain(ctx); err != nil {
		return err
	}
	if err := g.pinged(ctx); err != nil {
		return err
	}
	if err := lock.Unlock(ctx); err != nil {
		return err
	}
	given := <-served
	if given.err != nil {
		return given.err
	}
	adopted, err := g.Adopt(ctx, "k", given.lock.Token())
	if err != nil {
		return err
	}
	if _, err := g.Adopt(ctx, "k", "nobody"); !errors.Is(err, redlatch.ErrLost) {
		return fmt.Errorf("a token that holds nothing: %w", err)
	}
	if err := adopted.Unlock(ctx); err != nil || !g.mints {
		return err
	}
	return g.spoilRegister(ctx)
}

// spoilRegister attempts to lock a key while the fence register holds a number that is too large, which stays.
func (g *grantee) spoilRegister(ctx context.Context) error {
	const register, large = "lock:redlatch:fence", "9007199254740993"
	if err := g.nodes[0].Set(ctx, register, large, time.Minute).Err(); err != nil {
		return err
	}
	_, err := g.TryLock(ctx, "k")
	if err == nil || !strings.Contains(err.Error(), "holds something else") {
		return fmt.Errorf("with a register of %s: %w", large, err)
	}
	if now, err := g.nodes[0].Get(ctx, register).Result(); err != nil || now != large {
		return fmt.Errorf("the register was changed to %s: %w", now, err)
	}
	return nil
}

// leaveOne acquires both permits. It returns one of them once the other has expired.
func (g *grantee) leaveOne(ctx context.Context) (*redlatch.Lock, error) {
	other, err := g.TryLock(ctx, "k", redlatch.WithTTL(time.Minute))
	if err != nil {
		return nil, err
	}
	_, err = g.TryLock(ctx, "k", redlatch.WithTTL(50*time.Millisecond), redlatch.WithoutRenewal())
	if err != nil && !errors.Is(err, redlatch.ErrLost) { // on a busy machine it may be late
		return nil, err
	}
	for {
		st, err := g.Inspect(ctx, "k")
		if err != nil || st.Holders == 1 {
			return other, err
		}
	}
}

// given is what a Lock call returned.
type given struct {
	lock *redlatch.Lock
	err  error
}

// wait starts a Lock call.
func (g *grantee) wait(ctx context.Context) <-chan given {
	returned := make(chan given, 1)
	// It ends with ctx. The receiver of its result waits for it.
	go func() {
		lock, err := g.Lock(ctx, "k")
		returned <- given{lock, err}
	}()
	return returned
}

// queued returns once a Lock call waits, in the queue of Redis if there is one.
func (g *grantee) queued(ctx context.Context) error {
	select {
	case e := <-g.waiting:
		if e.Strategy != "setnxpx" && e.Strategy != "semaphore" {
			return nil
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	for {
		st, err := g.Inspect(ctx, "k")
		if err != nil || st.Waiters == 1 {
			return err
		}
	}
}

// pinged returns once a waiter's subscription, if there is one, has been silent for so long that it has sent a PING.
func (g *grantee) pinged(ctx context.Context) error {
	if st, err := g.Inspect(ctx, "k"); err != nil || st.Waiters == 0 {
		return err
	}
	if err := g.nodes[0].ConfigResetStat(ctx).Err(); err != nil {
		return err
	}
	for {
		stats, err := g.nodes[0].Info(ctx, "commandstats").Result()
		if err != nil || strings.Contains(stats, "cmdstat_ping:") {
			return err
		}
		<-time.After(10 * time.Millisecond)
	}
}

// lookedAgain returns once a waiter has checked that it is still in the queue of Redis, if there is one.
func (g *grantee) lookedAgain(ctx context.Context) error {
	if st, err := g.Inspect(ctx, "k"); err != nil || st.Waiters == 0 {
		return err
	}
	looks := func() (calls string, err error) {
		info, err := g.nodes[0].InfoMap(ctx, "commandstats").Result()
		calls, _, _ = strings.Cut(info["Commandstats"]["cmdstat_zscore"], ",")
		return calls, err
	}
	before, err := looks()
	for now := before; err == nil && now == before; {
		now, err = looks()
	}
	return err
}

// TestACLLinesAreEnough: with exactly the rights of SECURITY.md everything works, including the
// hand-over by message. Nothing is refused until the idle subscription is closed. Other keys and
// channels stay out of reach.
func TestACLLinesAreEnough(t *testing.T) {
	t.Parallel()
	for strategy, rights := range aclLines(t) {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			g := newGrantee(t, strategy, rights)
			require.NoError(t, g.useLocks(t.Context()))
			locktest.Eventually(t, "the subscription is closed", func() bool {
				return len(g.nodes[0].PubSubChannels(t.Context(), "*").Val()) == 0
			})
			require.Empty(t, g.polling)
			require.Empty(t, g.refused(t))

			user := redis.NewClient(&redis.Options{
				Network: "unix", Addr: g.nodes[0].Options().Addr, Username: "locks", Password: "secret",
			})
			defer user.Close()
			for _, words := range [][]any{
				{"get", "other"},
				{"set", "other", "x"},
				{"get", "{lock:k}:fence:other"},
				{"publish", "other", "x"},
				{"keys", "*"},
				{"flushall"},
				{"config", "get", "*"},
				{"acl", "list"},
				{"script", "flush"},
			} {
				require.ErrorContains(t, user.Do(t.Context(), words...).Err(), "NOPERM", "%v", words)
			}
		})
	}
}

// TestACLLinesHaveNothingToSpare: without any one of the rights, Redis refuses something that a lock needs.
func TestACLLinesHaveNothingToSpare(t *testing.T) {
	t.Parallel()
	for strategy, rights := range aclLines(t) {
		for i, right := range rights {
			if right == "resetchannels" { // it takes rights away
				continue
			}
			t.Run(strategy+" without "+right, func(t *testing.T) {
				t.Parallel()
				g := newGrantee(t, strategy, slices.Delete(slices.Clone(rights), i, i+1))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				// The test owns this goroutine and waits for it below.
				go func() {
					defer close(ended)
					_ = g.useLocks(ctx) // how it fails depends on the missing right
				}()
				locktest.Eventually(t, "a refusal names the missing right", func() bool {
					return slices.ContainsFunc(g.refused(t), func(refusal string) bool { return missed(right, refusal) })
				})
				cancel()
				<-ended
			})
		}
	}
}

// TestRefusedRegisterTakesNothing: if Redis is full, or the user has no right on the fence register, an
// acquire leaves nothing in Redis. The error says what to do.
func TestRefusedRegisterTakesNothing(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		rights []string
		full   bool
		said   []string
	}{
		"no INCR":             {[]string{"~*", "+@all", "-incr"}, false, []string{"SECURITY.md"}},
		"not on the register": {[]string{"~lock:k", "~{*", "+@all"}, false, []string{"SECURITY.md"}},
		"no memory":           {[]string{"~*", "+@all"}, true, []string{"OOM", "maxmemory"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := newGrantee(t, "SetNXPX", c.rights)
			if c.full {
				require.NoError(t, g.nodes[0].ConfigSet(t.Context(), "maxmemory", "1").Err())
			}
			_, err := g.TryLock(t.Context(), "k")
			require.NotErrorIs(t, err, redlatch.ErrNotAcquired)
			for _, said := range c.said {
				require.ErrorContains(t, err, said)
			}
			require.Zero(t, g.nodes[0].DBSize(t.Context()).Val())
		})
	}
}

// missed reports whether the lack of the right is the reason for a refusal.
func missed(right, refusal string) bool {
	reason, object, _ := strings.Cut(refusal, " ")
	pattern := right[1:]
	if right[0] == '+' {
		name, _, _ := strings.Cut(pattern, "|") // Redis 6.2 does not name the subcommand
		return reason == "command" && (object == pattern || object == name)
	}
	matches, err := path.Match(pattern, object)
	return err == nil && matches && reason == map[byte]string{'~': "key", '&': "channel"}[right[0]]
}
