// Package schedulers runs the recipe for a leader with a scheduler that people use. It is a module of its own, so that nobody
// depends on that scheduler.
package schedulers
