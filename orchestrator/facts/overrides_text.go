package facts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/cost"
)

// overridesText is the encoded form of Overrides in a run state.
type overridesText struct {
	Tokens   bool        `json:"tokens,omitempty"`   // the schedule counts tokens
	Schedule []string    `json:"schedule,omitempty"` // a milestone each: milestoneText
	Skips    [][2]uint64 `json:"skips,omitempty"`    // from, to
	Costs    [][3]uint64 `json:"costs,omitempty"`    // from, linear, quadratic
	Policy   []byte      `json:"policy,omitempty"`
}

// toText returns the form that parseOverrides reads, or nil for no overrides; file is the mixture file's spec.
func (o Overrides) toText(file *planner.Spec) *overridesText {
	if o.isEmpty() {
		return nil
	}
	out := &overridesText{Policy: o.policy}
	if o.schedule != nil {
		out.Tokens = o.schedule.Measure() == mixing.Tokens
		for _, k := range o.schedule.Milestones() {
			out.Schedule = append(out.Schedule, milestoneText(k, file.Schedule.Milestones()))
		}
	}
	for _, k := range o.skips {
		out.Skips = append(out.Skips, [2]uint64{uint64(k.From), uint64(k.To)})
	}
	for _, c := range o.costs {
		out.Costs = append(out.Costs, [3]uint64{c.step, c.cost.Linear, c.cost.Quadratic})
	}
	return out
}

// milestoneText writes a milestone: `500 linear 200: 0.4 0.6`. If its weights are those of an entry of the mixture
// file, it has the number of the entry: `500 linear 200: @2`. States are always decoded together with their mixture
// file.
func milestoneText(k mixing.Milestone, file []mixing.Milestone) string {
	var b strings.Builder
	fmt.Fprint(&b, k.From.Count)
	if k.Ramp != mixing.RampNone {
		fmt.Fprintf(&b, " %s %d", k.Ramp, k.Over.Count)
	}
	b.WriteByte(':')
	hasEqualWeights := func(f mixing.Milestone) bool { return slices.Equal(f.Weights, k.Weights) }
	if i := slices.IndexFunc(file, hasEqualWeights); i >= 0 {
		fmt.Fprintf(&b, " @%d", i)
		return b.String()
	}
	for _, w := range k.Weights {
		b.WriteByte(' ')
		b.WriteString(w.String())
	}
	return b.String()
}

// parseOverrides reads the form that toText writes; file is the mixture file's schedule.
func parseOverrides(t *overridesText, file *mixing.Schedule) (Overrides, error) {
	var o Overrides
	if t == nil {
		return o, nil
	}
	o.policy = t.Policy
	milestones := make([]mixing.Milestone, len(t.Schedule))
	for i, text := range t.Schedule {
		var err error
		if milestones[i], err = parseMilestone(text, t.Tokens, file.Milestones()); err != nil {
			return o, millrace.Errorf(millrace.ErrInvalid, "its schedule: %q: %w", text, err)
		}
	}
	if len(milestones) > 0 {
		var err error
		if o.schedule, err = file.With(milestones); err != nil {
			return o, millrace.Errorf(millrace.ErrInvalid, "its schedule: %w", err)
		}
	}
	for _, k := range t.Skips {
		o.skips = append(o.skips, planner.Skip{From: millrace.Step(k[0]), To: millrace.Step(k[1])})
	}
	for _, c := range t.Costs {
		o.costs = append(o.costs, costsAt{c[0], cost.Cost{Linear: c[1], Quadratic: c[2]}})
	}
	return o, nil
}

func parseMilestone(text string, tokens bool, file []mixing.Milestone) (k mixing.Milestone, err error) {
	head, weights, _ := strings.Cut(text, ":")
	measure := MeasureOf(tokens)
	switch words := strings.Fields(head); len(words) {
	case 3:
		if k.Ramp, err = mixing.ParseRamp(words[1]); err != nil {
			return k, err
		}
		k.Over.Measure = measure
		if k.Over.Count, err = strconv.ParseUint(words[2], 10, 64); err != nil {
			return k, err
		}
		head = words[0]
	case 1:
	default:
		return k, fmt.Errorf("%d words before the colon", len(words))
	}
	k.From.Measure = measure
	if k.From.Count, err = strconv.ParseUint(strings.TrimSpace(head), 10, 64); err != nil {
		return k, err
	}
	if at, named := strings.CutPrefix(strings.TrimSpace(weights), "@"); named {
		i, err := strconv.ParseUint(at, 10, 32)
		if err != nil || i >= uint64(len(file)) {
			return k, fmt.Errorf("the mixture file has no entry %s", at)
		}
		k.Weights = file[i].Weights
		return k, nil
	}
	k.Weights, err = ParseWeights(strings.Fields(weights))
	return k, err
}
