package roles

import "testing"

// TestGrowth: a heap grows by the garbage of two seconds, by 10 % at least, and by 40 % or 8 MiB at most.
func TestGrowth(t *testing.T) {
	for _, c := range []struct {
		counted uint64
		rate    float64
		want    int
	}{
		{8 << 20, 0, 10},
		{8 << 20, 1 << 20, 25},
		{8 << 20, 3 << 20, 75},
		{8 << 20, 60 << 20, 100},
		{2 << 20, 60 << 20, 400},
		{100 << 20, 3 << 20, 10},
		{100 << 20, 10 << 20, 20},
		{100 << 20, 60 << 20, 40},
		{0, 0, 10},
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
