module github.com/redlatch/redlatch/benchmarks

go 1.26.0

require (
	github.com/bsm/redislock v0.10.0
	github.com/go-redsync/redsync/v4 v4.18.1
	github.com/google/uuid v1.6.0
	github.com/redis/go-redis/v9 v9.23.0
	github.com/redis/rueidis v1.0.79
	github.com/redlatch/redlatch v0.1.0
	github.com/redlatch/redlatch/clients/rueidis v0.1.0
	github.com/redlatch/redlatch/clients/valkeygo v0.1.0
	github.com/stretchr/testify v1.12.1
	github.com/valkey-io/valkey-go v1.0.79
)

require (
	github.com/cespare/xxhash/v2 v2.3.0 // indirect
	go.uber.org/atomic v1.12.0 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sys v0.48.0 // indirect
)

replace github.com/redlatch/redlatch => ../

replace github.com/redlatch/redlatch/clients/rueidis => ../clients/rueidis

replace github.com/redlatch/redlatch/clients/valkeygo => ../clients/valkeygo
