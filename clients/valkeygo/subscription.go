package redlatchvalkey

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/valkey-io/valkey-go"
)

// A subscription receives messages on a connection of valkey-go that nobody else uses, so that it ends
// with that connection. Its goroutine ends with the ctx, or when a dial has ended. Nobody waits for it.
type subscription struct {
	commands chan []string
	news     chan struct{} // has an element if there may be something to read

	mu  sync.Mutex // guards the fields below
	out []byte     // replies and messages that were not read yet
	err error      // comes behind them
}

const (
	mostCommands = 16      // that wait to be sent; there are SUBSCRIBE, and a PING in some seconds
	mostUnread   = 1 << 20 // bytes
)

var errNotRead = errors.New("redlatch: messages are not read")

// subscribe returns a subscription without channels.
func subscribe(ctx context.Context, server valkey.Client, anyServer bool) *subscription {
	if anyServer { // each server of a Cluster gets all messages
		for _, server = range server.Nodes() {
			break
		}
	}
	s := &subscription{commands: make(chan []string, mostCommands), news: make(chan struct{}, 1)}
	go s.run(ctx, server)
	return s
}

func (s *subscription) run(ctx context.Context, server valkey.Client) {
	c, _ := server.Dedicate() // which may dial, and heeds no ctx
	defer c.Close()
	ended := c.SetPubSubHooks(valkey.PubSubHooks{
		OnMessage: func(m valkey.PubSubMessage) {
			s.put(appendString(appendString(appendString([]byte("*3\r\n"), "message"), m.Channel), m.Message))
		},
		OnSubscription: func(m valkey.PubSubSubscription) {
			s.put(appendNumber(appendString(appendString([]byte("*3\r\n"), m.Kind), m.Channel), ':', m.Count))
		},
	})
	for {
		select {
		case words := <-s.commands:
			s.carry(ctx, c, words)
		case err := <-ended:
			if err == nil {
				err = io.EOF
			}
			s.end(err)
			return
		case <-ctx.Done():
			return
		}
	}
}

// carry carries out a command. The reply to SUBSCRIBE comes by a hook.
func (s *subscription) carry(ctx context.Context, c valkey.DedicatedClient, words []string) {
	var err error
	switch name(words) {
	case "subscribe":
		err = c.Do(ctx, c.B().Subscribe().Channel(words[1:]...).Build()).Error()
	case "ping":
		if err = c.Do(ctx, c.B().Ping().Build()).Error(); err == nil {
			s.put(appendString(appendString([]byte("*2\r\n"), "pong"), ""))
		}
	default:
		err = errors.New("redlatch: a connection for messages carries SUBSCRIBE and PING only")
	}
	if answer, is := valkey.IsValkeyErr(err); is {
		s.put(appendError(nil, answerText(answer)))
	} else if err != nil {
		s.end(err)
	}
}

// send has a command carried out.
func (s *subscription) send(words []string) error {
	select {
	case s.commands <- words:
		return nil
	default:
		return errNotRead
	}
}

// put adds what will be read. It may be called by a goroutine that reads the replies to all commands.
func (s *subscription) put(message []byte) {
	s.mu.Lock()
	if len(s.out) < mostUnread {
		s.out = append(s.out, message...)
	} else {
		s.err = errNotRead
	}
	s.mu.Unlock()
	s.wake()
}

// end ends the subscription for its reader.
func (s *subscription) end(err error) {
	s.mu.Lock()
	if s.err == nil {
		s.err = err
	}
	s.mu.Unlock()
	s.wake()
}

func (s *subscription) wake() {
	select {
	case s.news <- struct{}{}:
	default:
	}
}

// read waits for messages, or for an error.
func (s *subscription) read(ctx context.Context, p []byte) (int, error) {
	for {
		s.mu.Lock()
		n, err := copy(p, s.out), s.err
		s.out = s.out[n:]
		s.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case err != nil:
			return 0, err
		}
		select {
		case <-s.news:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}
