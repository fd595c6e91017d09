package planner

import "millrace"

// Overhead is how much dearer a plan is than the mean, in millionths: what ranks wait for each other. Costs are the model's, not
// measured; padding costs nothing.
type Overhead struct {
	FSDP uint64 // sum over microbatches of the dearest rank
	DP   uint64 // the dearest rank's sum
	Most uint64 // the dearest microbatch
}

// Weigh reports a plan's overhead. A plan without tokens has none.
func Weigh(plan *millrace.Plan, cost Cost) Overhead {
	longest, tokens := uint32(0), uint64(0)
	for i := range plan.Assignments {
		l := plan.Assignments[i].Length
		longest = max(longest, l)
		tokens += uint64(l)
	}
	cost = cost.fit(longest, tokens)
	micro := make([]uint64, int(plan.Ranks)*int(plan.Microbatches))
	total := uint64(0)
	for i := range plan.Assignments {
		a := &plan.Assignments[i]
		c := cost.of(a.Length)
		micro[int(a.Rank)*int(plan.Microbatches)+int(a.Microbatch)] += c
		total += c
	}
	columns, dearest, most := uint64(0), uint64(0), uint64(0)
	for m := range int(plan.Microbatches) {
		top := uint64(0)
		for r := range int(plan.Ranks) {
			top = max(top, micro[r*int(plan.Microbatches)+m])
		}
		columns += top
		most = max(most, top)
	}
	for r := range int(plan.Ranks) {
		sum := uint64(0)
		for m := range int(plan.Microbatches) {
			sum += micro[r*int(plan.Microbatches)+m]
		}
		dearest = max(dearest, sum)
	}
	over := func(worst, shares uint64) uint64 {
		if total == 0 {
			return 0
		}
		return mulDiv(worst, 1_000_000*shares, total) - 1_000_000
	}
	return Overhead{
		FSDP: over(columns, uint64(plan.Ranks)),
		DP:   over(dearest, uint64(plan.Ranks)),
		Most: over(most, uint64(plan.Ranks)*uint64(plan.Microbatches)),
	}
}
