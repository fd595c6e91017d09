package constructors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
)

// document returns token j of document d. The value identifies d and j.
func document(d, j int) uint32 { return uint32(d*10_000 + j + 1) }

type piece struct{ doc, offset, length, total int }

// cut makes random documents, cuts them at the sequence length and places them in rows. It returns assignments and
// tokens.
func cut(r *rand.Rand, shape millrace.Shape, pad uint32) ([]millrace.Assignment, [][]uint32, []piece) {
	var part []millrace.Assignment
	var tokens [][]uint32
	var pieces []piece
	row, col := uint32(0), uint32(0)
	rows, width := shape.MicroBatch, shape.SequenceLength
	if shape.Layout == millrace.Varlen {
		rows, width = 1, shape.CapTokens
	}
	for d := 0; row < rows; d++ {
		total := 1 + r.IntN(40)
		for offset := 0; offset < total; {
			n := min(total-offset, 1+r.IntN(20))
			padded := (uint32(n) + pad - 1) / pad * pad
			if col+padded > width {
				if row++; row == rows {
					return part, tokens, pieces
				}
				col = 0
				continue
			}
			a := millrace.Assignment{
				Row:   row,
				Start: col,
				Segment: millrace.Segment{
					Ordinal: millrace.Ordinal(d),
					Offset:  uint32(offset),
					Length:  uint32(n),
					More:    offset+n < total,
				},
			}
			var toks []uint32
			for j := offset; j < min(offset+n+1, total); j++ {
				toks = append(toks, document(d, j))
			}
			part, tokens, pieces = append(part, a), append(tokens, toks), append(pieces, piece{d, offset, n, total})
			col += padded
			offset += n
			if r.IntN(5) == 0 {
				col += pad
			}
		}
	}
	return part, tokens, pieces
}

// at reads element i of a tensor as int64.
func at(frame []byte, t Tensor, i int) int64 {
	switch t.Dtype {
	case "<i8":
		return int64(binary.LittleEndian.Uint64(frame[t.Offset+8*int64(i):]))
	case "<i4":
		return int64(int32(binary.LittleEndian.Uint32(frame[t.Offset+4*int64(i):])))
	default:
		return int64(math.Float32frombits(binary.LittleEndian.Uint32(frame[t.Offset+4*int64(i):])))
	}
}

// TestBuildAgainstElementByElement computes every element by its definition, and compares, over a frame with old
// content.
func TestBuildAgainstElementByElement(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for trial := range 400 {
		shape := millrace.Shape{
			SequenceLength: 64,
			MicroBatch:     uint32(1 + trial%4),
			Layout:         millrace.Packed,
			TokenDtype:     millrace.Int64,
		}
		if trial%2 == 1 {
			shape.TokenDtype = millrace.Int32
		}
		pad := uint32(1 + trial%3)
		if trial%5 > 2 {
			shape.Layout, shape.CapTokens = millrace.Varlen, 64*shape.MicroBatch
		}
		c := New(shape, pad)
		part, tokens, pieces := cut(r, shape, pad)
		tensors, size := c.Layout(part)
		if size > c.MaxBytes() {
			t.Fatalf("frame of %d bytes, most %d", size, c.MaxBytes())
		}
		frame := make([]byte, c.MaxBytes())
		for i := range frame {
			frame[i] = byte(r.Uint32())
		}
		if err := c.Build(frame, tensors, part, AllWide(tokens), nil); err != nil {
			t.Fatal(err)
		}
		if shape.Layout == millrace.Varlen {
			checkVarlen(t, frame, tensors, part, pieces, pad)
		} else {
			checkPacked(t, frame, tensors, part, pieces, shape)
		}
	}
}

