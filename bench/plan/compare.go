package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"millrace"
	"millrace/bench/plan/baseline"
	"millrace/bench/plan/overhead"
	"millrace/bench/plan/workload"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
)

// shape describes a step: the lengths of its documents, its bins, and the ranks to which bins are distributed.
type shape struct {
	name    string
	lengths *workload.Histogram
	tokens  uint32 // sequence_length
	ranks   int    // data-parallel
	columns int    // microbatches of a rank, of one bin each
	slack   uint32 // cap_slack of varlen, in thousandths
	window  int
	carry   int
}

func (s shape) bins() int { return s.ranks * s.columns }

func (s shape) String() string {
	text := fmt.Sprintf("%s %s %d×%d", s.name, short(s.tokens), s.ranks, s.columns)
	if s.window > 1 {
		text += fmt.Sprintf(" W=%d", s.window)
	}
	return text
}

// short writes a number of tokens as 8K.
func short(tokens uint32) string {
	if tokens%1024 == 0 {
		return fmt.Sprintf("%dK", tokens/1024)
	}
	return fmt.Sprint(tokens)
}

// selected selects the first n steps of a shape by the product. documents is the number in a source.
func (s shape) selected(n, documents int) ([]planner.Selection, error) {
	spec, err := workload.Spec(s.tokens, s.bins(), workload.FourSources()...)
	if err != nil {
		return nil, err
	}
	spec.Window, spec.Carry = s.window, s.carry
	selector, err := planner.NewSelector(spec, progress.New(len(spec.Sources)))
	if err != nil {
		return nil, err
	}
	return workload.Advance(selector, workload.NewCorpus(s.lengths, documents, len(spec.Sources)), n)
}

// placement returns the product's settings for a model.
func (s shape) placement(m overhead.Model, layout millrace.Layout, balance millrace.Balance) place.Options {
	o := place.Options{MicroBatch: 1, Layout: layout, Balance: balance, Cost: m.Cost()}
	if layout == millrace.Varlen {
		o.CapPermille = s.slack
	}
	return o
}

// placed is a placed step with its overheads, by this program and by the product.
type placed struct {
	plan *millrace.Plan
	over overhead.Percent
	said cost.Weight // by the product
}

// place places a step and weighs it by the product and by this program. It returns an error if they disagree.
func (s shape) place(sel *planner.Selection, o place.Options, m overhead.Model) (placed, error) {
	topo := workload.DataParallel(s.ranks)
	if o.Balance == millrace.BalancePP {
		topo.PP, topo.Ranks = overhead.Stages, overhead.Stages*s.ranks
	}
	plan, err := place.Plan(sel, topo, o)
	if err != nil {
		return placed{}, err
	}
	p := placed{plan: plan, over: overhead.Planned(plan, m).Overheads()}
	o.Cost = m.Cost()
	p.said = cost.Weigh(plan, o.Weighing(sel, topo))
	if math.Abs(p.over.FSDP-float64(p.said.Over.FSDP)/1e4) > .01 ||
		math.Abs(p.over.DP-float64(p.said.Over.DP)/1e4) > .01 {
		return p, fmt.Errorf(
			"weigh step %s of %s: the planner computes %+v ppm, this program %+v %%", sel.Step, s, p.said.Over, p.over,
		)
	}
	return p, kept(plan, sel, s, o)
}

// kept returns an error if a plan lacks a selected segment, or if a microbatch exceeds its cap.
func kept(plan *millrace.Plan, sel *planner.Selection, s shape, o place.Options) error {
	most := uint64(s.tokens)
	if o.Layout == millrace.Varlen {
		most = uint64(o.Shape(s.tokens, millrace.Int64).CapTokens)
	}
	tokens, all := make([]uint64, s.bins()), uint64(0)
	for i := range plan.Assignments {
		a := &plan.Assignments[i]
		if a.Part == 0 {
			all += uint64(a.Length)
		}
		at := int(a.Rank)*s.columns + int(a.Microbatch)
		if tokens[at] += uint64(a.Columns(1)); tokens[at] > most {
			return fmt.Errorf(
				"step %s of %s: a microbatch has %d tokens, the cap is %d", plan.Step, s, tokens[at], most,
			)
		}
	}
	if all != sel.Stats.Tokens {
		return fmt.Errorf("step %s of %s: %d tokens are placed, %d were selected", plan.Step, s, all, sel.Stats.Tokens)
	}
	return nil
}

