package orchestrator

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"millrace"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	pb "millrace/proto"
)

// Live is what changes that were made while the run went on leave of the mixture file. It is a value: with and since return others.
type Live struct {
	schedule *mixing.Schedule // nil: the file's
	skips    []planner.Skip   // by From
	costs    []costsAt        // by step
	policy   []byte           // what the adaptive policy remembers
}

// costsAt is a cost model from a step on.
type costsAt struct {
	step uint64
	cost planner.Cost
}

// empty tells that the mixture file says it all.
func (l Live) empty() bool {
	return l.schedule == nil && len(l.skips) == 0 && len(l.costs) == 0 && len(l.policy) == 0
}

// with returns what holds with one change more; file is the mixture file's schedule. The same change again changes nothing.
func (l Live) with(file *mixing.Schedule, c *pb.Mixed) (Live, error) {
	switch change := c.GetChange().(type) {
	case *pb.Mixed_Schedule:
		milestones, err := milestonesFromProto(change.Schedule.Milestones)
		if err != nil {
			return l, err
		}
		if l.schedule, err = l.over(file).With(milestones); err != nil {
			return l, err
		}
	case *pb.Mixed_Skip:
		skip := planner.Skip{From: millrace.Step(c.AtStep), To: millrace.Step(change.Skip.To)}
		l.skips = append(slices.DeleteFunc(slices.Clone(l.skips), func(k planner.Skip) bool { return k.From == skip.From }), skip)
		slices.SortFunc(l.skips, func(a, b planner.Skip) int { return cmp.Compare(a.From, b.From) })
	case *pb.Mixed_Costs:
		at := costsAt{c.AtStep, planner.Cost{Linear: change.Costs.Linear, Quadratic: change.Costs.Quadratic}}
		l.costs = append(slices.DeleteFunc(slices.Clone(l.costs), func(k costsAt) bool { return k.step >= at.step }), at)
	}
	if len(c.Policy) > 0 {
		l.policy = c.Policy
	}
	return l, nil
}

// over returns the schedule in force where the mixture file's is file.
func (l Live) over(file *mixing.Schedule) *mixing.Schedule {
	if l.schedule != nil {
		return l.schedule
	}
	return file
}

// since returns what of it decides about steps from a state on. Inside a window that is what the window began with.
func (l Live) since(st *planner.State) Live {
	if l.schedule != nil {
		step, tokens := st.Drawn()
		l.schedule = l.schedule.Since(uint64(step), tokens)
	}
	l.skips = slices.DeleteFunc(slices.Clone(l.skips), func(k planner.Skip) bool { return k.From < st.Step })
	for len(l.costs) > 1 && l.costs[1].step <= uint64(st.Step) {
		l.costs = l.costs[1:]
	}
	return l
}

// spec returns the spec of a mixture file with this over it.
func (l Live) spec(file *planner.Spec) *planner.Spec {
	if file == nil || l.schedule == nil && len(l.skips) == 0 {
		return file
	}
	out := *file
	out.Schedule, out.Skips = l.over(file.Schedule), l.skips
	return &out
}

// cost returns the cost model of a step, if it is another than the mixture file's.
func (l Live) cost(step uint64) (cost planner.Cost, ok bool) {
	for _, c := range l.costs {
		if c.step <= step {
			cost, ok = c.cost, true
		}
	}
	return cost, ok
}

// liveText is a Live in a run state.
type liveText struct {
	Tokens   bool        `json:"tokens,omitempty"`   // the schedule counts tokens
	Schedule []string    `json:"schedule,omitempty"` // a milestone each: milestoneText
	Skips    [][2]uint64 `json:"skips,omitempty"`    // from, to
	Costs    [][3]uint64 `json:"costs,omitempty"`    // from, linear, quadratic
	Policy   []byte      `json:"policy,omitempty"`
}

// text returns the form that parseLive reads, nil where there is nothing to say; file is the mixture file's spec.
func (l Live) text(file *planner.Spec) *liveText {
	if l.empty() {
		return nil
	}
	out := &liveText{Policy: l.policy}
	if l.schedule != nil {
		out.Tokens = l.schedule.Measure() == mixing.Tokens
		for _, k := range l.schedule.Milestones() {
			out.Schedule = append(out.Schedule, milestoneText(k, file.Schedule.Milestones()))
		}
	}
	for _, k := range l.skips {
		out.Skips = append(out.Skips, [2]uint64{uint64(k.From), uint64(k.To)})
	}
	for _, c := range l.costs {
		out.Costs = append(out.Costs, [3]uint64{c.step, c.cost.Linear, c.cost.Quadratic})
	}
	return out
}

