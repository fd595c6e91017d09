package event

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"time"

	"millrace/internal/seam"
)

// Settle waits, a second at most, until little more runs than did when the process was weighed at its start: the goroutines of connections that
// were closed end by themselves, which takes a busy machine a moment.
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

// Weighed is a record of what the process holds now.
func Weighed(name string) Record {
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
