package peers

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// eachPeer opens a Locker of every peer, with a key that nobody has used.
func eachPeer(t *testing.T, client Kind, test func(t *testing.T, p Peer, server *redistest.Server, l Locker, ctx context.Context)) {
	var server *redistest.Server
	if client == Cluster {
		server = redistest.StartCluster(t)[0]
	} else {
		server = redistest.StartTCP(t)
	}
	// The default of rueidislock is too short for a machine that is busy.
	all := slices.Concat(All()[:len(All())-1], []Peer{OverRueidis(), OverValkeyGo(), Semaphore(1), patientRueidislock(10 * time.Second)})
	require.Equal(t, Rueidislock().Name, All()[len(All())-1].Name)
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			l, err := p.Open(Target{Addr: server.Addr(), Client: client})
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for range 20 { // loads the scripts, and opens both connections of clients that have two
				lock, err := l.Lock(ctx, "warm")
				require.NoError(t, err)
				require.NoError(t, lock.Unlock(ctx))
			}
			test(t, p, server, l, ctx)
		})
	}
}

func TestEveryAdapterExcludesUntilUnlock(t *testing.T) {
	for _, client := range []Kind{AutoPipeline, Cluster} {
		eachPeer(t, client, func(t *testing.T, _ Peer, _ *redistest.Server, l Locker, ctx context.Context) {
			lock, err := l.Lock(ctx, "key")
			require.NoError(t, err)
			short, cancel := context.WithTimeout(ctx, 150*time.Millisecond)
			defer cancel()
			_, err = l.Lock(short, "key")
			require.Error(t, err)
			require.NoError(t, lock.Unlock(ctx))
			lock, err = l.Lock(ctx, "key")
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(ctx))
		})
	}
}

func TestOurFencesGrowAndPeersHaveNone(t *testing.T) {
	eachPeer(t, Plain, func(t *testing.T, p Peer, _ *redistest.Server, l Locker, ctx context.Context) {
		var last uint64
		for range 3 {
			lock, err := l.Lock(ctx, "key")
			require.NoError(t, err)
			fenced, ok := lock.(Fenced)
			require.Equal(t, strings.HasPrefix(p.Name, "redlatch") || p.Name == "NewSemaphore", ok)
			if ok {
				require.Greater(t, fenced.Fence(), last)
				last = fenced.Fence()
			}
			require.NoError(t, lock.Unlock(ctx))
		}
	})
}

func TestUserOfATargetIsTheOneThatLocks(t *testing.T) {
	server := redistest.StartTCP(t)
	user := server.User(t, "~*", "+@all", "-evalsha", "-eval")
	l, err := WithoutQueue().Open(Target{Addr: server.Addr(), Username: user.Username, Password: user.Password})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = l.Lock(t.Context(), "key")
	require.ErrorContains(t, err, "NOPERM")
}

func TestRoundTripOfATargetIsThatOfEveryCommand(t *testing.T) {
	target := Target{Addr: redistest.StartTCP(t).Addr(), RoundTrip: 15 * time.Millisecond}
	quorum := func(p Peer) Peer {
		return Peer{Name: p.Name + ", quorum", Open: func(target Target) (Locker, error) { return p.OpenQuorum([]Target{target}) }}
	}
	all := slices.Concat(All()[:len(All())-1], []Peer{
		OverRueidis(), OverValkeyGo(), patientRueidislock(10 * time.Second), quorum(Redlatch()), quorum(Redsync()),
	})
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			l, err := p.Open(target)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			begun := time.Now()
			lock, err := l.Lock(ctx, "key")
			require.NoError(t, err)
			locked := time.Now()
			require.GreaterOrEqual(t, locked.Sub(begun), target.RoundTrip)
			require.NoError(t, lock.Unlock(ctx))
			require.GreaterOrEqual(t, time.Since(locked), target.RoundTrip)
		})
	}
}

func TestSemaphoreAdmitsItsLimit(t *testing.T) {
	l, err := Semaphore(2).Open(Target{Addr: redistest.StartTCP(t).Addr()})
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	for range 2 {
		lock, err := l.Lock(t.Context(), "key")
		require.NoError(t, err)
		defer func() { require.NoError(t, lock.Unlock(context.Background())) }()
	}
	short, cancel := context.WithTimeout(t.Context(), 150*time.Millisecond)
	defer cancel()
	_, err = l.Lock(short, "key")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestDirectCommandsAreWhatClientsSend(t *testing.T) {
	eachPeer(t, Plain, func(t *testing.T, p Peer, server *redistest.Server, l Locker, ctx context.Context) {
		if p.Direct == nil {
			t.Skip("its own commands cannot be told from those in scripts")
		}
		meter := measure.NewMeter(p.Direct, server.Client(t))
		before, err := meter.Read(ctx)
		require.NoError(t, err)
		const pairs = 10
		for range pairs {
			lock, err := l.Lock(ctx, "key")
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(ctx))
		}
		after, err := meter.Read(ctx)
		require.NoError(t, err)
		used := after.Since(before)
		require.Equal(t, 2.0*pairs, used.Direct, "each of these libraries sends one command to lock and one to unlock")
		require.Greater(t, used.Commands, used.Direct)
	})
}

func TestRenewedLocksAreRenewedUntilUnlock(t *testing.T) {
	server := redistest.StartTCP(t)
	for _, p := range All() {
		if p.OpenRenewing == nil {
			continue
		}
		t.Run(p.Name, func(t *testing.T) {
			const ttl = 4 * time.Second
			l, err := p.OpenRenewing(Target{Addr: server.Addr()}, ttl)
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			lock, err := l.Lock(t.Context(), "renewed")
			require.NoError(t, err)
			admin := server.Client(t)
			last := ttl
			require.Eventually(t, func() bool {
				left := max(admin.PTTL(t.Context(), "renewed").Val(), admin.PTTL(t.Context(), "rueidislock:0:renewed").Val())
				longer := left > last+100*time.Millisecond
				last = left
				return longer
			}, 2*ttl, 10*time.Millisecond)
			require.True(t, lock.(Renewed).Held())
			require.NoError(t, lock.Unlock(t.Context()))
			require.False(t, lock.(Renewed).Held())
		})
	}
}
