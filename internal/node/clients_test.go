package node

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/redistest"
)

// carries checks that a node of client serves calls of all kinds, from many callers at once. Scripts are
// new to the server, so they are sent in both ways.
func carries(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	n := New(client)
	prefix := fmt.Sprint("{", t.Name(), "}")
	add := NewScript("redis.call('SET', KEYS[1], ARGV[1]); return {KEYS[1], tonumber(ARGV[2]), false} --" + prefix)
	wrong := NewScript("return redis.call('LPUSH', KEYS[1], 'x') --" + prefix)
	var wg sync.WaitGroup
	for g := range 12 {
		wg.Go(func() {
			for i := range 4 {
				key, number := fmt.Sprint(prefix, g, "-", i), int64(g)
				r := n.Do(t.Context(), within(Eval(add, 1, &key, "v", &number), limit))
				if r.Err != nil || r.Resent || fmt.Sprint(r.Value) != fmt.Sprint([]any{key, number, nil}) {
					t.Errorf("script: %+v", r)
				}
				r = n.Do(t.Context(), within(Command("get", &key), limit))
				if r.Err != nil || r.Value != "v" {
					t.Errorf("get: %+v", r)
				}
				r = n.Do(t.Context(), within(Command("get", key+"nothing"), limit))
				if r.Err != nil || r.Value != nil {
					t.Errorf("get nothing: %+v", r)
				}
				r = n.Do(t.Context(), within(Eval(wrong, 1, &key), limit))
				if !errors.Is(r.Err, ErrOtherData) || !Answered(r.Err) || r.Resent {
					t.Errorf("wrong type: %+v", r)
				}
				c := within(Command("del", key), limit)
				c.Ordered, c.Key, c.OutlivesCaller = true, prefix, true
				if r = n.Do(t.Context(), c); r.Err != nil || r.Value != int64(1) {
					t.Errorf("del: %+v", r)
				}
			}
		})
	}
	wg.Wait()
	c := within(Command("set", prefix, "v"), limit)
	c.Key, c.Then = prefix, []any{"get", prefix}
	r := n.Do(t.Context(), c)
	requireOK(t, false, r)
	require.Equal(t, &Reply{Value: "v"}, r.Then)
	requireIdle(t, n)
}

// carried calls carries for a client with these options, and closes it afterwards.
func carried(t *testing.T, o *redis.Options, hooks ...redis.Hook) {
	t.Helper()
	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	for _, h := range hooks {
		client.AddHook(h)
	}
	carries(t, client)
}

// TestEveryClientCarriesCalls: calls succeed whatever the settings of a client are.
func TestEveryClientCarriesCalls(t *testing.T) {
	t.Parallel()
	for _, timeout := range []time.Duration{0, 2 * time.Second, -1} { // 2 s is shorter than the timeout of the calls
		for _, heeds := range []bool{false, true} {
			for _, retries := range []int{0, -1} {
				for _, size := range []int{0, 1} {
					t.Run(fmt.Sprintf("ReadTimeout %d, heeds %v, MaxRetries %d, PoolSize %d", timeout, heeds, retries, size), func(t *testing.T) {
						o := redistest.Shared(t).Options()
						o.ReadTimeout, o.ContextTimeoutEnabled, o.MaxRetries, o.PoolSize = timeout, heeds, retries, size
						carried(t, o)
						o.PipelinePoolSize = -1
						carried(t, o)
					})
				}
			}
		}
	}
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			o := redistest.Shared(t).Options()
			o.Protocol = protocol
			carried(t, o)
		})
	}
	t.Run("TCP", func(t *testing.T) { carried(t, redistest.StartTCP(t).Options()) })
	t.Run("TLS", func(t *testing.T) {
		addr, config := behindTLS(t, redistest.Shared(t))
		carried(t, &redis.Options{Addr: addr, TLSConfig: config})
	})
	t.Run("AutoPipeline", func(t *testing.T) {
		client, err := redistest.Shared(t).Client(t).AutoPipeline()
		require.NoError(t, err)
		carries(t, client)
	})
	t.Run("AsyncAutoPipeline", func(t *testing.T) {
		client, err := redistest.Shared(t).Client(t).AsyncAutoPipeline()
		require.NoError(t, err)
		carries(t, client)
	})
	t.Run("Ring", func(t *testing.T) {
		client := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{
			"a": redistest.StartTCP(t).Addr(), "b": redistest.StartTCP(t).Addr(),
		}})
		t.Cleanup(func() { _ = client.Close() })
		carries(t, client)
	})
	t.Run("slow hook", func(t *testing.T) {
		carried(t, redistest.Shared(t).Options(), hook(func(_ context.Context, _ []redis.Cmder, next func() error) error {
			<-time.After(time.Millisecond)
			return next()
		}))
	})
	t.Run("hook that keeps what it sees", func(t *testing.T) {
		kept := &keeper{}
		carried(t, redistest.Shared(t).Options(), kept.hook())
		kept.requireUnchanged(t)
	})
}

