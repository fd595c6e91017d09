package orchestrator

import (
	"fmt"
	"slices"

	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// remixed leaves of changes those that hold in an attempt that is opened, and those from before its step, which an attempt that goes further back brings again.
func remixed(list []*pb.Mixed, o *pb.Opened) (out []*pb.Mixed) {
	for _, c := range list {
		late := c.Attempt >= o.Attempt && c.AtStep < o.Step // it was for an attempt from before its step
		if !late && !(o.Forgets && c.AtStep >= o.Step) {
			out = append(undone(out, c), c)
		}
	}
	return out
}

// undone drops what a change of the same kind makes void.
func undone(list []*pb.Mixed, by *pb.Mixed) []*pb.Mixed {
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

// live returns what holds beside the mixture file in the newest attempt: what the state at the watermark says, and what was journaled behind it.
func (s *State) live(file *planner.Spec) (Live, error) {
	if s.Attempt == nil {
		return Live{}, nil
	}
	rs, err := ParseRunState(s.Base)
	if err != nil {
		return Live{}, err
	}
	l, err := parseLive(rs.Live, file.Schedule)
	if err != nil {
		return l, unreadable(err)
	}
	return s.liveAfter(l, file, s.Watermark, ^uint64(0))
}

// liveAfter adds the changes of the newest attempt that were journaled while `from` to `to`, included, were the next steps to seal.
func (s *State) liveAfter(l Live, file *planner.Spec, from, to uint64) (Live, error) {
	for _, c := range s.Mixed {
		if c.Attempt != s.Attempt.GetAttempt() || c.Known < from || c.Known > to {
			continue
		}
		var err error
		if l, err = l.with(file.Schedule, c); err != nil {
			return l, fmt.Errorf("the change of the mixture at step %d: %w", c.AtStep, err)
		}
	}
	return l, nil
}

// liveFrom adds to what a state says what stays in force in an attempt that begins at its step.
func (s *State) liveFrom(l Live, file *planner.Spec, st *planner.State) (Live, error) {
	for _, c := range remixed(s.Mixed, &pb.Opened{Attempt: uint32(s.attempt()) + 1, Step: uint64(st.Step)}) {
		if c.AtStep < uint64(st.Step) {
			continue
		}
		var err error
		if l, err = l.with(file.Schedule, c); err != nil {
			return l, fmt.Errorf("the change of the mixture at step %d: %w", c.AtStep, err)
		}
	}
	return l.since(st), nil
}
