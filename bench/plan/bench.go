package main

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"millrace/bench/plan/overhead"
	"millrace/bench/plan/workload"
	"millrace/orchestrator/planner"
)

// bench is one run of this program: its sizes, and the plans and comparisons that several goals share.
type bench struct {
	lengths map[string]*workload.Histogram

	documents int // size of the table of a corpus
	steps     int // each figure is the mean of this number of steps
	plans     int // each percentile is over this number of plans
	draws     int // size of a test of mixtures or permutations
	divide    int // divides the number of ranks of every goal
	done      map[string]*comparison
	drawn     map[string][]planner.Selection
}

func newBench() (*bench, error) {
	b := &bench{
		lengths: map[string]*workload.Histogram{},
		done:    map[string]*comparison{}, drawn: map[string][]planner.Selection{},
		documents: 4 << 20, steps: 5, plans: 1000, draws: 10_000_000, divide: 1,
	}
	for _, name := range []string{"pretrain", "longctx", "sft"} {
		h, err := workload.Open(name)
		if err != nil {
			return nil, err
		}
		b.lengths[name] = h
	}
	return b, nil
}

// scaled returns a goal's number of ranks, divided by b.divide.
func (b *bench) scaled(ranks int) int { return ranks / b.divide }

// pretrain8K is the shape of most goals: web text in sequences of 8K tokens.
func (b *bench) pretrain8K() shape {
	return shape{
		name:    "pretrain",
		lengths: b.lengths["pretrain"],
		tokens:  8192,
		ranks:   b.scaled(1024),
		columns: 8,
		slack:   1150,
	}
}

// longctx128K has long documents in sequences of 128K tokens.
func (b *bench) longctx128K() shape {
	return shape{
		name:    "longctx",
		lengths: b.lengths["longctx"],
		tokens:  131072,
		ranks:   b.scaled(128),
		columns: 8,
		slack:   1150,
	}
}

// selected selects the steps of a shape. Equal requests are computed once.
func (b *bench) selected(s shape) ([]planner.Selection, error) {
	key := fmt.Sprint(s.name, s.tokens, s.bins(), s.window, s.carry)
	if sels := b.drawn[key]; sels != nil {
		return sels, nil
	}
	whole := max(s.window, 1)
	sels, err := s.selected((b.steps+whole-1)/whole*whole, b.documents)
	b.drawn[key] = sels
	return sels, err
}

// compared compares balancers on a shape. Equal requests are computed once.
func (b *bench) compared(s shape, m overhead.Model) (*comparison, error) {
	key := fmt.Sprint(s.name, s.tokens, s.ranks, s.columns, s.window, m.Name)
	if c := b.done[key]; c != nil {
		return c, nil
	}
	sels, err := b.selected(s)
	if err != nil {
		return nil, err
	}
	c, err := compare(s, m, sels)
	b.done[key] = c
	return c, err
}

// processorTime returns the CPU time that this process has used, the garbage collector included. It excludes the time
// of other processes on the machine.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_PROCESS_CPUTIME_ID, &t); err != nil {
		return 0
	}
	return time.Duration(t.Nano())
}
