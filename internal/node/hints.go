package node

import (
	"errors"
	"strings"

	"github.com/redis/go-redis/v9"
)

// hints say what to do about an answer of Redis, by the word that the answer begins with.
var hints = []struct{ word, hint string }{
	{"READONLY", "this server is a replica: connect the client to the primary"},
	{"OOM", "Redis is full: raise its maxmemory"},
	{"MISCONF", "Redis cannot save and takes no writes: see its log"},
	{"WRONGTYPE", "the key, or a companion key of the lock, holds other data: use another key or WithKeyPrefix"},
	{"NOAUTH", "give the client the password of its user"},
	{"WRONGPASS", "the client's Username or Password is wrong"},
	{"NOPERM", "SECURITY.md has the rights that a lock needs"},
	{"ERR The user executing the script", "SECURITY.md has the rights that a lock needs"}, // as Redis 7.0 has it
	{"CROSSSLOT", "a proxy or cluster that shards keys: use a cluster client, or a WithKeyPrefix with a hash tag such as {locks}:"},
}

// explained is an answer of Redis, on one line with what to do about it.
type explained struct {
	answer error
	text   string
}

func (e *explained) Error() string { return e.text }

func (e *explained) Unwrap() error { return e.answer }

// ErrOtherData is what an answer matches that says that a key holds another type than it should. No retry
// fixes that.
var ErrOtherData = errors.New("the key holds other data")

func (e *explained) Is(target error) bool {
	return target == ErrOtherData && strings.HasPrefix(e.text, "WRONGTYPE")
}

// Explain adds to an answer of Redis what to do about it, where there is a hint for it. Other errors stay
// as they are.
func Explain(err error) error {
	if err == nil {
		return nil
	}
	said := spoken(err)
	for _, h := range hints {
		if strings.HasPrefix(said, h.word) {
			return &explained{err, strings.TrimSuffix(said, ".") + " (" + h.hint + ")"}
		}
	}
	return err
}

// spoken returns what Redis says in err, if anything, without the place in a script that Redis 6 and
// miniredis put before it, and later versions behind it.
func spoken(err error) string {
	var answer redis.Error
	if !errors.As(err, &answer) {
		return ""
	}
	said := answer.Error()
	if strings.HasPrefix(said, "ERR Error running script") || strings.HasPrefix(said, "@user_script:") {
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
