package mix

import (
	"fmt"
	"slices"
	"strings"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/facts"
	pb "millrace/proto"
)

// PointOf returns the place at which a change begins, in the measure of the schedule. If that counts tokens, only the
// place of the first free step is known.
func (x *Mixture) PointOf(c *pb.Mixed) (mixing.Point, error) {
	if x.overrides.Schedule(x.cfg.File.Schedule).Measure() == mixing.Steps {
		return mixing.Point{Count: c.AtStep}, nil
	}
	free, tokens := x.FreeFrom()
	if x.s.Attempt == nil || c.AtStep != free || c.Attempt != x.s.Attempt.Attempt {
		return mixing.Point{}, millrace.Errorf(millrace.ErrInvalid,
			"the schedule counts tokens, and their number before step %d is unknown: leave --from-step out, or "+
				"write a schedule with from_tokens", c.AtStep)
	}
	return mixing.Point{Measure: mixing.Tokens, Count: tokens}, nil
}

// weights returns the weights of all sources, in order.
func (x *Mixture) weights(given []*pb.SourceWeight) ([]mixing.Weight, error) {
	out, have := make([]mixing.Weight, len(x.cfg.Sources)), make([]bool, len(x.cfg.Sources))
	for _, g := range given {
		i, err := x.sourceIndex(g.Source)
		if err != nil {
			return nil, err
		}
		if have[i] {
			return nil, millrace.Errorf(millrace.ErrInvalid, "source %q has two weights", g.Source)
		}
		if out[i], err = mixing.ParseWeight(g.Weight); err != nil {
			return nil, millrace.Errorf(millrace.ErrInvalid, "source %s: %w", g.Source, err)
		}
		have[i] = true
	}
	for i, ok := range have {
		if !ok {
			name := x.cfg.Sources[i]
			return nil, millrace.Errorf(millrace.ErrInvalid, "source %q has no weight: add %s=0 to leave it unread",
				name, name)
		}
	}
	return out, nil
}

func (x *Mixture) sourceIndex(name string) (int, error) {
	i := slices.Index(x.cfg.Sources, name)
	if i >= 0 {
		return i, nil
	}
	return i, millrace.Errorf(millrace.ErrInvalid,
		"this run has no source %q, its sources are %s; one that is not in the mixture file cannot join while the "+
			"run goes on: stop it, add the source to the file, and start `up` in a new run directory from the newest "+
			"state with override=[%q]", name, strings.Join(x.cfg.Sources, ", "), "sources."+name)
}

// setMilestones returns one milestone with weights for all sources.
func (x *Mixture) setMilestones(c *pb.Mixed, set *pb.SetWeights) ([]mixing.Milestone, error) {
	weights, err := x.weights(set.Weights)
	if err != nil {
		return nil, err
	}
	from, err := x.PointOf(c)
	if err != nil {
		return nil, err
	}
	return x.milestone(mixing.Milestone{From: from, Weights: weights}, set.Ramp, set.Over)
}

func (x *Mixture) milestone(k mixing.Milestone, ramp string, over uint64) (_ []mixing.Milestone, err error) {
	if k.Ramp, err = mixing.ParseRamp(ramp); err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "%w", err)
	}
	if over > 0 {
		k.Over = mixing.Point{Measure: k.From.Measure, Count: over}
	}
	return []mixing.Milestone{k}, nil
}

// scheduleMilestones returns the milestones of a schedule that begins after the sealed steps.
func (x *Mixture) scheduleMilestones(c *pb.Mixed, ask *pb.SetSchedule) (out []mixing.Milestone, err error) {
	if len(ask.Milestones) == 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid, "the schedule is empty")
	}
	for _, k := range ask.Milestones {
		weights, err := x.weights(k.Weights)
		if err != nil {
			return nil, err
		}
		one, err := x.milestone(
			mixing.Milestone{From: mixing.Point{Measure: facts.MeasureOf(k.Tokens), Count: k.From}, Weights: weights},
			k.Ramp, k.Over)
		if err != nil {
			return nil, err
		}
		out = append(out, one...)
	}
	first := out[0].From
	if first.Measure == mixing.Steps {
		if first.Count < c.AtStep {
			return nil, millrace.Errorf(millrace.ErrInvalid,
				"the schedule goes back: its first entry is from step %d, and the steps below %d are sealed: begin "+
					"at %d or later", first.Count, c.AtStep, c.AtStep)
		}
		c.AtStep = first.Count
		return out, nil
	}
	if x.s.Attempt == nil {
		return out, nil
	}
	if _, tokens := x.FreeFrom(); first.Count < tokens {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"the schedule goes back: its first entry is from token %d, and %d are planned: begin there or later",
			first.Count, tokens)
	}
	return out, nil
}

