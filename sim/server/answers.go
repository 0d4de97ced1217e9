package server

import (
	"slices"

	redis "github.com/alicebob/miniredis/v2/server"
)

// An Answer is what a server says in place of carrying out a command.
type Answer struct {
	Text string
	To   Kind
}

// A Kind is a kind of commands.
type Kind int

// The kinds. A script that has written may write on.
const (
	Scripts   Kind = iota // all scripts
	Writes                // the first write of a script
	Growth                // the first write of a script that needs memory
	Publish               // PUBLISH
	Subscribe             // SUBSCRIBE
	Third                 // every third script, unless ASKING has come before it
)

type answer struct {
	Answer
	met int // scripts
}

// Say has the server give an answer.
func (s *Server) Say(a Answer) (heal func()) {
	x := &answer{Answer: a}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers = append(s.answers, x)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.answers = slices.DeleteFunc(s.answers, func(o *answer) bool { return o == x })
	}
}

var (
	writes = []string{
		"SET", "SETNX", "GETSET", "DEL", "PEXPIRE", "INCR", "INCRBY", "ZADD", "ZREM", "ZREMRANGEBYRANK", "ZPOPMIN",
	}
	growth = []string{"SET", "SETNX", "GETSET", "INCR", "INCRBY", "ZADD"}
)

// refuses answers a command if the server is in that kind of trouble. A script has it locked.
func (s *Server) refuses(c *redis.Peer, name string) bool {
	write := slices.Contains(writes, name)
	for _, a := range s.answers {
		var meant bool
		switch a.To {
		case Scripts:
			meant = name == "EVAL"
		case Writes:
			meant = write && !s.writes
		case Growth:
			meant = !s.writes && slices.Contains(growth, name)
		case Publish:
			meant = name == "PUBLISH"
		case Subscribe:
			meant = name == "SUBSCRIBE"
		case Third:
			if name == "EVAL" && s.asking != c {
				meant = a.met%3 == 0
				a.met++
			}
		}
		if meant {
			c.WriteError(a.Text)
			return true
		}
	}
	s.writes = s.writes || write
	return false
}
