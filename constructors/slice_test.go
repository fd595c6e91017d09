package constructors

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"millrace"
	"millrace/internal/tokenid"
)

// column has the values of all tensors at one place.
type column struct{ token, label, position, id, mask int64 }

var nothing = column{label: ignored}

// columns reads a microbatch back, row by row.
func columns(frame []byte, ts []Tensor) [][]column {
	shape := ts[0].Shape
	rows, width, mask := 1, shape[0], ts[3]
	if len(shape) == 2 {
		rows, width, mask = shape[0], shape[1], ts[4]
	}
	out := make([][]column, rows)
	for i := range rows * width {
		c := column{
			token:    at(frame, ts[0], i),
			label:    at(frame, ts[1], i),
			position: at(frame, ts[2], i),
			mask:     at(frame, mask, i),
		}
		if len(shape) == 2 {
			c.id = at(frame, ts[3], i)
		}
		out[i/width] = append(out[i/width], c)
	}
	return out
}

// zigzag returns the chunks of rank r of n, by the definition: two of 2n equal chunks.
func zigzag(row []column, n, r int) []column {
	chunk := len(row) / (2 * n)
	return slices.Concat(row[r*chunk:(r+1)*chunk], row[(2*n-1-r)*chunk:(2*n-r)*chunk])
}

// wholeAndSlices builds the whole microbatch for one rank, and its slice for every context-parallel rank.
func wholeAndSlices(
	t *testing.T, shape millrace.Shape, pad uint32, part []millrace.Assignment, tokens [][]uint32, masked []bool,
) (whole [][]column, of [][][]column, ts [][]Tensor, frames [][]byte) {
	t.Helper()
	build := func(c *Collator, part []millrace.Assignment) ([][]column, []Tensor, []byte) {
		tensors, size := c.Layout(part)
		if most := c.MaxBytes(); size > most {
			t.Fatalf("a frame of %d bytes, at most %d were promised", size, most)
		}
		frame := make([]byte, size)
		for i := range frame {
			frame[i] = 0xa5
		}
		if err := c.Build(frame, tensors, part, AllWide(tokens), masked); err != nil {
			t.Fatal(err)
		}
		return columns(frame, tensors), tensors, frame
	}
	alone, shared := shape, slices.Clone(part)
	alone.CP, alone.Local = 0, false
	for i := range shared {
		shared[i].Holder = 0
	}
	whole, _, _ = build(New(alone, pad), shared)
	for r := range shape.CP {
		got, tensors, frame := build(New(shape, pad).For(r), part)
		of, ts, frames = append(of, got), append(ts, tensors), append(frames, frame)
	}
	return whole, of, ts, frames
}

// TestSlicesAgainstChunks: every context-parallel rank has its two chunks of each document's padded place, and its part
// of the padding after the last document. Labels equal the labels of the whole microbatch, also at the borders of
// chunks.
func TestSlicesAgainstChunks(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for trial := range 320 {
		cp := uint32(1 + trial%8)
		pad := 2 * cp * uint32(1+trial%3)
		shape := millrace.Shape{
			SequenceLength: pad * (4 + r.Uint32N(6)),
			MicroBatch:     1 + r.Uint32N(3),
			Layout:         millrace.Packed,
			TokenDtype:     millrace.Int64,
			CP:             cp,
		}
		if trial%2 == 1 {
			shape.TokenDtype = millrace.Int32
		}
		if trial%5 < 2 {
			shape.Layout, shape.CapTokens = millrace.Varlen, shape.SequenceLength*shape.MicroBatch
		}
		part, tokens, masked := fill(r, shape, pad)
		whole, of, ts, frames := wholeAndSlices(t, shape, pad, part, tokens, masked)
		for rank := range int(cp) {
			for row := range whole {
				want, end := []column(nil), 0
				for _, a := range part {
					if int(a.Row) == row {
						end = int(a.Start + (a.Length+pad-1)/pad*pad)
						want = append(want, zigzag(whole[row][a.Start:end], int(cp), rank)...)
					}
				}
				for range max((len(whole[row])-end)/int(cp), 0) {
					want = append(want, nothing)
				}
				if len(part) == 0 && shape.Layout == millrace.Varlen && cp > 1 {
					want = []column{nothing, nothing}
				}
				if !slices.Equal(of[rank][row], want) {
					t.Fatalf("trial %d, rank %d of %d, row %d:\n%v, want\n%v", trial, rank, cp, row, of[rank][row],
						want)
				}
			}
			if shape.Layout == millrace.Varlen {
				checkBounds(t, frames[rank], ts[rank], part, pad, int(cp))
			}
		}
	}
}

