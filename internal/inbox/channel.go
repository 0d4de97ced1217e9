package inbox

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch/internal/rediserr"
)

// Channels is the pattern of the channels of all Lockers.
const Channels = "redlatch:*"

// A client is all that an inbox needs of the client of a user. Subscribe may block, and call hooks
// of the user. If the client has Options, they name the database.
type client interface {
	Subscribe(ctx context.Context, channels ...string) *redis.PubSub
}

// newChannel returns the name of the channel of a Locker: redlatch:<uuid>, or
// redlatch:<database>:<uuid>. Pub/sub has no databases. So a client that knows its database names
// it, unless it is 0, and whoever watches one does not see the hand-overs of others.
func newChannel(client any) string {
	database := 0
	if c, knows := client.(interface{ Options() *redis.Options }); knows {
		_ = rediserr.Shield(func() error { database = c.Options().DB; return nil }) // it may embed a nil client
	}
	if database > 0 {
		return fmt.Sprintf("redlatch:%d:%s", database, uuid.NewString())
	}
	return "redlatch:" + uuid.NewString()
}

// Database returns the database of the locks that are handed over by a channel.
func Database(channel string) int {
	_, rest, _ := strings.Cut(channel, ":")
	number, _, _ := strings.Cut(rest, ":")
	database, err := strconv.ParseUint(number, 10, 31)
	if err != nil { // a UUID
		return 0
	}
	return int(database)
}
