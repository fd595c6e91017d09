package setup

import (
	"fmt"
	"slices"

	"millrace"
	"millrace/app/config"
	"millrace/internal/bucket"
	"millrace/mixing"
	"millrace/orchestrator/planner"
	"millrace/orchestrator/planner/place"
	"millrace/orchestrator/planner/strategy"
	"millrace/proto"
)

// PlanSpec returns the part of the configuration that decides the content of a step.
func PlanSpec(c *config.Config, of config.Facts) (*planner.Spec, error) {
	schedule, err := schedule(c, of)
	if err != nil {
		return nil, err
	}
	all := stages(c)
	spec := &planner.Spec{
		SequenceLength: all[0].SequenceLength,
		GlobalBatch:    all[0].GlobalBatch,
		Rampup:         all[0].Rampup,
		Packing:        all[0].Packing,
		Stages:         all[1:],
		PadMultiple:    c.PadMultiple,
		Unit:           c.Mixture.Unit,
		Schedule:       schedule,
		LastStep:       c.LastStep,
		Carry:          carry(c),
		Window:         int(c.Window),
		BucketRows:     bucket.Constant,
		RowsByDefault:  c.BucketRows == "",
	}
	if c.TokenRows() {
		spec.BucketRows = bucket.Tokens
	}
	for i := range c.Sources {
		src := &c.Sources[i]
		pieces, byDefault := c.PieceTokens(src)
		spec.Sources = append(spec.Sources, planner.SourceSpec{
			Name: src.Name, OnExhausted: src.OnExhausted, Filters: filterTexts(c, src),
			PieceTokens: pieces, PiecesByDefault: byDefault, Untrained: src.HasUntrained(),
		})
	}
	if c.Stop != nil {
		spec.StopSteps, spec.StopTokens = c.Stop.Steps, c.Stop.Tokens
	}
	return spec, spec.Validate()
}

func carry(c *config.Config) int {
	if c.Carry.IsAuto {
		return planner.AutoCarry
	}
	return int(c.Carry.Count)
}

func stages(c *config.Config) (out []planner.Stage) {
	_, filters := c.StageFilterSets()
	for i, s := range c.AllStages() {
		from, tokens := s.From()
		at := mixing.Point{Measure: mixing.Steps, Count: from}
		if tokens {
			at.Measure = mixing.Tokens
		}
		mask := uint64(0)
		if filters[i] > 0 {
			mask = 1 << filters[i]
		}
		out = append(
			out,
			planner.Stage{
				From:           at,
				Filters:        mask,
				SequenceLength: s.SequenceLength,
				GlobalBatch:    int(s.GlobalBatchSize),
				Rampup:         s.RampupBatchSize.Ramp(),
				Packing:        s.Packing,
				MicroBatch:     s.MicroBatchSize,
			},
		)
	}
	return out
}

func schedule(c *config.Config, of config.Facts) (*mixing.Schedule, error) {
	milestones := c.Mixture.Milestones()
	out := make([]mixing.Milestone, len(milestones))
	for i := range milestones {
		k := &milestones[i]
		at, tokens := k.From()
		measure := mixing.Steps
		if tokens {
			measure = mixing.Tokens
		}
		out[i].From = mixing.Point{Measure: measure, Count: at}
		if k.Ramp != "" && k.Ramp != config.RampNone {
			ramp, err := mixing.ParseRamp(string(k.Ramp))
			if err != nil {
				return nil, err
			}
			out[i].Ramp, out[i].Over = ramp, mixing.Point{Measure: measure, Count: k.Over()}
		}
		var err error
		if out[i].Weights, err = weights(c, of, k); err != nil {
			return nil, millrace.Errorf(millrace.ErrInvalid, "mixture, entry %d: %w", i, err)
		}
	}
	s, err := mixing.NewSchedule(len(c.Sources), out)
	if err != nil {
		return nil, millrace.Errorf(millrace.ErrInvalid, "mixture.schedule: %v", err)
	}
	s.Bound(bounds(c))
	return s, nil
}

// Strategy returns the part of the configuration that decides the content and the placement of a step.
func Strategy(c *config.Config, of config.Facts, t millrace.Topology) (*strategy.Strategy, error) {
	mix, err := PlanSpec(c, of)
	if err != nil {
		return nil, err
	}
	return &strategy.Strategy{
		Mix:        *mix,
		Distribute: distribute(c, t),
		Cost:       Costs(c),
		Balance:    c.Balance,
		Broadcast:  Broadcast(c),
	}, nil
}

func distribute(c *config.Config, t millrace.Topology) strategy.Distribute {
	d := strategy.Distribute{
		MicroBatch:  c.MicroBatchSize,
		Layout:      c.Layout,
		CapPermille: uint32(c.CapSlack.Billionths() / 1_000_000),
		Local:       c.CPLocal,
		Group:       c.Group(t),
	}
	if c.SplitDocuments != nil {
		d.Split = place.Split{On: true, AboveTokens: c.SplitDocuments.Above.Tokens}
	}
	return d
}

// Broadcast returns the axes along which the trainer itself passes tensors on, and which ranks need fewer of them.
func Broadcast(c *config.Config) millrace.Broadcast {
	return millrace.Broadcast{
		TP: slices.Contains(c.Broadcast, config.AxisTP),
		PP: slices.Contains(c.Broadcast, config.AxisPP), Positions: c.MiddleStages == config.Positions,
	}
}

// Refit returns the number of steps between two fits of the costs, or 0 if the costs are fixed.
func Refit(c *config.Config) uint64 {
	if c.Refit == nil {
		return 0
	}
	return c.Refit.Every
}

// Placing returns the placing in the form of the journal. A new placing opens a new attempt.
func Placing(c *config.Config, t millrace.Topology) *proto.Placing {
	cost := Costs(c)
	p := &proto.Placing{
		Ranks:      uint32(t.Ranks),
		MicroBatch: c.MicroBatchSize,
		Layout:     string(c.Layout),
		Balance:    string(c.Balance),
		Cost: fmt.Sprintf(
			"%d %d", cost.Linear, cost.Quadratic,
		),
		CapSlack: c.CapSlack.String(),
		Tp:       uint32(t.TP),
		Cp:       uint32(t.CP),
		Pp:       uint32(t.PP),
		CpLocal:  c.CPLocal,
		Group:    uint32(c.Group(t)),
	}
	if cost.Windowed > 0 {
		p.Cost += fmt.Sprintf(", %d within %d", cost.Windowed, cost.Window)
	}
	if cost.Phases() > 1 {
		p.Cost += fmt.Sprintf(", encoder %d %d", cost.Encoder.Linear, cost.Encoder.Quadratic)
	}
	for i := range c.Stages {
		p.Stages = append(p.Stages, c.Stages[i].MicroBatchSize)
	}
	if c.SplitDocuments != nil {
		p.Split = fmt.Sprintf("above %d", c.SplitDocuments.Above.Tokens)
	}
	return p
}
