package benchmarks_test

import (
	"os"
	"testing"

	"github.com/redlatch/redlatch/internal/testing/redistest"
)

func TestMain(m *testing.M) {
	code := m.Run()
	redistest.StopShared()
	os.Exit(code)
}
