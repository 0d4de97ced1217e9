package world

import (
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/wire"
	"github.com/redlatch/redlatch/sim/judge"
	"github.com/redlatch/redlatch/sim/plan"
	"github.com/redlatch/redlatch/sim/server"
)

// sample notes the tokens and the entries in Redis.
func (w *world) sample(over <-chan struct{}) {
	pause := sampling
	if w.Length >= time.Hour {
		pause = seldom
	}
	for {
		for _, place := range w.places() {
			for _, token := range w.tokens(place) {
				if owner, id, ok := strings.Cut(strings.TrimPrefix(token, "!"), "/"); ok && !strings.HasPrefix(token, "~") {
					w.record.add(judge.Event{Kind: judge.Seen, Places: []string{place}, Owner: owner, Text: id})
				}
			}
			lines := make(map[string]int)
			for _, token := range w.entries(place) {
				lines[wire.Parse(token).Owner]++
			}
			for owner, n := range lines {
				w.record.add(judge.Event{Kind: judge.Queued, Places: []string{place}, Owner: owner, For: time.Duration(n)})
			}
		}
		select {
		case <-time.After(pause):
		case <-over:
			return
		}
	}
}

// places returns all keys of locks.
func (w *world) places() (all []string) {
	for i, g := range w.Groups {
		for _, key := range g.Keys {
			all = append(all, plan.Prefix(i)+key)
			if g.Kind == plan.Migration {
				all = append(all, plan.Prefix(i)+newer+key)
			}
		}
	}
	return all
}

// at returns the kind of Locker that keeps a key, and its servers.
func (w *world) at(place string) (kind plan.Kind, servers []*server.Server) {
	for i, g := range w.Groups {
		rest, in := strings.CutPrefix(place, plan.Prefix(i))
		if !in {
			continue
		}
		if kind, servers = g.Kind, w.servers[:1]; kind == plan.Migration {
			if kind = g.From; strings.HasPrefix(rest, newer) {
				kind = g.To
			}
		}
		if kind == plan.Redlock {
			servers = w.servers[:len(g.Servers)]
		}
	}
	return kind, servers
}

// entries returns the tokens of the lines that queue for a key.
func (w *world) entries(place string) []string {
	kind, servers := w.at(place)
	switch kind {
	case plan.SetNXPX:
		return servers[0].Entries(wire.Companion("queue", place))
	case plan.Semaphore, plan.ReadWrite:
		return servers[0].Entries(wire.Companion("permits", place))
	case plan.LegacySetNX, plan.Redlock, plan.Migration:
	}
	return nil
}

// tokens returns the tokens that hold a key, of a quorum those that a quorum of the nodes has.
func (w *world) tokens(place string) (held []string) {
	count := make(map[string]int)
	kind, servers := w.at(place)
	for _, s := range servers {
		holders := s.Holders
		if kind == plan.LegacySetNX {
			holders = s.Owner
		}
		for _, token := range holders(place) {
			if count[token]++; count[token] == len(servers)/2+1 {
				held = append(held, token)
			}
		}
	}
	return held
}

// holds reports whether a Locker has a token in Redis.
func (w *world) holds(places []string, owner string) bool {
	for _, place := range places {
		if !slices.ContainsFunc(w.tokens(place), func(token string) bool {
			return strings.HasPrefix(strings.TrimPrefix(token, "!"), owner+"/")
		}) {
			return false
		}
	}
	return true
}
