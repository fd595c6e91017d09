package bucket_test

import (
	"math/rand/v2"
	"testing"

	"millrace/internal/bucket"
)

// TestBucketsHoldASequence: under both rules lengths rise up to the whole sequence, and the rows that replace a
// sequence fit into it with less than one row to spare.
func TestBucketsHoldASequence(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 9))
	for range 2000 {
		length := 1 + rng.Uint32N(1<<(1+rng.IntN(24)))
		for _, rule := range []bucket.Rule{bucket.Tokens, bucket.Constant} {
			list := bucket.Shapes(rule, length)
			if last := list[len(list)-1]; last != (bucket.Shape{Length: length, Times: 1}) || len(list) > 260 {
				t.Fatalf("%s: %d shapes for %d, the longest %v", rule, len(list), length, last)
			}
			shortest := uint32(1)
			for i, b := range list {
				if i > 0 {
					shortest = list[i-1].Length + 1
				}
				if b.Length < shortest || b.Times < 1 || uint64(b.Times)*uint64(b.Length) > uint64(length) {
					t.Fatalf("%s: shape %d of %d is %v", rule, i, length, b)
				}
				if rule == bucket.Constant && (b.Times != 1 || length%b.Length != 0) {
					t.Fatalf("shape %d of %d is %v", i, length, b)
				}
				if rule == bucket.Tokens && ((b.Times+1)*b.Length <= length ||
					i > 0 && (b.Length-shortest)*32 > shortest) {
					t.Fatalf("shape %d of %d is %v, and a segment may have %d", i, length, b, shortest)
				}
			}
		}
	}
}
