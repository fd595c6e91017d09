package event

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"millrace/internal/seam"
)

// Settle waits, at most a second, until the process has few more goroutines than at its start. The goroutines of closed
// connections end by themselves; on a busy machine they need some time.
func Settle(clock seam.Clock, start Record) {
	const little = 4
	for over := clock.After(time.Second); runtime.NumGoroutine() > start.Goroutines+little; {
		select {
		case <-over:
			return
		case <-clock.After(time.Millisecond):
		}
	}
}

// Weigh returns a record with the resources of the process.
func Weigh(name string) Record {
	r := Record{Event: name, Step: -1, Rank: -1, Micro: -1, Goroutines: runtime.NumGoroutine()}
	if fds, err := os.ReadDir("/proc/self/fd"); err == nil {
		r.FDs = len(fds) - 1 // the directory itself is open while it is read
	}
	if statm, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(statm); len(fields) > 1 {
			pages, _ := strconv.ParseInt(string(fields[1]), 10, 64)
			r.RSS = pages * int64(os.Getpagesize())
		}
	}
	return r
}
