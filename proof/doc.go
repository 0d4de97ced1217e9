// Package proof shows, by tests that anyone can run, what holds for redlatch's locks and
// semaphores.
//
//   - Histories: clients acquire, use, extend, release and lose locks on real servers, while faults
//     occur at random. Porcupine judges what they saw, see package history.
//   - Soak: the histories again, for as long as one likes.
//
// All random choices come from a seed that is printed:
//
//	go test -run Histories -seed 42
//	go test -run Soak -soak 30m -timeout 0
//
// A seed repeats these choices, but not the timing of servers and network.
package proof
