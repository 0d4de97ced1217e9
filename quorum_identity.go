package redlatch

import (
	"strings"
	"sync/atomic"

	"github.com/redlatch/redlatch/internal/node"
)

// identities has the server of each node of a quorum: two clients of one server would vote twice. Servers that report
// no run_id count as different.
type identities struct {
	ids    []atomic.Pointer[string] // by node, the run_id of its server; empty if it reports none
	shared atomic.Pointer[error]    // set once two nodes are known to be the same server
}

// withInfo adds INFO to a call for node i, unless its server is known.
func (d *identities) withInfo(i int, c *node.Call) *node.Call {
	if d.ids[i].Load() == nil {
		c.Beside = []any{"info", "server"}
	}
	return c
}

// checked returns read with a check: once two nodes are known to be the same server, every reply is an error.
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

func (d *identities) learn(i int, id string) {
	d.ids[i].Store(&id)
	for j := range d.ids {
		if other := d.ids[j].Load(); j != i && id != "" && other != nil && *other == id {
			err := invalid("nodes %d and %d are the same server, run_id %s", min(i, j), max(i, j), id)
			d.shared.CompareAndSwap(nil, &err)
		}
	}
}

// check returns an error if two nodes are the same server.
func (d *identities) check() error {
	if err := d.shared.Load(); err != nil {
		return *err
	}
	return nil
}

// runID returns the run_id in the reply to INFO, or "".
func runID(info any) string {
	text, _ := info.(string)
	_, rest, _ := strings.Cut(text, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}
