package pipe_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/redlatch/redlatch/internal/testing/pipe"
)

// connect runs a test in a bubble, with both ends of a connection.
func connect(t *testing.T, test func(t *testing.T, a, b *pipe.Conn)) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pipe.New(nil, nil)
		test(t, a, b)
	})
}

func write(t *testing.T, c net.Conn, text string) {
	t.Helper()
	n, err := c.Write([]byte(text))
	require.NoError(t, err)
	require.Equal(t, len(text), n)
}

// read reads what is to be text.
func read(t *testing.T, c net.Conn, text string) {
	t.Helper()
	b := make([]byte, len(text))
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	require.Equal(t, text, string(b))
}

// took returns how long a read that fails takes.
func took(t *testing.T, c net.Conn, want error) time.Duration {
	t.Helper()
	begin := time.Now()
	n, err := c.Read(make([]byte, 1))
	require.Zero(t, n)
	require.ErrorIs(t, err, want)
	return time.Since(begin)
}

func TestWritesQueue(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		text := []byte("one, ")
		_, err := a.Write(text)
		require.NoError(t, err)
		copy(text, "xxxxx") // it is the caller's again
		write(t, a, "two")
		write(t, b, "three")
		read(t, b, "one")
		n, err := b.Read(nil)
		require.NoError(t, err)
		require.Zero(t, n)
		read(t, b, ", two")
		read(t, a, "three")
	})
}

func TestReadWaitsForAWrite(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		time.AfterFunc(time.Hour, func() { write(t, a, "late") })
		begin := time.Now()
		read(t, b, "late")
		require.Equal(t, time.Hour, time.Since(begin))
	})
}

func TestReadDeadline(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Second)))
		require.Equal(t, time.Second, took(t, b, os.ErrDeadlineExceeded))
		write(t, a, "text")
		require.Zero(t, took(t, b, os.ErrDeadlineExceeded), "it has passed, though something is there")
		require.NoError(t, b.SetReadDeadline(time.Time{}))
		read(t, b, "text")

		require.NoError(t, b.SetDeadline(time.Now().Add(time.Hour)))
		time.AfterFunc(time.Minute, func() { assert.NoError(t, b.SetReadDeadline(time.Now().Add(time.Second))) })
		require.Equal(t, time.Minute+time.Second, took(t, b, os.ErrDeadlineExceeded), "sooner, while it waits")
		require.NoError(t, b.SetDeadline(time.Now().Add(time.Second)))
		time.AfterFunc(time.Second/2, func() { assert.NoError(t, b.SetReadDeadline(time.Now().Add(time.Second))) })
		require.Equal(t, time.Second*3/2, took(t, b, os.ErrDeadlineExceeded), "later, while it waits")

		var timeout net.Error
		_, err := b.Read(make([]byte, 1))
		require.True(t, errors.As(err, &timeout) && timeout.Timeout())
	})
}

func TestWriteDeadline(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		require.NoError(t, a.SetDeadline(time.Now().Add(time.Second)))
		write(t, a, "1")
		time.Sleep(time.Second)
		_, err := a.Write([]byte("2"))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
		require.NoError(t, a.SetWriteDeadline(time.Time{}))
		write(t, a, "3")
		read(t, b, "13")
	})
}

func TestClose(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		write(t, a, "last words")
		write(t, b, "never read")
		time.AfterFunc(time.Second, func() { assert.NoError(t, a.Close()) })
		read(t, a, "never read")
		require.Equal(t, time.Second, took(t, a, net.ErrClosed), "a read that waits ends")
		synctest.Wait()
		require.NoError(t, a.Close())

		require.Zero(t, took(t, a, net.ErrClosed))
		_, err := a.Write([]byte("x"))
		require.ErrorIs(t, err, net.ErrClosed)
		require.ErrorIs(t, a.SetDeadline(time.Time{}), net.ErrClosed)
		require.ErrorIs(t, a.SetWriteDeadline(time.Time{}), net.ErrClosed)

		_, err = b.Write([]byte("x"))
		require.ErrorIs(t, err, syscall.EPIPE)
		require.NoError(t, b.SetDeadline(time.Now().Add(time.Minute)))
		rest, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Equal(t, "last words", string(rest))
		require.NoError(t, b.Close())
		require.Zero(t, took(t, b, net.ErrClosed))
	})
}

// TestEveryReaderIsWoken: not only one of several.
func TestEveryReaderIsWoken(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		var readers sync.WaitGroup
		for range 10 {
			readers.Go(func() {
				_, err := b.Read(make([]byte, 1))
				assert.NoError(t, err)
			})
		}
		synctest.Wait()
		write(t, a, "0123456789")
		readers.Wait()
		for range 10 {
			readers.Go(func() {
				_, err := b.Read(make([]byte, 1))
				assert.ErrorIs(t, err, io.EOF)
			})
		}
		synctest.Wait()
		require.NoError(t, a.Close())
		readers.Wait()
	})
}

func TestDelay(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		delay := time.Minute
		a.Delay = func() time.Duration { return delay }
		begin := time.Now()
		write(t, a, "slow")
		delay = 0
		write(t, a, "fast")
		read(t, b, "slowfast")
		require.Equal(t, time.Minute, time.Since(begin), "in order")

		delay = time.Hour
		write(t, a, "all ")
		write(t, a, "of it")
		require.NoError(t, a.Close())
		time.AfterFunc(time.Minute, func() { b.In.Hurry(time.Second) })
		begin = time.Now()
		read(t, b, "all of it")
		require.Equal(t, time.Minute+time.Second, time.Since(begin))
		require.Zero(t, took(t, b, io.EOF))
	})
}

// TestHurryDelaysNothing: what comes sooner, and what is sent afterwards.
func TestHurryDelaysNothing(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		b.In.Hurry(time.Hour)
		begin := time.Now()
		b.In.Send([]byte("soon"), time.Second)
		b.In.Hurry(time.Minute)
		read(t, b, "soon")
		write(t, a, "now")
		read(t, b, "now")
		require.Equal(t, time.Second, time.Since(begin))
	})
}

func TestHoldAndReset(t *testing.T) {
	connect(t, func(t *testing.T, a, b *pipe.Conn) {
		b.In.Hold(true)
		write(t, a, "held")
		require.NoError(t, b.SetReadDeadline(time.Now().Add(time.Second)))
		require.Equal(t, time.Second, took(t, b, os.ErrDeadlineExceeded))
		require.NoError(t, b.SetReadDeadline(time.Time{}))
		time.AfterFunc(time.Second, func() { b.In.Hold(false) })
		read(t, b, "held")

		write(t, a, "lost")
		b.In.Reset(io.ErrUnexpectedEOF)
		require.Zero(t, took(t, b, io.ErrUnexpectedEOF))
		require.True(t, b.In.Ended())
		require.False(t, a.In.Ended())
	})
}
