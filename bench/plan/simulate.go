package main

import (
	"math"

	"millrace"
	"millrace/orchestrator/planner/cost"
)

// model weighs a document of s tokens as ratio*s + s*s; ratio is S*, where attention costs as much as everything linear.
type model struct {
	name  string
	ratio float64
}

// dense8B and moeA3B are the models of PLANNING §2.
func dense8B() model { return model{"8B", 61000} }
func moeA3B() model  { return model{"A3B-MoE", 17000} }

// cost is what the product is told of the model.
func (m model) cost() cost.Cost {
	const parts = 16 // of its fixed point
	return cost.Cost{Linear: uint64(math.Round(m.ratio * parts)), Quadratic: parts}
}

// of is what a document costs.
func (m model) of(tokens uint32) float64 { return (m.ratio + float64(tokens)) * float64(tokens) }

// grid holds the cost of every microbatch, rank by rank.
type grid struct {
	ranks, columns int
	load           []float64
	stranded       float64 // part of the tokens that found no place; they are not in load
}

func newGrid(ranks, columns int) *grid {
	return &grid{ranks: ranks, columns: columns, load: make([]float64, ranks*columns)}
}

// planned weighs a plan. A slice costs its part of the document, since a zigzag divides causal attention evenly.
func planned(p *millrace.Plan, m model) *grid {
	g := newGrid(int(p.Ranks), int(p.Microbatches))
	for i := range p.Assignments {
		a := &p.Assignments[i]
		g.load[int(a.Rank)*g.columns+int(a.Microbatch)] += m.of(a.Length) / float64(max(a.Parts, 1))
	}
	return g
}

// stages of the pipeline that overheads are said of.
const stages = 8

// overheads is what is waited for, in percent of the mean: of what was placed, so that what strands does not count as saved.
type overheads struct {
	fsdp float64 // sum over microbatches of the slowest rank
	dp   float64 // slowest rank's sum
	pp8  float64 // slowest rank's sum, and its dearest microbatch once more for every stage of the pipeline but the first
}

func (g *grid) overheads() overheads {
	total, columns, slowest, pipeline := 0.0, 0.0, 0.0, 0.0
	for c := range g.columns {
		top := 0.0
		for r := range g.ranks {
			top = max(top, g.load[r*g.columns+c])
		}
		columns += top
	}
	for r := range g.ranks {
		sum, top := 0.0, 0.0
		for _, x := range g.load[r*g.columns : (r+1)*g.columns] {
			sum += x
			top = max(top, x)
		}
		total += sum
		slowest = max(slowest, sum)
		pipeline = max(pipeline, sum+(stages-1)*top)
	}
	perRank := total / float64(g.ranks)
	over := func(worst, ideal float64) float64 { return 100 * (worst/ideal - 1) }
	return overheads{over(columns, perRank), over(slowest, perRank), over(pipeline, perRank*(1+(stages-1)/float64(g.columns)))}
}

// mean adds up overheads of several steps.
type mean struct {
	sum, last overheads
	n         float64
}

func (m *mean) add(o overheads) {
	m.last = o
	m.sum.fsdp += o.fsdp
	m.sum.dp += o.dp
	m.sum.pp8 += o.pp8
	m.n++
}

func (m *mean) get() overheads { return overheads{m.sum.fsdp / m.n, m.sum.dp / m.n, m.sum.pp8 / m.n} }
