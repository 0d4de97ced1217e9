package redlatch

import (
	"context"
	"fmt"
	"reflect"
	"strings"

	"github.com/redis/go-redis/v9"
)

// A kind says where a client keeps its keys.
type kind int

const (
	single  kind = iota // on one server
	cluster             // on several servers, by slots
	ring                // on several servers, by a hash of the client
)

// kindOf returns the kind of client, even if a type embeds it. Watch without keys fails on a client of Redis Cluster,
// before anything is sent. On a single server it just calls the function.
func kindOf(client redis.UniversalClient) kind {
	switch {
	case embeds(reflect.ValueOf(client), reflect.TypeFor[*redis.Ring]()):
		return ring
	case client.Watch(context.Background(), func(*redis.Tx) error { return nil }) != nil:
		return cluster
	}
	return single
}

// embeds reports whether v is of type t, or embeds a value that is.
func embeds(v reflect.Value, t reflect.Type) bool {
	for v.Kind() == reflect.Interface || v.Kind() == reflect.Pointer && v.Type() != t {
		v = v.Elem()
	}
	if !v.IsValid() || v.Type() == t {
		return v.IsValid()
	}
	if v.Kind() == reflect.Struct {
		for i := range v.NumField() {
			if v.Type().Field(i).Anonymous && embeds(v.Field(i), t) {
				return true
			}
		}
	}
	return false
}

// checkClient refuses a nil client, including a nil pointer in the interface.
func checkClient(client redis.UniversalClient) error {
	if client == nil {
		return invalid("client is nil")
	}
	if v := reflect.ValueOf(client); v.Kind() == reflect.Pointer && v.IsNil() {
		return invalid("client is a nil %T", client)
	}
	return nil
}

func same(a, b redis.UniversalClient) bool {
	return reflect.TypeOf(a) == reflect.TypeOf(b) && reflect.ValueOf(a).Comparable() && a == b
}

// nodeName returns the name of the i-th client of a quorum in errors: its address, or else its number.
func nodeName(client redis.UniversalClient, i int) string {
	if c, ok := client.(*redis.Client); ok {
		if addr := c.Options().Addr; strings.ContainsAny(addr, ":/") {
			return addr
		}
	}
	return fmt.Sprint("node ", i)
}
