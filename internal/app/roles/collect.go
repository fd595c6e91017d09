package roles

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// The least growth of the heap between two collections, in percent, while memory is far from its limit. The memory that
// a process does not take is for others.
const (
	busyGrowth  = 50 // of a loader
	quietGrowth = 40 // of all other processes
)

// A process that makes garbage fast lets its heap grow further: by the garbage of collectEvery, and by largestGrowth at
// most. Otherwise a small heap would be collected many times a second, and each collection marks all of it.
const (
	collectEvery  = time.Second
	largestGrowth = 8 << 20         // bytes
	judgeEvery    = 3 * time.Second // the time in which the garbage of a process is counted
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
	least int // growth
	now   int // growth
}

// quietly begins as CollectQuietly does.
func (c *collector) quietly() {
	c.least, c.now = quietGrowth, quietGrowth
	CollectQuietly()
}

// asRole sets the least growth of a loader or a shadow.
func (c *collector) asRole(standby bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.least = busyGrowth; standby {
		c.least = quietGrowth
	}
	c.set(c.least)
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
		c.set(growth(c.least, h.counted, float64(h.made-before.made)/judgeEvery.Seconds()))
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

// growth returns the growth of a heap until the next collection, in percent of the bytes that the collector counts.
// rate is the number of bytes that are allocated in a second.
func growth(least int, counted uint64, rate float64) int {
	wanted := min(rate*collectEvery.Seconds(), largestGrowth)
	return max(least, int(100*wanted/float64(max(counted, 1))))
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
