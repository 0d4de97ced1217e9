// Package behavior tests what callers see of the library: on one Redis or on a few, with faults on
// the network, and without a look inside. It has no code of its own.
package behavior
