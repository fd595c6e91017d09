package planner

import (
	"math/bits"

	"millrace/orchestrator/planner/pack"
)

const (
	mostReserved = 256 // segments that wait after a window
	topUpBins    = 2   // bins that they fill if the window only tops up its bins
)

// hasReserve reports whether more segments are drawn than the window holds, so that it has a choice. The window fills
// its bins, so the units beyond them wait. Drawing stops when these units reach those of the shortest segments that may
// wait: then no more segments can wait. That is the number of segments of two and a half steps, so documents move by
// fewer than three steps in the mean. Drawing also stops when the units beyond the bins would fill 7/4 steps, or two
// bins if the window only tops up its bins.
func (d *draft) hasReserve(in *pack.Window) bool {
	step := uint64(in.Batch) * uint64(in.Capacity)
	units := step * uint64(in.Steps)
	most := step * 7 / 4
	if !in.UsesPool(len(d.segments)) {
		most = topUpBins * uint64(in.Capacity)
	}
	segments := step * uint64(len(d.segments)) / d.total
	segments = min(segments*5/2, mostReserved, uint64(in.Carry-in.Carry/8))
	return d.total-units >= min(most, d.lengths.least(segments))
}

// octaves counts segments by the number of bits of their units.
type octaves struct {
	count, units [33]uint64
}

func (o *octaves) add(units uint32) {
	at := bits.Len32(units)
	o.count[at]++
	o.units[at] += uint64(units)
}

// least returns a lower bound of the units of any n segments.
func (o *octaves) least(n uint64) (units uint64) {
	for at, count := range o.count {
		if count > n {
			return units + n<<at>>1
		}
		units += o.units[at]
		n -= count
	}
	return units
}
