package delay

import (
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

const roundTrip = 10 * time.Millisecond

// piped returns a delayed connection and its server's end, which end with the test.
func piped(t *testing.T) (client *conn, server net.Conn) {
	near, server := net.Pipe()
	client = newConn(near, roundTrip)
	t.Cleanup(func() {
		require.NoError(t, client.Close())
		require.NoError(t, server.Close())
	})
	return client, server
}

// read returns the next byte from c, and how long ago started was when it came.
func read(t *testing.T, c net.Conn, started time.Time) (string, time.Duration) {
	t.Helper()
	b := make([]byte, 1)
	_, err := io.ReadFull(c, b)
	require.NoError(t, err)
	return string(b), time.Since(started)
}

func TestEachWriteArrivesARoundTripLaterAndWaitsForNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped(t)
		started := time.Now()
		for _, text := range []string{"a", "b", "c"} {
			_, err := client.Write([]byte(text))
			require.NoError(t, err)
			time.Sleep(time.Millisecond)
		}
		for i, want := range []string{"a", "b", "c"} {
			got, took := read(t, server, started)
			require.Equal(t, want, got)
			require.Equal(t, roundTrip+time.Duration(i)*time.Millisecond, took)
		}
	})
}

func TestRepliesAreNotDelayed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped(t)
		started := time.Now()
		go func() { _, _ = server.Write([]byte("r")) }() // ends with the read below
		_, took := read(t, client, started)
		require.Zero(t, took)
	})
}

func TestWriteKeepsItsOwnCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped(t)
		text := []byte("a")
		_, err := client.Write(text)
		require.NoError(t, err)
		text[0] = 'b'
		got, _ := read(t, server, time.Now())
		require.Equal(t, "a", got)
	})
}

func TestDeadlineOfAWriteDoesNotLoseIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped(t)
		require.NoError(t, client.SetWriteDeadline(time.Now().Add(roundTrip/2)))
		_, err := client.Write([]byte("a"))
		require.NoError(t, err)
		got, _ := read(t, server, time.Now())
		require.Equal(t, "a", got)
	})
}

func TestCloseEndsTheSenderAndDropsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped(t)
		_, err := client.Write([]byte("a"))
		require.NoError(t, err)
		require.NoError(t, client.Close())
		_, err = server.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = client.Write([]byte("b"))
		require.ErrorIs(t, err, net.ErrClosed)
	})
}

func TestServerThatIsGoneEndsTheConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, server := piped(t)
		_, err := client.Write([]byte("a"))
		require.NoError(t, err)
		require.NoError(t, server.Close())
		_, err = client.Read(make([]byte, 1))
		require.Error(t, err)
		synctest.Wait()
	})
}
