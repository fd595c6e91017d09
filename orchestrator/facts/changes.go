package facts

import (
	"fmt"
	"slices"

	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// inAttempt drops changes that an attempt supersedes. Changes for steps before the attempt stay in the list: an attempt that goes further back
// needs them again.
func inAttempt(list []*pb.Mixed, o *pb.Opened) (out []*pb.Mixed) {
	for _, c := range list {
		late := c.Attempt >= o.Attempt && c.AtStep < o.Step // meant for an attempt that begins before its step
		if !late && !(o.Forgets && c.AtStep >= o.Step) {
			out = append(without(out, c), c)
		}
	}
	return out
}

// without drops the changes that a change of the same kind makes void.
func without(list []*pb.Mixed, by *pb.Mixed) []*pb.Mixed {
	return slices.DeleteFunc(slices.Clone(list), func(c *pb.Mixed) bool {
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

// Overrides returns the overrides of the newest attempt: those of the state at the watermark, and the changes that were journaled since.
func (s *State) Overrides(file *planner.Spec) (Overrides, error) {
	if s.Base == nil {
		return Overrides{}, nil
	}
	return s.overridesAfter(s.Base.Overrides, file, s.Watermark, ^uint64(0))
}

// overridesAfter adds the changes of the newest attempt that were journaled while a step from `from` to `to` was the next to seal.
func (s *State) overridesAfter(o Overrides, file *planner.Spec, from, to uint64) (Overrides, error) {
	return withAll(o, file, s.Mixed, func(c *pb.Mixed) bool {
		return c.Attempt == s.Attempt.GetAttempt() && c.Known >= from && c.Known <= to
	})
}

// Forward returns the state with the changes that stay in force in an attempt that begins at it.
func (s *State) Forward(at *RunState) (*RunState, error) {
	next := &pb.Opened{Attempt: uint32(s.CurrentAttempt()) + 1, Step: at.Step()}
	o, err := withAll(at.Overrides, at.Spec, inAttempt(s.Mixed, next), func(c *pb.Mixed) bool { return c.AtStep >= at.Step() })
	return at.With(o), err
}

// withAll adds changes to overrides.
func withAll(o Overrides, file *planner.Spec, changes []*pb.Mixed, wanted func(*pb.Mixed) bool) (_ Overrides, err error) {
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
