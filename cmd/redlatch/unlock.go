package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

const unlockUsage = `usage: redlatch unlock [flags] KEY

Shows who holds KEY, asks whether to release it, and releases it. The owner
notices only at its next renewal, and may work until then: for up to a third of
its TTL. The next waiter gets the lock at once.
If nobody holds KEY and its min hold keeps others out, unlock ends the min hold.
If KEY has several holders, -owner says which of them loses it.

  -f             do not ask; required if stdin is not a terminal
  -owner NAME    release only what the holders with this name hold
` + redisUsage

// borrowed is the TTL of the adopted lock that is released. It is long enough for a slow reply, but
// not longer: if the release fails, the lock lasts for this TTL at least.
const borrowed = 3 * time.Second

// unlock releases a lock that another process holds.
func unlock(args []string) (int, error) {
	var f redisFlags
	set := flag.NewFlagSet("unlock", flag.ContinueOnError)
	f.addServersTo(set)
	force := set.Bool("f", false, "")
	var owner *string
	set.Func("owner", "", func(name string) error { owner = &name; return nil })
	rest, err := parse(set, unlockUsage, args)
	switch {
	case err != nil:
	case len(rest) != 1:
		err = misuse("unlock", "exactly one KEY is required")
	case !*force && !isTerminal(os.Stdin):
		err = misuse("unlock", "stdin is not a terminal: use -f to release without asking")
	}
	if err != nil {
		return exitUsage, err
	}
	c, err := f.connect("unlock",
		redlatch.WithTTL(borrowed), redlatch.WithOpTimeout(time.Second), redlatch.WithoutRenewal())
	if err != nil {
		return exitUsage, err
	}
	return unlockKey(context.Background(), c, rest[0], owner, *force)
}

// unlockKey shows who holds key, asks unless force is set, and releases what it has shown.
func unlockKey(ctx context.Context, c *connection, key string, owner *string, force bool) (int, error) {
	l, seen, err := c.of(ctx, key)
	switch {
	case err != nil:
		return exitOf(err), err
	case isPattern(key, seen):
		return exitUsage, patternError("unlock", key)
	case !isTaken(seen):
		fmt.Fprintf(os.Stderr, "%q is free\n", key)
		return 0, nil
	case seen.TTL < 0:
		return exitUnavailable, fmt.Errorf("unlock %q: it has no TTL, so it is not a lock of this command", key)
	}
	all := seen.Holders
	if seen, err = choose(key, seen, owner); err != nil {
		return exitOf(err), err
	}
	end := ending(l, key, seen)
	if !force && !confirmed(os.Stdin, os.Stderr, key, seen) {
		return exitDeclined, nil
	}
	if c.quorum {
		defer c.settle() // slow nodes are released too
	}
	released, err := release(ctx, l, key, end)
	switch {
	case len(seen.Holding) > 0 && errors.Is(err, redlatch.ErrNotAcquired): // others hold it, as they may
		fmt.Fprintf(os.Stderr, "the lock of %s on %q has ended meanwhile\n", holder(seen), key)
		return 0, nil
	case err != nil:
		return exitOf(err), err
	case seen.Kept:
		fmt.Fprintf(os.Stderr, "the min hold of %q has ended\n", key)
	case !released:
		fmt.Fprintf(os.Stderr, "%q is free; the lock of %s has ended meanwhile\n", key, holder(seen))
	case all > max(len(seen.Holding), 1):
		fmt.Fprintf(os.Stderr, "%q is released in the place of %s, %s; others still hold it\n",
			key, holder(seen), noticesLate)
	default:
		fmt.Fprintf(os.Stderr, "%q is released; it was held by %s, %s\n", key, holder(seen), noticesLate)
	}
	return 0, nil
}

// noticesLate says what becomes of an owner whose lock others release.
const noticesLate = "which notices at its next renewal, within a third of its TTL, and may work until then"

// choose returns what unlock is to release of a key: with owner, only what holders with that name
// hold, and else its only holder.
func choose(key string, seen redlatch.Status, owner *string) (redlatch.Status, error) {
	holders := seen.Holding
	if len(holders) == 0 && !seen.Kept {
		holders = []redlatch.Holder{{Owner: seen.Owner, Token: seen.Token, Since: seen.Since, TTL: seen.TTL}}
	}
	var names []string
	for _, h := range holders {
		names = append(names, named(h.Owner))
	}
	list := strings.Join(slices.Compact(slices.Sorted(slices.Values(names))), ", ")
	switch {
	case owner != nil && seen.Kept:
		return seen, &keptError{key, seen}
	case owner != nil:
		holders = slices.DeleteFunc(slices.Clone(holders), func(h redlatch.Holder) bool { return h.Owner != *owner })
		if len(holders) == 0 {
			return seen, fmt.Errorf("unlock %q: nothing was released: %w: %s", key, redlatch.ErrNotAcquired, list)
		}
	case len(holders) > 1:
		text := "unlock %q: it has %d holders: use -owner with one of: %s"
		return seen, &severalError{fmt.Sprintf(text, key, len(holders), list)}
	}
	if len(seen.Holding) > 0 {
		seen.Holding = holders
		seen.Owner = holders[0].Owner
		seen.TTL = slices.MaxFunc(holders, func(a, b redlatch.Holder) int { return cmp.Compare(a.TTL, b.TTL) }).TTL
	}
	return seen, nil
}

