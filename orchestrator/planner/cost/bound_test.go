package cost

import (
	"math/rand/v2"
	"testing"

	"millrace"
)

// TestBoundOfAnyPlacement: no placement within the token cap costs less than the bound, under any objective. It tries
// every placement of a few segments.
func TestBoundOfAnyPlacement(t *testing.T) {
	rng := rand.New(rand.NewPCG(10, 1))
	reached, cases := 0, 0
	for range 300 {
		ranks, columns := 1+rng.Uint32N(3), 1+rng.Uint32N(2)
		by := Weighing{
			Cost:   Cost{Linear: 1 + rng.Uint64N(200), Quadratic: 1},
			Cap:    100,
			Pad:    1 + rng.Uint32N(8),
			Stages: 1 + rng.IntN(3),
		}
		if rng.IntN(4) == 0 {
			by.Cost.Encoder = Encoder{Linear: 1 + rng.Uint64N(300), Quadratic: rng.Uint64N(3)}
		}
		plan := &millrace.Plan{
			Ranks:        ranks,
			Microbatches: columns,
			Assignments:  make([]millrace.Assignment, 1+rng.IntN(6)),
		}
		for i := range plan.Assignments {
			a := &plan.Assignments[i]
			a.Length = 1 + rng.Uint32N(90)>>rng.IntN(5)
			a.Patches = rng.Uint32N(60)
			if rng.IntN(8) == 0 {
				a.Parts = 2
			}
		}
		best, bound, some := Overhead{^uint64(0), ^uint64(0), ^uint64(0), ^uint64(0)}, Overhead{}, false
		everyPlacement(plan, by, func() {
			w := Weigh(plan, by)
			best = Overhead{
				min(best.FSDP, w.Over.FSDP),
				min(best.DP, w.Over.DP),
				min(best.PP, w.Over.PP),
				min(best.Most, w.Over.Most),
			}
			if some && w.Bound != bound {
				t.Fatalf("the bound depends on the placement: %+v and %+v", bound, w.Bound)
			}
			bound, some = w.Bound, true
		})
		if !some {
			continue
		}
		cases++
		if bound.FSDP > best.FSDP || bound.DP > best.DP || bound.PP > best.PP || bound.Most > best.Most {
			t.Errorf("%d ranks × %d microbatches, %+v, %+v: bound %+v, but %+v can be reached", ranks, columns, by,
				plan.Assignments, bound, best)
		}
		if bound.FSDP == best.FSDP {
			reached++
		}
	}
	t.Logf("the FSDP bound is reached in %d of %d cases", reached, cases)
}

// everyPlacement calls try with every placement of the segments that keeps to the cap.
func everyPlacement(plan *millrace.Plan, by Weighing, try func()) {
	left := make([]uint32, plan.Ranks*plan.Microbatches)
	for m := range left {
		left[m] = by.Cap / by.Pad * by.Pad
	}
	var place func(i int)
	place = func(i int) {
		if i == len(plan.Assignments) {
			try()
			return
		}
		a := &plan.Assignments[i]
		width := a.Columns(by.Pad)
		for m := range left {
			if left[m] >= width {
				left[m] -= width
				a.Rank, a.Microbatch = millrace.Rank(uint32(m)/plan.Microbatches), uint32(m)%plan.Microbatches
				place(i + 1)
				left[m] += width
			}
		}
	}
	place(0)
}
