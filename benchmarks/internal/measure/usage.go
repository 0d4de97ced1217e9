package measure

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
)

// Usage is what this process and a Redis have used up so far. The difference of two says what was
// used between them.
type Usage struct {
	ClientCPU   time.Duration // of this whole process
	RedisCPU    time.Duration
	Commands    float64 // that Redis ran, those in scripts included
	Direct      float64 // those of them that clients sent
	Allocations uint64
	Bytes       uint64 // allocated, ever
}

// Meter reads the Usage of this process and of one Redis or several.
type Meter struct {
	admins []*redis.Client
	direct map[string]bool
}

// NewMeter returns a Meter of the servers that admins reach. Clients send the commands in direct
// themselves, as commandstats names them; others run only in scripts.
func NewMeter(direct []string, admins ...*redis.Client) *Meter {
	m := &Meter{admins: admins, direct: make(map[string]bool)}
	for _, name := range direct {
		m.direct[name] = true
	}
	return m
}

// Read returns what was used so far.
func (m *Meter) Read(ctx context.Context) (Usage, error) {
	var u Usage
	for _, admin := range m.admins {
		info, err := admin.Info(ctx, "cpu", "commandstats").Result()
		if err != nil {
			return u, fmt.Errorf("meter of Redis: %w", err)
		}
		m.readInfo(info, &u)
	}
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	u.Allocations, u.Bytes = memory.Mallocs, memory.TotalAlloc
	u.ClientCPU = processCPU()
	return u, nil
}

// readInfo adds what INFO says to u. The Meter's own INFO does not count.
func (m *Meter) readInfo(info string, u *Usage) {
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		switch command, isCommand := strings.CutPrefix(name, "cmdstat_"); {
		case name == "used_cpu_user" || name == "used_cpu_sys":
			seconds, _ := strconv.ParseFloat(value, 64)
			u.RedisCPU += time.Duration(seconds * float64(time.Second))
		case isCommand && command != "info":
			calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
			n, _ := strconv.ParseFloat(calls, 64)
			u.Commands += n
			if m.direct[command] {
				u.Direct += n
			}
		}
	}
}

// Since returns what was used from start to u.
func (u Usage) Since(start Usage) Usage {
	return Usage{
		ClientCPU:   u.ClientCPU - start.ClientCPU,
		RedisCPU:    u.RedisCPU - start.RedisCPU,
		Commands:    u.Commands - start.Commands,
		Direct:      u.Direct - start.Direct,
		Allocations: u.Allocations - start.Allocations,
		Bytes:       u.Bytes - start.Bytes,
	}
}

// processCPU returns the CPU time that this process has used.
func processCPU() time.Duration {
	var usage syscall.Rusage
	// It fails only for a bad pointer.
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