// TestMaskedSegmentsKeepTheirPlace compares with a build without masks. Outside of the masked segments nothing differs.
// Inside, only tokens, labels and loss mask differ.
func TestMaskedSegmentsKeepTheirPlace(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for trial := range 200 {
		shape := millrace.Shape{SequenceLength: 64, MicroBatch: 3, Layout: millrace.Packed, TokenDtype: millrace.Int64}
		if trial%2 == 1 {
			shape.Layout, shape.CapTokens, shape.TokenDtype = millrace.Varlen, 192, millrace.Int32
		}
		pad := uint32(1 + trial%3)
		c := New(shape, pad)
		part, tokens, _ := cut(r, shape, pad)
		masked, given := make([]bool, len(part)), make([][]uint32, len(part))
		inside := map[int]bool{}
		for i, a := range part {
			if given[i], masked[i] = tokens[i], r.IntN(4) == 0; !masked[i] {
				continue
			}
			given[i] = nil
			row := 0
			if shape.Layout == millrace.Packed {
				row = int(a.Row * shape.SequenceLength)
			}
			for j := range int(a.Length) {
				inside[row+int(a.Start)+j] = true
			}
		}
		ts, size := c.Layout(part)
		whole, got := make([]byte, size), make([]byte, size)
		for i := range got {
			got[i] = byte(r.Uint32())
		}
		err := errors.Join(
			c.Build(whole, ts, part, AllWide(tokens), nil),
			c.Build(got, ts, part, AllWide(given), masked),
		)
		if err != nil {
			t.Fatal(err)
		}
		ofMasked := map[string]int64{"tokens": 0, "labels": ignored, "loss_mask": 0}
		for _, tensor := range ts {
			n := 1
			for _, d := range tensor.Shape {
				n *= d
			}
			for i := range n {
				want := at(whole, tensor, i)
				if value, changes := ofMasked[tensor.Name]; changes && inside[i] {
					want = value
				}
				if is := at(got, tensor, i); is != want {
					t.Fatalf("trial %d: %s[%d] is %d, want %d (masked: %v)", trial, tensor.Name, i, is, want, inside[i])
				}
			}
		}
		if given[0] = nil; !masked[0] && c.Build(got, ts, part, AllWide(given), masked) == nil {
			t.Fatal("tokens that are missing were taken for masked ones")
		}
	}
	c := New(millrace.Shape{SequenceLength: 8, MicroBatch: 1, Layout: millrace.Packed}, 1)
	if c.Build(make([]byte, 4096), must(c.Layout(nil)), nil, nil, []bool{true}) == nil {
		t.Error("a mask of no segment was accepted")
	}
}

func must(ts []Tensor, _ int64) []Tensor { return ts }

type want struct{ token, label, position, id, mask int64 }

func wants(n, stride int, part []millrace.Assignment, pieces []piece) []want {
	out := make([]want, n)
	for i := range out {
		out[i] = want{label: -100}
	}
	ids := map[uint32]int64{}
	for i, a := range part {
		ids[a.Row]++
		p := pieces[i]
		for j := range p.length {
			w := want{token: int64(document(p.doc, p.offset+j)), position: int64(j), id: ids[a.Row], label: -100}
			if p.offset+j+1 < p.total {
				w.label, w.mask = int64(document(p.doc, p.offset+j+1)), 1
			}
			out[int(a.Row)*stride+int(a.Start)+j] = w
		}
	}
	return out
}

func checkPacked(
	t *testing.T, frame []byte, ts []Tensor, part []millrace.Assignment, pieces []piece, shape millrace.Shape,
) {
	t.Helper()
	for i, w := range wants(int(shape.MicroBatch*shape.SequenceLength), int(shape.SequenceLength), part, pieces) {
		got := want{
			at(frame, ts[0], i),
			at(frame, ts[1], i),
			at(frame, ts[2], i),
			at(frame, ts[3], i),
			at(frame, ts[4], i),
		}
		if got != w {
			t.Fatalf("element %d: got %+v, want %+v", i, got, w)
		}
	}
}

func checkVarlen(t *testing.T, frame []byte, ts []Tensor, part []millrace.Assignment, pieces []piece, pad uint32) {
	t.Helper()
	n := ts[0].Shape[0]
	for i, w := range wants(n, 0, part, pieces) {
		w.id = 0
		got := want{
			token:    at(frame, ts[0], i),
			label:    at(frame, ts[1], i),
			position: at(frame, ts[2], i),
			mask:     at(frame, ts[3], i),
		}
		if got != w {
			t.Fatalf("element %d: got %+v, want %+v", i, got, w)
		}
	}
	longest := int64(0)
	for i, a := range part {
		if at(frame, ts[4], i) != int64(a.Start) {
			t.Fatalf("cu_seqlens[%d] = %d, want %d", i, at(frame, ts[4], i), a.Start)
		}
		longest = max(longest, at(frame, ts[4], i+1)-at(frame, ts[4], i))
	}
	if end := at(frame, ts[4], len(part)); end != int64(n) || at(frame, ts[5], 0) != longest {
		t.Fatalf("cu_seqlens ends at %d of %d, max_seqlen %d, want %d", end, n, at(frame, ts[5], 0), longest)
	}
}

func TestEmptyVarlenMicrobatchHoldsOneMaskedToken(t *testing.T) {
	c := New(
		millrace.Shape{
			SequenceLength: 8,
			MicroBatch:     1,
			Layout:         millrace.Varlen,
			CapTokens:      8,
			TokenDtype:     millrace.Int64,
		},
		1,
	)
	ts, size := c.Layout(nil)
	frame := make([]byte, size)
	for i := range frame {
		frame[i] = 0xff
	}
	if err := c.Build(frame, ts, nil, nil, nil); err != nil {
		t.Fatal(err)
	}
	if ts[0].Shape[0] != 1 || at(frame, ts[0], 0) != 0 || at(frame, ts[1], 0) != -100 || at(frame, ts[3], 0) != 0 ||
		at(frame, ts[4], 0) != 0 || at(frame, ts[4], 1) != 1 || at(frame, ts[5], 0) != 1 {
		t.Fatalf("got %v", frame)
	}
}

