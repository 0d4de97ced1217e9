package report

import (
	"bufio"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/benchmarks/internal/measure"
)

// Machine describes the machine of a run, without its name and its place.
type Machine struct {
	CPU   string `json:"cpu"`
	Cores int    `json:"cores"`
	OS    string `json:"os"`
	Arch  string `json:"arch"`
	Wake  string `json:"wake,omitempty"` // what it costs to wake a thread
}

// ThisMachine describes the machine that it runs on.
func ThisMachine() (Machine, error) {
	wake, err := measure.Wake()
	return Machine{
		CPU: cpuModel("/proc/cpuinfo"), Cores: runtime.NumCPU(), OS: runtime.GOOS, Arch: runtime.GOARCH,
		Wake: wake.Round(100 * time.Nanosecond).String(),
	}, err
}

// cpuModel returns the model that Linux names in file.
func cpuModel(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return "unknown CPU"
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(name) == "model name" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return "unknown CPU"
}

// Version is the version of something that was measured.
type Version struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// compared are the modules whose versions matter.
var compared = []string{
	"github.com/redis/go-redis/v9",
	"github.com/go-redsync/redsync/v4",
	"github.com/bsm/redislock",
	"github.com/redis/rueidis",
}

// Versions returns the versions of Go, of the Redis server and of the modules that were built in.
func Versions(redis string) []Version {
	all := []Version{{"Go", strings.TrimPrefix(runtime.Version(), "go")}, {"Redis", redis}}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return all
	}
	for _, path := range compared {
		i := slices.IndexFunc(info.Deps, func(m *debug.Module) bool { return m.Path == path })
		if i >= 0 {
			all = append(all, Version{strings.TrimPrefix(path, "github.com/"), info.Deps[i].Version})
		}
	}
	return all
}
