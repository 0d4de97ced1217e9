package redlatch

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redlatch/redlatch/internal/redistest"
)

func BenchmarkPair(b *testing.B) {
	s := redistest.Shared(b)
	ctx := context.Background()
	for _, par := range []int{0, 8} {
		run := func(b *testing.B, f func(key string) error) {
			b.ReportAllocs()
			if par == 0 {
				key := "k" + strconv.Itoa(7)
				for b.Loop() {
					if err := f(key); err != nil {
						b.Fatal(err)
					}
				}
				return
			}
			b.SetParallelism(par)
			var n atomic.Int64
			b.RunParallel(func(pb *testing.PB) {
				key := "k" + strconv.Itoa(int(n.Add(1)))
				for pb.Next() {
					if err := f(key); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		p := strconv.Itoa(par)
		b.Run("raw"+p, func(b *testing.B) {
			c := s.Client(b)
			rel := redis.NewScript(releaseSource)
			run(b, func(key string) error {
				tok := uuid.NewString()
				c.SetNX(ctx, key, tok, 1e10)
				return rel.Run(ctx, c, []string{key}, tok).Err()
			})
		})
		for _, v := range []struct {
			n    string
			opts []Option
		}{{"default", nil}, {"unfenced", []Option{WithoutFence()}}, {"fixed", []Option{WithoutRenewal(), WithoutFence()}}} {
			b.Run(v.n+p, func(b *testing.B) {
				c := s.Client(b)
				l, _ := NewSetNXPX(c, v.opts...)
				run(b, func(key string) error {
					k, err := l.TryLock(ctx, key)
					if err != nil {
						return err
					}
					return k.Unlock(ctx)
				})
			})
		}
	}
}
