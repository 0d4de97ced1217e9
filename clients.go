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
	cluster             // in slots, on several
	ring                // by a hash of its own, on several
)

// kindOf returns the kind of client, also of one behind a type that embeds it. A client of several
// servers fails to watch no keys, before it sends anything. One of a single server just calls the
// function.
func kindOf(client redis.UniversalClient) kind {
	switch {
	case embeds(reflect.ValueOf(client), reflect.TypeFor[*redis.Ring]()):
		return ring
	case client.Watch(context.Background(), func(*redis.Tx) error { return nil }) != nil:
		return cluster
	}
	return single
}

// embeds reports whether v is of type t, or embeds something that is.
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

// nodeName returns what errors call the i-th client of a quorum: its address, if that tells it from others.
func nodeName(client redis.UniversalClient, i int) string {
	if c, ok := client.(*redis.Client); ok {
		if addr := c.Options().Addr; strings.ContainsAny(addr, ":/") {
			return addr
		}
	}
	return fmt.Sprint("node ", i)
}
