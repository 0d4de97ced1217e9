// Package proof shows on real servers what holds for redlatch's locks and semaphores, by a test that
// anyone can run for as long as they like. Clients acquire, use, extend, release and lose locks, while
// faults occur at random. Porcupine judges what they saw, see package history.
//
//	go test -run Soak -soak 30m -timeout 0
//
// All random choices come from a seed that is printed, and that -seed repeats, but not the timing of
// servers and network. Package sim plays the same faults in virtual time, in each run of the tests.
package proof
