package roles

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// A heap grows by the garbage of collectEvery between two collections, while memory is far from its limit. The memory
// that a process does not take is for others. The growth has bounds, in percent of the heap. A small heap may grow by
// largestGrowth in any case: otherwise it would be collected many times a second, and each collection marks all of it.
const (
	collectEvery  = 2 * time.Second
	leastGrowth   = 10
	busyGrowth    = 50              // most of a loader
	quietGrowth   = 40              // most of all other processes
	largestGrowth = 8 << 20         // bytes
	judgeEvery    = 3 * time.Second // the time in which the garbage of a process is counted
	freeEvery     = time.Minute     // between two times that a process gives all free memory back
)

// CollectQuietly sets the collector's target of a process that makes little garbage, and gives back the memory that the
// process used to begin.
func CollectQuietly() {
	debug.SetGCPercent(quietGrowth)
	debug.FreeOSMemory()
}

// LimitMemory bounds the heap of this process. Near the limit the collector runs as often as necessary.
func LimitMemory(bytes int64) { debug.SetMemoryLimit(bytes) }

// collector sets the target of this process's garbage collector.
type collector struct {
	mu    sync.Mutex
	most  int       // growth of a large heap
	now   int       // growth
	freed time.Time // when all free memory was given back last; zero: at the start
}

// quietly begins as CollectQuietly does.
func (c *collector) quietly() {
	c.most, c.now = quietGrowth, quietGrowth
	CollectQuietly()
}

// asRole sets the most growth of a loader or a shadow.
func (c *collector) asRole(standby bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.most = busyGrowth; standby {
		c.most = quietGrowth
	}
	c.set(c.most)
}

// run adapts the target to the garbage of this process, until ctx ends.
func (c *collector) run(ctx context.Context) {
	for before := readHeap(); ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(judgeEvery):
		}
		h := readHeap()
		c.mu.Lock()
		c.set(growth(c.most, h.counted, float64(h.made-before.made)/judgeEvery.Seconds()))
		c.free(time.Now())
		c.mu.Unlock()
		before = h
	}
}

// set changes the target; mu is held. A change stops this process for a moment.
func (c *collector) set(growth int) {
	if growth != c.now {
		debug.SetGCPercent(growth)
		c.now = growth
	}
}

// free gives all free memory back once the process is quiet: it took the memory while it was busy. mu is held.
func (c *collector) free(now time.Time) {
	if c.now == leastGrowth && now.Sub(c.freed) >= freeEvery {
		c.freed = now
		debug.FreeOSMemory()
	}
}

// growth returns the growth of a heap until the next collection, in percent of the bytes that the collector counts.
// rate is the number of bytes that are allocated in a second.
func growth(most int, counted uint64, rate float64) int {
	percent := func(bytes float64) int { return int(100 * bytes / float64(max(counted, 1))) }
	return min(max(leastGrowth, percent(rate*collectEvery.Seconds())), max(most, percent(largestGrowth)))
}

// heap is the memory that the collector knows of, in bytes.
type heap struct {
	made    uint64 // allocated since the process began
	counted uint64 // live at the last collection, with stacks and globals
}

func readHeap() (out heap) {
	samples := []metrics.Sample{
		{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"},
		{Name: "/gc/scan/globals:bytes"},
	}
	metrics.Read(samples)
	out.made = samples[0].Value.Uint64()
	for _, s := range samples[1:] {
		out.counted += s.Value.Uint64()
	}
	return out
}
