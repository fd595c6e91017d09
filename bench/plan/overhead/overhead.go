// Package overhead computes the time that ranks wait for each other, by the modelled cost of their documents. It shares
// no code with the planner, so that the benchmark can check the planner's own figures.
package overhead

import (
	"math"

	"millrace"
	"millrace/orchestrator/planner/cost"
)

// Model weighs a document of s tokens as Ratio*s + s*s. At Ratio tokens (S* in the tables), attention costs as much as
// all linear work together.
type Model struct {
	Name  string
	Ratio float64
}

// Dense8B returns the model of a dense transformer of 8 billion parameters.
func Dense8B() Model { return Model{"8B", 61000} }

// MoEA3B returns the model of a mixture of experts with 3 billion active parameters.
func MoEA3B() Model { return Model{"A3B-MoE", 17000} }

// Cost returns the model as the planner's setting.
func (m Model) Cost() cost.Cost {
	const unit = 16 // of the planner's fixed point
	return cost.Cost{Linear: uint64(math.Round(m.Ratio * unit)), Quadratic: unit}
}

// Of returns the cost of a document.
func (m Model) Of(tokens uint32) float64 { return (m.Ratio + float64(tokens)) * float64(tokens) }

// Grid holds the cost of every microbatch, rank by rank. A column is the microbatches of one index on all ranks.
type Grid struct {
	Ranks, Columns int
	Load           []float64
}

// NewGrid returns a grid without any load.
func NewGrid(ranks, columns int) *Grid {
	return &Grid{Ranks: ranks, Columns: columns, Load: make([]float64, ranks*columns)}
}

// Planned weighs a plan. A slice of a split document costs its part of the whole, because zigzag slices divide causal
// attention evenly.
func Planned(p *millrace.Plan, m Model) *Grid {
	g := NewGrid(int(p.Ranks), int(p.Microbatches))
	for i := range p.Assignments {
		a := &p.Assignments[i]
		g.Load[int(a.Rank)*g.Columns+int(a.Microbatch)] += m.Of(a.Length) / float64(max(a.Parts, 1))
	}
	return g
}

// Sums returns the cost of each rank.
func (g *Grid) Sums() []float64 {
	sums := make([]float64, g.Ranks)
	for at, x := range g.Load {
		sums[at/g.Columns] += x
	}
	return sums
}

// Stages is the number of pipeline stages for which Percent.PP8 is computed.
const Stages = 8

// Percent is the time of a step above the mean rank's, in percent. The mean is over the placed documents, so stranded
// documents do not count as saved time.
type Percent struct {
	// FSDP is the sum over columns of the dearest rank's cost in each.
	FSDP float64
	// DP is the dearest rank's sum.
	DP float64
	// PP8 is the dearest rank's sum, plus its dearest microbatch for each of the Stages - 1 later stages.
	PP8 float64
}

// Overheads returns the overheads of a step.
func (g *Grid) Overheads() Percent {
	total, columns, slowest, pipeline := 0.0, 0.0, 0.0, 0.0
	for c := range g.Columns {
		top := 0.0
		for r := range g.Ranks {
			top = max(top, g.Load[r*g.Columns+c])
		}
		columns += top
	}
	for r := range g.Ranks {
		sum, top := 0.0, 0.0
		for _, x := range g.Load[r*g.Columns : (r+1)*g.Columns] {
			sum += x
			top = max(top, x)
		}
		total += sum
		slowest = max(slowest, sum)
		pipeline = max(pipeline, sum+(Stages-1)*top)
	}
	perRank := total / float64(g.Ranks)
	over := func(worst, ideal float64) float64 { return 100 * (worst/ideal - 1) }
	return Percent{
		over(columns, perRank), over(slowest, perRank), over(pipeline, perRank*(1+(Stages-1)/float64(g.Columns))),
	}
}

// Mean is the mean of the overheads of several steps.
type Mean struct {
	sum, last Percent
	n         float64
}

// Add counts one more step.
func (m *Mean) Add(o Percent) {
	m.last = o
	m.sum.FSDP += o.FSDP
	m.sum.DP += o.DP
	m.sum.PP8 += o.PP8
	m.n++
}

// Last returns the overheads of the newest step.
func (m *Mean) Last() Percent { return m.last }

// Get returns the mean overheads.
func (m *Mean) Get() Percent { return Percent{m.sum.FSDP / m.n, m.sum.DP / m.n, m.sum.PP8 / m.n} }
