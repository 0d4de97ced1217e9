// Package scripttest compares the scripts with a model of them: the same random operations give the
// same replies, keys and messages on the model, on miniredis, on redis-server, and on a miniredis
// whose scripts Lua 5.1 or 5.4 runs. So what is shown for the model holds for the scripts. It has
// no code of its own.
package scripttest
