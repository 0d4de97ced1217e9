package world

import (
	"context"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/sim/judge"
	"github.com/redlatch/redlatch/sim/plan"
)

// owner is the name in the tokens of a Locker.
func owner(locker int) string { return fmt.Sprintf("L%d", locker) }

// locker makes a Locker.
func (w *world) locker(i int) (redlatch.Locker, error) {
	l := w.Lockers[i]
	g := w.Groups[l.Group]
	opts := append(options(l.Options), redlatch.WithOwner(owner(i)))
	at := func(prefix string) []redlatch.Option {
		return append(slices.Clip(opts), redlatch.WithKeyPrefix(prefix), w.hooks(owner(i), prefix))
	}
	clients, prefix := w.clients[l.Process], plan.Prefix(l.Group)
	switch g.Kind {
	case plan.Semaphore:
		return redlatch.NewSemaphore(clients[0], l.Limit, at(prefix)...)
	case plan.ReadWrite:
		if l.Write {
			return w.lockers[i-1].(pair).write, nil
		}
		read, write, err := redlatch.NewReadWrite(clients[0], at(prefix)...)
		return pair{read, write}, err
	case plan.Migration:
		return w.migration(l, g, clients, at)
	}
	return w.one(g.Kind, g, clients, at(prefix))
}

// hooks note what a Locker reports of the keys with a prefix.
func (w *world) hooks(owner, prefix string) redlatch.Option {
	note := func(what string) func(context.Context, redlatch.Event) {
		return func(_ context.Context, r redlatch.Event) {
			w.record.add(judge.Event{
				Kind: judge.Hooked, Owner: owner, Text: what, Places: []string{prefix + r.Key}, Report: &r,
			})
		}
	}
	return redlatch.WithHooks(redlatch.Hooks{
		Acquired: note("Acquired"), Waiting: note("Waiting"), Moved: note("Moved"), Renewed: note("Renewed"),
		RenewFailed: note("RenewFailed"), Lost: note("Lost"), Released: note("Released"), Degraded: note("Degraded"),
		Trouble: note("Trouble"),
	})
}

// A pair is the Locker of readers, and has that of writers.
type pair struct {
	redlatch.Locker
	write redlatch.Locker
}

func (p pair) Unwrap() redlatch.Locker { return p.Locker }

// one makes a Locker of one kind.
func (*world) one(
	kind plan.Kind, g plan.Group, clients []redis.UniversalClient, opts []redlatch.Option,
) (redlatch.Locker, error) {
	switch kind {
	case plan.LegacySetNX:
		return redlatch.NewLegacySetNX(clients[0], opts...)
	case plan.Redlock:
		return redlatch.NewRedlock(clients[:len(g.Servers)], opts...)
	}
	return redlatch.NewSetNXPX(clients[0], opts...)
}

// newer is the key prefix of the second side of a migration, behind that of its group.
const newer = "new:"

// migration makes the Locker of a stage.
func (w *world) migration(
	l plan.Locker, g plan.Group, clients []redis.UniversalClient, at func(prefix string) []redlatch.Option,
) (redlatch.Locker, error) {
	prefix := plan.Prefix(l.Group)
	from, err := w.one(g.From, g, clients, at(prefix))
	if err != nil || l.Stage == plan.Old {
		return from, err
	}
	to, err := w.one(g.To, g, clients, at(prefix+newer))
	if err != nil || l.Stage == plan.New {
		return to, err
	}
	return redlatch.NewMigration(from, to)
}

// options are those of a Locker or a call.
func options(o plan.Options) (opts []redlatch.Option) {
	opts = append(opts, redlatch.WithTTL(o.TTL))
	if o.Fixed {
		opts = append(opts, redlatch.WithoutRenewal())
	}
	if o.Polls {
		opts = append(opts, redlatch.WithoutQueue())
	}
	if o.MaxHold > 0 {
		opts = append(opts, redlatch.WithMaxHold(o.MaxHold))
	}
	if o.MinHold > 0 {
		opts = append(opts, redlatch.WithMinHold(o.MinHold))
	}
	if o.Grace > 0 {
		opts = append(opts, redlatch.WithGrace(o.Grace))
	}
	if o.MaxWait > 0 {
		opts = append(opts, redlatch.WithMaxWait(o.MaxWait))
	}
	if o.OpTimeout > 0 {
		opts = append(opts, redlatch.WithOpTimeout(o.OpTimeout))
	}
	if o.Replicas > 0 {
		opts = append(opts, redlatch.WithReplicas(1, o.Replicas))
	}
	if o.Longest > 0 {
		opts = append(opts, redlatch.WithPollInterval(o.Shortest, o.Longest))
	}
	return opts
}