// checkBounds checks that cu_seqlens describes the whole microbatch on every rank.
func checkBounds(t *testing.T, frame []byte, ts []Tensor, part []millrace.Assignment, pad uint32, cp int) {
	t.Helper()
	want := []int64{0}
	for _, a := range part {
		want = append(want, int64(a.Start+(a.Length+pad-1)/pad*pad))
	}
	if len(part) == 0 {
		want = append(want, int64(max(1, 2*cp*min(1, cp-1))))
	}
	if got := values(frame, ts[4]); !slices.Equal(got, want) || int64(ts[0].Shape[0]*cp) != want[len(want)-1] {
		t.Fatalf("cu_seqlens %v, want %v; %d tokens on each of %d ranks", got, want, ts[0].Shape[0], cp)
	}
}

func values(frame []byte, t Tensor) (out []int64) {
	for i := range t.Bytes / 4 {
		out = append(out, at(frame, t, int(i)))
	}
	return out
}

// fill places random segments one after the other, as plans do. Some microbatches stay empty.
func fill(
	r *rand.Rand, shape millrace.Shape, pad uint32,
) (part []millrace.Assignment, tokens [][]uint32, masked []bool) {
	rows, width := shape.MicroBatch, shape.SequenceLength
	if shape.Layout == millrace.Varlen {
		rows, width = 1, shape.CapTokens
	}
	if r.IntN(8) == 0 {
		return nil, nil, nil
	}
	for row := range rows {
		for col := uint32(0); col < width; {
			n := 1 + r.Uint32N(min(width-col, shape.SequenceLength))
			a := millrace.Assignment{
				Row:     row,
				Start:   col,
				Segment: millrace.Segment{Ordinal: millrace.Ordinal(len(part)), Length: n, More: r.IntN(2) == 0},
			}
			toks := make([]uint32, n, n+1)
			if a.More {
				toks = append(toks, 0)
			}
			for j := range toks {
				toks[j] = document(len(part), j)
			}
			part, tokens, masked = append(part, a), append(tokens, toks), append(masked, r.IntN(6) == 0)
			col += (n + pad - 1) / pad * pad
			if r.IntN(6) == 0 {
				break
			}
		}
	}
	return part, tokens, masked
}

// TestHeldDocuments: with documents that one rank holds whole, all ranks together have every column of the microbatch
// once. Slices come first, bounded by cu_seqlens. Held documents follow, bounded by cu_seqlens_local.
func TestHeldDocuments(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for trial := range 200 {
		cp := uint32(2 + trial%4)
		pad := 2 * cp
		shape := millrace.Shape{
			SequenceLength: pad * 6,
			MicroBatch:     2,
			Layout:         millrace.Varlen,
			TokenDtype:     millrace.Int64,
			CapTokens:      pad * 12,
			CP:             cp,
			Local:          true,
		}
		part, tokens, masked := fill(r, shape, pad)
		for i := range part {
			if r.IntN(3) > 0 {
				part[i].Holder = 1 + r.Uint32N(cp)
			}
		}
		whole, of, ts, frames := wholeAndSlices(t, shape, pad, part, tokens, masked)
		for rank := range int(cp) {
			sliced, own := []column(nil), []column(nil)
			cu, local := []int64{0}, []int64{0}
			for _, a := range part {
				place := whole[0][a.Start : a.Start+(a.Length+pad-1)/pad*pad]
				switch int(a.Holder) {
				case 0:
					sliced = append(sliced, zigzag(place, int(cp), rank)...)
					cu = append(cu, cu[len(cu)-1]+int64(len(place)))
				case rank + 1:
					own = append(own, place...)
					local = append(local, local[len(local)-1]+int64(len(place)))
				}
			}
			if len(cu) == 1 {
				sliced, cu = []column{nothing, nothing}, append(cu, int64(2*cp))
			}
			if !slices.Equal(of[rank][0], slices.Concat(sliced, own)) {
				t.Fatalf("trial %d, rank %d of %d: %v, want %v and %v", trial, rank, cp, of[rank][0], sliced, own)
			}
			if got := values(frames[rank], ts[rank][4]); !slices.Equal(got, cu) {
				t.Fatalf("cu_seqlens %v, want %v", got, cu)
			}
			longest := int64(0)
			for i := range local[1:] {
				longest = max(longest, local[i+1]-local[i])
			}
			if got := values(frames[rank], ts[rank][6]); !slices.Equal(got, local) ||
				at(frames[rank], ts[rank][7], 0) != longest {
				t.Fatalf("cu_seqlens_local %v, want %v, the longest %d", got, local, longest)
			}
		}
	}
}

