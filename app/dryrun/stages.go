package dryrun

import (
	"math"

	"millrace"
	"millrace/mixing"
)

// enter sets the step's tokens from the stage in force, and notes the beginning of the stage.
func (f *forecast) enter() {
	at := millrace.Step(f.step)
	in, number := f.spec.StageAt(at, uint64(f.out.Tokens))
	f.perStep = max(1, f.fill*float64(in.GlobalBatch)*float64(in.SequenceLength))
	if f.out.Begins[number] == nil {
		f.out.Begins[number] = &at
	}
}

// stage limits a stretch to the end of the stage in force, or to the next batch size of its ramp.
func (f *forecast) stage(bound func(steps float64) bool) {
	in, number := f.spec.StageAt(millrace.Step(f.step), uint64(f.out.Tokens))
	if number < len(f.spec.Stages) {
		next := f.spec.Stages[number].From
		if next.Measure == mixing.Tokens {
			bound(math.Ceil((float64(next.Count) - f.out.Tokens) / f.perStep))
		} else {
			bound(float64(next.Count) - f.step)
		}
	}
	whole := f.spec.GlobalBatch
	if number > 0 {
		whole = f.spec.Stages[number-1].GlobalBatch
	}
	for from := range in.Rampup.Sizes(uint32(whole)) {
		if at := float64(in.From.Count + from); at > f.step {
			bound(at - f.step)
			return
		}
	}
}

// stages reports the stages of a run with several stages or a ramp.
func (k *check) stages() {
	all := k.c.AllStages()
	if len(all) == 1 && all[0].RampupBatchSize == nil {
		return
	}
	for i, in := range all {
		r := StageReport{
			SequenceLength: in.SequenceLength,
			GlobalBatch:    in.GlobalBatchSize,
			MicroBatch:     in.MicroBatchSize,
			Microbatches:   in.Microbatches(k.topology),
			Packing:        string(in.Packing),
			FromStep:       in.FromStep,
			FromTokens:     in.FromTokens,
			Sizes:          []BatchSize{},
		}
		if i == 0 {
			r.FromStep = new(uint64)
		}
		for from, size := range in.RampupBatchSize.Ramp().Sizes(in.GlobalBatchSize) {
			if in.RampupBatchSize != nil {
				at, _ := in.From()
				r.Sizes = append(r.Sizes, BatchSize{Step: at + from, Sequences: size})
			}
		}
		if k.outlook != nil && k.outlook.Begins[i] != nil {
			at := uint64(*k.outlook.Begins[i])
			r.Begins = &at
		}
		k.report.Run.Stages = append(k.report.Run.Stages, r)
	}
}
