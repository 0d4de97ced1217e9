package redlatch

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/wire"
)

// A clientKind says where a client keeps its keys.
type clientKind int

const (
	oneServer clientKind = iota
	cluster              // on several servers, by slots
	ring                 // on several servers, by a hash of the client
)

// kindOf returns the kind of client by the methods that it has itself or from a client that it
// embeds.
func kindOf(client redis.UniversalClient) clientKind {
	type visit = func(ctx context.Context, server *redis.Client) error
	switch client.(type) {
	case interface {
		ForEachMaster(ctx context.Context, fn visit) error
	}:
		return cluster
	case interface {
		ForEachShard(ctx context.Context, fn visit) error
	}: // a client of a cluster has it too
		return ring
	}
	return oneServer
}

// checkClient refuses a nil client.
func checkClient(client redis.UniversalClient) error {
	if isNil(client) {
		return invalid("client is nil")
	}
	return nil
}

// isNil reports whether v is nil, or a nil pointer in an interface.
func isNil(v any) bool {
	pointer := reflect.ValueOf(v)
	return v == nil || pointer.Kind() == reflect.Pointer && pointer.IsNil()
}

// same reports whether a and b are equal. It does not panic if they cannot be compared.
func same(a, b any) bool { return reflect.ValueOf(a).Comparable() && a == b }

// sameServer reports whether two clients are known to reach the same server: they are the same
// client, or have an address in common.
func sameServer(a, b redis.UniversalClient) bool {
	return same(a, b) || slices.ContainsFunc(addresses(a), func(addr string) bool {
		return slices.Contains(addresses(b), addr)
	})
}

// addresses returns the addresses that the options of a client name: one of a server, or several of
// a cluster or ring. There is none for a client of Sentinels.
func addresses(client redis.UniversalClient) []string {
	switch c := client.(type) {
	case interface{ Options() *redis.Options }:
		if addr := c.Options().Addr; strings.ContainsAny(addr, ":/") {
			return []string{addr}
		}
	case interface{ Options() *redis.ClusterOptions }:
		return c.Options().Addrs
	case interface{ Options() *redis.RingOptions }:
		return slices.Collect(maps.Values(c.Options().Addrs))
	}
	return nil
}

// nodeName returns the name of the i-th client of a quorum in errors: its address, or else its
// number.
func nodeName(client redis.UniversalClient, i int) string {
	if all := addresses(client); len(all) == 1 {
		return all[0]
	}
	return fmt.Sprint("node ", i)
}

// check refuses a key whose companions would be in another slot of a cluster.
func (k clientKind) check(prefix, key string) error {
	if k != cluster || !strings.Contains(wire.SlotTag(prefix+key), "}") { // it would end the tag of a companion early
		return nil
	}
	const why = "with a } but no hash tag, its companion keys cannot be in its cluster slot"
	if strings.Contains(key, "}") {
		return invalid("key %q: %s", key, why)
	}
	return invalid("WithKeyPrefix(%q): key %q: %s", prefix, key, why)
}