// comparison is a shape's overheads under every balancer, in percent: means over its steps.
type comparison struct {
	shape                          shape
	model                          overhead.Model
	concat, random, columns, cap13 overhead.Mean // baselines
	// The product: packed; varlen with fsdp; the same with a slack of 1.3; varlen with dp.
	strict, varlen, wide, sums overhead.Mean
	pipeline, split            overhead.Mean // the product: varlen with pp; the same with split documents
	level                      overhead.Mean // the column estimate, in FSDP
	// Varlen in the worst step: above level, above the product's lower bound.
	worstGap, worstSaid      float64
	fill, segments, stranded float64 // stranded is the worst of the baselines
}

// compare places and weighs some steps of a shape under every balancer.
func compare(s shape, m overhead.Model, sels []planner.Selection) (*comparison, error) {
	c := &comparison{shape: s, model: m}
	rng := rand.New(rand.NewPCG(workload.Seed, 2))
	for i := range sels {
		sel := &sels[i]
		lengths := lengthsOf(sel)
		c.baselines(lengths, rng)
		if err := c.product(sel, lengths); err != nil {
			return nil, err
		}
		c.fill += float64(sel.Stats.FillPPM) / 1e4 / float64(len(sels))
		c.segments += float64(len(lengths)) / float64(len(sels))
	}
	return c, nil
}

// lengthsOf returns the lengths of the segments of a step.
func lengthsOf(sel *planner.Selection) []uint32 {
	lengths := make([]uint32, len(sel.Segments))
	for i := range lengths {
		lengths[i] = sel.Segments[i].Length
	}
	return lengths
}

// baselines adds one step to the baselines' overheads.
func (c *comparison) baselines(lengths []uint32, rng *rand.Rand) {
	s, m := c.shape, c.model
	pieces, end, _ := baseline.Concatenate(lengths, s.tokens)
	cost, _ := end.Costs(pieces, m, s.bins())
	c.concat.Add(baseline.InOrder(cost, s.ranks, s.columns).Overheads())

	cost, lost := baseline.BestFitDecreasing(lengths, s.tokens, s.bins()).Costs(lengths, m, s.bins())
	c.stranded = max(c.stranded, lost)
	c.random.Add(baseline.Shuffled(cost, s.ranks, s.columns, rng).Overheads())
	c.columns.Add(baseline.SortedColumns(cost, s.ranks, s.columns).Overheads())

	cost, lost = baseline.LongestProcessingTime(lengths, m, s.bins(), int64(s.tokens)*13/10)
	c.stranded = max(c.stranded, lost)
	c.cap13.Add(baseline.SortedColumns(cost, s.ranks, s.columns).Overheads())
}

// product adds one step to the product's overheads.
func (c *comparison) product(sel *planner.Selection, lengths []uint32) error {
	s, m := c.shape, c.model
	wide := s
	wide.slack = 1300
	for _, way := range []struct {
		into    *overhead.Mean
		shape   shape
		layout  millrace.Layout
		balance millrace.Balance
		split   bool
	}{
		{&c.strict, s, millrace.Packed, millrace.BalanceFSDP, false},
		{&c.varlen, s, millrace.Varlen, millrace.BalanceFSDP, false},
		{&c.wide, wide, millrace.Varlen, millrace.BalanceFSDP, false},
		{&c.sums, s, millrace.Varlen, millrace.BalanceDP, false},
		{&c.pipeline, s, millrace.Varlen, millrace.BalancePP, false},
		{&c.split, s, millrace.Varlen, millrace.BalancePP, true},
	} {
		o := way.shape.placement(m, way.layout, way.balance)
		o.Split.On = way.split
		p, err := way.shape.place(sel, o, m)
		if err != nil {
			return err
		}
		way.into.Add(p.over)
		if way.into == &c.varlen {
			c.worstSaid = max(c.worstSaid, float64(p.said.Gap().FSDP)/1e4)
		}
	}
	level := baseline.ColumnEstimate(lengths, m, s.ranks, s.columns, float64(s.tokens)*float64(s.slack)/1000)
	c.level.Add(overhead.Percent{FSDP: level})
	last := c.varlen.Last().FSDP
	c.worstGap = max(c.worstGap, 100*((100+last)/(100+level)-1))
	return nil
}

// speedUp returns the time of a step with best-fit bins in random order, divided by the time of the product's step.
// Ranks wait for each other in every microbatch.
func (c *comparison) speedUp() float64 {
	return (100 + c.random.Get().FSDP) / (100 + c.varlen.Get().FSDP)
}
