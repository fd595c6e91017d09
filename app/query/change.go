package query

import (
	"fmt"
	"strings"

	"millrace/app/config"
	"millrace/proto"
)

// Request asks for a change of a run's mixture.
type Request struct {
	From    uint64 // the first step that it decides, if HasFrom
	HasFrom bool   // false: the next step that is not planned
	Later   bool   // the change holds once the ranks start again at or before From, which may be planned
	Change  Change
}

// Change is one change of a mixture.
type Change func(*proto.MixRequest)

// SetWeights gives each source a weight, in place of the schedule. weights are NAME=WEIGHT; ramp is none, linear or
// cosine, and over its length in steps.
func SetWeights(weights []string, ramp string, over uint64) (Change, error) {
	list, err := parseWeights(weights)
	ask := &proto.SetWeights{Weights: list, Ramp: ramp, Over: over}
	return func(r *proto.MixRequest) { r.Change = &proto.MixRequest_Set{Set: ask} }, err
}

// SetSchedule replaces the schedule by that of a file.
func SetSchedule(file string) (Change, error) {
	milestones, err := config.LoadMilestones(file)
	if err != nil {
		return nil, err
	}
	ask := &proto.SetSchedule{}
	for i := range milestones {
		k := &milestones[i]
		from, tokens := k.From()
		if k.Weights.Derived != nil || len(k.Groups) > 0 {
			return nil, fmt.Errorf("the milestone at %d derives or groups its weights: write a number for each "+
				"source, as `millrace check` prints them", from)
		}
		at := &proto.WeightsAt{From: from, Tokens: tokens, Ramp: string(k.Ramp), Over: k.Over()}
		for _, w := range k.Weights.Given {
			at.Weights = append(at.Weights, &proto.SourceWeight{Source: w.Source, Weight: w.Value.String()})
		}
		ask.Milestones = append(ask.Milestones, at)
	}
	return func(r *proto.MixRequest) { r.Change = &proto.MixRequest_Schedule{Schedule: ask} }, nil
}

// SkipTo passes over the data of the steps before a step, from the request's first step on.
func SkipTo(step uint64) Change {
	return func(r *proto.MixRequest) { r.Change = &proto.MixRequest_Skip{Skip: &proto.Skipped{To: step}} }
}

// AddSource gives a weight to a source that has 0. weight is NAME=WEIGHT.
func AddSource(weight string) (Change, error) {
	list, err := parseWeights([]string{weight})
	if err != nil {
		return nil, err
	}
	ask := &proto.AddSource{Source: list[0].Source, Weight: list[0].Weight}
	return func(r *proto.MixRequest) { r.Change = &proto.MixRequest_Add{Add: ask} }, nil
}

// RemoveSource gives a source weight 0.
func RemoveSource(name string) Change {
	return func(r *proto.MixRequest) { r.Change = &proto.MixRequest_Remove{Remove: name} }
}

// SetCosts changes the coefficients of the predicted cost.
func SetCosts(linear, quadratic uint64) Change {
	ask := &proto.Costed{Linear: linear, Quadratic: quadratic}
	return func(r *proto.MixRequest) { r.Change = &proto.MixRequest_Costs{Costs: ask} }
}

// Refit takes the coefficients that fit the times best that trainers reported.
func Refit() Change {
	return func(r *proto.MixRequest) { r.Change = &proto.MixRequest_Calibrate{Calibrate: true} }
}

// parseWeights reads NAME=WEIGHT arguments. A name may contain an equals sign.
func parseWeights(args []string) ([]*proto.SourceWeight, error) {
	var out []*proto.SourceWeight
	for _, arg := range args {
		at := strings.LastIndexByte(arg, '=')
		if at <= 0 {
			return nil, fmt.Errorf("%q is no weight of a source: write NAME=WEIGHT, such as web=0.5", arg)
		}
		out = append(out, &proto.SourceWeight{Source: arg[:at], Weight: arg[at+1:]})
	}
	return out, nil
}
