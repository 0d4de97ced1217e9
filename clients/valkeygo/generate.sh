#!/usr/bin/env bash
# Writes this module anew from clients/rueidis: valkey-go is a fork of rueidis with the same API. With a directory, it writes there.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"
to=${1:-.}

mkdir -p -- "$to/testdata"
(cd ../rueidis && printf '%s\n' README.md ./*.go testdata/*.go) | while IFS= read -r file; do
  sed -e 's|github.com/redis/rueidis|github.com/valkey-io/valkey-go|g' \
    -e 's|clients/rueidis|clients/valkeygo|g' \
    -e 's|redlatchrueidis|redlatchvalkey|g' \
    -e 's|rueidisotel|valkeyotel|g' \
    -e 's|\[rueidis\]|[valkey-go]|g' \
    -e 's|IsRedisErr|IsValkeyErr|g; s|IsRedisNil|IsValkeyNil|g; s|NonRedisError|NonValkeyError|g; s|RedisResult|ValkeyResult|g; s|RedisMessage|ValkeyMessage|g' \
    -e 's|rueidis\.|valkey.|g' \
    -e 's|rueidis|valkey-go|g' \
    "../rueidis/$file" >"$to/$file"
done
gofmt -w "$to"/*.go "$to"/testdata/*.go
