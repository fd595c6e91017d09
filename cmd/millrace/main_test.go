package main

import (
	"runtime"
	"testing"
)

// TestOneCoreHasTwoThreads: unless the user has set another number.
func TestOneCoreHasTwoThreads(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	defer runtime.GOMAXPROCS(before)
	for _, c := range []struct {
		cores int
		set   string
		want  int
	}{{1, "", 2}, {1, "1", 1}, {3, "", 3}} {
		runtime.GOMAXPROCS(c.cores)
		raiseProcessors(c.set)
		if got := runtime.GOMAXPROCS(0); got != c.want {
			t.Errorf("with %d cores and GOMAXPROCS=%q: %d, want %d", c.cores, c.set, got, c.want)
		}
	}
}
