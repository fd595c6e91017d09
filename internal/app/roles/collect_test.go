package roles

import "testing"

// TestGrowth: a heap grows by the garbage of a second, between the least growth and 8 MiB.
func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		counted uint64
		rate    float64
		want    int
	}{
		{8 << 20, 0, 40},
		{8 << 20, 1 << 20, 40},
		{8 << 20, 6 << 20, 75},
		{8 << 20, 60 << 20, 100},
		{2 << 20, 60 << 20, 400},
		{100 << 20, 60 << 20, 40},
		{0, 0, 40},
	} {
		if got := growth(quietGrowth, c.counted, c.rate); got != c.want {
			t.Errorf("%d bytes that grow by %.0f a second: %d %%, want %d", c.counted, c.rate, got, c.want)
		}
	}
}

// TestReadHeap: the runtime has all the figures.
func TestReadHeap(t *testing.T) {
	if h := readHeap(); h.made == 0 || h.counted == 0 {
		t.Errorf("the heap is %+v", h)
	}
}
