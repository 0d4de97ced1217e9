// Package field tests the library in whole systems: clusters, rings, failovers, access rights,
// other clients, several processes. It has no code of its own.
package field
