package attempts

import (
	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	pb "millrace/proto"
)

// Topology is the arrangement of a run's ranks, and the distribution of steps to them. All parts of an orchestrator
// share one value: a change of topology replaces the value behind the pointer, so no part keeps a copy.
type Topology struct {
	Ranks   int         // trainer ranks, along all axes
	Placing *pb.Placing // a change of it needs a new attempt
	Place   func(*planner.Selection) (*millrace.Plan, error)
	// Recost is Place with other coefficients of cost; nil: they are fixed.
	Recost func(cost.Cost) func(*planner.Selection) (*millrace.Plan, error)
}

// Shape returns the axes along which the ranks are arranged.
func (t *Topology) Shape() millrace.Topology { return ShapeOf(t.Placing) }

// ShapeOf returns the axes of a placing.
func ShapeOf(p *pb.Placing) millrace.Topology {
	return millrace.Topology{Ranks: int(p.GetRanks()), TP: int(p.GetTp()), CP: int(p.GetCp()), PP: int(p.GetPp())}
}
