package redlatch_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redisurl"
	"github.com/redlatch/redlatch/internal/testing/locktest"
	"github.com/redlatch/redlatch/internal/testing/redistest"
)

// TestConformanceAtURLs runs every case on the servers that REDLATCH_TEST_URL names.
func TestConformanceAtURLs(t *testing.T) {
	t.Parallel()
	if urls := strings.Fields(os.Getenv("REDLATCH_TEST_URL")); len(urls) > 0 {
		for _, k := range kinds {
			t.Run(k.name, func(t *testing.T) { runAt(t, k, urls) })
		}
	}
}

// TestConformanceOnCluster runs every case of the strategies that take the client of a Redis
// Cluster.
func TestConformanceOnCluster(t *testing.T) {
	t.Parallel()
	var addrs []string
	for _, s := range redistest.StartCluster(t) {
		addrs = append(addrs, s.Addr())
	}
	for _, k := range kinds {
		if k.nodes == 1 {
			t.Run(k.name, func(t *testing.T) { runAt(t, k, []string{"redis+cluster://" + strings.Join(addrs, ",")}) })
		}
	}
}

// runAt runs the conformance table on the servers that URLs name. The keys have a prefix of their
// own, and none is left.
func runAt(t *testing.T, k kind, urls []string) {
	t.Parallel()
	client := clientsAt(t, k, urls)
	prefix := "{redlatch-test-" + strconv.FormatUint(rand.Uint64(), 36) + "}:" // its tag is in the name of the counter of fences, too
	t.Cleanup(func() {
		for node := range k.nodes {
			c, ctx := client(t, node), context.WithoutCancel(t.Context())
			eventually(t, "no key is left", func() bool {
				keys, err := keysWith(ctx, c, strings.TrimSuffix(prefix, ":"))
				for _, key := range keys {
					require.NoError(t, c.Del(ctx, key).Err())
				}
				return err == nil && len(keys) == 0
			})
		}
	})
	for _, c := range k.cases() {
		t.Run("cases/"+c.name, func(t *testing.T) {
			t.Parallel()
			run(t, k, c, prefix, client)
		})
	}
}

// clientsAt returns clients of the servers that URLs name. It fails if there are too few: a skipped
// test is easily missed.
func clientsAt(t *testing.T, k kind, urls []string) clientOf {
	t.Helper()
	if k.nodes > len(urls) {
		require.Fail(t, fmt.Sprintf("%s needs %d servers, and REDLATCH_TEST_URL names %d: leave it out with -skip /%[1]s", k.name, k.nodes, len(urls)))
	}
	client := func(t *testing.T, node int) redis.UniversalClient {
		t.Helper()
		c, err := redisurl.NewClient(urls[node])
		if err != nil { // its text may contain the password
			require.Fail(t, "the URL is not valid: it must have the form "+redisurl.Forms)
		}
		return locktest.Closing(t, c)
	}
	for node := range k.nodes {
		require.NoError(t, client(t, node).Ping(t.Context()).Err(), "URL %d", node+1)
	}
	return client
}

// keysWith returns the keys of a server, or of all nodes of a Cluster, whose names contain text.
func keysWith(ctx context.Context, client redis.UniversalClient, text string) (keys []string, err error) {
	var mu sync.Mutex // guards keys
	scan := func(ctx context.Context, c *redis.Client) error {
		found := c.Scan(ctx, 0, "*"+text+"*", 1000).Iterator()
		for found.Next(ctx) {
			mu.Lock()
			keys = append(keys, found.Val())
			mu.Unlock()
		}
		return found.Err()
	}
	if cluster, ok := client.(*redis.ClusterClient); ok {
		err = cluster.ForEachMaster(ctx, scan)
	} else {
		err = scan(ctx, client.(*redis.Client))
	}
	slices.Sort(keys)
	return slices.Compact(keys), err // a key may be found twice
}
