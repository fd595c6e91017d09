package constructors

import "millrace"

// LossTokens returns the number of labels of a microbatch that count in the loss, over all context-parallel slices: the
// tokens of its segments without the last token of each document. A masked segment counts like any other, so that
// masking changes no denominator.
func (c *Collator) LossTokens(part []millrace.Assignment) uint64 {
	whole := *c
	whole.ranks, whole.rank = 1, 0
	labels := uint64(0)
	var runs [2]run
	for i := range part {
		a := &part[i]
		for _, r := range whole.runs(a, &runs) {
			labels += uint64(r.to - r.from)
			if !a.More && r.from < r.to && r.to == int(a.Length) {
				labels--
			}
		}
	}
	return labels
}

// StepLossTokens returns LossTokens summed over all microbatches of a step on all data-parallel ranks.
func StepLossTokens(p *millrace.Plan) uint64 {
	labels := uint64(0)
	for i := range p.Assignments {
		a := &p.Assignments[i]
		if a.Part > 0 {
			continue // counted with the segment's first slice
		}
		labels += uint64(a.Length)
		if !a.More {
			labels--
		}
	}
	return labels
}
