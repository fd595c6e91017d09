package constructors

import (
	"math/rand/v2"
	"slices"
	"testing"

	"millrace"
	"millrace/internal/tokenid"
)

// TestUntrainedTokensHaveNoLabel compares with a build of the same ids without marks: only labels and loss masks of
// marked tokens differ.
func TestUntrainedTokensHaveNoLabel(t *testing.T) {
	r := rand.New(rand.NewPCG(21, 22))
	for trial := range 200 {
		shape := millrace.Shape{SequenceLength: 64, MicroBatch: uint32(1 + trial%4), Layout: millrace.Packed,
			TokenDtype: []millrace.TokenDtype{millrace.Int64, millrace.Int32}[trial%2]}
		stride, maskAt := 64, 4
		if trial%5 > 2 {
			shape.Layout, shape.CapTokens, stride, maskAt = millrace.Varlen, 64*shape.MicroBatch, 0, 3
		}
		c := New(shape, 1)
		part, tokens, _ := cut(r, shape, 1)
		marked := make([][]uint32, len(tokens))
		for i := range tokens {
			marked[i] = slices.Clone(tokens[i])
		}
		leaveOut(r, marked)
		ts, size := c.Layout(part)
		plain, got := make([]byte, size), make([]byte, size)
		if err := c.Build(plain, ts, part, AllWide(tokens), nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Build(got, ts, part, AllWide(marked), nil); err != nil {
			t.Fatal(err)
		}
		for i, a := range part {
			for k := range int(a.Length) {
				if k+1 == len(marked[i]) || marked[i][k+1]&tokenid.Untrained == 0 {
					continue
				}
				column := int(a.Row)*stride + int(a.Start) + k
				if at(got, ts[1], column) != ignored || at(got, ts[maskAt], column) != 0 {
					t.Fatalf("trial %d: the label at column %d of an untrained token counts", trial, column)
				}
				set(plain, ts[1], column, ignored)
				set(plain, ts[maskAt], column, 0)
			}
		}
		if !slices.Equal(plain, got) {
			t.Fatalf("trial %d: marks change more than labels and masks", trial)
		}
	}
}

// set writes element i of a tensor.
func set(frame []byte, t Tensor, i int, v int64) {
	switch t.Dtype {
	case "<i8":
		view[int64](frame, t)[i] = v
	case "<i4":
		view[int32](frame, t)[i] = int32(v)
	default:
		view[float32](frame, t)[i] = float32(v)
	}
}
