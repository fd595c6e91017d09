// Package strategy joins the two halves of planning in the words of the mixture file: the content of a step and its
// placement. A program that uses the planner as a library begins here.
package strategy

import (
	"cmp"

	"millrace"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/progress"
)

// Strategy describes how steps are planned, in the words of the mixture file: their content (Mix) and their placement
// (everything else). Equal strategies give equal plans in a run, in `millrace plan`, and in a program that uses the
// planner as a library.
type Strategy struct {
	Mix        planner.Spec
	Distribute Distribute
	Cost       cost.Cost        // zero: cost.Default
	Balance    millrace.Balance // empty: FSDP
	Broadcast  millrace.Broadcast
}

// Distribute describes how a step is divided among ranks.
type Distribute struct {
	MicroBatch  uint32          // rows of a microbatch; 0: 1
	Layout      millrace.Layout // empty: Packed
	CapPermille uint32          // see place.Options
	Local       uint32          // see place.Options
	Group       int             // data-parallel ranks that are balanced among themselves; 0: all of them
	Split       place.Split
}

// Options returns the options of placement.
func (s *Strategy) Options() place.Options {
	d := &s.Distribute
	return place.Options{
		MicroBatch:  cmp.Or(d.MicroBatch, 1),
		Layout:      cmp.Or(d.Layout, millrace.Packed),
		Balance:     cmp.Or(s.Balance, millrace.BalanceFSDP),
		Cost:        s.Cost,
		CapPermille: d.CapPermille,
		Local:       d.Local,
		LastStep:    s.Mix.LastStep,
		Group:       d.Group,
		Split:       d.Split,
	}
}

// Plans plans one step after the other of one stream. One owner; not for concurrent use.
type Plans struct {
	selector *planner.Selector
	topology millrace.Topology
	place    place.Options
}

// Planned is one step: its content and its plan.
type Planned struct {
	*planner.Selection
	Plan *millrace.Plan
}

// Plans returns the plans of a topology from a state on; progress.New gives the state at the beginning.
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

// Next returns the next step, or Waiting or Finished, as Selector.Advance does.
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
