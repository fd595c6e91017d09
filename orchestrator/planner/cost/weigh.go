package cost

import (
	"slices"

	"millrace"
)

// Weighing has the settings by which a plan is weighed.
type Weighing struct {
	Cost   Cost
	Cap    uint32 // most columns of a microbatch
	Pad    uint32 // every segment is rounded up to a multiple of it
	Stages int    // of the pipeline
}

// Overhead is the excess of a step over the mean, in millionths: the time that ranks wait for each other. Costs are
// predicted, not measured, and padding costs nothing. With an encoder, ranks wait after each of the two phases.
type Overhead struct {
	FSDP uint64 // sum over microbatches of the most expensive rank
	DP   uint64 // the most expensive rank's sum
	PP   uint64 // the same, and its most expensive microbatch once more for every stage but the first
	Most uint64 // the most expensive microbatch
}

// Weight is the cost of a plan. Bound is a lower bound: no placement of the same documents, slices and microbatches
// within the token cap costs less. The best placement may cost more than the bound. The bound is the largest document
// or the mean; for FSDP see columnBound.
type Weight struct {
	Over    Overhead // over the mean
	Bound   Overhead // over the mean: no placement has less
	Ranks   []uint32 // by rank: its cost, in millionths of the mean rank's
	Micro   []uint32 // rank-major: a microbatch's cost, in millionths of the mean microbatch's
	Fullest uint32   // columns of the fullest microbatch
	Slices  int      // of documents that are split over ranks
}

// Gap returns the excess of the step over its bound, in millionths of the bound. Another placement saves at most that.
func (w *Weight) Gap() Overhead {
	gap := func(over, bound uint64) uint64 {
		if over <= bound {
			return 0
		}
		return MulDiv(over-bound, million, million+bound)
	}
	return Overhead{
		FSDP: gap(w.Over.FSDP, w.Bound.FSDP),
		DP:   gap(w.Over.DP, w.Bound.DP),
		PP:   gap(w.Over.PP, w.Bound.PP),
		Most: gap(w.Over.Most, w.Bound.Most),
	}
}

const million = 1_000_000

// Weigh returns the cost of a plan. One without tokens has no overhead.
func Weigh(plan *millrace.Plan, by Weighing) Weight {
	s := newScale(plan, by)
	w := Weight{Fullest: s.fullest, Slices: s.slices}
	if s.total == 0 {
		w.Ranks, w.Micro = make([]uint32, s.ranks), make([]uint32, s.ranks*s.columns)
		return w
	}
	var real, bound times
	for _, phase := range s.phases {
		real.add(s.times(phase))
		bound.add(s.bound(phase))
	}
	w.Over, w.Bound = s.overhead(real), s.overhead(bound)
	w.Ranks, w.Micro = s.parts(s.columns), s.parts(1)
	return w
}

// scale is a plan with the costs of its assignments in fixed point.
type scale struct {
	by             Weighing
	ranks, columns int
	bin            []uint32   // by assignment: rank-major microbatch
	units          []uint32   // by assignment
	phases         [][]uint64 // by phase and assignment: cost
	total          uint64
	slices         int
	fullest        uint32 // columns of the fullest microbatch
}

func newScale(plan *millrace.Plan, by Weighing) *scale {
	n := len(plan.Assignments)
	by.Pad = max(by.Pad, 1)
	s := &scale{
		by:      by,
		ranks:   int(plan.Ranks),
		columns: int(plan.Microbatches),
		bin:     make([]uint32, n),
		units:   make([]uint32, n),
	}
	for range by.Cost.Phases() {
		s.phases = append(s.phases, make([]uint64, n))
	}
	var size Extent
	for i := range plan.Assignments {
		size.Add(&plan.Assignments[i].Segment)
	}
	weigh := by.Cost.Weigher(size)
	for i := range plan.Assignments {
		a := &plan.Assignments[i]
		s.bin[i] = uint32(a.Rank)*plan.Microbatches + a.Microbatch
		s.units[i] = a.Columns(by.Pad) / by.Pad
		encoder, backbone := weigh.Of(&a.Segment)
		if a.Parts > 0 {
			s.slices++
			backbone /= uint64(a.Parts)
			if a.Part > 0 {
				encoder = 0 // a document's patches stay with its first token
			}
		}
		s.phases[0][i] = backbone
		if len(s.phases) > 1 {
			s.phases[1][i] = encoder
		}
		s.total += backbone + encoder
	}
	used := make([]uint32, s.ranks*s.columns+1)
	for i, m := range s.bin {
		used[m] += s.units[i] * by.Pad
	}
	s.fullest = slices.Max(used)
	return s
}

// times has the time of a step under each of the objectives.
type times struct{ fsdp, dp, pp, most uint64 }

func (t *times) add(o times) {
	t.fsdp, t.dp, t.pp, t.most = t.fsdp+o.fsdp, t.dp+o.dp, t.pp+o.pp, t.most+o.most
}

// times returns the times of a phase as it is placed.
func (s *scale) times(phase []uint64) (t times) {
	micro := make([]uint64, s.ranks*s.columns)
	for i, c := range phase {
		micro[s.bin[i]] += c
	}
	column := make([]uint64, s.columns)
	for r := range s.ranks {
		own, sum := micro[r*s.columns:(r+1)*s.columns], uint64(0)
		for m, c := range own {
			sum += c
			column[m] = max(column[m], c)
		}
		t.dp, t.pp = max(t.dp, sum), max(t.pp, s.pipeline(sum, slices.Max(own)))
	}
	for _, c := range column {
		t.fsdp += c
		t.most = max(t.most, c)
	}
	return t
}

func (s *scale) pipeline(sum, dearest uint64) uint64 {
	return sum + min(MulDiv(dearest, uint64(max(s.by.Stages, 1)-1), 1), 1<<62)
}

// bound returns lower bounds of the times of a phase, for any placement of its documents or their slices.
func (s *scale) bound(phase []uint64) (t times) {
	total, largest, room := uint64(0), slices.Max(phase), max(s.by.Cap/s.by.Pad, s.fullest/s.by.Pad, 1)
	for _, c := range phase {
		total += c
	}
	mean := total / uint64(s.ranks*s.columns)
	t.most = max(mean, largest)
	t.fsdp = columnBound(phase, s.units, s.ranks, s.columns, room)
	t.dp = max(total/uint64(s.ranks), largest)
	t.pp = max(s.pipeline(total/uint64(s.ranks), mean), s.pipeline(largest, largest))
	return t
}

// overhead returns the excess of times over those of a step with equal microbatches.
func (s *scale) overhead(t times) Overhead {
	ranks, all := uint64(s.ranks), s.total
	over := func(time, parts uint64) uint64 {
		return max(MulDiv(time, million*parts, all), million) - million
	}
	bins := ranks * uint64(s.columns)
	even := s.pipeline(all/ranks, all/bins)
	return Overhead{
		FSDP: over(t.fsdp, ranks),
		DP:   over(t.dp, ranks),
		PP:   max(MulDiv(t.pp, million, max(even, 1)), million) - million,
		Most: over(t.most, bins),
	}
}

// parts returns the costs of consecutive groups of `columns` microbatches, in millionths of their mean.
func (s *scale) parts(columns int) []uint32 {
	sums := make([]uint64, s.ranks*s.columns/columns)
	for _, phase := range s.phases {
		for i, c := range phase {
			sums[int(s.bin[i])/columns] += c
		}
	}
	out := make([]uint32, len(sums))
	for i, c := range sums {
		out[i] = uint32(min(MulDiv(c, million*uint64(len(sums)), s.total), 1<<32-1))
	}
	return out
}
