package constructors

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"millrace"
)

// TestBareIsTheWholeWithoutTokens: a bare collator builds the tensors of the whole batch that need no tokens, without
// tokens, in any layout and also for masked segments.
func TestBareIsTheWholeWithoutTokens(t *testing.T) {
	r := rand.New(rand.NewPCG(11, 12))
	for trial := range 300 {
		cp := uint32(1 + trial%3)
		pad := 2 * cp
		shape := millrace.Shape{SequenceLength: pad * 9, MicroBatch: 3, TokenDtype: millrace.Int64, CP: cp}
		if trial%2 == 0 {
			shape.Layout, shape.CapTokens, shape.TokenDtype = millrace.Varlen, pad*20, millrace.Int32
			shape.Local = cp > 1 && trial%4 == 0
		}
		part, tokens, masked := fill(r, shape, pad)
		for i := range part {
			if shape.Local && r.IntN(3) > 0 {
				part[i].Holder = 1 + r.Uint32N(cp)
			}
		}
		if trial%20 == 0 { // a microbatch with nothing in it
			part, tokens, masked = nil, nil, nil
		}
		c := New(shape, pad).For(r.Uint32N(cp))
		tensors, size := c.Layout(part)
		whole := make([]byte, size)
		if err := c.Build(whole, tensors, part, AllWide(tokens), masked); err != nil {
			t.Fatal(err)
		}
		bare := c.Bare()
		bare.workers = workers{1 + trial%5, 1 + trial%7}
		fewer, less := bare.Layout(part)
		got := bytes.Repeat([]byte{0xa5}, int(less))
		if err := bare.Build(got, fewer, part, make([]Tokens, len(part)), nil); err != nil {
			t.Fatal(err)
		}
		if len(fewer) != len(tensors)-3 || less >= size {
			t.Fatalf("trial %d: %d of %d tensors, %d of %d bytes", trial, len(fewer), len(tensors), less, size)
		}
		for _, x := range fewer {
			want := named(tensors, x.Name)
			if !bytes.Equal(got[x.Offset:x.Offset+x.Bytes], whole[want.Offset:want.Offset+want.Bytes]) {
				t.Fatalf("trial %d, %s: %v, want %v", trial, x.Name, values(got, x), values(whole, want))
			}
		}
	}
}
