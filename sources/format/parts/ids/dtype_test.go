package ids

import (
	"encoding/binary"
	"slices"
	"testing"
)

// TestDecodeReadsEveryType: each type's least and largest token ids, and the first value that is none.
func TestDecodeReadsEveryType(t *testing.T) {
	for name, c := range map[string]struct{ good, bad []int64 }{
		"uint8":  {[]int64{0, 255}, nil},
		"int8":   {[]int64{0, 127}, []int64{-1, -128}},
		"uint16": {[]int64{0, 65535}, nil},
		"int16":  {[]int64{0, 32767}, []int64{-1}},
		"int32":  {[]int64{0, mostToken}, []int64{-1, -1 << 31}},
		"uint32": {[]int64{0, mostToken}, []int64{mostToken + 1, 1<<32 - 1}},
		"int64":  {[]int64{0, mostToken}, []int64{-1, mostToken + 1, 1 << 40}},
		"uint64": {[]int64{0, mostToken}, []int64{-1, mostToken + 1, 1 << 40}},
	} {
		d, ok := ByName(name)
		if !ok || d.isCertain() != (c.bad == nil) {
			t.Fatalf("%s is known: %v, and certain: %v", name, ok, d.isCertain())
		}
		encode := func(values ...int64) (b []byte) {
			for _, v := range values {
				b = append(b, binary.LittleEndian.AppendUint64(nil, uint64(v))[:d.Size]...)
			}
			return b
		}
		want := []uint32{9}
		for _, v := range c.good {
			want = append(want, uint32(v))
		}
		if got, _, _, ok := d.decode([]uint32{9}, encode(c.good...)); !ok || !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
		for _, bad := range c.bad {
			got, wrong, at, ok := d.decode([]uint32{9}, encode(append(slices.Clone(c.good), bad)...))
			if ok || wrong != bad || at != len(c.good) || !slices.Equal(got, want) {
				t.Errorf("%s: %v, and value %d at %d, want %d", name, got, wrong, at, bad)
			}
		}
	}
}
