package constructors

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"millrace"
)

// TestPartsDrawTheSameBatch: a microbatch that several goroutines write has the bytes of one that one goroutine writes.
func TestPartsDrawTheSameBatch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for trial := range 400 {
		cp := uint32(1 + trial%3)
		pad := 2 * cp
		shape := millrace.Shape{SequenceLength: pad * 9, MicroBatch: 3, TokenDtype: millrace.Int64, CP: cp}
		if trial%2 == 0 {
			shape.Layout, shape.CapTokens = millrace.Varlen, pad*20
		}
		part, tokens, masked := fill(r, shape, pad)
		c := New(shape, pad)
		ts, size := c.Layout(part)
		one, several := make([]byte, size), bytes.Repeat([]byte{0xff}, int(size))
		c.workers = workers{1, 1}
		if err := c.Build(one, ts, part, AllWide(tokens), masked); err != nil {
			t.Fatal(err)
		}
		c.workers = workers{2 + trial%5, 1 + trial%7}
		if err := c.Build(several, ts, part, AllWide(tokens), masked); err != nil {
			t.Fatal(err)
		}
		for _, x := range ts { // the bytes between tensors are not written
			if !bytes.Equal(one[x.Offset:x.Offset+x.Bytes], several[x.Offset:x.Offset+x.Bytes]) {
				t.Fatalf("trial %d: %s differs in %d parts", trial, x.Name, c.workers.parts(len(several)))
			}
		}
	}
}
