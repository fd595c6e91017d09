package mix

import (
	"errors"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/facts"
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// change turns a request into a record. An error says how to ask instead.
func (x *Mixture) change(r *pb.MixRequest) (*pb.Mixed, error) {
	c := &pb.Mixed{Attempt: x.s.Attempt.GetAttempt(), Known: x.s.Next, AtStep: x.s.Next, By: "millrace mix"}
	if r.Later || x.s.Attempt == nil {
		c.Attempt, c.Known, c.AtStep = c.Attempt+1, 0, 0
	}
	free, _ := x.FreeFrom()
	if !r.Later && x.s.Attempt != nil {
		c.AtStep = free
	}
	if r.HasFrom {
		c.AtStep = r.From
	}
	if err := x.inTime(r, c, free); err != nil {
		return nil, err
	}
	if err := x.setChange(r, c); err != nil {
		return nil, err
	}
	live, err := x.overrides.With(x.cfg.File.Schedule, c)
	if err == nil {
		err = live.Spec(x.cfg.File).Validate()
	}
	if err == nil {
		err = x.Receivable(live, c)
	}
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%w", err)
	}
	return c, nil
}

// FreeFrom returns the first step, and its place in tokens, at which a change may begin.
func (x *Mixture) FreeFrom() (step, tokens uint64) {
	if x.s.Attempt == nil {
		return 0, 0
	}
	at, tokens := x.rules().FreeFrom(&x.s.Tail().Planner)
	return uint64(at), tokens
}

// rules returns the spec under the rules of the planner that the run began with.
func (x *Mixture) rules() *planner.Spec {
	if x.s.Attempt == nil {
		return x.spec
	}
	return x.spec.Under(&x.s.Tail().Planner)
}

// inTime refuses a change that comes too late for its step, or that would begin inside a window of a later attempt.
func (x *Mixture) inTime(r *pb.MixRequest, c *pb.Mixed, free uint64) error {
	window := uint64(x.rules().LongestWindow())
	switch {
	case r.Later && c.AtStep%window != 0:
		return millrace.Errorf(millrace.ErrInvalid,
			"step %d lies inside a window of %d steps, and an attempt may begin inside it as well: say --from-step "+
				"%d or %d", c.AtStep, window, c.AtStep-c.AtStep%window, c.AtStep-c.AtStep%window+window)
	case r.Later && !r.HasFrom:
		return millrace.Errorf(millrace.ErrInvalid, "a change for an attempt to come needs its step: say --from-step")
	case c.Known == 0 && c.Attempt > x.s.Attempt.GetAttempt():
		return nil
	case x.s.Ended != nil:
		return millrace.Errorf(millrace.ErrInvalid,
			"the run ends after step %d, and all of its steps are planned: there is nothing left to change",
			x.s.Ended.Steps)
	case c.AtStep < x.s.Next:
		return millrace.Errorf(millrace.ErrInvalid,
			"step %d is in the past: the steps below %d are sealed; say --from-step %d or later, or --next-attempt, "+
				"to have it hold when the ranks start again from a state at or before step %d",
			c.AtStep, x.s.Next, free, c.AtStep)
	case c.AtStep < free:
		return millrace.Errorf(millrace.ErrInvalid,
			"step %d belongs to the window of %d steps that is under way, whose steps are drawn together: say "+
				"--from-step %d or later", c.AtStep, window, free)
	}
	return nil
}

// setChange sets the change of a record.
func (x *Mixture) setChange(r *pb.MixRequest, c *pb.Mixed) (err error) {
	var milestones []mixing.Milestone
	switch ask := r.GetChange().(type) {
	case *pb.MixRequest_Set:
		milestones, err = x.setMilestones(c, ask.Set)
	case *pb.MixRequest_Schedule:
		milestones, err = x.scheduleMilestones(c, ask.Schedule)
	case *pb.MixRequest_Remove:
		milestones, err = x.withoutMilestones(c, ask.Remove)
	case *pb.MixRequest_Add:
		milestones, err = x.addedMilestones(c, ask.Add)
	case *pb.MixRequest_Skip:
		if !r.HasFrom {
			return millrace.Errorf(millrace.ErrInvalid, "a skip needs its first step: say --from-step")
		}
		c.Change = &pb.Mixed_Skip{Skip: ask.Skip}
		return nil
	case *pb.MixRequest_Costs:
		return x.costs(c, ask.Costs)
	case *pb.MixRequest_Calibrate:
		return x.calibrate(c)
	default:
		return millrace.Errorf(millrace.ErrInvalid, "the request contains no change")
	}
	if err != nil {
		return err
	}
	change := &pb.Reweighed{}
	for _, k := range milestones {
		change.Milestones = append(change.Milestones, facts.MilestoneToProto(k))
	}
	c.Change = &pb.Mixed_Schedule{Schedule: change}
	return nil
}

func (x *Mixture) costs(c *pb.Mixed, costs *pb.Costed) error {
	if !x.cfg.Recosts || costs.Linear == 0 && costs.Quadratic == 0 {
		return millrace.Errorf(millrace.ErrInvalid, "the costs are both 0: say at least one")
	}
	c.Change = &pb.Mixed_Costs{Costs: costs}
	return nil
}

// calibrate sets the coefficients that fit the reported times best.
func (x *Mixture) calibrate(c *pb.Mixed) error {
	costs, why, err := x.cfg.Calibrate()
	if err != nil {
		return err
	}
	c.Why = why
	return x.costs(c, costs)
}

// Receivable refuses weights if every source with a weight is read to its end: the run would end.
func (x *Mixture) Receivable(live facts.Overrides, c *pb.Mixed) error {
	if c.GetSchedule() == nil || x.s.Attempt == nil {
		return nil
	}
	st := &x.s.Tail().Planner
	for i, can := range live.Schedule(x.cfg.File.Schedule).CanReceive(max(c.AtStep, uint64(st.Step)), st.Tokens) {
		if can && !st.Sources[i].Finished {
			return nil
		}
	}
	return errors.New("every source that is not read to its end has a weight of 0: give one of them a weight")
}
