package facts

import (
	"fmt"
	"slices"

	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// inAttempt returns the changes that are not superseded by an attempt. Changes for steps before the attempt stay in the
// list, because an attempt that goes further back needs them again.
func inAttempt(list []*pb.Mixed, o *pb.Opened) (out []*pb.Mixed) {
	for _, c := range list {
		late := c.Attempt >= o.Attempt && c.AtStep < o.Step // made for an attempt that begins before its step
		if !late && !(o.Forgets && c.AtStep >= o.Step) {
			out = append(without(out, c), c)
		}
	}
	return out
}

// without removes from a list the changes that another change of the same kind replaces. It keeps the list's memory.
func without(list []*pb.Mixed, by *pb.Mixed) []*pb.Mixed {
	return slices.DeleteFunc(list, func(c *pb.Mixed) bool {
		switch by.GetChange().(type) {
		case *pb.Mixed_Schedule:
			return c.GetSchedule() != nil && c.AtStep >= by.AtStep
		case *pb.Mixed_Skip:
			return c.GetSkip() != nil && c.AtStep == by.AtStep
		case *pb.Mixed_Costs:
			return c.GetCosts() != nil && c.AtStep >= by.AtStep
		}
		return false
	})
}

// withAll adds the wanted changes to overrides.
func withAll(
	o Overrides, file *planner.Spec, changes []*pb.Mixed, wanted func(*pb.Mixed) bool,
) (_ Overrides, err error) {
	for _, c := range changes {
		if !wanted(c) {
			continue
		}
		if o, err = o.With(file.Schedule, c); err != nil {
			return o, fmt.Errorf("apply the journaled change of the mixture at step %d: %w", c.AtStep, err)
		}
	}
	return o, nil
}
