// Package proof shows, by tests that anyone can run, what holds for redlatch's locks and semaphores.
//
//   - History: clients acquire, use, adopt, extend, release and lose locks on real servers, while
//     faults occur at random. Porcupine judges what they saw, see package history.
//   - Delivery: what silent connections held back comes after the release. Nothing may be left.
//   - Full: servers refuse whatever needs memory. No lock may be lost.
//   - Model: random sequences of operations on every strategy do what a few lines of arithmetic say.
//   - Broken: lockers with deliberate mistakes show that these tests would detect a lock that fails.
//   - Soak: the histories again, for as long as one likes, with every kind of fault, and clients that are killed.
//
// All random choices come from a seed that is printed:
//
//	go test -run History -seed 42
//	go test -run Soak -soak 30m -timeout 0
//
// A seed repeats these choices, but not the timing of servers and network.
package proof
