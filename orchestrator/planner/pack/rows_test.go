package pack

import (
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
	"millrace/internal/bucket"
)

// dumbRows divides the first n segments among steps by sorting them.
func dumbRows(units []uint32, n int, in Window) (steps []Rows, full bool) {
	sorted := slices.Clone(units[:n])
	slices.Sort(sorted)
	slices.Reverse(sorted)
	for len(steps) < in.Steps && len(sorted) > 0 {
		var step Rows
		for _, b := range bucket.Shapes(bucket.Tokens, in.Capacity) {
			if b.Length >= sorted[0] {
				step.Shape = b
				break
			}
		}
		step.Segments = min(int(step.Times)*in.Batch, len(sorted))
		full = len(steps)+1 == in.Steps && step.Segments == int(step.Times)*in.Batch
		if step.Segments < int(step.Times)*in.Batch {
			step.Times = uint32((step.Segments + in.Batch - 1) / in.Batch)
		}
		sorted = sorted[step.Segments:]
		steps = append(steps, step)
	}
	return steps, full
}

// TestTokenRows compares the rows of prefixes with those of a dumb program. The window holds each of its segments once,
// in a row that is long enough and no longer than a rung above the step's longest segment.
func TestTokenRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 11))
	var c Cutter
	for round := range 3000 {
		in := Window{
			Packing:  millrace.Bucketed,
			Rows:     bucket.Tokens,
			Capacity: 1 + rng.Uint32N(1<<(1+rng.IntN(12))),
			Batch:    1 + rng.IntN(8),
			Steps:    1 + rng.IntN(6),
		}
		units := make([]uint32, rng.IntN(200))
		for i := range units {
			units[i] = 1 + rng.Uint32N(1+rng.Uint32N(in.Capacity))
		}
		f := newRowFiller(NewLadder(in.Capacity), in, units)
		for range 5 {
			n := rng.IntN(len(units) + 1)
			got, full := f.fill(n)
			if want, all := dumbRows(units, n, in); !slices.Equal(got, want) || full != all {
				t.Fatalf(
					"round %d: the first %d of %v in %+v: %v, %v, want %v, %v",
					round,
					n,
					units,
					in,
					got,
					full,
					want,
					all,
				)
			}
		}
		ages := make([]uint32, rng.IntN(2)*rng.IntN(len(units)+1))
		checkTokenRows(t, &c, units, in, ages)
	}
}

func checkTokenRows(t *testing.T, c *Cutter, units []uint32, in Window, ages []uint32) {
	n, bins := c.Cut(units, in, ages, nil)
	used := make([]uint32, bins)
	waits := 0
	for i := range n {
		if c.Bin[i] == NoBin {
			waits++
			continue
		}
		if used[c.Bin[i]] != 0 {
			t.Fatalf("row %d has two segments", c.Bin[i])
		}
		used[c.Bin[i]] = units[i]
	}
	_, full := dumbRows(units, len(units), in)
	if waits > 0 && n != len(ages) || n < len(ages) || !full && n+waits != len(units) {
		t.Fatalf("%d of %d segments, %d carried; %d wait", n, len(units), len(ages), waits)
	}
	at := 0
	for k, r := range c.Rows {
		longest := slices.Max(used[at : at+r.Segments])
		if ladder := NewLadder(in.Capacity); r.Length != ladder[ladder.At(longest)].Length ||
			r.Times*r.Length > in.Capacity || slices.Contains(used[at:at+r.Segments], 0) {
			t.Fatalf("step %d of %+v: rows %+v for a segment of %d", k, in, r, longest)
		}
		if free := int(r.Times)*in.Batch - r.Segments; free < 0 || free >= in.Batch ||
			free > 0 && (full || k < len(c.Rows)-1) {
			t.Fatalf("step %d has %d free rows of %d", k, free, int(r.Times)*in.Batch)
		}
		at += r.Segments
	}
	if at != bins || full && len(c.Rows) != in.Steps {
		t.Fatalf("%d rows in %d steps, want %d in %d", at, len(c.Rows), bins, in.Steps)
	}
}
