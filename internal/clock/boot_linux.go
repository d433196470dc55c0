package clock

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// boot reads the monotonic clock and the kernel's boot id. CLOCK_MONOTONIC is
// the clock that Go's own is made from on Linux, so that readings of two
// processes of one boot compare. It stands still while the machine sleeps:
// waits judged by it are never shorter than they seem.
func boot() (time.Duration, string) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return unknownBoot()
	}
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return unknownBoot()
	}
	return time.Duration(ts.Nano()), strings.TrimSpace(string(id))
}
