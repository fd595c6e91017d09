package sim

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// campaign adds up the results of seeds.
type campaign struct {
	began time.Time
	spent time.Duration // processor time before the campaign

	mu      sync.Mutex
	played  int
	failed  int
	steps   int
	virtual time.Duration
	struck  map[string]int
	seen    map[string]int // seeds by the consequences of their faults
}

func newCampaign() *campaign {
	return &campaign{began: time.Now(), spent: processorTime(), struck: map[string]int{}, seen: map[string]int{}}
}

// count adds a seed and returns their number.
func (c *campaign) count(o verdict) (played int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.played++
	c.steps += o.Steps
	c.virtual += o.Virtual
	if o.Violated != "" {
		c.failed++
	}
	for kind, n := range o.Struck {
		c.struck[kind] += n
	}
	for kind := range o.Seen {
		c.seen[kind]++
	}
	return c.played
}

// wrong reports whether a seed has failed.
func (c *campaign) wrong() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.failed > 0
}

// report prints the totals. It appends them as a row to the file of the flag -totals, for example docs/campaigns.md.
func (c *campaign) report(t *testing.T) {
	cpu := processorTime() - c.spent
	faults, kinds := 0, []string(nil)
	for _, kind := range slices.Sorted(maps.Keys(c.struck)) {
		faults += c.struck[kind]
		kinds = append(kinds, fmt.Sprintf("%s %d", kind, c.struck[kind]))
	}
	var came []string
	for _, kind := range slices.Sorted(maps.Keys(c.seen)) {
		came = append(came, fmt.Sprintf("%s %d", kind, c.seen[kind]))
	}
	wall := time.Since(c.began)
	fmt.Printf(
		"%d seeds, %d failed, %d faults, %d steps, %v of virtual time in %v "+
			"(%.1f seeds/s, %.1f ms of processor a seed): %s; seeds: %s\n",
		c.played,
		c.failed,
		faults,
		c.steps,
		c.virtual.Round(time.Second),
		wall.Round(time.Second),
		float64(c.played)/wall.Seconds(),
		float64(cpu.Milliseconds())/float64(max(c.played, 1)),
		strings.Join(kinds, ", "),
		strings.Join(came, ", "),
	)
	if *totals == "" {
		return
	}
	row := fmt.Sprintf("| %s | %s | %d-%d | %d | %d | %.2f | %s; seeds: %s |\n", c.began.UTC().Format(time.DateOnly),
		commit(), *from, *from+*seeds-1, faults, c.failed, cpu.Hours(), strings.Join(kinds, ", "),
		strings.Join(came, ", "))
	f, err := os.OpenFile(*totals, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(row); err != nil {
		t.Error(err)
	}
	if err := f.Close(); err != nil {
		t.Error(err)
	}
}

// processorTime returns the processor time of this process.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
