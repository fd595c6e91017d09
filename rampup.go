package millrace

import (
	"iter"
	"math/bits"
)

// Rampup is a global batch size that grows with the sequences delivered, as --rampup-batch-size of Megatron-LM
// (megatron/core/num_microbatches_calculator.py, RampupBatchsizeNumMicroBatchesCalculator). It grows from Start by
// Increment at a time, at equal distances, and reaches the whole after Samples sequences. Here the distance is an exact
// fraction. The zero value is no ramp.
type Rampup struct {
	Start     uint32 // sequences of the first step
	Increment uint32 // divides the difference between Start and the whole batch
	Samples   uint64 // sequences; at most 2^53
}

// BatchSize returns the sequences of a step on the way to whole. Steps count from the beginning of the ramp.
func (r Rampup) BatchSize(whole uint32, step uint64) uint32 {
	size := whole
	for from, s := range r.Sizes(whole) {
		if from > step {
			break
		}
		size = s
	}
	return size
}

// Sizes returns the batch sizes on the way to whole, each with its first step. It leaves out sizes that no step has.
// Steps count from the beginning of the ramp. The ramp must reach whole in whole increments.
func (r Rampup) Sizes(whole uint32) iter.Seq2[uint64, uint32] {
	return func(yield func(uint64, uint32) bool) {
		step, done := uint64(0), uint64(0) // steps and sequences so far
		if r.Samples > 0 {
			increments := uint64((whole - r.Start) / r.Increment)
			for done < r.Samples {
				hi, lo := bits.Mul64(done, increments)
				grown, _ := bits.Div64(hi, lo, r.Samples)
				size := r.Start + uint32(grown)*r.Increment
				if !yield(step, size) {
					return
				}
				hi, lo = bits.Mul64(grown+1, r.Samples)
				next, rest := bits.Div64(hi, lo, increments) // sequences at which it grows again
				if rest > 0 {
					next++
				}
				steps := (next - done + uint64(size) - 1) / uint64(size)
				step, done = step+steps, done+steps*uint64(size)
			}
		}
		yield(step, whole)
	}
}
