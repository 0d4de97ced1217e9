// Package wire has the forms of what redlatch keeps in Redis and publishes there: the names of keys,
// tokens, entries of the queue, messages of a hand-over and fences. docs/protocols.md describes them
// for other clients, and the scripts of internal/lua write them, too.
package wire
