package facts

import (
	"cmp"
	"slices"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
	"millrace/orchestrator/planner/progress"
	pb "millrace/proto"
)

// Overrides are the changes to the mixture of a running run, made over its mixture file. It is a value: methods return
// a changed copy.
type Overrides struct {
	schedule *mixing.Schedule // nil: the file's
	skips    []planner.Skip   // by From
	costs    []costsAt        // by step
	policy   []byte           // memory of the adaptive policy
}

// costsAt is a cost model from a step on.
type costsAt struct {
	step uint64
	cost cost.Cost
}

// isEmpty reports whether only the mixture file is in force.
func (o Overrides) isEmpty() bool {
	return o.schedule == nil && len(o.skips) == 0 && len(o.costs) == 0 && len(o.policy) == 0
}

// With adds a change; file is the mixture file's schedule. Adding a change twice has no further effect.
func (o Overrides) With(file *mixing.Schedule, c *pb.Mixed) (Overrides, error) {
	switch change := c.GetChange().(type) {
	case *pb.Mixed_Schedule:
		milestones, err := MilestonesFromProto(change.Schedule.Milestones)
		if err != nil {
			return o, err
		}
		if o.schedule, err = o.Schedule(file).With(milestones); err != nil {
			return o, err
		}
	case *pb.Mixed_Skip:
		skip := planner.Skip{From: millrace.Step(c.AtStep), To: millrace.Step(change.Skip.To)}
		isReplaced := func(k planner.Skip) bool { return k.From == skip.From }
		o.skips = append(slices.DeleteFunc(slices.Clone(o.skips), isReplaced), skip)
		slices.SortFunc(o.skips, func(a, b planner.Skip) int { return cmp.Compare(a.From, b.From) })
	case *pb.Mixed_Costs:
		at := costsAt{c.AtStep, cost.Cost{Linear: change.Costs.Linear, Quadratic: change.Costs.Quadratic}}
		isReplaced := func(k costsAt) bool { return k.step >= at.step }
		o.costs = append(slices.DeleteFunc(slices.Clone(o.costs), isReplaced), at)
	}
	if len(c.Policy) > 0 {
		o.policy = c.Policy
	}
	return o, nil
}

// Schedule returns the schedule in force; file is the mixture file's.
func (o Overrides) Schedule(file *mixing.Schedule) *mixing.Schedule {
	if o.schedule != nil {
		return o.schedule
	}
	return file
}

// Since drops the overrides that have no effect on steps after a state. Inside a window, it keeps those that were in
// force when the window began.
func (o Overrides) Since(st *progress.State) Overrides {
	if o.schedule != nil {
		step, tokens := st.Drawn()
		o.schedule = o.schedule.Since(uint64(step), tokens)
	}
	o.skips = slices.DeleteFunc(slices.Clone(o.skips), func(k planner.Skip) bool { return k.From < st.Step })
	for len(o.costs) > 1 && o.costs[1].step <= uint64(st.Step) {
		o.costs = o.costs[1:]
	}
	return o
}

// Spec returns the spec of a mixture file with the overrides applied.
func (o Overrides) Spec(file *planner.Spec) *planner.Spec {
	if file == nil || o.schedule == nil && len(o.skips) == 0 {
		return file
	}
	out := *file
	out.Schedule, out.Skips = o.Schedule(file.Schedule), o.skips
	return &out
}

// Cost returns the cost model of a step; ok is false if the mixture file's is in force.
func (o Overrides) Cost(step uint64) (cost cost.Cost, ok bool) {
	for _, c := range o.costs {
		if c.step <= step {
			cost, ok = c.cost, true
		}
	}
	return cost, ok
}

// Policy returns the memory of the adaptive policy.
func (o Overrides) Policy() []byte { return o.policy }
