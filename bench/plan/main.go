// Command plan measures the planner. It prints a table of the goals G1 to G13, with baselines measured in the same run.
//
//	go run ./bench/plan [-goals G1,G4] [-plans N]            the table of goals, a table of shapes, a table of scale
//	go run ./bench/plan -lengths FILE -sequence-length N …   compare balancers on your own lengths (CSV: length,count)
//	go run ./bench/plan -generate DIR                        write the checked-in histograms again
//
// The product's figures come from the product's code: planner.Selector over offers in memory, place.Plan, cost.Weigh,
// mixing.Apportioner, mixing.Permutation. Package baseline has the code of the baselines. Costs are modelled, so every
// speed-up is simulated.
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

	"millrace/bench/plan/workload"
)

func main() {
	var o options
	flag.StringVar(&o.goals, "goals", "", "measure only these goals, such as G1,G4")
	flag.StringVar(
		&o.lengths, "lengths", "", "compare balancers on this histogram (CSV: length,count; or pretrain, longctx, sft)",
	)
	flag.UintVar(&o.tokens, "sequence-length", 8192, "with -lengths: tokens in a sequence")
	flag.IntVar(&o.ranks, "dp", 256, "with -lengths: data-parallel ranks")
	flag.IntVar(&o.columns, "microbatches", 8, "with -lengths: microbatches of a rank, of one sequence each")
	flag.Float64Var(&o.slack, "cap-slack", 1.15, "with -lengths: cap_slack of layout varlen")
	flag.Float64Var(
		&o.ratio, "ratio", 61000, "with -lengths: tokens at which attention costs as much as all linear work",
	)
	flag.IntVar(&o.plans, "plans", 1000, "number of plans to time; a fifth of it for the largest plans")
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

func (o *options) run(out io.Writer) error {
	switch {
	case o.generate != "":
		return workload.Generate(o.generate)
	case o.lengths != "":
		return o.compareLengths(out)
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
	if err := b.writeGoals(out, o.goals); err != nil || o.goals != "" {
		return err
	}
	if err := b.shapes(out); err != nil {
		return err
	}
	return b.scale(out)
}

// compareLengths compares balancers on the lengths of -lengths.
func (o *options) compareLengths(out io.Writer) error {
	if o.tokens > workload.LongestDocument {
		return fmt.Errorf("-sequence-length %d is more than %d", o.tokens, workload.LongestDocument)
	}
	h, err := workload.Open(o.lengths)
	if err != nil {
		return err
	}
	return compareOwn(out, shape{
		name: h.Name(), lengths: h, tokens: uint32(o.tokens),
		ranks: o.ranks, columns: o.columns, slack: uint32(o.slack*1000 + .5),
	}, o.ratio)
}

// goal is a part of the table of goals.
type goal struct {
	name    string
	measure func(*bench) ([]row, error)
	timed   bool // the figure depends on the machine, so tests leave it out
}

func goals() []goal {
	return []goal{
		{name: "G1", measure: goal1}, {name: "G2", measure: goal2}, {name: "G3", measure: goal3},
		{name: "G4", measure: goal4}, {name: "G5", measure: goal5, timed: true}, {name: "G6", measure: goal6},
		{name: "G7", measure: goal7, timed: true}, {name: "G8", measure: goal8},
		{name: "G9", measure: goal9, timed: true}, {name: "G10", measure: goal10}, {name: "G11", measure: goal11},
		{name: "G12", measure: goal12}, {name: "G13", measure: goal13},
	}
}

// writeGoals measures the named goals, or all if names is empty, and writes their rows.
func (b *bench) writeGoals(out io.Writer, names string) error {
	fmt.Fprintf(out, "%s, %s %s/%s, lengths from bench/plan/workload/testdata, seed %d\n",
		time.Now().UTC().Format(time.DateOnly), runtime.Version(), runtime.GOOS, runtime.GOARCH, workload.Seed)
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
