package redlatchotel

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestVersionIsThatOfThisModule: the module is a dependency or the main module. Without a version
// it is unknown.
func TestVersionIsThatOfThisModule(t *testing.T) {
	program := debug.Module{Path: "example.org/program", Version: "v1.0.0"}
	redlatch := &debug.Module{Path: "github.com/redlatch/redlatch", Version: "v1.1.0"}
	this := debug.Module{Path: "github.com/redlatch/redlatch/otel", Version: "v1.2.0"}
	for want, info := range map[string]*debug.BuildInfo{
		"v1.2.0":    {Main: program, Deps: []*debug.Module{redlatch, &this}},
		"(devel)":   {Main: debug.Module{Path: this.Path, Version: "(devel)"}, Deps: []*debug.Module{redlatch}},
		"(unknown)": {Main: program, Deps: []*debug.Module{redlatch, {Path: this.Path}}},
		"v1.2.1-fork": {Main: program, Deps: []*debug.Module{redlatch, {
			Path: this.Path, Version: this.Version, Replace: &debug.Module{Path: "example.org/fork", Version: "v1.2.1-fork"},
		}}},
	} {
		require.Equal(t, want, versionIn(info))
	}
}