// inForce returns the schedule in force as milestones from a change on. Inside a ramp there are none.
func (x *Mixture) inForce(c *pb.Mixed) ([]mixing.Milestone, error) {
	from, err := x.PointOf(c)
	if err != nil {
		return nil, err
	}
	schedule := x.overrides.Schedule(x.cfg.File.Schedule)
	if end := schedule.Running(from.Count, from.Count); end > 0 {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"at %s %d a ramp is under way, up to %d: say --from-step %d or later, or all weights with `mix set`",
			from.Measure, from.Count, end, end)
	}
	out := []mixing.Milestone{schedule.InForce(from.Count, from.Count)}
	out[0].From, out[0].Ramp, out[0].Over = from, mixing.RampNone, mixing.Point{}
	for _, k := range schedule.Milestones() {
		if k.From.Count > from.Count {
			out = append(out, k)
		}
	}
	return out, nil
}

// withoutMilestones returns the schedule in force with a weight of 0 for one source.
func (x *Mixture) withoutMilestones(c *pb.Mixed, name string) ([]mixing.Milestone, error) {
	i, err := x.sourceIndex(name)
	if err != nil {
		return nil, err
	}
	milestones, err := x.inForce(c)
	if err != nil {
		return nil, err
	}
	had := false
	for k := range milestones {
		had = had || !milestones[k].Weights[i].IsZero()
		milestones[k].Weights = slices.Clone(milestones[k].Weights)
		milestones[k].Weights[i] = mixing.Weight{}
		if _, err := mixing.Proportion(milestones[k].Weights); err != nil {
			return nil, millrace.Errorf(millrace.ErrInvalid,
				"from %s %d on source %s is the only one with a weight: give another one a weight with `mix set` first",
				milestones[k].From.Measure, milestones[k].From.Count, name)
		}
	}
	if !had {
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"source %s has no weight from step %d on: there is nothing to remove", name, c.AtStep)
	}
	return milestones, nil
}

// addedMilestones returns the weights in force, which add up to 1, and a weight for a source that has none.
func (x *Mixture) addedMilestones(c *pb.Mixed, add *pb.AddSource) ([]mixing.Milestone, error) {
	i, err := x.sourceIndex(add.Source)
	if err != nil {
		return nil, err
	}
	weight, err := mixing.ParseWeight(add.Weight)
	if err == nil && weight.IsZero() {
		err = fmt.Errorf("a weight of 0 adds nothing")
	}
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "source %s: %w", add.Source, err)
	}
	milestones, err := x.inForce(c)
	if err != nil {
		return nil, err
	}
	switch {
	case len(milestones) > 1:
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"the schedule goes on at %s %d without a weight for %s there: write all of it with `mix schedule`",
			milestones[1].From.Measure, milestones[1].From.Count, add.Source)
	case !milestones[0].Weights[i].IsZero():
		return nil, millrace.Errorf(millrace.ErrInvalid,
			"source %s has a weight of %s already: change it with `mix set`", add.Source, milestones[0].Weights[i])
	}
	if tail := x.s.Tail(); tail != nil && tail.Planner.Sources[i].Finished {
		return nil, millrace.Errorf(millrace.ErrInvalid, "source %s is read to its end and has left", add.Source)
	}
	if milestones[0].Weights, err = mixing.Billionths(milestones[0].Weights); err != nil {
		return nil, err
	}
	milestones[0].Weights[i] = weight
	return milestones, nil
}
