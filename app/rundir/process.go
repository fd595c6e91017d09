package rundir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// ClockTick is the unit of times in /proc. Linux has the same one on all processors.
const ClockTick = 10 * time.Millisecond

// CPU returns the CPU time that a process has used, in user mode and in the kernel.
func CPU(pid int) (time.Duration, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
	}
	_, rest, _ := strings.Cut(string(b), ") ") // the name before may hold blanks
	fields := strings.Fields(rest)
	const user, kernel = 11, 12 // of those after the name
	if len(fields) <= kernel {
		return 0, fmt.Errorf("read the CPU time of process %d: its line has %d fields", pid, len(fields))
	}
	total := time.Duration(0)
	for _, field := range fields[user : kernel+1] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read the CPU time of process %d: %w", pid, err)
		}
		total += time.Duration(n) * ClockTick
	}
	return total, nil
}

// PSS returns the memory of a process in bytes. Each page counts by its share among the processes that have it.
func PSS(pid int) (int64, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "smaps_rollup"))
	if err != nil {
		return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(b)) {
		if rest, ok := strings.CutPrefix(line, "Pss:"); ok {
			n, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return n << 10, err
		}
	}
	return 0, fmt.Errorf("read the memory of process %d: the kernel gives no Pss", pid)
}