// behindTLS returns the address of a listener that speaks TLS, in front of s, and how to trust it.
func behindTLS(t *testing.T, s *redistest.Server) (addr string, config *tls.Config) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	require.NoError(t, err)
	cert, err := x509.ParseCertificate(der)
	require.NoError(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	pass := func(to, from net.Conn) { // ends with either connection
		_, _ = io.Copy(to, from)
		_, _ = to.Close(), from.Close()
	}
	go func() { // ends with the listener
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(s.Network(), s.Addr())
			if err != nil {
				_ = conn.Close()
				continue
			}
			go pass(server, conn)
			go pass(conn, server)
		}
	}()
	config = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	config.RootCAs.AddCert(cert)
	return listener.Addr().String(), config
}

// limiter is a redis.Limiter that refuses while it is open, as a circuit breaker does.
type limiter struct {
	open             atomic.Bool
	allowed, results atomic.Int64
}

var errOpen = errors.New("circuit open")

func (l *limiter) Allow() error {
	if l.open.Load() {
		return errOpen
	}
	l.allowed.Add(1)
	return nil
}

func (l *limiter) ReportResult(error) { l.results.Add(1) }

// TestLimiterIsAsked: calls pass through the client's limiter. While it refuses, they are retried until
// they time out.
func TestLimiterIsAsked(t *testing.T) {
	t.Parallel()
	o := redistest.Shared(t).Options()
	l := &limiter{}
	o.Limiter = l
	carried(t, o)
	require.Positive(t, l.allowed.Load())
	require.Equal(t, l.allowed.Load(), l.results.Load())

	client := redis.NewClient(o)
	t.Cleanup(func() { _ = client.Close() })
	n := New(client)
	l.open.Store(true)
	for _, p := range together(t, n, within(Command("ping"), time.Second), within(Command("ping"), time.Second)) {
		r := p.wait(t)
		require.ErrorIs(t, r.Err, errOpen)
		require.ErrorContains(t, r.Err, "no reply within 1s: circuit open")
	}
	all := together(t, n, Command("ping"), Command("ping"))
	eventually(t, "they were refused", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return all[0].trouble != nil && all[1].trouble != nil
	})
	l.open.Store(false)
	for _, p := range all {
		require.NoError(t, p.wait(t).Err)
	}
}

// TestHookThatFailsIsTriedAgain: a failure of a hook is no answer, whether the command was sent or
// not, alone or in a batch.
func TestHookThatFailsIsTriedAgain(t *testing.T) {
	t.Parallel()
	errHook := errors.New("the hook failed")
	for name, c := range map[string]struct {
		sends bool
		times int64 // how often it is carried out
	}{
		"before it sends": {false, 1},
		"after it sent":   {true, 2},
	} {
		for _, calls := range []int{1, 10} {
			t.Run(fmt.Sprintf("%s, %d calls", name, calls), func(t *testing.T) {
				t.Parallel()
				s := redistest.Start(t)
				client := s.Client(t)
				require.NoError(t, client.Ping(t.Context()).Err())
				var fails atomic.Int64
				fails.Store(1)
				client.AddHook(hook(func(_ context.Context, cmds []redis.Cmder, next func() error) error {
					if len(cmds) != calls || fails.Add(-1) < 0 {
						return next()
					}
					if c.sends {
						_ = next()
					}
					return errHook
				}))
				n := New(client)
				direct := s.Client(t)
				require.NoError(t, direct.ScriptLoad(t.Context(), increase.source).Err())
				var batch []*Call
				for i := range calls {
					batch = append(batch, Eval(increase, 1, fmt.Sprint("n", i), 1))
				}
				for i, p := range together(t, n, batch...) {
					r := p.wait(t)
					require.NoError(t, r.Err)
					times := c.times
					if calls > 1 { // each command of a batch has its reply, whatever the hook says
						times = 1
					}
					require.Equal(t, times, r.Value)
					got, err := direct.Get(t.Context(), fmt.Sprint("n", i)).Int64()
					require.NoError(t, err)
					require.Equal(t, times, got)
				}
				fails.Store(1 << 30)
				for _, p := range together(t, n, within(Command("ping"), time.Second)) {
					if calls == 1 {
						require.ErrorContains(t, p.wait(t).Err, "no reply within 1s: the hook failed")
					}
				}
			})
		}
	}
}
