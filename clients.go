package redlatch

import (
	"context"
	"reflect"

	"github.com/redis/go-redis/v9"
)

// spread reports whether client keeps its keys on several servers, as one of a Redis Cluster does,
// also behind another type. Such a client fails to watch no keys, before it sends anything; one of a
// single server just calls the function.
func spread(client redis.UniversalClient) bool {
	if _, ring := client.(*redis.Ring); ring { // the slots of keys do not matter to it
		return false
	}
	return client.Watch(context.Background(), func(*redis.Tx) error { return nil }) != nil
}

// checkClient refuses a client that is nil, also one that hides in an interface.
func checkClient(client redis.UniversalClient) error {
	if client == nil {
		return invalid("client is nil")
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return invalid("client is a nil %T", client)
	}
	return nil
}

// same reports whether two clients are one.
func same(a, b redis.UniversalClient) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}
