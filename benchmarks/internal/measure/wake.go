package measure

import (
	"io"
	"os"
	"runtime"
	"time"
)

// Wake returns what it costs to wake a thread that waits for another one: half the median of what it
// takes to send a byte there and back through pipes. Where that is dear, every hand-over from one
// goroutine to another is, once a core is idle.
func Wake() (time.Duration, error) {
	const rounds = 1000
	there, ask, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer there.Close()
	back, answer, err := os.Pipe()
	if err != nil {
		_ = ask.Close()
		return 0, err
	}
	defer back.Close()
	// Fd has reads block their thread, so that no poller stands between.
	for _, f := range []*os.File{there, ask, back, answer} {
		f.Fd()
	}
	go func() { // ends when ask is closed
		runtime.LockOSThread()
		defer answer.Close()
		_, _ = io.Copy(onlyWriter{answer}, onlyReader{there})
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer ask.Close()
	one, took := make([]byte, 1), make([]float64, rounds)
	for i := range took {
		begin := time.Now()
		if _, err := ask.Write(one); err != nil {
			return 0, err
		}
		if _, err := back.Read(one); err != nil {
			return 0, err
		}
		took[i] = float64(time.Since(begin))
	}
	return time.Duration(Median(took) / 2), nil
}

// onlyReader and onlyWriter keep io.Copy from other ways than Read and Write.
type (
	onlyReader struct{ io.Reader }
	onlyWriter struct{ io.Writer }
)
