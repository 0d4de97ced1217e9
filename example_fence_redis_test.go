package redlatch_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// write sets a value that is kept in Redis, unless a newer lock has set it.
//
//	KEYS[1] a hash: the value, and the highest fence that was seen
//	ARGV[1] the fence of the writer's lock
//	ARGV[2] the value
var write = redis.NewScript(`
local seen = redis.call('HGET', KEYS[1], 'fence')
if seen and tonumber(ARGV[1]) < tonumber(seen) then
  return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
return 1`)

// A script checks the fence and writes in one step.
func ExampleLock_Fence_redis() {
	paused, next, end := twoHolders()
	defer end()
	_, client, endData := embedded() // the data may live on another Redis than the locks
	defer endData()
	ctx := context.Background()

	for _, lock := range []*redlatch.Lock{next, paused} {
		value := "by " + map[*redlatch.Lock]string{next: "next", paused: "paused"}[lock]
		written, err := write.Run(ctx, client, []string{"state:42"}, lock.Fence(), value).Bool()
		fmt.Println(value, "written:", written, err)
	}
	fmt.Println(client.HGet(ctx, "state:42", "value").Val())
	// Output:
	// by next written: true <nil>
	// by paused written: false <nil>
	// by next
}
