package least

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestHeapSorts: numbers that come and go in turns leave in order.
func TestHeapSorts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var h Heap
	var want []uint64
	for range 20_000 {
		if len(want) > 0 && r.IntN(3) == 0 {
			slices.Sort(want)
			if got := h.Pop(); got != want[0] {
				t.Fatalf("got %d, want %d of %d", got, want[0], len(want))
			}
			want = want[1:]
		} else if len(want) < 60 {
			key := r.Uint64N(100)
			h.Push(key)
			want = append(want, key)
		}
	}
}

// TestOfIsTheLeast: with vectors and without, the least key is found at every place of any number of rows.
func TestOfIsTheLeast(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for rows := range 8 {
		keys := make([]uint32, (rows+1)*Row)
		for place := range keys {
			for i := range keys {
				keys[i] = 1<<31 + r.Uint32N(1<<31)
			}
			keys[place] = r.Uint32N(1 << 31)
			if got, want := Of(keys), ofRows(keys); got != keys[place] || want != keys[place] {
				t.Fatalf("%d at %d of %d: found %d with vectors, %d without", keys[place], place, len(keys), got, want)
			}
		}
	}
}
