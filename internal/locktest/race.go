package locktest

import "runtime/debug"

// RaceDetector reports whether this binary was built with -race.
func RaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	for _, s := range info.Settings {
		if ok && s.Key == "-race" {
			return s.Value == "true"
		}
	}
	return false
}
