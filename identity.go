package redlatch

import (
	"strings"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/node"
)

// identities say which server each node of a quorum is: two clients of one server would vote twice.
// Servers that do not tell are taken for different ones.
type identities struct {
	ids   []atomic.Pointer[string] // by node, the run_id of its server; empty where it tells none
	twins atomic.Pointer[error]    // that two clients are of one server, once it is known
}

// ask has c ask node i who it is, unless that is known.
func (d *identities) ask(i int, c *node.Call) *node.Call {
	if d.ids[i].Load() == nil {
		c.Beside = []any{"info", "server"}
	}
	return c
}

// checked returns read such that an answer of a server that has two clients is an error.
func checked[T any](d *identities, read func(node.Reply) (T, error)) func(int, node.Reply) (T, error) {
	return func(i int, r node.Reply) (none T, err error) {
		if r.Err == nil && d.ids[i].Load() == nil {
			d.learn(i, runID(r.Beside.Value))
		}
		if err := d.check(); err != nil {
			return none, err
		}
		return read(r)
	}
}

// learn notes that node i is the server with a run_id.
func (d *identities) learn(i int, id string) {
	d.ids[i].Store(&id)
	for j := range d.ids {
		if other := d.ids[j].Load(); j != i && id != "" && other != nil && *other == id {
			err := invalid("nodes %d and %d are the same server, run_id %s", min(i, j), max(i, j), id)
			d.twins.CompareAndSwap(nil, &err)
		}
	}
}

// check returns why no quorum can be trusted, if two clients are of one server.
func (d *identities) check() error {
	if twins := d.twins.Load(); twins != nil {
		return *twins
	}
	return nil
}

// runID returns the run_id in what INFO answers, or nothing.
func runID(info any) string {
	text, _ := info.(string)
	_, rest, _ := strings.Cut(text, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}
