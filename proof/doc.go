// Package proof shows, by tests that anyone can run, what holds of redlatch's locks and semaphores.
//
//   - History: clients acquire, use, extend, release and lose locks on real servers, while faults
//     occur at random. Porcupine judges what they saw, see package history. Broken lockers show
//     that it would see a lock fail.
//   - Model: random sequences of operations on every strategy do what a few lines of arithmetic say.
//   - Soak: the histories again, for as long as one likes, with every kind of fault, and clients that are killed.
//
// What is random comes from a seed that is printed:
//
//	go test -run History -seed 42
//	go test -run Soak -soak 30m -timeout 0
//
// A seed repeats what was chosen, but not how servers and network interleaved.
package proof
