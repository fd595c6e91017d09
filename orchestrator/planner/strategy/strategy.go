// Package strategy joins the two halves of planning in the words of the mixture file: what a step holds, and where it goes. A program that has
// the planner inside begins here.
package strategy

import (
	"cmp"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"

	"millrace"
)

// Strategy is how steps are planned, in the words of the mixture file: what they hold (Mix), and where that goes (everything else). It is
// described, not coded: the same words give the same plans in a run, in `millrace plan`, and in a program that has the planner inside.
type Strategy struct {
	Mix        planner.Spec
	Distribute Distribute
	Cost       cost.Cost // zero: DefaultCost
	Balance    millrace. // empty: FSDP
			Balance
	Broadcast millrace.Broadcast
}

// Distribute is how a step is divided among ranks.
type Distribute struct {
	MicroBatch  uint32          // rows of a microbatch; 0: 1
	Layout      millrace.Layout // empty: Packed
	CapPermille uint32          // see PlaceOptions
	Local       uint32          // likewise
	Group       int             // data-parallel ranks that are balanced among themselves; 0: all of them
	Split       place.Split
}

// Place returns the strategy's part of placing.
func (s *Strategy) Options() place.Options {
	d := &s.Distribute
	return place.Options{MicroBatch: cmp.Or(d.MicroBatch, 1), Layout: cmp.Or(d.Layout, millrace.Packed), Balance: cmp.Or(s.Balance, millrace.BalanceFSDP), Cost: s.Cost,
		CapPermille: d.CapPermille, Local: d.Local, LastStep: s.Mix.LastStep, Group: d.Group, Split: d.Split}
}

// Plans plans one step after the other of one stream. One owner; not for concurrent use.
type Plans struct {
	selector *planner.Selector
	topology millrace.Topology
	place    place.Options
}

// Planned is one step: what it holds, and where it goes.
type Planned struct {
	*planner.Selection
	Plan *millrace.Plan
}

// Plans returns what plans from a state on for a topology; NewState is where a stream begins.
func (s *Strategy) Plans(topology millrace.Topology, from progress.State) (*Plans, error) {
	if err := topology.Validate(); err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "plan: %w", err)
	}
	selector, err := planner.NewSelector(&s.Mix, from)
	if err != nil {
		return nil, err
	}
	return &Plans{selector: selector, topology: topology, place: s.Options()}, nil
}

// Next returns the next step, or that a fact is missing, or that the run is over, as Selector.Advance does.
func (p *Plans) Next(o planner.Offers) (Planned, planner.Outcome, error) {
	sel, outcome, err := p.selector.Advance(o)
	if err != nil || outcome.Kind != planner.Sealed {
		return Planned{}, outcome, err
	}
	plan, err := place.Plan(&sel, p.topology, p.place)
	if err != nil {
		return Planned{}, outcome, err
	}
	plan.Stream = millrace.Train
	return Planned{Selection: &sel, Plan: plan}, outcome, nil
}
