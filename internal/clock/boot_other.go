//go:build !linux

package clock

import "time"

// boot knows no boot id here, so each process counts as a boot of its own:
// monotonic readings compare within it alone, and the wall clock decides
// between processes.
func boot() (time.Duration, string) { return unknownBoot() }