// TestBuildRefuses: a wrong plan or reply is an error, and Build writes nothing out of bounds.
func TestBuildRefuses(t *testing.T) {
	c := New(millrace.Shape{SequenceLength: 8, MicroBatch: 2, Layout: millrace.Packed, TokenDtype: millrace.Int64}, 1)
	seg := func(row, start, length uint32) millrace.Assignment {
		return millrace.Assignment{Row: row, Start: start, Segment: millrace.Segment{Length: length}}
	}
	three := []uint32{1, 2, 3}
	for name, x := range map[string]struct {
		part   []millrace.Assignment
		tokens [][]uint32
	}{
		"row":        {[]millrace.Assignment{seg(2, 0, 3)}, [][]uint32{three}},
		"column":     {[]millrace.Assignment{seg(0, 6, 3)}, [][]uint32{three}},
		"overlap":    {[]millrace.Assignment{seg(0, 0, 3), seg(0, 2, 3)}, [][]uint32{three, three}},
		"order":      {[]millrace.Assignment{seg(1, 0, 3), seg(0, 0, 3)}, [][]uint32{three, three}},
		"short":      {[]millrace.Assignment{seg(0, 0, 4)}, [][]uint32{three}},
		"long":       {[]millrace.Assignment{seg(0, 0, 2)}, [][]uint32{three}},
		"missing":    {[]millrace.Assignment{seg(0, 0, 3)}, nil},
		"no tokens":  {[]millrace.Assignment{seg(0, 0, 0)}, [][]uint32{nil}},
		"wraparound": {[]millrace.Assignment{seg(0, math.MaxUint32, 3)}, [][]uint32{three}},
	} {
		ts, size := c.Layout(x.part)
		if err := c.Build(make([]byte, size), ts, x.part, AllWide(x.tokens), nil); err == nil {
			t.Errorf("%s was accepted", name)
		}
	}
	ts, size := c.Layout(nil)
	if err := c.Build(make([]byte, size-1), ts, nil, nil, nil); err == nil {
		t.Error("a short frame was accepted")
	}
}

func BenchmarkBuildPacked(b *testing.B) {
	shape := millrace.Shape{SequenceLength: 2048, MicroBatch: 8, Layout: millrace.Packed, TokenDtype: millrace.Int64}
	c := New(shape, 1)
	part, tokens, _ := cut(rand.New(rand.NewPCG(1, 1)), shape, 1)
	ts, size := c.Layout(part)
	frame := make([]byte, size)
	b.SetBytes(int64(shape.MicroBatch*shape.SequenceLength) * 4)
	for b.Loop() {
		if err := c.Build(frame, ts, part, AllWide(tokens), nil); err != nil {
			b.Fatal(err)
		}
	}
}

// TestNarrowTokensBuildTheSameBatch: 16-bit ids give the bytes of the same ids in 32 bits.
func TestNarrowTokensBuildTheSameBatch(t *testing.T) {
	for _, dtype := range []millrace.TokenDtype{millrace.Int32, millrace.Int64} {
		c := New(millrace.Shape{SequenceLength: 64, MicroBatch: 1, TokenDtype: dtype}, 1)
		var part []millrace.Assignment
		var wide, narrow []Tokens
		start := uint32(0)
		for n := range uint32(10) { // lengths around the unrolled loop's
			a := millrace.Assignment{Start: start, Segment: millrace.Segment{Length: n + 1, More: n%2 == 0}}
			ids32, ids16 := make([]uint32, planned(a)), make([]uint16, planned(a))
			for i := range ids32 {
				ids16[i] = uint16(65535 - 7919*i*int(n+1))
				ids32[i] = uint32(ids16[i])
			}
			part, start = append(part, a), start+n+1
			wide, narrow = append(wide, Wide(ids32)), append(narrow, Narrow(ids16))
			if !slices.Equal(narrow[n].IDs(), ids32) || narrow[n].IsNone() {
				t.Fatalf("%v is not %v", narrow[n].IDs(), ids32)
			}
		}
		tensors, size := c.Layout(part)
		want, got := make([]byte, size), make([]byte, size)
		err := errors.Join(c.Build(want, tensors, part, wide, nil), c.Build(got, tensors, part, narrow, nil))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s: %v, want %v", dtype, got, want)
		}
	}
}

// planned returns the number of ids that come with a segment.
func planned(a millrace.Assignment) int {
	if a.More {
		return int(a.Length) + 1
	}
	return int(a.Length)
}
