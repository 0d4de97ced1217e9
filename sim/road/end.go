package road

import "github.com/redlatch/redlatch/internal/testing/pipe"

// An end is one end of a connection, with the faults of its link.
type end struct {
	pipe.Conn
	write func([]byte) (int, error)
	close func()
}

func (e *end) Write(b []byte) (int, error) { return e.write(b) }
func (e *end) Close() error                { e.close(); return nil }
