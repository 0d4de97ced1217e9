package redlatchvalkey_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// connect returns a client of a server, which is closed at the end of the test.
func connect(t *testing.T, s *redistest.Server, more ...func(*valkey.ClientOption)) valkey.Client {
	t.Helper()
	o := valkey.ClientOption{
		InitAddress: []string{s.Addr()}, ForceSingleClient: true, DisableCache: true,
		DialCtxFn: func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return d.DialContext(ctx, cmp.Or(s.Network(), "tcp"), addr)
		},
	}
	for _, change := range more {
		change(&o)
	}
	return open(t, o)
}

// open returns a client, which is closed at the end of the test.
func open(t *testing.T, o valkey.ClientOption) valkey.Client {
	t.Helper()
	c, err := valkey.NewClient(o)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}
