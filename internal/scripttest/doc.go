// Package scripttest compares the scripts with a model of them: the same random operations give the same replies, keys and
// messages on the model, on miniredis and on redis-server. So what is shown for the model holds for the scripts. It has no code
// of its own.
package scripttest
