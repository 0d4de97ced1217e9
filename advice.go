package redlatch

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// advices are what to do about what Redis says, by the word that it begins with.
var advices = []struct{ word, advice string }{
	{"READONLY", "this server is a replica: connect the client to the primary"},
	{"OOM", "Redis is full: raise its maxmemory"},
	{"MISCONF", "Redis cannot save and takes no writes: see its log"},
	{"WRONGTYPE", "the key, or one that the lock keeps beside it, holds other data: take another key or WithKeyPrefix"},
	{"NOAUTH", "give the client the password of its user"},
	{"WRONGPASS", "the client's Username or Password is wrong"},
	{"NOPERM", "SECURITY.md has the rights that a lock needs"},
}

// advised is an answer of Redis, on one line with what to do about it.
type advised struct {
	answer error
	text   string
}

func (a *advised) Error() string { return a.text }

func (a *advised) Unwrap() error { return a.answer }

// errOtherData is what an answer matches that says that a key holds another type than it should: no
// wait mends that.
var errOtherData = errors.New("the key holds other data")

func (a *advised) Is(target error) bool {
	return target == errOtherData && strings.HasPrefix(a.text, "WRONGTYPE")
}

// advise says what to do about err, where it is an answer that there is advice for.
func advise(err error) error {
	said := spoken(err)
	for _, a := range advices {
		if strings.HasPrefix(said, a.word) {
			return &advised{err, strings.TrimSuffix(said, ".") + " (" + a.advice + ")"}
		}
	}
	return err
}

// spoken returns what Redis says in err, if anything, without where in a script it came up: Redis 6
// and miniredis say that before, later ones behind.
func spoken(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	said := answer.Error()
	if strings.HasPrefix(said, "ERR Error running script") {
		if at := strings.LastIndex(said, "@user_script:"); at >= 0 {
			_, said, _ = strings.Cut(said[at+len("@user_script:"):], ": ")
			return strings.TrimPrefix(said, "-")
		}
	}
	if trace, found := strings.CutPrefix(said, "ERR Error compiling script (new function): :"); found {
		_, said, _ = strings.Cut(trace, ": ")
		said, _, _ = strings.Cut(said, "\n")
		return said
	}
	said, _, _ = strings.Cut(said, " script: ")
	return said
}
