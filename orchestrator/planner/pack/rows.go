package pack

import (
	"sort"

	"millrace/internal/bucket"
	"millrace/orchestrator/planner/order"
)

// Ladder is the shapes of rows that a window with bucket.Tokens may use, shortest first, in units.
type Ladder []bucket.Shape

// NewLadder returns the shapes in bins of a capacity.
func NewLadder(capacity uint32) Ladder { return bucket.Shapes(bucket.Tokens, capacity) }

// At returns the number of the shortest row that holds a segment.
func (l Ladder) At(units uint32) int {
	return sort.Search(len(l), func(i int) bool { return l[i].Length >= units })
}

// Whole is the share of one sequence of the batch.
const Whole = 1 << 32

// Share returns the part of a sequence that one row for a segment takes, in parts of Whole, rounded down. Segments
// whose shares reach the sequences of some steps' batches fill these steps.
func (l Ladder) Share(units uint32) uint64 { return Whole / uint64(l[l.At(units)].Times) }

// Rows are the rows of one step. All have one length. Each has one segment, except the last ones of a run's last step.
type Rows struct {
	bucket.Shape
	Segments int
}

// byLength finds the shortest prefix of the segments that fills all steps. Sorted by length, its segments fill one step
// after the other; each step has as many rows as its longest segment allows. If the steps need fewer segments than the
// prefix has, the window holds the shorter prefix of that number: each of its segments, sorted by length, is no longer
// than the one whose place it takes. So no segment waits, except carried ones beyond the room of the window. The steps
// are in the order of their lengths, longest first.
func (c *Cutter) byLength(units []uint32) (n, bins int) {
	c.Rows = nil
	if len(units) == 0 {
		return 0, 0
	}
	f := newRowFiller(NewLadder(c.in.Capacity), c.in, units)
	n = len(units)
	rows, full := f.fill(n)
	if full {
		least := max(c.least, 1)
		n = least + sort.Search(n-least, func(i int) bool { _, full := f.fill(least + i); return full })
		rows, _ = f.fill(n)
		n = max(c.least, segmentsOf(rows))
	}
	c.place(units[:n], rows, f.ladder)
	c.Rows = rows
	return n, segmentsOf(rows)
}

func segmentsOf(rows []Rows) (n int) {
	for _, r := range rows {
		n += r.Segments
	}
	return n
}

// rowFiller divides prefixes of a list of segments among steps.
type rowFiller struct {
	ladder Ladder
	in     Window
	rung   []int // of each segment

	// the segments that no step has, while steps take them
	counts []int // by rung
	top    int   // no longer rung has segments
	left   int
}

func newRowFiller(ladder Ladder, in Window, units []uint32) *rowFiller {
	f := &rowFiller{ladder: ladder, in: in, rung: make([]int, len(units)), counts: make([]int, len(ladder))}
	for i, u := range units {
		f.rung[i] = ladder.At(u)
	}
	return f
}

// fill returns the rows of the steps that the first n segments fill, and whether they fill all. Otherwise the last one
// may have free rows.
func (f *rowFiller) fill(n int) (steps []Rows, full bool) {
	f.begin(n)
	for len(steps) < f.in.Steps && f.left > 0 {
		step := Rows{Shape: f.ladder[f.longest()]}
		step.Segments = f.take(int(step.Times) * f.in.Batch)
		steps = append(steps, step)
	}
	if len(steps) == 0 {
		return nil, false
	}
	last := &steps[len(steps)-1]
	full = len(steps) == f.in.Steps && last.Segments == int(last.Times)*f.in.Batch
	last.Times = uint32((last.Segments + f.in.Batch - 1) / f.in.Batch)
	return steps, full
}

// begin puts back the first n segments.
func (f *rowFiller) begin(n int) {
	clear(f.counts)
	for _, r := range f.rung[:n] {
		f.counts[r]++
	}
	f.top, f.left = len(f.ladder)-1, n
}

// longest returns the rung of the longest segment that is left. There must be one.
func (f *rowFiller) longest() int {
	for f.counts[f.top] == 0 {
		f.top--
	}
	return f.top
}

// take takes the longest segments that are left, at most `most`, and returns their number.
func (f *rowFiller) take(most int) (n int) {
	for most = min(most, f.left); n < most; {
		at := f.longest()
		some := min(most-n, f.counts[at])
		f.counts[at] -= some
		n += some
	}
	f.left -= n
	return n
}

// place gives the segments of each step their bins, longest first, and sets the lengths of rows.
func (c *Cutter) place(units []uint32, rows []Rows, ladder Ladder) {
	sorted := order.Counted(units, c.in.Capacity, nil, make([]uint32, c.in.Capacity+2))
	bin := uint32(0)
	for k := range rows {
		rows[k].Length = ladder[ladder.At(units[sorted[bin]])].Length
		for range rows[k].Segments {
			c.Bin[sorted[bin]] = bin
			bin++
		}
	}
	for _, i := range sorted[bin:] {
		c.Bin[i] = NoBin
	}
}
