package cost

import (
	"slices"

	"millrace"
)

// Backbone returns a function that gives the cost of a segment in the backbone. Its fixed point is that of a step with
// these assignments.
func Backbone(part []millrace.Assignment, cost Cost) func(*millrace.Segment) uint64 {
	var size Extent
	for i := range part {
		size.Add(&part[i].Segment)
	}
	weigh := cost.Weigher(size)
	return func(s *millrace.Segment) uint64 {
		_, backbone := weigh.Of(s)
		return backbone
	}
}

// WeighContext returns the excess of the most expensive of cp context-parallel ranks over the mean, in millionths: over
// all microbatches of a plan, and in the worst microbatch. Documents are padded to pad tokens. Padding costs as much as
// a document of its own, because matrix products run over it; attention does not. If a trainer's attention runs over
// padding too, ranks of sliced documents are exactly even.
func WeighContext(plan *millrace.Plan, cost Cost, cp int, pad uint32) (all, worst uint64) {
	weigh := Backbone(plan.Assignments, cost)
	of := func(tokens uint32) uint64 { return weigh(&millrace.Segment{Length: tokens}) }
	total, dearest := uint64(0), uint64(0)
	for rest := plan.Assignments; len(rest) > 0; {
		first, load := &rest[0], make([]uint64, cp)
		for len(rest) > 0 && rest[0].Rank == first.Rank && rest[0].Microbatch == first.Microbatch {
			sliceCosts(load, &rest[0], pad, of)
			rest = rest[1:]
		}
		sum := uint64(0)
		for _, l := range load {
			sum += l
		}
		most := slices.Max(load)
		total, dearest = total+sum, dearest+most
		if sum > 0 {
			worst = max(worst, MulDiv(most, 1_000_000*uint64(cp), sum)-1_000_000)
		}
	}
	if total > 0 {
		all = MulDiv(dearest, 1_000_000*uint64(cp), total) - 1_000_000
	}
	return all, worst
}

// sliceCosts adds each rank's part of a document to its load: one chunk from each end. Later tokens cost more, because
// attention sees everything before them.
func sliceCosts(load []uint64, a *millrace.Assignment, pad uint32, of func(uint32) uint64) {
	if a.Holder > 0 {
		load[a.Holder-1] += of(a.Length) + of(a.Columns(pad)-a.Length)
		return
	}
	chunk := a.Columns(pad) / uint32(2*len(load))
	chunks := uint32(2*len(load)) * max(a.Parts, 1)
	for c := range load {
		first := a.Part*uint32(len(load)) + uint32(c)
		for _, number := range [2]uint32{first, chunks - 1 - first} {
			from, to := min(number*chunk, a.Length), min((number+1)*chunk, a.Length)
			load[c] += of(to) - of(from) + of(chunk-(to-from))
		}
	}
}
