// Package race says whether the race detector is on, so that a test can do less.
package race

import "runtime/debug"

// Detector reports whether this binary was built with -race.
func Detector() bool {
	info, ok := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if ok && s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
