package redlatch

import (
	"slices"
	"strings"
)

// identified returns op preceded, once a node, by the question which server it is: two clients of
// one server would vote twice. Servers that do not tell are taken for different ones.
func (r *redlock) identified(op operation) operation {
	return func(j *job, c *claim) (grant, error) {
		i := slices.Index(r.nodes, j.node)
		if r.ids[i].Load() == nil {
			reply, _, err := j.send(nil, []any{"info", "server"})
			if err != nil && (!answered(err) || passing(err)) {
				return grant{}, err
			}
			id := runID(reply)
			r.ids[i].Store(&id)
			for j := range r.ids {
				if other := r.ids[j].Load(); j != i && id != "" && other != nil && *other == id {
					err := invalid("nodes %d and %d are one server, run_id %s", min(i, j), max(i, j), id)
					r.twins.CompareAndSwap(nil, &err)
				}
			}
		}
		if twins := r.twins.Load(); twins != nil {
			return grant{}, *twins
		}
		return op(j, c)
	}
}

// runID returns the run_id in what INFO answers, or nothing.
func runID(info any) string {
	text, _ := info.(string)
	_, rest, _ := strings.Cut(text, "run_id:")
	id, _, _ := strings.Cut(rest, "\r\n")
	return id
}
