package handoff

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/clock"
)

// TestHandoverIsReadStrictly: what release.lua publishes is read, and nothing else.
func TestHandoverIsReadStrictly(t *testing.T) {
	h, ok := parseHandover("1700000000 999999 1700000000000123 24 250 redlatch:1 2 a token the key")
	require.True(t, ok)
	require.Equal(t, Handover{
		key: " the key", Entry: "250 redlatch:1 2 a token", Fence: 1700000000000123, TTL: 250 * time.Millisecond,
		at: 1700000000*time.Second + 999999*time.Microsecond,
	}, h)
	for _, bad := range []string{
		"", "1 2 3 4", "1 1 1 3 0 xk", "1 1 1 1 xk", "1 1000000 1 3 1 xk", "99999999999 1 1 3 1 xk",
		"1 1 1 9 1 xk", "1 1 -1 3 1 xk", "1 1 1 5 1e3 xk", "1 1 1 0 k", strings.Repeat("9", 400),
	} {
		_, ok := parseHandover(bad)
		require.False(t, ok, bad)
	}
}

// FuzzHandover: no message makes the parser panic, and what it accepts is within bounds.
func FuzzHandover(f *testing.F) {
	f.Add("1700000000 999999 1700000000000123 24 250 redlatch:1 2 a token the key")
	f.Add("1 1 1 1 5")
	f.Fuzz(func(t *testing.T, message string) {
		h, ok := parseHandover(message)
		if ok && (h.TTL <= 0 || !strings.HasSuffix(message, h.Entry+h.key)) {
			t.Errorf("%q was read as %+v", message, h)
		}
	})
}

// FuzzDeliveries: of messages that are cut, doubled, forged or spoilt, only one that names a token that
// waits for that key is delivered, once, and its lease began between the question and the news.
func FuzzDeliveries(f *testing.F) {
	f.Add([]byte{}, "")
	f.Add([]byte{0, 0, 0, 0}, "")
	f.Add([]byte{1, 5, 1, 60, 0, 0}, "1 1 7 9 10 c 1 tokenk")
	f.Add([]byte{2, 0, 2, 30, 0, 0, 3, 9, 4}, "1700000000 5 7 14 1000 c 1 tokenl")
	f.Add([]byte{4, 4, 0, 0, 3, 0}, "1 0 0 0 0 k")
	f.Fuzz(func(t *testing.T, edits []byte, forged string) {
		client := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
		defer client.Close()
		s := NewSubscription(client, false)
		asked := clock.Now()
		passed := time.Duration(0) // on both clocks at once: reading them one after the other is no part of this
		l := NewWaitlist(s, func() clock.Instant {
			passed += time.Microsecond
			return clock.Instant{Mono: asked.Mono.Add(passed), Wall: asked.Wall + passed}
		}, nil)
		enter := func(key, token string) *Waiter { return l.Enter(key, token, time.Second, false, asked) }
		first, second, elsewhere := enter("k", "token"), enter("k", "token 2"), enter("l", "token")
		sent := fmt.Sprintf("%d 5 1700000000000123 %d %sk", time.Now().Unix(), len(first.Entry), first.Entry)
		next := func() (b byte) {
			if len(edits) > 0 {
				b, edits = edits[0], edits[1:]
			}
			return b
		}
		genuine := false
		for len(edits) > 0 {
			message := sent
			switch kind, at := next()%5, int(next())%(len(sent)+1); kind {
			case 0:
				genuine = true
			case 1:
				message = sent[:at]
			case 2:
				message = sent[at:]
			case 3:
				message = sent[:at] + string([]byte{next()}) + sent[at:]
			default:
				message = forged
			}
			s.received(&redis.Message{Payload: message})
		}
		require.Equal(t, genuine, genuine && len(first.handed) == 1, "what was sent is delivered")
		for _, w := range []*Waiter{first, second, elsewhere} {
			select {
			case h := <-w.handed:
				require.Equal(t, []string{w.key, w.Entry}, []string{h.key, h.Entry})
				require.Equal(t, time.Second, h.TTL)
				start := l.Started(h, 0.01)
				require.False(t, start.Mono.Before(asked.Mono))
				require.False(t, start.Mono.After(h.arrived.Mono))
			default:
			}
			l.Leave(w)
		}
		require.Empty(t, l.keys)
	})
}