// milestoneText writes a milestone: `500 linear 200: 0.4 0.6`. One with the weights of an entry of the mixture file, which a state is never read without, names that by its
// number: `500 linear 200: @2`.
func milestoneText(k mixing.Milestone, file []mixing.Milestone) string {
	var b strings.Builder
	fmt.Fprint(&b, k.From.Count)
	if k.Ramp != mixing.RampNone {
		fmt.Fprintf(&b, " %s %d", k.Ramp, k.Over.Count)
	}
	b.WriteByte(':')
	if i := slices.IndexFunc(file, func(f mixing.Milestone) bool { return slices.Equal(f.Weights, k.Weights) }); i >= 0 {
		fmt.Fprintf(&b, " @%d", i)
		return b.String()
	}
	for _, w := range k.Weights {
		b.WriteByte(' ')
		b.WriteString(w.String())
	}
	return b.String()
}

// parseLive reads what text wrote of a run whose mixture file has that schedule.
func parseLive(t *liveText, file *mixing.Schedule) (Live, error) {
	var l Live
	if t == nil {
		return l, nil
	}
	l.policy = t.Policy
	milestones := make([]mixing.Milestone, len(t.Schedule))
	for i, text := range t.Schedule {
		var err error
		if milestones[i], err = parseMilestone(text, t.Tokens, file.Milestones()); err != nil {
			return l, millrace.Errorf(millrace.ErrInvalid, "its schedule: %q: %w", text, err)
		}
	}
	if len(milestones) > 0 {
		var err error
		if l.schedule, err = file.With(milestones); err != nil {
			return l, millrace.Errorf(millrace.ErrInvalid, "its schedule: %w", err)
		}
	}
	for _, k := range t.Skips {
		l.skips = append(l.skips, planner.Skip{From: millrace.Step(k[0]), To: millrace.Step(k[1])})
	}
	for _, c := range t.Costs {
		l.costs = append(l.costs, costsAt{c[0], planner.Cost{Linear: c[1], Quadratic: c[2]}})
	}
	return l, nil
}

func parseMilestone(text string, tokens bool, file []mixing.Milestone) (k mixing.Milestone, err error) {
	head, weights, _ := strings.Cut(text, ":")
	measure := measureOf(tokens)
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
	k.Weights, err = parseWeights(strings.Fields(weights))
	return k, err
}

func measureOf(tokens bool) mixing.Measure {
	if tokens {
		return mixing.Tokens
	}
	return mixing.Steps
}

func parseWeights(texts []string) ([]mixing.Weight, error) {
	out := make([]mixing.Weight, len(texts))
	for i, text := range texts {
		var err error
		if out[i], err = mixing.ParseWeight(text); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func milestonesFromProto(milestones []*pb.Milestone) ([]mixing.Milestone, error) {
	out := make([]mixing.Milestone, len(milestones))
	for i, k := range milestones {
		weights, err := parseWeights(k.Weights)
		if err != nil {
			return nil, err
		}
		ramp, err := mixing.ParseRamp(k.Ramp)
		if err != nil {
			return nil, err
		}
		out[i] = mixing.Milestone{From: mixing.Point{Measure: measureOf(k.Tokens), Count: k.From}, Weights: weights, Ramp: ramp}
		if ramp != mixing.RampNone || k.Over > 0 {
			out[i].Over = mixing.Point{Measure: out[i].From.Measure, Count: k.Over}
		}
	}
	return out, nil
}

func milestoneToProto(k mixing.Milestone) *pb.Milestone {
	out := &pb.Milestone{From: k.From.Count, Tokens: k.From.Measure == mixing.Tokens, Over: k.Over.Count}
	if k.Ramp != mixing.RampNone {
		out.Ramp = k.Ramp.String()
	}
	for _, w := range k.Weights {
		out.Weights = append(out.Weights, w.String())
	}
	return out
}
