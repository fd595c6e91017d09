package orchestrator

import (
	"fmt"
	"strings"

	"millrace/mixing"
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// describe says in words what a change is.
func (m *Machine) describe(c *pb.Mixed) string {
	names := make([]string, len(m.cfg.Sources))
	for i := range m.cfg.Sources {
		names[i] = m.cfg.Sources[i].Name
	}
	return DescribeMixed(c, names)
}

// DescribeMixed says in words what a change of the mixture is; names are those of the sources, in order.
func DescribeMixed(c *pb.Mixed, names []string) string {
	switch change := c.GetChange().(type) {
	case *pb.Mixed_Schedule:
		milestones, err := milestonesFromProto(change.Schedule.Milestones)
		if err != nil {
			return err.Error()
		}
		var parts []string
		for _, k := range milestones {
			parts = append(parts, describeMilestone(k, names))
		}
		return strings.Join(parts, "; ")
	case *pb.Mixed_Skip:
		return fmt.Sprintf("what steps %d to %d, %d excluded, would have held is passed over", c.AtStep, change.Skip.To, change.Skip.To)
	case *pb.Mixed_Costs:
		return fmt.Sprintf("costs linear %d, quadratic %d", change.Costs.Linear, change.Costs.Quadratic)
	}
	return "a change that this program does not know"
}

func describeMilestone(k mixing.Milestone, names []string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "from %s %d", strings.TrimSuffix(k.From.Measure.String(), "s"), k.From.Count)
	if k.Ramp != mixing.RampNone {
		fmt.Fprintf(&b, " %s over %d", k.Ramp, k.Over.Count)
	}
	b.WriteByte(':')
	for i, w := range readable(k.Weights) {
		name := fmt.Sprint(i)
		if i < len(names) {
			name = names[i]
		}
		fmt.Fprintf(&b, " %s %s", name, w)
	}
	return b.String()
}

// longWeight is the length from which a weight is nothing that somebody wrote: groups and rules come to weights of many digits.
const longWeight = 12

// readable returns weights for people: as they are written, or as shares where they were derived.
func readable(weights []mixing.Weight) []string {
	out, long := make([]string, len(weights)), false
	for i, w := range weights {
		out[i] = w.String()
		long = long || len(out[i]) >= longWeight
	}
	parts, err := mixing.Proportion(weights)
	if !long || err != nil {
		return out
	}
	for i, share := range parts.Shares(nil) {
		out[i] = decimalShare(share)
	}
	return out
}

func (m *Machine) shown(c *pb.Mixed) *pb.MixChange {
	return &pb.MixChange{AtStep: c.AtStep, Text: m.describe(c), By: c.By, Why: c.Why, Attempt: c.Attempt, InForce: m.s.InForce(c)}
}

// InForce tells whether a change holds in the newest attempt, or in the first where there is none yet.
func (s *State) InForce(c *pb.Mixed) bool { return c.Attempt <= max(1, s.Attempt.GetAttempt()) }

// ChangesAt are the changes of the mixture that took effect with a step of an attempt, for people; names are those of the sources, in order.
func ChangesAt(list []*pb.Mixed, names []string, attempt uint32, step uint64) (out []*pb.MixChange) {
	for _, c := range list {
		if c.AtStep == step && c.Attempt <= attempt {
			out = append(out, &pb.MixChange{AtStep: c.AtStep, Text: DescribeMixed(c, names), By: c.By, Why: c.Why, Attempt: c.Attempt, InForce: true})
		}
	}
	return out
}

// tellMixed prints what stays in force of earlier changes in the attempt that was opened.
func (m *Machine) tellMixed() {
	o := m.s.Attempt
	if o.Forgets {
		m.say("attempt %d: changes of the mixture that were journaled for steps from %d on are dropped", o.Attempt, o.Step)
	}
	for _, c := range m.s.Mixed {
		if c.AtStep >= o.Step && c.Why == "" {
			m.say("attempt %d: the mixture changes from step %d on: %s (%s)", o.Attempt, c.AtStep, m.describe(c), c.By)
		}
	}
}

// mixture is what people see of the mixture: what is in force at the next step to seal, and what was changed.
func (m *Machine) mixture(st *planner.State) *pb.MixtureStatus {
	schedule := m.spec.Schedule.Since(uint64(st.Step), st.Tokens)
	out := &pb.MixtureStatus{}
	names := make([]string, len(m.cfg.Sources))
	for i, share := range schedule.Divide(schedule.At(uint64(st.Step), st.Tokens), nil) {
		names[i] = m.cfg.Sources[i].Name
		out.Weights = append(out.Weights, &pb.SourceWeight{Source: names[i], Weight: decimalShare(share)})
	}
	for _, k := range schedule.Milestones() {
		out.Milestones = append(out.Milestones, describeMilestone(k, names))
	}
	for _, c := range m.s.Mixed {
		out.Changes = append(out.Changes, m.shown(c))
	}
	out.Calibration = m.calibration()
	if cost, ok := m.live.cost(uint64(st.Step)); ok {
		out.Costs = &pb.Costed{Linear: cost.Linear, Quadratic: cost.Quadratic}
	}
	return out
}

// decimalShare writes a share to six places.
func decimalShare(share uint32) string {
	millionths := (uint64(share)*1_000_000 + mixing.One/2) / mixing.One
	return fmt.Sprintf("%d.%06d", millionths/1_000_000, millionths%1_000_000)
}