// TestLossIsThatOfTheWhole splits the same segments over data-parallel ranks, context-parallel ranks or both. Every
// split gives the same denominators, and the same sum of a loss that depends on token, label and position.
func TestLossIsThatOfTheWhole(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for trial := range 100 {
		pad := uint32(12) // valid for two and three context-parallel ranks
		shape := millrace.Shape{
			SequenceLength: pad * 24,
			MicroBatch:     2,
			Layout:         millrace.Varlen,
			TokenDtype:     millrace.Int64,
			CapTokens:      pad * 60,
		}
		if trial%2 == 1 {
			shape.Layout = millrace.Packed
		}
		part, tokens, _ := fill(r, shape, pad)
		if trial%4 >= 2 {
			leaveOut(r, tokens)
		}
		want, count := loss(t, New(shape, pad), part, tokens)
		plan := &millrace.Plan{Assignments: part}
		if got := StepLossTokens(plan); got-UntrainedLabels(part, AllWide(tokens), nil) != count ||
			New(shape, pad).LossTokens(part, AllWide(tokens), nil) != count {
			t.Fatalf("trial %d: %d labels, of the plan %d", trial, count, got)
		}
		for _, split := range [][2]uint32{{1, 2}, {1, 3}, {2, 1}, {3, 1}, {2, 2}, {4, 3}, {5, 1}} {
			parts, cp := split[0], split[1]
			sliced := shape
			sliced.CP = cp
			if sliced.Layout == millrace.Packed { // padded chunks need more columns
				sliced.SequenceLength = 4 * shape.SequenceLength
			}
			sum, labels, untrained, all := uint64(0), uint64(0), uint64(0), &millrace.Plan{}
			for p := range parts {
				mine, given := split1(part, tokens, parts, p, pad)
				labels += New(sliced, pad).LossTokens(mine, AllWide(given), nil)
				untrained += UntrainedLabels(mine, AllWide(given), nil)
				all.Assignments = append(all.Assignments, mine...)
				for c := range cp {
					s, _ := loss(t, New(sliced, pad).For(c), mine, given)
					sum += s
				}
			}
			if sum != want || labels != count || StepLossTokens(all)-untrained != count {
				t.Fatalf("trial %d, %v: loss %d of %d labels (of the step %d), want %d of %d", trial, split, sum,
					labels, StepLossTokens(all)-untrained, want, count)
			}
		}
	}
}

// leaveOut marks runs of the tokens as untrained.
func leaveOut(r *rand.Rand, tokens [][]uint32) {
	for _, ids := range tokens {
		marked := r.IntN(2) == 0
		for i := range ids {
			if r.IntN(4) == 0 {
				marked = !marked
			}
			if marked {
				ids[i] |= tokenid.Untrained
			}
		}
	}
}

