package server

import (
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Use is what commands of an owner did with a key: how many of them were sent, by the first words of
// their scripts; until when they were allowed to create something, by how far the latest limit was ahead of
// the clock of the server when its command came; and how much later something was created.
type Use struct {
	Key, Owner string
	Sent       map[string]int
	Ahead      time.Duration
	Late       []string
}

// of is a key, and an owner.
type of struct{ key, owner string }

// Uses returns what was done with all keys.
func (s *Server) Uses() (all []Use) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, u := range s.uses {
		all = append(all, *u)
	}
	return all
}

// usedLocked notes a command. It returns a function that notes what the command has created if it came
// later than its limit. That is the argument that is a time of the clock, in µs, give or take an hour.
func (s *Server) usedLocked(word string, args []string) (done func()) {
	now := s.clock.now().UnixMicro()
	count, _ := strconv.Atoi(args[1])
	if count == 0 {
		return func() {}
	}
	keys, argv := args[2:2+count], args[2+count:]
	owner := "" // of an inspection
	if len(argv) > 0 {
		owner, _, _ = strings.Cut(strings.TrimLeft(argv[0], "!~"), "/")
	}
	u := s.uses[of{keys[0], owner}]
	if u == nil {
		u = &Use{Key: keys[0], Owner: owner, Sent: make(map[string]int)}
		s.uses[of{keys[0], owner}] = u
	}
	u.Sent[word]++
	i := slices.IndexFunc(argv, func(arg string) bool {
		n, err := strconv.ParseInt(strings.TrimPrefix(arg, "-"), 10, 64)
		return err == nil && max(n-now, now-n) < time.Hour.Microseconds()
	})
	if i < 0 {
		return func() {}
	}
	latest, _ := strconv.ParseInt(strings.TrimPrefix(argv[i], "-"), 10, 64)
	ahead := time.Duration(latest-now) * time.Microsecond
	if u.Ahead = max(u.Ahead, ahead); ahead >= 0 {
		return func() {}
	}
	made := slices.DeleteFunc(slices.Clone(argv), func(arg string) bool { return !strings.Contains(arg, "/") })
	before := s.thereLocked(keys, made)
	return func() {
		for _, word := range s.thereLocked(keys, made) {
			if !slices.Contains(before, word) {
				u.Late = append(u.Late, (-ahead).String())
			}
		}
	}
}

// thereLocked returns those of some words that are values of keys, permits that have not ended, or entries.
func (s *Server) thereLocked(keys, words []string) (there []string) {
	for _, key := range keys {
		if s.redis.DB(0).Type(key) != "zset" {
			if value, err := s.redis.Get(key); err == nil && slices.Contains(words, value) {
				there = append(there, value)
			}
			continue
		}
		scores, _ := s.redis.SortedSet(key) // it is there
		for _, word := range words {
			score, is := scores[word]
			if entry := strings.Contains(word, " "); is && (entry || score > float64(s.clock.now().UnixMicro())) {
				there = append(there, word)
			}
		}
	}
	return there
}
