package megatron

import (
	"encoding/binary"
	"slices"
	"testing"
)

// TestDecodeReadsEveryType: each type's least and largest token ids, and the first value that is none.
func TestDecodeReadsEveryType(t *testing.T) {
	for _, c := range []struct {
		dtype dtype
		good  []int64
		bad   []int64
	}{
		{dtype{"u8", 1, false}, []int64{0, 255}, nil},
		{dtype{"i8", 1, true}, []int64{0, 127}, []int64{-1, -128}},
		{dtype{"u16", 2, false}, []int64{0, 65535}, nil},
		{dtype{"i16", 2, true}, []int64{0, 32767}, []int64{-1}},
		{dtype{"i32", 4, true}, []int64{0, mostToken}, []int64{-1, -1 << 31}},
		{dtype{"i64", 8, true}, []int64{0, mostToken}, []int64{-1, mostToken + 1, 1 << 40}},
	} {
		encode := func(values ...int64) (b []byte) {
			for _, v := range values {
				b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(v))[:c.dtype.size]...)
			}
			return b
		}
		want := []uint32{9}
		for _, v := range c.good {
			want = append(want, uint32(v))
		}
		if got, _, _, ok := c.dtype.decode([]uint32{9}, encode(c.good...)); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", c.dtype.name, got, want)
		}
		for _, bad := range c.bad {
			got, wrong, at, ok := c.dtype.decode([]uint32{9}, encode(append(slices.Clone(c.good), bad)...))
			if ok || wrong != bad || at != len(c.good) || !slices.Equal(got, want) {
				t.Errorf("%s: %v, and value %d at %d, want %d", c.dtype.name, got, wrong, at, bad)
			}
		}
	}
}
