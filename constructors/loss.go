package constructors

import "millrace"

// LossTokens returns the number of labels of a microbatch that count in the loss, over all context-parallel slices: the
// tokens of its segments without the first token of each document and without untrained tokens. tokens and masked are
// those of Build. A masked segment counts as planned, so masking changes no denominator.
func (c *Collator) LossTokens(part []millrace.Assignment, tokens []Tokens, masked []bool) uint64 {
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
			if masked == nil || !masked[i] {
				labels -= tokens[i].untrained(r.from+1, min(r.to+1, tokens[i].Len()))
			} else {
				labels -= plannedUntrained(a, uint64(r.from), uint64(r.to))
			}
		}
	}
	return labels
}

// plannedUntrained returns how many labels of a part of a masked segment were out of the loss by the plan. The plan has
// the number of the whole segment, which is spread evenly: slices of a segment add up to it.
func plannedUntrained(a *millrace.Assignment, from, to uint64) uint64 {
	labels := uint64(a.Labels() + a.Untrained)
	if labels == 0 {
		return 0
	}
	below := func(at uint64) uint64 { return uint64(a.Untrained) * min(at, labels) / labels }
	return below(to) - below(from)
}

// StepLossTokens returns the LossTokens of all microbatches of a step on all data-parallel ranks. It takes untrained
// labels out if the plan counts them.
func StepLossTokens(p *millrace.Plan) uint64 {
	labels := uint64(0)
	for i := range p.Assignments {
		a := &p.Assignments[i]
		if a.Part > 0 {
			continue // counted with the segment's first slice
		}
		labels += uint64(a.Labels())
	}
	return labels
}

// UntrainedLabels returns the labels of a part that its untrained tokens take out of StepLossTokens, if the plan does
// not count them. tokens and masked are those of Build.
func UntrainedLabels(part []millrace.Assignment, tokens []Tokens, masked []bool) (labels uint64) {
	for i := range part {
		if part[i].Part > 0 || masked != nil && masked[i] {
			continue // a slice is counted with the segment's first slice
		}
		labels += tokens[i].untrained(1, tokens[i].Len())
	}
	return labels
}
