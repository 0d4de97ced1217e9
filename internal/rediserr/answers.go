package rediserr

import (
	"errors"
	"strings"
)

// A meaning is what an answer says of the command that it answers.
type meaning uint8

const (
	// unknown is that of any answer that the table does not have. A proxy or a cloud may have words
	// of its own, and the server behind it may have carried the command out.
	unknown         meaning = iota
	mistake                 // A repetition gets the same answer: the command or the data are wrong.
	right                   // The user lacks a right.
	refusal                 // The command was not carried out.
	refusalOfServer         // It was not carried out, and the server carries out no command now, whatever its key.
)

// An answer is what is known of answers that begin with some text, in any case.
type answer struct {
	begins string
	means  meaning
	hint   string // what to do about it; "": there is nothing to say
	is     error  // the error that it matches; nil: none
}

// These match answers that retrying does not fix.
var (
	ErrOtherData = errors.New("the key holds other data") // the key has a type other than expected
	ErrBadScript = errors.New("scripts are refused")      // a proxy checks them, or the server has no EVAL
)

// Hints that several answers have.
const (
	isReplica = "this server is a replica: connect the client to the primary"
	slotMoves = "the Cluster moves the slot of this key to another server: the key can be used again when it has moved"
	rights    = "SECURITY.md has the rights that a lock needs"
)

// answers has what is known of the answers of Redis. The first that fits counts.
var answers = []answer{
	{"READONLY", refusalOfServer, isReplica, nil},
	{"ERR WAIT cannot be used", refusalOfServer, isReplica, nil},
	{"MISCONF", refusalOfServer, "Redis cannot save and takes no writes: see its log", nil},
	{"NOAUTH", refusalOfServer, "give the client the password of its user", nil},
	{"WRONGPASS", refusalOfServer, "the client's Username or Password is wrong", nil},
	{"LOADING", refusalOfServer, "", nil},
	{"BUSY ", refusalOfServer, "", nil},
	{"MASTERDOWN", refusalOfServer, "", nil},
	{"NOREPLICAS", refusalOfServer, "", nil},
	{"CLUSTERDOWN", refusalOfServer, "", nil},
	{"ERR max number of clients", refusalOfServer, "", nil},

	{"OOM", refusal, "Redis is full: raise its maxmemory", nil},
	{"TRYAGAIN", refusal, slotMoves, nil},
	{"ASK ", refusal, slotMoves, nil},
	{"MOVED ", refusal, "", nil},
	{"NOSCRIPT", refusal, "", nil},

	{"NOPERM", right, rights, nil},
	{"ERR The user executing the script", right, rights, nil}, // until Redis 7.0
	{"ERR ACL failure in script", right, rights, nil},         // Redis 7.2, Valkey

	{
		"WRONGTYPE", mistake,
		"the key, or a companion key of the lock, holds other data: use another key or WithKeyPrefix", ErrOtherData,
	},
	{
		"CROSSSLOT", mistake,
		"a proxy or cluster that shards keys: use a cluster client, or a WithKeyPrefix with a hash tag such as {locks}:", nil,
	},
	{
		"ERR bad lua script", mistake,
		"this proxy checks scripts, and refuses the scripts of redlatch: connect the client to the servers behind it",
		ErrBadScript,
	},
	{"ERR Error compiling script", mistake, "", nil},
	{"ERR the fence ", mistake, "", nil}, // of a script of this library
	{"ERR the key does not hold a timestamp", mistake, "", nil},
	{"ERR unknown command", mistake, "", nil},
	{"ERR unknown subcommand", mistake, "", nil},
	{"ERR unknown Redis command", mistake, "", nil},
	{"unknown command", mistake, "", nil},
	{"ERR This Redis command is not allowed from script", mistake, "", nil},
	{"ERR This Valkey command is not allowed from script", mistake, "", nil},
	{"ERR wrong number of arguments", mistake, "", nil},
	{"ERR syntax error", mistake, "", nil},
	{"ERR value is ", mistake, "", nil},
	{"ERR invalid expire", mistake, "", nil},
	{"ERR Number of keys", mistake, "", nil},
	{"ERR DB index", mistake, "", nil},
	{"ERR invalid DB", mistake, "", nil},
	{"ERR SELECT is not allowed", mistake, "", nil},

	// A script can have written before one of these.
	{"ERR Script attempted to access a non local key", unknown, slotMoves, nil},     // Redis 7.0, of a key that has moved
	{"ERR Lua script attempted to access a non local key", unknown, slotMoves, nil}, // until Redis 6.2
	{"ERR Attempted to access a non local key", unknown, slotMoves, nil},            // Valkey 9.1
}

// known returns what is known of an answer with a text.
func known(said string) answer {
	for _, a := range answers {
		if len(said) >= len(a.begins) && strings.EqualFold(said[:len(a.begins)], a.begins) {
			return a
		}
	}
	return answer{}
}

// meaningOf returns the meaning of err, which is unknown if it is no answer.
func meaningOf(err error) meaning { return known(answerText(err)).means }
