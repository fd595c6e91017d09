package planner

import (
	"math/bits"

	"millrace/orchestrator/planner/pack"
)

// poolPercent is the number of segments that may wait after a window, in percent of those of a step. Documents then
// move by less than three steps in the mean.
const poolPercent = 200

// hasPool reports whether a window that is packed from a pool has a choice of segments. The window fills its bins, so
// the units beyond them wait. Drawing stops when these units are as many as the shortest segments have that may wait:
// then no more segments can wait.
func (d *draft) hasPool(in *pack.Window) bool {
	units := uint64(in.Steps) * uint64(in.Batch) * uint64(in.Capacity)
	step := units * uint64(len(d.segments)) / d.total / uint64(in.Steps)
	most := min(step*poolPercent/100, uint64(in.Carry-in.Carry/8))
	return d.total-units >= d.lengths.least(most)
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
