package redlatch_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// newHost returns the election of a host, and its health check. It answers 200 on the leader, and names the leader.
func newHost(client *redis.Client, name string) (*redlatch.Election, http.HandlerFunc, error) {
	locker, err := redlatch.NewSetNXPX(client, redlatch.WithOwner(name))
	if err != nil {
		return nil, nil, err
	}
	election, err := redlatch.NewElection(locker, "scheduler")
	if err != nil {
		return nil, nil, err
	}
	check := func(w http.ResponseWriter, _ *http.Request) {
		if !election.Leading() {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		leader, known := election.Leader()
		if !known {
			leader = "nobody, as far as known"
		}
		fmt.Fprintln(w, "leader:", leader)
	}
	return election, check, nil
}

// schedule is the work of the leader. It returns when ctx ends.
func schedule(ctx context.Context, _ *redlatch.Lock) error {
	<-ctx.Done()
	return nil
}

// Two hosts elect a leader. The health check of each says whether it leads, and who does.
func ExampleElection() {
	server, err := miniredis.Run()
	if err != nil {
		log.Fatal(err)
	}
	defer server.Close()

	checks := make(map[string]http.HandlerFunc)
	stop := make(map[string]context.CancelFunc)
	for _, name := range []string{"host-7", "host-8"} {
		client := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer client.Close()
		election, check, err := newHost(client, name)
		if err != nil {
			log.Fatal(err) //nolint:gocritic // the client ends with the process
		}
		ctx, cancel := context.WithCancel(context.Background())
		checks[name], stop[name] = check, cancel
		show(name, check, "leader: nobody, as far as known\n")
		go func() {
			log.Print(election.Run(ctx, schedule)) // context canceled
		}()
		show(name, check, "leader: host-7\n")
	}
	stop["host-7"]()
	show("host-8", checks["host-8"], "leader: host-8\n")
	stop["host-8"]()
	// Output:
	// host-7 answers 503, leader: nobody, as far as known
	// host-7 answers 200, leader: host-7
	// host-8 answers 503, leader: nobody, as far as known
	// host-8 answers 503, leader: host-7
	// host-8 answers 200, leader: host-8
}

// show waits until the check of a host has an answer, and prints it.
func show(host string, check http.HandlerFunc, answer string) {
	for ; ; time.Sleep(time.Millisecond) {
		w := httptest.NewRecorder()
		check(w, nil)
		if w.Body.String() == answer {
			fmt.Printf("%s answers %d, %s", host, w.Code, answer)
			return
		}
	}
}
