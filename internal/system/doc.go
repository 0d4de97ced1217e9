// Package system holds the tests of the library in whole systems: clusters, rings, fail-overs, access
// rights, other clients, several processes. It has no code of its own.
package system
