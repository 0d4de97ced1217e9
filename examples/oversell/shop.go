package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

// A shop sells the same seats as often as it is asked to, each time under another strategy. Its
// keys in Redis have a random prefix, and its first node keeps the seats.
type shop struct {
	config
	prefix string
	nodes  []redis.UniversalClient // to prepare, count and clean up; buyers have their own
}

// open returns a shop whose nodes all answer. The caller must close it.
func open(ctx context.Context, cfg config) (*shop, error) {
	// If the prefix is a hash tag, the companion keys of a lock begin with it too.
	s := &shop{config: cfg, prefix: "{oversell:" + rand.Text() + "}:", nodes: connect(cfg.addrs)}
	for i, node := range s.nodes {
		if err := node.Ping(ctx).Err(); err != nil {
			return nil, errors.Join(fmt.Errorf("redis %s: %w", cfg.addrs[i], err), disconnect(s.nodes))
		}
	}
	return s, nil
}

// close removes all that the shop and its buyers left in Redis, also when ctx has ended.
func (s *shop) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	var errs []error
	for i, node := range s.nodes {
		if err := sweep(ctx, node, s.prefix); err != nil {
			errs = append(errs, fmt.Errorf("clean up redis %s: %w", s.addrs[i], err))
		}
	}
	return errors.Join(append(errs, disconnect(s.nodes))...)
}

// sellOut puts the seats on sale and lets all buyers buy, guarded by st, until none is left. The
// first error of a buyer, or the end of ctx, ends the sale for all.
func (s *shop) sellOut(ctx context.Context, st strategy, p *progress) (result, error) {
	prefix := s.prefix + st.name + ":"
	left, sales := prefix+"left", prefix+"sales"
	if err := s.nodes[0].Set(ctx, left, s.seats, 0).Err(); err != nil {
		return result{}, err
	}
	buyers := make([]*buyer, s.buyers)
	for i := range buyers {
		b := &buyer{left: left, sales: sales, work: s.work, progress: p, nodes: connect(s.addrs)}
		defer func() { _ = disconnect(b.nodes) }() // the replies that matter have been read
		if st.locker != nil {
			var err error
			if b.locker, err = st.locker(b.nodes, redlatch.WithKeyPrefix(prefix)); err != nil {
				return result{}, err
			}
		}
		buyers[i] = b
	}

	buying, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	start := time.Now()
	var wg sync.WaitGroup
	for i, b := range buyers {
		wg.Go(func() {
			if err := b.buyAll(buying); err != nil {
				stop(fmt.Errorf("buyer %d: %w", i+1, err))
			}
		})
	}
	wg.Wait()
	r := result{strategy: st, seats: s.seats, elapsed: time.Since(start)}
	if err := context.Cause(buying); err != nil {
		return result{}, err
	}
	for _, b := range buyers {
		r.waits = append(r.waits, b.waits...)
	}
	var err error
	r.fences, err = s.fences(ctx, sales)
	return r, err
}

// fences returns the fence of each sale, in the order of the sales.
func (s *shop) fences(ctx context.Context, sales string) ([]uint64, error) {
	entries, err := s.nodes[0].LRange(ctx, sales, 0, -1).Result()
	if err != nil {
		return nil, err
	}
	fences := make([]uint64, len(entries))
	for i, entry := range entries {
		if fences[i], err = strconv.ParseUint(entry, 10, 64); err != nil {
			return nil, fmt.Errorf("sale %d: %w", i+1, err)
		}
	}
	return fences, nil
}

// A buyer buys seats, one after the other. It shares nothing with the others but Redis.
type buyer struct {
	nodes       []redis.UniversalClient
	locker      redlatch.Locker // nil: no lock
	left, sales string          // the number of seats left, and a list with the fence of each sale
	work        time.Duration
	progress    *progress
	waits       []time.Duration // one a grant
}

// buyAll buys until no seat is left.
func (b *buyer) buyAll(ctx context.Context) error {
	for {
		sold, err := b.buy(ctx)
		if err != nil || !sold {
			return err
		}
		b.progress.sold.Add(1)
	}
}

// buy buys one seat, under the lock if there is one, and reports whether one was left.
func (b *buyer) buy(ctx context.Context) (sold bool, err error) {
	if b.locker == nil {
		return b.sell(ctx, 0)
	}
	asked := time.Now()
	err = redlatch.Do(ctx, b.locker, "seats", func(ctx context.Context, lock *redlatch.Lock) error {
		b.waits = append(b.waits, time.Since(asked))
		var err error
		sold, err = b.sell(ctx, lock.Fence())
		return err
	})
	return sold, err
}

// sell sells one seat, and reports whether one was left. It reads, works and writes, which is right
// only while nobody else does. So ctx must end when that can no longer be trusted, and then nothing
// is written.
func (b *buyer) sell(ctx context.Context, fence uint64) (bool, error) {
	left, err := b.nodes[0].Get(ctx, b.left).Int()
	if err != nil || left <= 0 {
		return false, err
	}
	select {
	case <-time.After(b.work):
	case <-ctx.Done():
	}
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	_, err = b.nodes[0].TxPipelined(ctx, func(tx redis.Pipeliner) error {
		tx.RPush(ctx, b.sales, fence)
		tx.Set(ctx, b.left, left-1, 0)
		return nil
	})
	return err == nil, err
}
