package pack

import "math/bits"

// MaxUnits is the most units of a bin: bitmapLevels levels of 64 reach 2^24 numbers.
const (
	MaxUnits     = 1<<24 - 1
	bitmapLevels = 4
)

// bitmap is a set of small numbers with a constant-time successor. Level 0 has one bit a number. A bit of level l+1 is
// set if a word of level l is not zero.
type bitmap struct {
	levels [bitmapLevels][]uint64
}

func newBitmap(size uint32) *bitmap {
	b := &bitmap{}
	n := int(size)
	for l := range b.levels {
		n = (n + 63) / 64
		b.levels[l] = make([]uint64, n)
	}
	return b
}

func (b *bitmap) clear() {
	for l := range b.levels {
		clear(b.levels[l])
	}
}

func (b *bitmap) add(i uint32) {
	for l := range b.levels {
		w := &b.levels[l][i>>6]
		was := *w
		*w = was | 1<<(i&63)
		if was != 0 {
			return // the levels above have this word already
		}
		i >>= 6
	}
}

func (b *bitmap) remove(i uint32) {
	for l := range b.levels {
		w := &b.levels[l][i>>6]
		*w &^= 1 << (i & 63)
		if *w != 0 {
			return
		}
		i >>= 6
	}
}

// next returns the smallest member that is at least i.
func (b *bitmap) next(i uint32) (uint32, bool) {
	l := 0
	for {
		words := b.levels[l]
		if int(i>>6) >= len(words) {
			return 0, false
		}
		if m := words[i>>6] >> (i & 63); m != 0 {
			i += uint32(bits.TrailingZeros64(m))
			break
		}
		if l++; l == bitmapLevels {
			return 0, false
		}
		i = i>>6 + 1
	}
	for l > 0 {
		l--
		i = i<<6 + uint32(bits.TrailingZeros64(b.levels[l][i]))
	}
	return i, true
}
