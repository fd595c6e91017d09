// Command plan measures plans: one table of the goals G1 to G13 for the planner, the product's figure beside baselines of the same run.
//
//	go run ./bench/plan [-goals G1,G4] [-plans N]            the table of goals, a table of shapes, a table of scale
//	go run ./bench/plan -lengths FILE -sequence-length N …   the balance of anybody's lengths (CSV: length,count)
//	go run ./bench/plan -generate DIR                        write the histograms in testdata again
//
// What is said of the product goes through the product: planner.Selector over facts in memory, planner.Place, planner.Weigh,
// mixing.Apportioner, mixing.Permutation, the constructors. Baselines are this program's own code. Lengths are drawn from histograms that are checked in, with fixed
// seeds; costs are modelled, so every speed-up is a simulated one.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"millrace/orchestrator/planner"
)

func main() {
	var o options
	flag.StringVar(&o.goals, "goals", "", "only these goals, such as G1,G4")
	flag.StringVar(&o.lengths, "lengths", "", "a histogram of your own (CSV: length,count), or pretrain, longctx, sft: compare balancers on it and measure nothing else")
	flag.UintVar(&o.tokens, "sequence-length", 8192, "with -lengths: tokens in a sequence")
	flag.IntVar(&o.ranks, "dp", 256, "with -lengths: data-parallel ranks")
	flag.IntVar(&o.columns, "microbatches", 8, "with -lengths: microbatches of a rank, of one sequence each")
	flag.Float64Var(&o.slack, "cap-slack", 1.15, "with -lengths: cap_slack of layout varlen")
	flag.Float64Var(&o.ratio, "ratio", 61000, "with -lengths: tokens at which attention costs as much as everything linear")
	flag.IntVar(&o.plans, "plans", 1000, "plans to time; of the largest a fifth")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the goals to this file")
	flag.StringVar(&o.generate, "generate", "", "write the histograms to this directory and measure nothing")
	flag.Parse()
	if err := o.run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	goals, lengths, generate, profile string
	tokens                            uint
	ranks, columns, plans             int
	slack, ratio                      float64
}

// bench is one run of this program.
type bench struct {
	lengths   map[string]*histogram
	documents int // in a source's table
	steps     int // that a figure is the mean of
	plans     int // that a time is the percentile of
	draws     int // of a mixture or permutation
	divide    int // by which ranks are fewer than the goals say
	done      map[string]*comparison
	drawn     map[string][]planner.Selection
}

func newBench() (*bench, error) {
	b := &bench{lengths: map[string]*histogram{}, documents: 4 << 20, steps: 5, plans: 1000, draws: 10_000_000, divide: 1, done: map[string]*comparison{},
		drawn: map[string][]planner.Selection{}}
	for _, name := range []string{"pretrain", "longctx", "sft"} {
		h, err := openHistogram(name)
		if err != nil {
			return nil, err
		}
		b.lengths[name] = h
	}
	return b, nil
}

// scaled is a number of ranks as the goals say it, or fewer in a short run.
func (b *bench) scaled(ranks int) int { return ranks / b.divide }

// selected plans a shape's steps once for all who ask for them.
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

// goal is a part of the table.
type goal struct {
	name    string
	measure func(*bench) ([]row, error)
	timed   bool // a matter of the machine: no test of it
}

func goals() []goal {
	return []goal{
		{name: "G1", measure: goal1},
		{name: "G2", measure: goal2},
		{name: "G3", measure: goal3},
		{name: "G4", measure: goal4},
		{name: "G5", measure: goal5, timed: true},
		{name: "G6", measure: goal6},
		{name: "G7", measure: goal7, timed: true},
		{name: "G8", measure: goal8},
		{name: "G9", measure: goal9, timed: true},
		{name: "G10", measure: goal10},
		{name: "G11", measure: goal11},
		{name: "G12", measure: goal12},
		{name: "G13", measure: goal13},
	}
}

func (o *options) run(out io.Writer) error {
	switch {
	case o.generate != "":
		return generate(o.generate)
	case o.lengths != "":
		return o.compare(out)
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	b, err := newBench()
	if err != nil {
		return err
	}
	b.plans = max(o.plans, 1)
	if err := b.table(out, o.goals); err != nil || o.goals != "" {
		return err
	}
	if err := b.shapes(out); err != nil {
		return err
	}
	return b.scale(out)
}

// table measures the goals named, or all, and writes a row for each.
func (b *bench) table(out io.Writer, names string) error {
	fmt.Fprintf(out, "%s, %s %s/%s, lengths from bench/plan/testdata, seed %d\n", time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, seed)
	heading(out, "goal", "asked", "measured", "", "beside it, same run")
	only := strings.Split(names, ",")
	for _, g := range goals() {
		if names != "" && !slices.Contains(only, g.name) {
			continue
		}
		rows, err := g.measure(b)
		if err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
		for _, r := range rows {
			r.write(out)
		}
	}
	return nil
}
