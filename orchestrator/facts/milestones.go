package facts

import (
	"millrace/mixing"
	pb "millrace/proto"
)

// MeasureOf returns the measure of a schedule that counts tokens, or steps.
func MeasureOf(tokens bool) mixing.Measure {
	if tokens {
		return mixing.Tokens
	}
	return mixing.Steps
}

// ParseWeights reads weights in decimal.
func ParseWeights(texts []string) ([]mixing.Weight, error) {
	out := make([]mixing.Weight, len(texts))
	for i, text := range texts {
		var err error
		if out[i], err = mixing.ParseWeight(text); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// MilestonesFromProto decodes milestones of a journaled change.
func MilestonesFromProto(milestones []*pb.Milestone) ([]mixing.Milestone, error) {
	out := make([]mixing.Milestone, len(milestones))
	for i, k := range milestones {
		weights, err := ParseWeights(k.Weights)
		if err != nil {
			return nil, err
		}
		ramp, err := mixing.ParseRamp(k.Ramp)
		if err != nil {
			return nil, err
		}
		out[i] = mixing.Milestone{
			From:    mixing.Point{Measure: MeasureOf(k.Tokens), Count: k.From},
			Weights: weights,
			Ramp:    ramp,
		}
		if ramp != mixing.RampNone || k.Over > 0 {
			out[i].Over = mixing.Point{Measure: out[i].From.Measure, Count: k.Over}
		}
	}
	return out, nil
}

// MilestoneToProto encodes a milestone for the journal.
func MilestoneToProto(k mixing.Milestone) *pb.Milestone {
	out := &pb.Milestone{From: k.From.Count, Tokens: k.From.Measure == mixing.Tokens, Over: k.Over.Count}
	if k.Ramp != mixing.RampNone {
		out.Ramp = k.Ramp.String()
	}
	for _, w := range k.Weights {
		out.Weights = append(out.Weights, w.String())
	}
	return out
}
