// Package sim lets the whole library live through bad days, in virtual time.
//
// A world has several processes, each with clients and Lockers of its own, and one to five servers,
// in one bubble of testing/synctest. A seed and a theme are a plan: who calls what when, and what
// fails meanwhile. A road delays, loses and holds back what processes and servers send. A server
// refuses, restarts and steps its clock. A judge knows each grant and each end at its instant, what
// was said of them, and what each command cost. It checks what docs/guarantees.md promises.
//
//	go test ./...                            # some seeds of each theme, and all that have failed
//	go test -run Soak -for 30m -timeout 0    # new seeds
//	go run ./cmd/sim -theme cohort -seed 7   # one world
//
// A seed repeats choices, but not the order of what happens at one instant. So a world that has
// failed may need several tries.
package sim
