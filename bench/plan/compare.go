package main

import (
	"fmt"
	"math"
	"math/rand/v2"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
)

// shape is what a step looks like: where from, how many bins of how many tokens, over how many ranks.
type shape struct {
	name    string
	lengths *histogram
	tokens  uint32 // sequence_length
	ranks   int    // data-parallel
	columns int    // microbatches of a rank
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

// selected plans the first n steps of a shape, by the product.
func (s shape) selected(n, documents int) ([]planner.Selection, error) {
	spec, err := newSpec(s.tokens, s.bins(), fourSources()...)
	if err != nil {
		return nil, err
	}
	spec.Window, spec.Carry = s.window, s.carry
	selector, err := planner.NewSelector(spec, planner.NewState(len(spec.Sources)))
	if err != nil {
		return nil, err
	}
	return advance(selector, newCorpus(s.lengths, documents, len(spec.Sources)), n)
}

// placement are the product's settings for a model.
func (s shape) placement(m model, layout millrace.Layout, balance millrace.Balance) place.Options {
	o := place.Options{MicroBatch: 1, Layout: layout, Balance: balance, Cost: m.cost()}
	if layout == millrace.Varlen {
		o.CapPermille = s.slack
	}
	return o
}

// placed is a step's place, weighed.
type placed struct {
	plan *millrace.Plan
	over overheads
	said cost.Weight // by the product
}

// place plans where a step goes, and weighs it twice: by the product, and by this program. They must agree.
func (s shape) place(sel *planner.Selection, o place.Options, m model) (placed, error) {
	topo := dataParallel(s.ranks)
	if o.Balance == millrace.BalancePP {
		topo.PP, topo.Ranks = stages, stages*s.ranks
	}
	plan, err := place.Plan(sel, topo, o)
	if err != nil {
		return placed{}, err
	}
	p := placed{plan: plan, over: planned(plan, m).overheads()}
	o.Cost = m.cost()
	p.said = cost.Weigh(plan, o.Weighing(sel, topo))
	if math.Abs(p.over.fsdp-float64(p.said.Over.FSDP)/1e4) > .01 || math.Abs(p.over.dp-float64(p.said.Over.DP)/1e4) > .01 {
		return p, fmt.Errorf("step %s of %s: the planner says %+v ppm, this program %+v %%", sel.Step, s, p.said.Over, p.over)
	}
	return p, kept(plan, sel, s, o)
}

// kept tells whether a plan holds all that was selected, and no microbatch more than its cap.
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
			return fmt.Errorf("step %s of %s: a microbatch has %d tokens, the cap is %d", plan.Step, s, tokens[at], most)
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
	model                          model
	concat, random, columns, cap13 mean    // baselines
	strict, varlen, wide, sums     mean    // the product: packed, varlen under fsdp, with a slack of 1.3, varlen under dp
	pipeline, split                mean    // likewise: varlen under pp with its stages, and with documents split over ranks
	level                          mean    // the column estimate, in fsdp
	worstGap, worstSaid            float64 // of varlen in the worst step: over level, over the product's lower bound
	fill, segments, stranded       float64 // stranded is the baselines' worst
}

// compare plans and weighs some steps of a shape.
func compare(s shape, m model, sels []planner.Selection) (*comparison, error) {
	c := &comparison{shape: s, model: m}
	rng := rand.New(rand.NewPCG(seed, 2))
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

func lengthsOf(sel *planner.Selection) []uint32 {
	lengths := make([]uint32, len(sel.Segments))
	for i := range lengths {
		lengths[i] = sel.Segments[i].Length
	}
	return lengths
}

func (c *comparison) baselines(lengths []uint32, rng *rand.Rand) {
	s, m := c.shape, c.model
	pieces, end, _ := concatenate(lengths, s.tokens)
	cost, _ := end.costs(pieces, m, s.bins())
	c.concat.add(inOrder(cost, s.ranks, s.columns).overheads())

	cost, lost := bestFitDecreasing(lengths, s.tokens, s.bins()).costs(lengths, m, s.bins())
	c.stranded = max(c.stranded, lost)
	c.random.add(shuffled(cost, s.ranks, s.columns, rng).overheads())
	c.columns.add(sortedColumns(cost, s.ranks, s.columns).overheads())

	cost, lost = longestProcessingTime(lengths, m, s.bins(), int64(s.tokens)*13/10)
	c.stranded = max(c.stranded, lost)
	c.cap13.add(sortedColumns(cost, s.ranks, s.columns).overheads())
}

func (c *comparison) product(sel *planner.Selection, lengths []uint32) error {
	s, m := c.shape, c.model
	wide := s
	wide.slack = 1300
	for _, way := range []struct {
		into    *mean
		shape   shape
		layout  millrace.Layout
		balance millrace.Balance
		split   bool
	}{
		{&c.strict, s, millrace.Packed, millrace.BalanceFSDP, false}, {&c.varlen, s, millrace.Varlen, millrace.BalanceFSDP, false},
		{&c.wide, wide, millrace.Varlen, millrace.BalanceFSDP, false}, {&c.sums, s, millrace.Varlen, millrace.BalanceDP, false},
		{&c.pipeline, s, millrace.Varlen, millrace.BalancePP, false}, {&c.split, s, millrace.Varlen, millrace.BalancePP, true},
	} {
		o := way.shape.placement(m, way.layout, way.balance)
		o.Split.On = way.split
		p, err := way.shape.place(sel, o, m)
		if err != nil {
			return err
		}
		way.into.add(p.over)
		if way.into == &c.varlen {
			c.worstSaid = max(c.worstSaid, float64(p.said.Gap().FSDP)/1e4)
		}
	}
	level := columnEstimate(lengths, m, s)
	c.level.add(overheads{fsdp: level})
	last := c.varlen.last.fsdp
	c.worstGap = max(c.worstGap, 100*((100+last)/(100+level)-1))
	return nil
}
