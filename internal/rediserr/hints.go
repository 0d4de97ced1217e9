package rediserr

import (
	"errors"
	"regexp"
	"strings"

	"github.com/redis/go-redis/v9"
)

// explained is an answer of Redis with a hint, on one line.
type explained struct {
	answer error
	text   string
	is     error
}

func (e *explained) Error() string        { return e.text }
func (e *explained) Unwrap() error        { return e.answer }
func (e *explained) Is(target error) bool { return target == e.is }

// unknownCommand matches the answer to a command that the server does not have, up to its name. The
// arguments follow, and a token is one of them.
var unknownCommand = regexp.MustCompile("(?i)^.*?unknown command:? ['\"`][^'\"`]*['\"`]")

// LacksEval reports whether the server has no EVAL or no EVALSHA, such as one where it is renamed.
func LacksEval(err error) bool {
	name := strings.ToLower(unknownCommand.FindString(answerText(err)))
	return strings.Contains(name, "eval")
}

// cut is an answer of Redis without the arguments of the command. It does not wrap the whole answer.
type cut string

func (e cut) Error() string { return string(e) }
func (cut) RedisError()     {}

// Explain returns what callers get of an error of the client. It adds a hint to an answer of Redis,
// if there is one for it, and cuts an answer before the arguments of its command. Errors without an
// answer are marked as outages, but for redis.ErrClosed.
func Explain(err error) error {
	if err == nil || errors.Is(err, redis.ErrClosed) || errors.As(err, new(*broken)) || errors.As(err, new(*NoReply)) {
		return err
	}
	if !Answered(err) {
		return &broken{err, brokenHint(err)}
	}
	said := answerText(err)
	if name := unknownCommand.FindString(said); name != "" {
		said, err = name, cut(name)
		if LacksEval(err) {
			return &explained{err, said + " (redlatch needs EVAL: connect the client to servers that have it)", ErrBadScript}
		}
	}
	if a := known(said); a.hint != "" {
		return &explained{err, strings.TrimSuffix(said, ".") + " (" + a.hint + ")", a.is}
	}
	return err
}

// brokenHint says what to do about an error without an answer; "" if there is nothing to say.
func brokenHint(err error) string {
	switch {
	case isOne(err, redis.ErrPoolTimeout, redis.ErrPoolExhausted):
		return " (all connections of the client are in use: raise its PoolSize)"
	case err == redis.Nil: //nolint:errorlint // others match it, too
		return " (the Cluster does not tell the addresses of its servers: " +
			"set its cluster-preferred-endpoint-type to ip or hostname)"
	case errors.Is(err, redis.Nil) && strings.Contains(err.Error(), "sentinels"):
		return " (no Sentinel knows a primary of this name: check MasterName)"
	}
	return ""
}

// answerText returns the text of an answer of Redis, or "". It removes the place in a script, which
// Redis 6 and miniredis put before the text and later versions behind it. It adds the ERR that
// Redis 6 omits after a space and the line.
func answerText(err error) string {
	answer := answerOf(err)
	if answer == nil {
		return ""
	}
	said := strings.TrimSpace(answer.Error()) // Redis 5 ends that of a script with a space
	if strings.HasPrefix(said, "ERR Error running script") || strings.HasPrefix(said, "@user_script:") {
		if at := strings.LastIndex(said, "@user_script:"); at >= 0 {
			line, text, _ := strings.Cut(said[at+len("@user_script:"):], ": ")
			if answer, coded := strings.CutPrefix(text, "-"); coded || !strings.HasPrefix(line, " ") {
				return answer
			}
			return "ERR " + text // the server refused a command
		}
	}
	if trace, found := strings.CutPrefix(said, "ERR Error compiling script (new function): :"); found {
		_, said, _ = strings.Cut(trace, ": ")
		said, _, _ = strings.Cut(said, "\n")
		return said
	}
	if at := strings.LastIndex(said, " script: "); at >= 0 && strings.Contains(said[at:], " on @user_script:") {
		said = said[:at]
	}
	return said
}
