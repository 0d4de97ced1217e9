package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// parseAddrs splits a list of addresses. Each may occur only once, since a node must not vote
// twice.
func parseAddrs(list string) ([]string, error) {
	addrs := strings.Split(list, ",")
	for i, addr := range addrs {
		host, port, err := net.SplitHostPort(addr)
		switch {
		case err != nil:
			return nil, err
		case host == "" || port == "":
			return nil, fmt.Errorf("address %q: want host:port", addr)
		case slices.Contains(addrs[:i], addr):
			return nil, fmt.Errorf("address %q: given twice", addr)
		}
	}
	return addrs, nil
}

// embed starts five servers in this process, as many as a quorum that outlives two failures needs.
// The caller must call stop.
func embed() (addrs []string, stop func(), err error) {
	var nodes []*miniredis.Miniredis
	stop = func() {
		for _, node := range nodes {
			node.Close()
		}
	}
	for range 5 {
		node, err := miniredis.Run()
		if err != nil {
			stop()
			return nil, nil, fmt.Errorf("start an embedded Redis: %w", err)
		}
		nodes = append(nodes, node)
		addrs = append(addrs, node.Addr())
	}
	return addrs, stop, nil
}

// sweep deletes the keys that begin with prefix, which holds nothing that SCAN takes for a pattern.
func sweep(ctx context.Context, node redis.UniversalClient, prefix string) error {
	keys := node.Scan(ctx, 0, prefix+"*", 1000).Iterator()
	for keys.Next(ctx) {
		if err := node.Del(ctx, keys.Val()).Err(); err != nil {
			return err
		}
	}
	return keys.Err()
}

// connect returns a client for each address. The clients do not send a command again if its reply
// was lost, since that could record a sale twice. The Lockers send their own commands again.
func connect(addrs []string) []redis.UniversalClient {
	var nodes []redis.UniversalClient
	for _, addr := range addrs {
		nodes = append(nodes, redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1}))
	}
	return nodes
}

// disconnect closes clients. A command may still be in flight if the end of ctx cut its attempt
// short. So disconnect first waits for the commands that were sent, for as long as the timeouts of
// a client let them last. A clean-up afterwards finds what they left.
func disconnect(nodes []redis.UniversalClient) error {
	var errs []error
	for _, node := range nodes {
		for stats := node.PoolStats(); stats.TotalConns > stats.IdleConns; stats = node.PoolStats() {
			time.Sleep(time.Millisecond)
		}
		errs = append(errs, node.Close())
	}
	return errors.Join(errs...)
}