// split1 returns the part of data-parallel rank p: its slices of the longer segments, which are split, and some of the
// other segments.
func split1(
	part []millrace.Assignment, tokens [][]uint32, parts, p, pad uint32,
) (out []millrace.Assignment, given [][]uint32) {
	row, start := uint32(0), uint32(0)
	for i, a := range part {
		if a.Row != row {
			row, start = a.Row, 0
		}
		a.Start = start
		if a.Length > pad && parts > 1 {
			a.Part, a.Parts = p, parts
		} else if uint32(i)%parts != p {
			continue
		}
		start += a.Columns(pad)
		out, given = append(out, a), append(given, tokens[i])
	}
	return out, given
}

// loss returns the sum of a function of every label that counts, and their number.
func loss(t *testing.T, c *Collator, part []millrace.Assignment, tokens [][]uint32) (sum, labels uint64) {
	t.Helper()
	ts, size := c.Layout(part)
	frame := make([]byte, size)
	if err := c.Build(frame, ts, part, AllWide(tokens), nil); err != nil {
		t.Fatal(err)
	}
	for _, row := range columns(frame, ts) {
		for _, x := range row {
			if (x.label != ignored) != (x.mask == 1) {
				t.Fatalf("mask and label differ: %+v", x)
			}
			if x.label != ignored {
				sum += uint64(x.token)*1_000_003 ^ uint64(x.label)*7919 ^ uint64(x.position)<<40
				labels++
			}
		}
	}
	return sum, labels
}

// TestSlicesRefused: segments that cannot be cut into equal chunks, and segments without a holder, are errors.
func TestSlicesRefused(t *testing.T) {
	shape := millrace.Shape{
		SequenceLength: 48,
		MicroBatch:     1,
		Layout:         millrace.Varlen,
		CapTokens:      48,
		TokenDtype:     millrace.Int64,
		CP:             2,
	}
	local := shape
	local.Local = true
	seg := func(start, length, part, parts, holder uint32) []millrace.Assignment {
		return []millrace.Assignment{
			{Start: start, Segment: millrace.Segment{Length: length}, Part: part, Parts: parts, Holder: holder},
		}
	}
	for name, x := range map[string]struct {
		c    *Collator
		part []millrace.Assignment
	}{
		"pad multiple":       {New(shape, 2), seg(0, 6, 0, 0, 0)},
		"start":              {New(shape, 4), seg(1, 4, 0, 0, 0)},
		"part":               {New(shape, 12), seg(0, 12, 3, 3, 0)},
		"part of none":       {New(shape, 12), seg(0, 12, 1, 0, 0)},
		"holder":             {New(local, 4), seg(0, 4, 0, 0, 3)},
		"holder of a shape":  {New(shape, 4), seg(0, 4, 0, 0, 1)},
		"held and split":     {New(local, 12), seg(0, 12, 0, 3, 1)},
		"more than there is": {New(shape, 4), seg(math32, 4, 0, 0, 0)},
	} {
		ts, size := x.c.Layout(seg(0, 12, 0, 0, 0))
		tokens := [][]uint32{make([]uint32, x.part[0].Length)}
		if err := x.c.Build(make([]byte, size), ts, x.part, AllWide(tokens), nil); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
}

const math32 = 1<<32 - 4

func Example_zigzag() {
	shape := millrace.Shape{
		SequenceLength: 12,
		MicroBatch:     1,
		Layout:         millrace.Packed,
		TokenDtype:     millrace.Int64,
		CP:             2,
	}
	part := []millrace.Assignment{{Segment: millrace.Segment{Length: 7}}}
	for rank := range shape.CP {
		c := New(shape, 4).For(rank)
		ts, size := c.Layout(part)
		frame := make([]byte, size)
		if err := c.Build(frame, ts, part, AllWide([][]uint32{{10, 11, 12, 13, 14, 15, 16}}), nil); err != nil {
			fmt.Println(err)
		}
		var line []string
		for _, x := range columns(frame, ts)[0] {
			line = append(line, fmt.Sprint(x.token, "→", x.label))
		}
		fmt.Println(strings.Join(line, " "))
	}
	// Output:
	// 10→11 11→12 16→-100 0→-100 0→-100 0→-100
	// 12→13 13→14 14→15 15→16 0→-100 0→-100
}