// A severalError says that -owner is missing. It matches ErrInvalid.
type severalError struct{ text string }

func (e *severalError) Error() string { return e.text }

func (e *severalError) Is(target error) bool { return target == redlatch.ErrInvalid }

// ending returns a function that releases the lock or the permits that were seen on key just now, or
// ends the min hold that keeps others out, and nothing newer. Its error is ErrLost if that has ended.
func ending(l redlatch.Locker, key string, seen redlatch.Status) func(context.Context) error {
	tokens := []redlatch.Token{seen.Token}
	if len(seen.Holding) > 0 {
		tokens = nil
		for _, h := range seen.Holding {
			tokens = append(tokens, h.Token)
		}
	}
	if !seen.Kept {
		return func(ctx context.Context) error { return releaseAll(ctx, l, key, tokens) }
	}
	ends := time.Now().Add(seen.TTL)
	return func(ctx context.Context) error {
		now, err := l.Inspect(ctx, key)
		switch {
		case err != nil:
			return err
		case !now.Kept, time.Now().Add(now.TTL).Sub(ends).Abs() > time.Second: // a later one ends later
			return redlatch.ErrLost
		}
		return redlatch.Forget(ctx, l, key)
	}
}

// releaseAll releases what tokens hold. Its error is ErrLost if none of them holds anything.
func releaseAll(ctx context.Context, l redlatch.Locker, key string, tokens []redlatch.Token) error {
	var failed error
	released := false
	for _, token := range tokens {
		lock, err := l.Adopt(ctx, key, token)
		if err == nil {
			err = lock.Unlock(ctx)
		}
		switch {
		case err == nil:
			released = true
		case failed == nil, errors.Is(failed, redlatch.ErrLost):
			failed = err
		}
	}
	if released && errors.Is(failed, redlatch.ErrLost) {
		return nil
	}
	return failed
}

// confirmed shows who holds key, or that it is kept, and asks whether to release it.
func confirmed(in io.Reader, out io.Writer, key string, seen redlatch.Status) bool {
	if seen.Kept {
		fmt.Fprintf(out, "%q is held by nobody; its min hold keeps others out for another %s; %d waiting\n",
			key, timeLeft(seen), seen.Waiters)
		fmt.Fprint(out, "end its min hold? [y/N] ")
	} else {
		fmt.Fprintf(out, "%q is held by %s, for another %s; %d waiting\n",
			key, holder(seen), timeLeft(seen), seen.Waiters)
		fmt.Fprintln(out,
			"if it is released, its owner notices at the next renewal, within a third of its TTL, and may work until then")
		fmt.Fprint(out, "release it? [y/N] ")
	}
	answer, err := bufio.NewReader(in).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return err == nil && (answer == "y" || answer == "yes")
}

// holder names the holder of a lock in messages, or of permits.
func holder(st redlatch.Status) string {
	name := printable(st.Owner)
	if name == "" {
		name = "an owner without a name"
	}
	if n := len(st.Holding); n > 1 {
		name += fmt.Sprintf(" (%d permits)", n)
	}
	return name
}

// release calls end, which releases what was seen on key, and nothing newer. It returns false if
// key is free by now, and an error that matches ErrNotAcquired if another owner holds it by now.
func release(ctx context.Context, l redlatch.Locker, key string, end func(context.Context) error) (bool, error) {
	err := end(ctx)
	if !errors.Is(err, redlatch.ErrLost) {
		return err == nil, err
	}
	now, err := l.Inspect(ctx, key)
	switch {
	case err != nil:
	case now.Kept:
		err = &keptError{key, now}
	case now.Held:
		err = fmt.Errorf("unlock %q: nothing was released: %w: %s", key, redlatch.ErrNotAcquired, holder(now))
	}
	return false, err
}

// keptError says that unlock does not end a min hold that has begun since it showed the key. It
// matches ErrNotAcquired.
type keptError struct {
	key  string
	seen redlatch.Status
}

func (e *keptError) Error() string {
	return fmt.Sprintf("unlock %q: nothing was released: its min hold lasts for another %s", e.key, timeLeft(e.seen))
}

func (e *keptError) Is(target error) bool { return target == redlatch.ErrNotAcquired }
